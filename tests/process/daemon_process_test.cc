// One daemon and its operator: starting, restarting, refusing, ending.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/child_process.h"
#include "tests/process/daemon.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Longer than any test waits for anything: what must not wait for a lease to
// run out would, here, never happen.
constexpr char kEndlessLease[] = "5m";

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

class DaemonTest : public ProcessTest {
 protected:
  // A node that embeds its catalog, as `firnkv-node` alone is one.
  Daemon::Options NodeAlone(const std::string& data,
                            const std::string& socket) {
    const std::string host = OwnLoopbackAddress();
    Daemon::Options options{.program = "firnkv-node",
                            .uid = kDaemonUid,
                            .log_file = scratch_.path() + "/" + data + ".log",
                            .http = host + ":7412"};
    options.arguments = {
        "--data-dir",       scratch_.FolderOf(kDaemonUid, data),
        "--node-socket",    scratch_.FolderOf(kDaemonUid, "run") + "/" + socket,
        "--node-control",   host + ":7410",
        "--node-stream",    host + ":7411",
        "--http-address",   options.http,
        "--catalog-listen", host + ":7400",
        "--catalog-lease",  kEndlessLease,
        "--dram-bytes",     "64MiB"};
    return options;
  }
  std::string Socket(const std::string& name) const {
    return scratch_.path() + "/run/" + name;
  }
  Finished Run(const Daemon::Options& options,
               const std::vector<std::string>& more = {}) {
    ChildProcess::Options process{
        .program = ProgramFolder() + "/" + options.program,
        .arguments = options.arguments,
        .environment = {},
        .uid = options.uid,
        .error_file = {}};
    for (const std::string& one : more) process.arguments.push_back(one);
    return RunToEnd(process);
  }

  const ScratchFolder scratch_;
};

TEST_F(DaemonTest, ANodeAloneIsAWholeCluster) {
  Daemon node(NodeAlone("alone", "node.sock"));
  ASSERT_TRUE(node.Start()) << node.Log();

  // Its own uid is served, as tenant `default`, from mapped memory (rule P10:
  // nothing else is configured).
  Worker worker(kDaemonUid);
  const Reply connected = worker.Do("connect " + Socket("node.sock"));
  EXPECT_EQ(connected["mapping"], 1) << connected;
  ASSERT_TRUE(worker.Do("open granite 4096").ok);
  EXPECT_EQ(worker.Do("write 1 20")["write_stored"], 20);
  const Reply read = worker.Do("read 1 20");
  EXPECT_EQ(read["hit"], 20) << read;
  EXPECT_EQ(read["wrong"], 0) << read;
  EXPECT_EQ(read["mapped_bytes"], 20 * 4096) << read;
}

TEST_F(DaemonTest, ANodeSaysWhereItListensAndWhatItUses) {
  const Daemon::Options options = NodeAlone("alone", "node.sock");
  Daemon node(options);

  ASSERT_TRUE(node.Start()) << node.Log();

  const std::string host = options.http.substr(0, options.http.find(':'));
  EXPECT_THAT(node.ready_text(),
              AllOf(HasSubstr("ready in "), HasSubstr(Socket("node.sock")),
                    HasSubstr(StrCat("stream    ", host, ":7411")),
                    HasSubstr(StrCat("grpc      ", host, ":7410")),
                    HasSubstr(StrCat("http      ", host, ":7412")),
                    HasSubstr(StrCat(host, ":7400 (embedded)")),
                    HasSubstr(scratch_.path() + "/alone"),
                    HasSubstr("64MiB in regions of ")));
}

// Rule A6.
TEST_F(DaemonTest, ANodeAloneDoesNotWaitForItsOwnLeaseAfterASigkill) {
  Daemon node(NodeAlone("alone", "node.sock"));
  ASSERT_TRUE(node.Start()) << node.Log();
  ASSERT_TRUE(node.MetricBecomes("firnkv_node_registered", 1));
  // For docs/BENCHMARKS.md: the line that says how long it took.
  RecordProperty("first_start", FirstLine(node.ready_text()));

  for (int i = 0; i < 3; ++i) {
    node.Kill();
    ASSERT_TRUE(node.Start()) << node.Log();
    RecordProperty("after_sigkill", FirstLine(node.ready_text()));
    EXPECT_TRUE(node.MetricBecomes("firnkv_node_registered", 1)) << node.Log();
  }

  Worker worker(kDaemonUid);
  ASSERT_TRUE(worker.Do("connect " + Socket("node.sock")).ok);
  ASSERT_TRUE(worker.Do("open granite 4096").ok);
  EXPECT_EQ(worker.Do("write 1 4 published")["write_stored"], 4);
}

// Rule A6.
TEST_F(DaemonTest, ANodeOfAClusterDoesNotWaitForItsOwnLeaseAfterASigkill) {
  StartCluster(
      {.nodes = 1, .catalog_arguments = {"--catalog-lease", kEndlessLease}});

  cluster().node(1).Kill();
  ASSERT_TRUE(cluster().node(1).Start());

  EXPECT_TRUE(cluster().NodesAreRegistered());
}

// Rule A6: of two nodes with one name, one serves.
TEST_F(DaemonTest, ANodeEndsWhenACopyOfItsDataDirectoryStarts) {
  StartCluster({.nodes = 2});
  const std::string folder = cluster().scratch().path() + "/daemons/";
  std::filesystem::remove_all(folder + "node2");
  cluster().node(2).Kill();
  std::filesystem::copy(folder + "node1", folder + "node2");
  for (const auto& file :
       std::filesystem::directory_iterator(folder + "node2")) {
    ASSERT_EQ(chown(file.path().c_str(), kDaemonUid, kDaemonUid), 0);
  }
  ASSERT_EQ(chown((folder + "node2").c_str(), kDaemonUid, kDaemonUid), 0);

  ASSERT_TRUE(cluster().node(2).Start());

  EXPECT_EQ(cluster().node(1).process()->WaitForEnd(), 1)
      << cluster().node(1).Log();
  EXPECT_TRUE(cluster().node(2).MetricBecomes("firnkv_node_registered", 1));
}

TEST_F(DaemonTest, ASecondNodeOnADataDirectoryIsRefused) {
  Daemon node(NodeAlone("alone", "node.sock"));
  ASSERT_TRUE(node.Start()) << node.Log();

  const Finished second = Run(NodeAlone("alone", "other.sock"));

  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.output, AllOf(HasSubstr(scratch_.path() + "/alone"),
                                   HasSubstr("in use by another process"),
                                   HasSubstr("data_dir of its own")));
  EXPECT_EQ(node.Metric("firnkv_node_registered"), 1);
}

TEST_F(DaemonTest, ASecondNodeOnASocketIsRefused) {
  Daemon node(NodeAlone("alone", "node.sock"));
  ASSERT_TRUE(node.Start()) << node.Log();

  const Finished second = Run(NodeAlone("second", "node.sock"));

  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.output, HasSubstr(Socket("node.sock")));
  Worker worker(kDaemonUid);
  EXPECT_TRUE(worker.Do("connect " + Socket("node.sock")).ok);
}

TEST_F(DaemonTest, ASecondCatalogOnADataDirectoryIsRefused) {
  StartCluster({.nodes = 0});

  const Finished second = Run(cluster().catalog().options());

  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.output, HasSubstr("in use by another process"));
}

TEST_F(DaemonTest, SigtermEndsAnIdleNodeAndACatalogWithZero) {
  StartCluster({.nodes = 1});

  EXPECT_EQ(cluster().node(1).Terminate(), 0) << cluster().node(1).Log();
  EXPECT_EQ(cluster().catalog().Terminate(), 0) << cluster().catalog().Log();
}

TEST_F(DaemonTest, ADrainingNodeRefusesWritesAndGoesOnReading) {
  StartCluster({.nodes = 1, .node_arguments = {"--node-drain-timeout", "10m"}});
  const std::unique_ptr<Worker> worker = WorkerAt(cluster(), 1);
  ASSERT_EQ(worker->Do("write 1 4 published")["write_stored"], 4);
  // A reservation keeps the drain from ending.
  const std::unique_ptr<Worker> writer = WorkerAt(cluster(), 1);
  ASSERT_TRUE(writer->Do("raw " + cluster().socket(1)).ok);
  ASSERT_EQ(writer->Do("reserve 2 4")["reserved"], 4);

  cluster().node(1).Signal(SIGTERM);

  EXPECT_TRUE(Eventually([&] {
    const std::string health =
        HttpGet(cluster().node(1).options().http, "/healthz");
    return health.find("503") != std::string::npos;
  }));
  EXPECT_EQ(worker->Do("write 3 4")["write_stored"], 0);
  EXPECT_EQ(worker->Do("read 1 4")["hit"], 4);
  EXPECT_TRUE(cluster().node(1).runs());

  writer->Kill();
  EXPECT_EQ(cluster().node(1).process()->WaitForEnd(), 0);
}

TEST_F(DaemonTest, ADrainEndsAtItsDeadline) {
  StartCluster({.nodes = 1, .node_arguments = {"--node-drain-timeout", "1s"}});
  const std::unique_ptr<Worker> writer = WorkerAt(cluster(), 1);
  ASSERT_TRUE(writer->Do("raw " + cluster().socket(1)).ok);
  ASSERT_EQ(writer->Do("reserve 2 4")["reserved"], 4);

  EXPECT_EQ(cluster().node(1).Terminate(), 0) << cluster().node(1).Log();
}

TEST_F(DaemonTest, OfFileEnvironmentAndFlagsTheLaterWins) {
  const std::string file = scratch_.WriteFile(
      "node.yaml", "node: {zone: file, rack: file, host: file}\n");
  ChildProcess::Options node{
      .program = ProgramFolder() + "/firnkv-node",
      .arguments = {"--config", file, "--node-host", "flag", "--print-config"},
      .environment = {"FIRNKV_NODE_RACK=environment",
                      "FIRNKV_NODE_HOST=environment"},
      .uid = kDaemonUid,
      .error_file = {}};

  const Finished run = RunToEnd(node);

  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("zone: file"), HasSubstr("rack: environment"),
                    HasSubstr("host: flag")));
}

TEST_F(DaemonTest, TheFilesThatOperatorsCopyAreTaken) {
  for (const char* daemon : {"node", "catalog"}) {
    const std::string file = scratch_.WriteFile(
        StrCat(daemon, ".yaml"), ReadFile(StrCat("config/", daemon, ".yaml")));

    const Finished run =
        Run({.program = StrCat("firnkv-", daemon), .uid = kDaemonUid},
            {"--config", file, "--print-config"});

    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("data_dir: /var/lib/firnkv"));
  }
}

TEST_F(DaemonTest, AnUnknownOptionIsRefusedWithItsLine) {
  Daemon::Options options = NodeAlone("alone", "node.sock");
  const std::string file =
      scratch_.WriteFile("node.yaml", "log:\n  level: notice\n  colour: red\n");

  const Finished run = Run(options, {"--config", file});

  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.output,
              AllOf(HasSubstr(file + ":3"), HasSubstr("log.colour")));
}

TEST_F(DaemonTest, ABadUnitInAFileIsRefusedWithItsLine) {
  const std::string file =
      scratch_.WriteFile("node.yaml", "dram:\n  bytes: 3 parsecs\n");

  const Finished run =
      Run({.program = "firnkv-node", .uid = kDaemonUid}, {"--config", file});

  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.output,
              AllOf(HasSubstr(file + ":2"), HasSubstr("dram.bytes")));
}

TEST_F(DaemonTest, WhatIsNoAddressIsRefusedWithItsLine) {
  const std::string file =
      scratch_.WriteFile("node.yaml", "node:\n  stream: nonsense\n");

  const Finished run =
      Run({.program = "firnkv-node", .uid = kDaemonUid}, {"--config", file});

  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.output, AllOf(HasSubstr(file + ":2"),
                                HasSubstr("node.stream: address 'nonsense'")));
}

TEST_F(DaemonTest, AnUnknownFlagIsRefusedWithTheOneThatMayBeMeant) {
  const Finished flag = Run({.program = "firnkv-node", .uid = kDaemonUid},
                            {"--dram-byts", "5GiB"});
  const Finished word =
      Run({.program = "firnkv-catalog", .uid = kDaemonUid}, {"start"});

  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.output, HasSubstr("did you mean --dram-bytes?"));
  EXPECT_EQ(word.code, 2);
  EXPECT_THAT(word.output, HasSubstr("'start' is not expected here"));
}

TEST_F(DaemonTest, AFlagOfTrueOrFalseNeedsNoValue) {
  for (const std::vector<std::string>& flag :
       {std::vector<std::string>{"--dram-huge-pages"},
        {"--dram-huge-pages", "true"},
        {"--dram-huge-pages=true"}}) {
    std::vector<std::string> arguments = flag;
    arguments.push_back("--print-config");

    const Finished run =
        Run({.program = "firnkv-node", .uid = kDaemonUid}, arguments);

    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("huge_pages: true"));
  }
}

TEST_F(DaemonTest, ListeningBeyondLoopbackMustBeAskedFor) {
  for (const auto& [option, name] :
       {std::pair{"--node-stream", "node.stream"},
        std::pair{"--node-control", "node.control"},
        std::pair{"--catalog-listen", "catalog.listen"},
        std::pair{"--http-address", "http.address"}}) {
    Daemon::Options node = NodeAlone("alone", "node.sock");
    const auto at =
        std::find(node.arguments.begin(), node.arguments.end(), option);
    *std::next(at) = "0.0.0.0:0";

    const Finished run = Run(node);

    EXPECT_EQ(run.code, 1) << option;
    EXPECT_THAT(run.output,
                AllOf(HasSubstr(name), HasSubstr("plaintext_network: true")));
  }
}

TEST_F(DaemonTest, ANameThatLooksLikeLoopbackIsNot) {
  const Finished catalog =
      Run({.program = "firnkv-catalog",
           .uid = kDaemonUid,
           .arguments = {"--data-dir", scratch_.FolderOf(kDaemonUid, "data"),
                         "--catalog-listen", "127.example:0"},
           .log_file = {},
           .http = {}});

  EXPECT_EQ(catalog.code, 1);
  EXPECT_THAT(catalog.output, HasSubstr("plaintext_network: true"));
}

TEST_F(DaemonTest, CheckSaysWhatWorks) {
  const Finished check = Run(NodeAlone("alone", "node.sock"), {"--check"});

  EXPECT_EQ(check.code, 0) << check.output;
  // Rule P10: the check prints it.
  EXPECT_THAT(check.output,
              AllOf(HasSubstr("trust_same_uid"), HasSubstr("This works."),
                    Not(HasSubstr("FAIL"))));
}

TEST_F(DaemonTest, CheckSaysWhatCannotWork) {
  Daemon node(NodeAlone("alone", "node.sock"));
  ASSERT_TRUE(node.Start()) << node.Log();

  const Finished check = Run(node.options(), {"--check"});

  EXPECT_EQ(check.code, 1);
  EXPECT_THAT(check.output,
              AllOf(HasSubstr("FAIL  data directory"),
                    HasSubstr("FAIL  stream"), HasSubstr("cannot work")));
}

}  // namespace
}  // namespace firnkv
