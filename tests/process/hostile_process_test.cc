// A client that keeps no rule, of another tenant or of the same one, against a
// node that serves a well-behaved one meanwhile: it reads nothing that is not
// its own, writes nothing, ends nothing, and costs bounded memory.
//
// The attacks are in hostile_memory.h, hostile_staging.h, hostile_flood.h and
// hostile_writer.h; here stands what they must come to. Nothing is timed: that
// others are served is counted.

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <utility>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kDramBytes = 64 * kMiB;
// Beyond its pool: code, tables, threads' stacks, gRPC.
constexpr std::uint64_t kNodeOverheadBytes = 256 * kMiB;

// More than this node has open, and fewer than a client could leave in flight.
constexpr rlim_t kNodeFiles = 1000;

// While it lives, this process and whom it starts may open so few files.
class FewerFiles {
 public:
  FewerFiles() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit fewer = {.rlim_cur = kNodeFiles, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &fewer), 0);
  }
  ~FewerFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

// hostile_client as a process of its own.
class Hostile {
 public:
  explicit Hostile(std::uint32_t uid)
      : process_(
            {.program =
                 std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                 "hostile_client",
             .arguments = {},
             .environment = {},
             .uid = uid,
             .error_file = "/dev/null"}) {}

  // What it says after "ok"; a test that it could not be tried in has failed.
  std::map<std::string, std::int64_t> Do(const std::string& command) {
    process_.WriteLine(command);
    const std::string line = process_.ReadLine().value_or("silence");
    EXPECT_THAT(line, testing::StartsWith("ok")) << command;
    std::map<std::string, std::int64_t> tally;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    for (const std::string& word : words) {
      const std::pair<std::string, std::string> one =
          absl::StrSplit(word, absl::MaxSplits('=', 1));
      if (!one.second.empty()) tally[one.first] = std::stoll(one.second);
    }
    return tally;
  }
  std::map<std::string, std::int64_t> ConnectTo(const std::string& socket) {
    return Do("connect " + socket);
  }
  void Kill() { process_.Kill(); }

 private:
  ChildProcess process_;
};

class HostileTest : public ProcessTest {
 protected:
  // Alice, who behaves, works from now on.
  void StartNode(ProcessCluster::Options options = {}) {
    options.nodes = 1;
    StartCluster(options);
    alice_ = WorkerAt(cluster(), 1, kAliceUid);
    ASSERT_EQ(alice_->Do("write 0 8")["write_stored"], 8);
    alice_->Begin("load 7 20 8");
  }
  // What she got meanwhile: everything, and nothing wrong. So does whoever
  // comes new.
  void ExpectOthersWereServed() {
    const Reply reply = alice_->EndLoad();
    EXPECT_TRUE(reply.ok) << reply;
    EXPECT_GT(reply["rounds"], 0) << reply;
    // In a short attack all of it may be her first writes; hits: see below.
    EXPECT_GT(reply["hit"] + reply["write_stored"], 0) << reply;
    EXPECT_EQ(reply["wrong"], 0) << reply;
    EXPECT_EQ(reply["bad_requests"], 0) << reply;
    EXPECT_EQ(reply["denied"], 0) << reply;
    const std::unique_ptr<Worker> late = WorkerAt(cluster(), 1, kAliceUid);
    const Reply read = late->Do("read 0 8");
    EXPECT_EQ(read["hit"], 8) << read;
    EXPECT_EQ(read["wrong"], 0) << read;
    EXPECT_TRUE(cluster().node(1).runs());
    EXPECT_LE(ResidentBytes(), kDramBytes + kNodeOverheadBytes);
  }

  pid_t node_pid() { return cluster().node(1).process()->pid(); }
  std::size_t NodeDescriptors() {
    const std::filesystem::directory_iterator all(
        StrCat("/proc/", node_pid(), "/fd"));
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  std::uint64_t ResidentBytes() {
    std::ifstream status(StrCat("/proc/", node_pid(), "/status"));
    std::string word;
    std::uint64_t kib = 0;
    while (status >> word) {
      if (word == "VmRSS:") status >> kib;
    }
    return kib * kKiB;
  }

  std::unique_ptr<Worker> alice_;
};

// Rules C5 and P6: memory that was bob's may become alice's; what bob kept of
// it does not.
TEST_F(HostileTest, KeptMemoryNeverShowsAnotherTenantsBytes) {
  constexpr int kBlocks = 300;
  StartNode({.dram_bytes = 16 * kMiB});
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));
  ASSERT_EQ(bob.Do(StrCat("write ", kBlocks))["there"], kBlocks);
  ASSERT_GT(bob.Do(StrCat("keep ", kBlocks))["regions"], 0);
  auto seen = bob.Do("look");
  ASSERT_GT(seen["own"], 0);
  EXPECT_EQ(seen["foreign"], 0);
  EXPECT_EQ(seen["strangers"], 0);

  // Its blocks go, and alice needs their room, many times over.
  const Finished cleared = cluster().Admin(
      {"namespace", "clear", "hostile", "--tenant", "bob", "--yes", "--wait"});
  ASSERT_EQ(cleared.code, 0) << cleared.output;
  const std::unique_ptr<Worker> writer = WorkerAt(cluster(), 1, kAliceUid);
  for (int chain = 100; chain < 130; ++chain) {
    EXPECT_GT(writer->Do(StrCat("write ", chain, " 64"))["write_stored"], 0);
    if (chain % 5 != 0) continue;
    seen = bob.Do("look");
    EXPECT_EQ(seen["foreign"], 0);
    EXPECT_EQ(seen["strangers"], 0);
  }

  // Punched, once its regions have been empty for a while: not even its own
  // bytes are there.
  for (int chain = 200; seen["own"] > 0 && chain < 1200; ++chain) {
    ASSERT_GT(writer->Do(StrCat("write ", chain, " 64"))["write_stored"], 0);
    seen = bob.Do("look");
    EXPECT_EQ(seen["foreign"], 0);
  }
  EXPECT_EQ(seen["own"], 0);
  EXPECT_GT(seen["zero"], 0);
  ExpectOthersWereServed();
}

// Rule P10, long after the session's end too.
TEST_F(HostileTest, KeptMemoryCannotBeWritten) {
  StartNode();
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));
  ASSERT_EQ(bob.Do("write 20")["there"], 20);
  const std::int64_t regions = bob.Do("keep 20")["regions"];
  ASSERT_GT(regions, 0);

  // Each way of writing that worked would be named.
  EXPECT_TRUE(bob.Do("reopen").empty());
  auto scribbled = bob.Do("scribble");
  EXPECT_EQ(scribbled["died"], 2 * regions);
  EXPECT_EQ(scribbled["lived"], 0);
  EXPECT_EQ(bob.Do("look")["own"], 20);
  ExpectOthersWereServed();
}

// Rule P10: why the node's own uid is given no mapping. That the attack works
// where the operator allows it shows that it is one.
TEST_F(HostileTest, TheNodesOwnUidCouldWriteWhatItMaps) {
  StartNode({.node_arguments = {"--sessions-trust-same-uid", "true"}});
  Hostile trusted(kDaemonUid);
  trusted.ConnectTo(cluster().socket(1));
  ASSERT_EQ(trusted.Do("write 20")["there"], 20);
  ASSERT_GT(trusted.Do("keep 20")["regions"], 0);

  EXPECT_GT(trusted.Do("reopen")["reopen-read-write"], 0);
}

// Rule P10: not even by the uid that the node runs as.
TEST_F(HostileTest, NobodyGetsIntoTheNodesProcess) {
  StartNode();
  for (const std::uint32_t uid : {kBobUid, kDaemonUid, kStrangerUid}) {
    Hostile hostile(uid);
    for (const auto& [way, count] : hostile.Do(StrCat("pry ", node_pid()))) {
      ADD_FAILURE() << way << " worked for uid " << uid;
    }
  }
  ExpectOthersWereServed();
}

// Rule S1.
TEST_F(HostileTest, OnlySealedMemoryIsStaging) {
  StartNode();
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto lent = bob.Do("lend-wrong-kinds " +
                     cluster().scratch().FolderOf(kBobUid, "bob"));

  EXPECT_EQ(lent["right"], 1);
  EXPECT_GT(lent["refused"], 0);
  EXPECT_GT(lent["ended"], 0);
  for (const auto& [kind, count] : lent) {
    if (kind == "right" || kind == "refused" || kind == "ended") continue;
    // Huge pages are there on some machines only.
    EXPECT_TRUE(kind == "not_made" && count <= 1) << kind << " was accepted";
  }
  ExpectOthersWereServed();
}

// Rule S1: memory is charged to the node, so it is capped by session and by
// tenant.
TEST_F(HostileTest, StagingIsBoundedWhateverIsLent) {
  StartNode({.node_arguments = {"--staging-max-bytes-a-session", "64MiB",
                                "--staging-max-bytes-a-tenant", "160MiB"}});
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto lent = bob.Do("lend-without-end");

  EXPECT_EQ(lent["mib"], 160);
  EXPECT_GT(lent["refused"], 2);
  ExpectOthersWereServed();
  bob.Kill();
  alice_.reset();
  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_staging_bytes", 0));
}

// Rule S1.
TEST_F(HostileTest, APunchedHoleFailsItsChecksum) {
  StartNode();
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto committed = bob.Do("commit-from-a-hole");

  EXPECT_EQ(committed["shrunk"], 0);
  EXPECT_EQ(committed["grown"], 0);
  ASSERT_EQ(committed["punched"], 1);
  EXPECT_EQ(committed["corrupt"], 1);
  EXPECT_EQ(committed["readable"], 0);
  ExpectOthersWereServed();
}

// Rule P1: what is in the pool is what the commit said, or it is not there.
TEST_F(HostileTest, StagingThatChangesDuringTheCommitStoresNothingElse) {
  constexpr int kCommits = 30;
  StartNode();
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto commits = bob.Do(StrCat("scribble-during-commits ", kCommits));

  EXPECT_EQ(commits["wrong"], 0);
  EXPECT_EQ(commits["stored"] + commits["corrupt"], kCommits);
  // Every other one was left alone; of the others some were caught.
  EXPECT_GE(commits["stored"], kCommits / 2);
  EXPECT_GT(commits["corrupt"], 0);
  ExpectOthersWereServed();
}

// Rule S3.
TEST_F(HostileTest, ASessionIsNobodysButItsOwners) {
  StartNode();
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto served = bob.Do("guess-sessions " + cluster().control_address(1));

  EXPECT_EQ(served["own"], 1);
  EXPECT_EQ(served["guessed"], 0);
  EXPECT_EQ(served["over_tcp"], 0);
  EXPECT_EQ(served["ended"], 0);
  ExpectOthersWereServed();
}

// Rule S3, of another tenant and of the same one.
TEST_F(HostileTest, LeasesAndReservationsOfOthersCannotBeNamed) {
  constexpr int kHandles = 100;
  StartNode();
  const std::unique_ptr<Worker> holder = WorkerAt(cluster(), 1, kAliceUid);
  ASSERT_TRUE(holder->Do("raw " + cluster().socket(1)).ok);
  ASSERT_EQ(holder->Do("hold 0 8 60")["hit"], 8);
  ASSERT_EQ(holder->Do("reserve 500 5")["reserved"], 5);

  for (const std::uint32_t uid : {kBobUid, kAliceUid}) {
    Hostile hostile(uid);
    hostile.ConnectTo(cluster().socket(1));
    auto guessed = hostile.Do(StrCat("guess-handles ", kHandles));
    EXPECT_EQ(guessed["renewed"], 0);
    EXPECT_EQ(guessed["committed"], 0);
    EXPECT_EQ(guessed["calls"], kHandles);
  }

  ExpectOthersWereServed();
  alice_.reset();
  // Nobody's but the holder's are left, and those are.
  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_leases", 1));
  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_reservations", 1));
  EXPECT_EQ(holder->Do("check")["wrong"], 0);
}

// Rule S4: what is in flight is charged to the node's uid.
TEST_F(HostileTest, DescriptorsLeftInFlightEndTheirSessionsOnly) {
  StartNode({.node_arguments = {"--sessions-max-descriptors-in-flight-a-tenant",
                                "32"}});
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));
  ASSERT_EQ(bob.Do("write 1")["there"], 1);

  auto left = bob.Do("leave-in-flight 32");

  EXPECT_EQ(left["asked"], 32);
  EXPECT_EQ(left["ended"], 32);
  ExpectOthersWereServed();
}

// Rule S4: what a client says that it has taken stays in flight until it has
// received it. The kernel lets a user have as many as it may have open; beyond
// that nobody's descriptor is sent.
TEST_F(HostileTest, WhoReceivesNothingLeavesOthersTheirDescriptors) {
  constexpr std::int64_t kCap = 4;
  {
    const FewerFiles inherited;
    StartNode({.node_arguments = {
                   "--sessions-max-descriptors-in-flight-a-tenant", "4"}});
  }
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));
  ASSERT_EQ(bob.Do("write 1")["there"], 1);

  // Each could leave 50.
  auto claimed = bob.Do("claim-in-flight 40");

  EXPECT_EQ(claimed["ended"], 40);
  EXPECT_TRUE(cluster().node(1).MetricBecomes(
      "firnkv_node_descriptors_in_flight", kCap));
  Hostile alice(kAliceUid);
  alice.ConnectTo(cluster().socket(1));
  ASSERT_EQ(alice.Do("write 8")["there"], 8);
  EXPECT_GT(alice.Do("keep 8")["regions"], 0);
  ExpectOthersWereServed();
  bob.Kill();
  EXPECT_TRUE(
      cluster().node(1).MetricBecomes("firnkv_node_descriptors_in_flight", 0));
}

// Rule S4.
TEST_F(HostileTest, UnexpectedDescriptorsAreClosedWithTheirSession) {
  StartNode();
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto sent = bob.Do("send-unexpected");

  EXPECT_EQ(sent["sent"], 24);
  EXPECT_EQ(sent["ended"], 24);
  ExpectOthersWereServed();
  bob.Kill();
  // Thousands were sent; a handful belongs to the node and who is connected.
  EXPECT_TRUE(Eventually([this] { return NodeDescriptors() < 200; }))
      << NodeDescriptors();
}

// Rule S4.
TEST_F(HostileTest, OneUidCannotTakeAllSessions) {
  StartNode({.node_arguments = {"--sessions-max-a-uid", "32"}});
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto opened = bob.Do("open-without-end 60");

  EXPECT_GT(opened["opened"], 0);
  EXPECT_LE(opened["opened"], 32);
  EXPECT_EQ(opened["refused"], 60 - opened["opened"]);
  // An operator sees it; connections that said nothing are among them.
  EXPECT_GE(cluster().node(1).Metric("firnkv_node_refused_sessions_total"),
            opened["refused"]);
  ExpectOthersWereServed();
  bob.Kill();
  alice_.reset();
  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_sessions", 0));
}

// Rule S4: gRPC's connections are descriptors too.
TEST_F(HostileTest, OneUidCannotTakeAllConnectionsOfCalls) {
  // Of sessions; a few more calls' connections than that.
  StartNode({.node_arguments = {"--sessions-max-a-uid", "32"}});
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto opened = bob.Do("open-control-without-end 200");

  EXPECT_GT(opened["opened"], 0);
  EXPECT_LE(opened["opened"], 48);
  EXPECT_EQ(opened["refused"], 200 - opened["opened"]);
  EXPECT_EQ(
      cluster().node(1).Metric("firnkv_node_refused_call_connections_total"),
      opened["refused"]);
  ExpectOthersWereServed();
  // They make room when they end.
  EXPECT_GT(bob.Do("open-control-without-end 1")["opened"], 0);
}

TEST_F(HostileTest, GarbageAndCallsWithoutEndHarmNobody) {
  StartNode();
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto flood = bob.Do("flood 200");

  EXPECT_EQ(flood["garbage"], 200);
  EXPECT_EQ(flood["calls"], 1600);
  // Nobody fills the node's log with what protobuf has to say of it.
  EXPECT_THAT(cluster().node(1).Log(), testing::Not(HasSubstr("UTF-8")));
  ExpectOthersWereServed();
}

// Rule T3, for those that read as the attacker does: by the stream.
TEST_F(HostileTest, StreamsThatSayNonsenseOrNothingAreEnded) {
  StartNode();
  Worker remote(kAliceUid);
  ASSERT_TRUE(remote.Do("connect " + cluster().socket(1) + " stream").ok);
  ASSERT_TRUE(remote.Do(StrCat("open granite ", kTestBlockBytes)).ok);
  remote.Begin("load 9 20 8");
  Hostile stranger(kStrangerUid);
  const std::string control = cluster().control_address(1);

  auto streams = stranger.Do("flood-stream " +
                             control.substr(0, control.rfind(':')) + ":7411");

  EXPECT_EQ(streams["sent"], 70);
  EXPECT_EQ(streams["ended"], streams["sent"]);
  const Reply load = remote.EndLoad();
  EXPECT_GT(load["hit"], 0) << load;
  EXPECT_EQ(load["wrong"], 0) << load;
  ExpectOthersWereServed();
}

// Rules P1 and T1, for those that write by the stream: nothing is in the pool
// but what was reserved, announced and sound.
TEST_F(HostileTest, WritesOverTheStreamThatBreakARuleStoreNothing) {
  StartNode();
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto broken = bob.Do("break-writes");

  EXPECT_EQ(broken["tried"], 13);
  EXPECT_EQ(broken["ended"], 13);
  EXPECT_EQ(broken["wrong"], 0);
  EXPECT_EQ(broken["hits"], 0);
  EXPECT_EQ(broken["sound"], 1);
  ExpectOthersWereServed();
  bob.Kill();
  alice_.reset();
  EXPECT_TRUE(cluster().NodeComesToRest(1));
}

// Rules C1 and S3, for those that write by the stream.
TEST_F(HostileTest, NobodyWritesUnderAnothersNameOrIntoItsNamespace) {
  StartNode();
  Hostile alice(kAliceUid);
  alice.ConnectTo(cluster().socket(1));
  ASSERT_EQ(alice.Do("write 8")["there"], 8);
  const Finished shown = cluster().Admin(
      {"namespace", "show", "hostile", "--tenant", "alice", "--json"});
  std::smatch id;
  ASSERT_TRUE(std::regex_search(shown.output, id,
                                std::regex("\"id\": ?\"([0-9a-f]{32})\"")))
      << shown.output;
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto forged = bob.Do("forge-tokens");
  auto foreign = bob.Do(StrCat("write-into-foreign ", id[1].str()));

  EXPECT_EQ(forged["own"], 1);
  EXPECT_GT(forged["forged"], 10);
  EXPECT_EQ(forged["served"], 0);
  EXPECT_EQ(foreign["asked"], 16);
  EXPECT_EQ(foreign["told"], 0);
  ExpectOthersWereServed();
}

// Rules S3, S7 and T3: half a block and reservations that nobody fills are
// bounded, and given back although their writer stays.
TEST_F(HostileTest, AWriterThatStallsGivesItsSlotsBack) {
  StartNode();
  Hostile bob(kBobUid);
  bob.ConnectTo(cluster().socket(1));

  auto stalled = bob.Do("stall-writes 8");

  EXPECT_GT(stalled["reserved"], 0);
  EXPECT_GT(stalled["congested"], 0);
  ExpectOthersWereServed();
  alice_.reset();
  EXPECT_TRUE(cluster().NodeComesToRest(1));
  EXPECT_TRUE(
      cluster().node(1).MetricBecomes("firnkv_node_stream_connections", 0));
}

// Rule S2: in a container anybody is any uid.
TEST_F(HostileTest, AUidOfAnotherUserNamespaceSpeaksForNobody) {
  StartNode();
  Hostile bob(kBobUid);

  auto spoke = bob.Do("unshare " + cluster().socket(1));

  EXPECT_EQ(spoke["served"], 0);
  ExpectOthersWereServed();
  if (spoke["unshared"] == 0) {
    GTEST_SKIP() << "this machine lets nobody make user namespaces; the rule "
                    "is shown by session_socket_test";
  }
}

}  // namespace
}  // namespace firnkv
