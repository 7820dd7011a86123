// Workers without a local node, as processes: what they write is there for
// everybody, and cut links, stopped peers and their own stops cost both ends no
// more than they must.

#include <poll.h>

#include <csignal>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/host_network.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

constexpr int kHostOfNode1 = 2;
constexpr int kHostOfNode2 = 3;
// The place of workers without a node: one number beyond the last node's.
constexpr int kAway = 3;
constexpr int kBlocks = 96;
// Of the worker's writes, and by how much the buffers may be later: the grace,
// and what a process on a busy machine waits for its turn.
constexpr std::int64_t kDeadlineMicros = 2'000'000;
constexpr std::int64_t kLateMicros = 2'000'000;

class RemoteWriteProcessTest : public ProcessTest {
 protected:
  void Start(const HostNetwork* network) {
    StartCluster({.nodes = 2,
                  .dram_bytes = 256 * kMiB,
                  .region_bytes = 16 * kMiB,
                  .catalog_arguments = {"--catalog-lease", "1s"},
                  .network = network});
  }
  double Holds() { return cluster().SumOverNodes("firnkv_node_holds"); }
  // Begins writes until one is caught in its middle: a block is landing.
  void BeginWriteAndCatchIt(Worker* worker, int* chain) {
    for (int tries = 0; tries < 50; ++tries) {
      worker->Begin(StrCat("write ", ++*chain, " ", kBlocks));
      while (!worker->answered()) {
        if (Holds() > 0) return;
      }
      worker->Answer();
    }
    ADD_FAILURE() << "no write was caught in its middle";
  }
  static void ExpectInTime(const Reply& reply) {
    EXPECT_TRUE(reply.ok) << reply;
    EXPECT_LE(reply["write_us"], kDeadlineMicros + kLateMicros) << reply;
    EXPECT_LE(reply["write_free_us"], kDeadlineMicros + kLateMicros) << reply;
  }
  void ExpectRest() {
    EXPECT_TRUE(cluster().NodeComesToRest(1));
    EXPECT_TRUE(cluster().NodeComesToRest(2));
  }
};

TEST_F(RemoteWriteProcessTest, WhatAWorkerWithoutANodeWritesEverybodyReads) {
  Start(nullptr);
  const std::unique_ptr<Worker> away = RemoteWorker(cluster(), kAway);
  const std::unique_ptr<Worker> here = BigWorkerAt(cluster(), 1);
  const std::unique_ptr<Worker> there = BigWorkerAt(cluster(), 2);

  const Reply written = away->Do("write 1 24 published");

  EXPECT_EQ(written["write_stored"], 24) << written;
  for (Worker* const reader : {away.get(), here.get(), there.get()}) {
    const Reply read = reader->Do("read 1 24");
    EXPECT_EQ(read["hit"], 24) << read;
    EXPECT_EQ(read["wrong"], 0) << read;
  }
  EXPECT_EQ(away->Do("write 1 24")["write_already_there"], 24);
  ExpectRest();
}

// Rule T3.
TEST_F(RemoteWriteProcessTest, AWriterThatIsStoppedGivesItsSlotsBack) {
  Start(nullptr);
  const std::unique_ptr<Worker> away = RemoteWorker(cluster(), kAway);
  int chain = 0;
  BeginWriteAndCatchIt(away.get(), &chain);

  away->Signal(SIGSTOP);

  ExpectRest();
  away->Signal(SIGCONT);
  EXPECT_TRUE(away->Answer().ok);
  EXPECT_TRUE(Eventually([&] {
    return away->Do(StrCat("write ", ++chain, " 4"))["write_stored"] == 4;
  }));
}

// Rule S3.
TEST_F(RemoteWriteProcessTest, AWriterThatIsKilledGivesItsSlotsBack) {
  Start(nullptr);
  const std::unique_ptr<Worker> away = RemoteWorker(cluster(), kAway);
  int chain = 0;
  BeginWriteAndCatchIt(away.get(), &chain);

  away->Kill();

  ExpectRest();
}

TEST_F(RemoteWriteProcessTest, NodesThatAreStoppedCostAWriterItsDeadline) {
  Start(nullptr);
  const std::unique_ptr<Worker> away = RemoteWorker(cluster(), kAway);
  int chain = 0;
  BeginWriteAndCatchIt(away.get(), &chain);

  for (int n = 1; n <= 2; ++n) cluster().node(n).Signal(SIGSTOP);
  const Reply reply = away->Answer();
  const Reply next = away->Do(StrCat("write ", ++chain, " 4"));
  for (int n = 1; n <= 2; ++n) cluster().node(n).Signal(SIGCONT);

  ExpectInTime(reply);
  ExpectInTime(next);
  ExpectRest();
}

class RemoteWriteNetworkTest : public RemoteWriteProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    if (IsSkipped()) return;
    absl::StatusOr<std::unique_ptr<HostNetwork>> network = HostNetwork::Make(4);
    if (!network.ok()) {
      GTEST_SKIP() << "this machine lets nobody make network namespaces: "
                   << network.status();
    }
    network_ = *std::move(network);
    Start(network_.get());
  }
  void TearDown() override {
    ProcessTest::TearDown();
    cluster_.reset();
  }

  std::unique_ptr<HostNetwork> network_;
};

TEST_F(RemoteWriteNetworkTest, AWriteThatIsCutEndsAtBothEnds) {
  const std::unique_ptr<Worker> away = RemoteWorker(cluster(), kAway);
  int chain = 0;
  BeginWriteAndCatchIt(away.get(), &chain);

  network_->Cut(kHostOfNode1);
  network_->Cut(kHostOfNode2);
  const Reply cut = away->Answer();
  const Reply next = away->Do(StrCat("write ", ++chain, " 4"));
  const bool rest =
      cluster().NodeComesToRest(1) && cluster().NodeComesToRest(2);
  network_->Heal();

  ExpectInTime(cut);
  ExpectInTime(next);
  EXPECT_TRUE(rest);
  EXPECT_TRUE(cluster().NodesAreRegistered());
  EXPECT_TRUE(Eventually([&] {
    return away->Do(StrCat("write ", ++chain, " 4"))["write_stored"] == 4;
  }));
}

TEST_F(RemoteWriteNetworkTest, WithOneNodeCutOffWritesGoToTheOther) {
  const std::unique_ptr<Worker> away = RemoteWorker(cluster(), kAway);
  ASSERT_EQ(away->Do("write 1 4")["write_stored"], 4);

  network_->Cut(kHostOfNode1);
  int chain = 1;
  EXPECT_TRUE(Eventually([&] {
    return away->Do(StrCat("write ", ++chain, " 4"))["write_stored"] == 4;
  }));
  network_->Heal();

  EXPECT_TRUE(cluster().NodesAreRegistered());
  ExpectRest();
}

}  // namespace
}  // namespace firnkv
