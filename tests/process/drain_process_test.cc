// The planned end of a node, and the quick one: what was hot is read from the
// others afterwards, the cluster forgets the rest at once, and whatever stops
// or dies meanwhile costs misses and nothing else.
//
// The membership lease is longer than any test: what is forgotten here was not
// forgotten because a lease ran out.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"
#include "yaml-cpp/yaml.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

constexpr int kBlocks = 24;
constexpr int kChains = 8;
constexpr std::uint64_t kChainBytes = kBlocks * kTestBlockBytes;

class DrainProcessTest : public ProcessTest {
 protected:
  void Start(int nodes = 3) {
    StartCluster(
        {.nodes = nodes, .catalog_arguments = {"--catalog-lease", "5m"}});
    writer_ = WorkerAt(cluster(), 1);
  }
  // Chains 1 to kChains at node 1, of which `hot` are read last.
  void Fill(const std::vector<int>& hot) {
    for (int chain = 1; chain <= kChains; ++chain) {
      ASSERT_EQ(writer_->Do(StrCat("write ", chain, " ", kBlocks,
                                   " published"))["write_stored"],
                kBlocks);
    }
    for (const int chain : hot) {
      ASSERT_EQ(ReadAt(writer_.get(), chain)["hit"], kBlocks);
    }
  }
  static Reply ReadAt(Worker* worker, int chain) {
    return worker->Do(StrCat("read ", chain, " ", kBlocks));
  }
  // `firnkv node drain` of node 1, as JSON.
  YAML::Node Drain(std::vector<std::string> arguments, int code = 0) {
    arguments.insert(arguments.begin(),
                     {"--json", "node", "drain", cluster().control_address(1)});
    const Finished run = cluster().Admin(arguments);
    EXPECT_EQ(run.code, code) << run.output << cluster().node(1).Log();
    // Behind the lines that show how far it is.
    const std::size_t json = run.output.find('{');
    YAML::Node parsed;
    if (json == std::string::npos) return parsed;
    EXPECT_NO_THROW(parsed = YAML::Load(run.output.substr(json))) << run.output;
    return parsed;
  }
  std::size_t NodesListed() {
    const Finished run = cluster().Admin({"--json", "node", "ls"});
    EXPECT_EQ(run.code, 0) << run.output;
    return YAML::Load(run.output)["nodes"].size();
  }
  // It ended by itself, and not by the force that waits behind its deadline.
  void ExpectItEnded() {
    EXPECT_EQ(cluster().node(1).process()->WaitForEnd(), 0)
        << cluster().node(1).Log();
  }

  std::unique_ptr<Worker> writer_;
};

TEST_F(DrainProcessTest, WhatIsHotIsReadFromTheOthersAfterwards) {
  Start();
  Fill({3, 5});

  const YAML::Node drained =
      Drain({"--deadline", "30s", "--budget", StrCat(2 * kChainBytes, "B")});

  EXPECT_TRUE(drained["ended"].as<bool>());
  EXPECT_TRUE(drained["forgotten"].as<bool>());
  EXPECT_EQ(drained["moved_blocks"].as<int>(), 2 * kBlocks);
  EXPECT_EQ(drained["moved_bytes"].as<std::uint64_t>(), 2 * kChainBytes);
  EXPECT_EQ(drained["left_blocks"].as<int>(), 0);
  ExpectItEnded();
  EXPECT_EQ(NodesListed(), 2u);
  EXPECT_THAT(cluster().node(1).Log(), HasSubstr("drained"));
  const std::unique_ptr<Worker> reader = WorkerAt(cluster(), 2);
  for (int chain = 1; chain <= kChains; ++chain) {
    const Reply read = ReadAt(reader.get(), chain);
    const bool hot = chain == 3 || chain == 5;
    EXPECT_EQ(read["hit"], hot ? kBlocks : 0) << chain << " " << read;
    EXPECT_EQ(read["miss"], hot ? 0 : kBlocks) << chain << " " << read;
    EXPECT_EQ(read["wrong"], 0) << read;
  }
  EXPECT_TRUE(cluster().NodeComesToRest(2));
  EXPECT_TRUE(cluster().NodeComesToRest(3));
}

TEST_F(DrainProcessTest, AStoppedPeerCostsItsShareAndNotTheDeadline) {
  Start();
  Fill({});
  cluster().node(2).Signal(SIGSTOP);

  const YAML::Node drained = Drain({"--deadline", "12s"});

  EXPECT_TRUE(drained["forgotten"].as<bool>());
  EXPECT_EQ(drained["planned_blocks"].as<int>(), kChains * kBlocks);
  EXPECT_GT(drained["moved_blocks"].as<int>(), 0);
  EXPECT_GT(drained["left_blocks"].as<int>(), 0);
  EXPECT_THAT(drained["trouble"].as<std::string>(),
              HasSubstr(cluster().control_address(2)));
  ExpectItEnded();

  cluster().node(2).Signal(SIGCONT);
  EXPECT_TRUE(cluster().NodeComesToRest(2));
  EXPECT_TRUE(cluster().NodeComesToRest(3));
  const std::unique_ptr<Worker> reader = WorkerAt(cluster(), 3);
  std::int64_t hits = 0;
  for (int chain = 1; chain <= kChains; ++chain) {
    const Reply read = ReadAt(reader.get(), chain);
    EXPECT_EQ(read["wrong"], 0) << read;
    hits += read["hit"];
  }
  EXPECT_GE(hits, drained["moved_blocks"].as<int>());
}

TEST_F(DrainProcessTest, SigtermIsTheShortForm) {
  Start(2);
  Fill({});

  EXPECT_EQ(cluster().node(1).Terminate(), 0) << cluster().node(1).Log();

  EXPECT_EQ(NodesListed(), 1u);
  EXPECT_THAT(cluster().node(1).Log(), HasSubstr("drained"));
  const std::unique_ptr<Worker> reader = WorkerAt(cluster(), 2);
  // Misses, and not a node that may come back.
  EXPECT_EQ(ReadAt(reader.get(), 1)["miss"], kBlocks);
  // Nobody waits for the lease that it had.
  ASSERT_TRUE(cluster().node(1).Start()) << cluster().node(1).Log();
  EXPECT_TRUE(cluster().NodesAreRegistered());
  EXPECT_EQ(NodesListed(), 2u);
}

TEST_F(DrainProcessTest, WithoutMovesItIsTheShortFormToo) {
  Start(2);
  Fill({});

  const YAML::Node drained = Drain({"--no-move"});

  EXPECT_TRUE(drained["forgotten"].as<bool>());
  EXPECT_EQ(drained["planned_blocks"].as<int>(), 0);
  ExpectItEnded();
  EXPECT_EQ(NodesListed(), 1u);
}

// A move that would take for ever: its only peer is stopped.
TEST_F(DrainProcessTest, SigtermCutsAPlannedDrainShort) {
  Start(2);
  Fill({});
  cluster().node(2).Signal(SIGSTOP);
  const YAML::Node begun = Drain({"--deadline", "10m", "--no-wait"});
  EXPECT_EQ(begun["ended"].as<bool>(), false);

  EXPECT_EQ(cluster().node(1).Terminate(), 0) << cluster().node(1).Log();

  EXPECT_EQ(NodesListed(), 1u);
  cluster().node(2).Signal(SIGCONT);
  EXPECT_TRUE(cluster().NodeComesToRest(2));
}

TEST_F(DrainProcessTest, ReadersAreServedWhileBlocksMove) {
  Start();
  Fill({});
  const std::unique_ptr<Worker> reader = WorkerAt(cluster(), 1);
  const std::unique_ptr<Worker> away = WorkerAt(cluster(), 2);
  const YAML::Node begun = Drain({"--deadline", "30s", "--no-wait"});

  // To the end of the node and beyond it; which reads are hits is a race.
  for (int round = 0; round < 3; ++round) {
    for (int chain = 1; chain <= kChains; ++chain) {
      EXPECT_EQ(ReadAt(reader.get(), chain)["wrong"], 0);
      EXPECT_EQ(ReadAt(away.get(), chain)["wrong"], 0);
    }
  }

  ExpectItEnded();
  for (int chain = 1; chain <= kChains; ++chain) {
    const Reply read = ReadAt(away.get(), chain);
    EXPECT_EQ(read["hit"], kBlocks) << read;
    EXPECT_EQ(read["wrong"], 0) << read;
  }
  EXPECT_TRUE(cluster().NodeComesToRest(2));
  EXPECT_TRUE(cluster().NodeComesToRest(3));
}

TEST_F(DrainProcessTest, ANodeThatIsKilledWhileItDrainsCostsMissesOnly) {
  for (int round = 0; round < 3; ++round) {
    Start();
    Fill({});
    Drain({"--deadline", "30s", "--no-wait"});
    // Sooner or later in the moves, or behind them.
    for (int i = 0; i < 2 * round; ++i) ReadAt(writer_.get(), 1);

    cluster().node(1).Kill();

    const std::unique_ptr<Worker> reader = WorkerAt(cluster(), 2);
    for (int chain = 1; chain <= kChains; ++chain) {
      const Reply read = ReadAt(reader.get(), chain);
      EXPECT_TRUE(read.ok) << read;
      EXPECT_EQ(read["wrong"], 0) << read;
    }
    EXPECT_TRUE(cluster().NodeComesToRest(2));
    EXPECT_TRUE(cluster().NodeComesToRest(3));
    ASSERT_TRUE(cluster().node(1).Start()) << cluster().node(1).Log();
    EXPECT_TRUE(cluster().NodesAreRegistered());
    for (int chain = 1; chain <= kChains; ++chain) {
      const Reply written = reader->Do(StrCat("write ", chain, " ", kBlocks));
      EXPECT_EQ(written["write_stored"] + written["write_already_there"],
                kBlocks)
          << written;
    }
  }
}

}  // namespace
}  // namespace firnkv
