// Two tenants on one machine, each a uid of its own: who sees what, and who may
// write what it sees.

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TenantTest : public ProcessTest {};

// Rule C1.
TEST_F(TenantTest, EqualPromptsOfTwoTenantsStayApart) {
  StartCluster({.nodes = 2});
  const std::unique_ptr<Worker> alice = WorkerAt(cluster(), 1, kAliceUid);
  const std::unique_ptr<Worker> bob = WorkerAt(cluster(), 1, kBobUid);
  const std::unique_ptr<Worker> bob_there = WorkerAt(cluster(), 2, kBobUid);

  ASSERT_EQ(alice->Do("write 1 20 published")["write_stored"], 20);
  EXPECT_EQ(bob->Do("exists 1 20")["hit"], 0);
  EXPECT_EQ(bob->Do("read 1 20")["miss"], 20);
  EXPECT_EQ(bob_there->Do("read 1 20")["miss"], 20);

  // Equal keys, other bytes.
  EXPECT_EQ(bob->Do("write 1 20 published")["write_stored"], 20);
  for (Worker* worker : {alice.get(), bob.get(), bob_there.get()}) {
    const Reply read = worker->Do("read 1 20");
    EXPECT_EQ(read["hit"], 20) << read;
    EXPECT_EQ(read["wrong"], 0) << read;
  }
}

TEST_F(TenantTest, AUidOutsideTheMapIsRefused) {
  StartCluster({.nodes = 1});
  Worker stranger(kStrangerUid);

  EXPECT_THAT(stranger.Do("connect " + cluster().socket(1)).text,
              AllOf(HasSubstr("PERMISSION_DENIED"),
                    HasSubstr(StrCat("uid ", kStrangerUid)),
                    HasSubstr("not in the uid map")));
  EXPECT_THAT(stranger.Do("raw " + cluster().socket(1)).text,
              HasSubstr("PERMISSION_DENIED"));
}

TEST_F(TenantTest, WithoutAMapOnlyTheNodesOwnUidIsServed) {
  StartCluster({.nodes = 1, .uid_map = false});
  Worker stranger(kStrangerUid);
  Worker own(kDaemonUid);

  EXPECT_THAT(stranger.Do("connect " + cluster().socket(1)).text,
              HasSubstr("no uid map is configured"));
  EXPECT_TRUE(own.Do("connect " + cluster().socket(1)).ok);
}

// Rule S6.
TEST_F(TenantTest, ANodeOfAnUnexpectedUidIsSentNothing) {
  const ScratchFolder scratch;
  const std::string host = OwnLoopbackAddress();
  const std::string folder = scratch.FolderOf(kStrangerUid, "stranger");
  Daemon impostor(
      {.program = "firnkv-node",
       .uid = kStrangerUid,
       .arguments = {"--data-dir", folder, "--node-socket",
                     folder + "/node.sock", "--node-control", host + ":7410",
                     "--node-stream", host + ":7411", "--http-address",
                     host + ":7412", "--catalog-listen", host + ":7400",
                     "--dram-bytes", "64MiB", "--sessions-uid-map",
                     StrCat(kAliceUid, "=default")},
       .log_file = scratch.path() + "/log",
       .http = host + ":7412"});
  ASSERT_TRUE(impostor.Start()) << impostor.Log();

  Worker alice(kAliceUid);
  EXPECT_THAT(alice.Do("connect " + folder + "/node.sock").text,
              AllOf(HasSubstr("failed"), HasSubstr(StrCat(kStrangerUid))));
}

// Rule S6.
TEST_F(TenantTest, AForkedChildOfAClientDoesNothing) {
  StartCluster({.nodes = 1});
  const std::unique_ptr<Worker> alice = WorkerAt(cluster(), 1);
  ASSERT_EQ(alice->Do("write 1 20")["write_stored"], 20);

  const Reply child = alice->Do("fork 1 20");

  EXPECT_EQ(child["exit"], 0) << child;
  EXPECT_EQ(child["unavailable"], 20) << child;
  EXPECT_EQ(alice->Do("read 1 20")["hit"], 20);
  EXPECT_EQ(alice->Do("write 2 20")["write_stored"], 20);
}

// Rule P10.
TEST_F(TenantTest, TheNodesOwnUidReadsByStreamAndGetsNoMapping) {
  StartCluster({.nodes = 1});
  const std::unique_ptr<Worker> alice = WorkerAt(cluster(), 1, kAliceUid);
  ASSERT_EQ(alice->Do("write 1 20 published")["write_stored"], 20);
  ASSERT_TRUE(alice->Do("raw " + cluster().socket(1)).ok);
  const std::int64_t region = alice->Do("hold 1 20 10")["region"];

  // The map makes this uid one of alice's.
  Worker own(kDaemonUid);
  const Reply connected = own.Do("connect " + cluster().socket(1));
  EXPECT_TRUE(connected.ok) << connected;
  EXPECT_EQ(connected["mapping"], 0);
  ASSERT_TRUE(own.Do(StrCat("open granite ", kTestBlockBytes)).ok);
  const Reply read = own.Do("read 1 20");
  EXPECT_EQ(read["hit"], 20) << read;
  EXPECT_EQ(read["wrong"], 0) << read;
  EXPECT_EQ(read["mapped_bytes"], 0) << read;

  ASSERT_TRUE(own.Do("raw " + cluster().socket(1)).ok);
  EXPECT_THAT(own.Do(StrCat("attack ", region, " 0")).text,
              HasSubstr("maps nothing"));
}

// Rule P10: seen before, the same uid reopens a read-only descriptor through
// /proc; another uid must not.
TEST_F(TenantTest, WhatATenantMayReadItCannotWrite) {
  StartCluster({.nodes = 1});
  const std::unique_ptr<Worker> alice = WorkerAt(cluster(), 1, kAliceUid);
  ASSERT_EQ(alice->Do("write 1 20")["write_stored"], 20);
  ASSERT_TRUE(alice->Do("raw " + cluster().socket(1)).ok);
  const Reply held = alice->Do("hold 1 20 60");
  ASSERT_EQ(held["hit"], 20) << held;

  // Each way of writing that worked would be named.
  for (const int what : {0, 1}) {
    EXPECT_EQ(alice->Do(StrCat("attack ", held["region"], " ", what)).text,
              "ok");
  }
  EXPECT_EQ(alice->Do("check")["wrong"], 0);
}

// Rule C5.
TEST_F(TenantTest, ATenantGetsNoRegionOfAnother) {
  StartCluster({.nodes = 1});
  const std::unique_ptr<Worker> alice = WorkerAt(cluster(), 1, kAliceUid);
  const std::unique_ptr<Worker> bob = WorkerAt(cluster(), 1, kBobUid);
  ASSERT_EQ(alice->Do("write 1 20")["write_stored"], 20);
  ASSERT_EQ(bob->Do("write 1 20")["write_stored"], 20);
  ASSERT_TRUE(alice->Do("raw " + cluster().socket(1)).ok);
  ASSERT_TRUE(bob->Do("raw " + cluster().socket(1)).ok);
  const std::int64_t alices = alice->Do("hold 1 20 60")["region"];
  const std::int64_t bobs = bob->Do("hold 1 20 60")["region"];

  EXPECT_NE(alices, bobs);
  for (const int what : {0, 1}) {
    EXPECT_THAT(bob->Do(StrCat("attack ", alices, " ", what)).text,
                HasSubstr("failed PERMISSION_DENIED"));
    EXPECT_EQ(bob->Do(StrCat("attack ", bobs, " ", what)).text, "ok");
  }
}

}  // namespace
}  // namespace firnkv
