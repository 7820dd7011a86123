// Blocks between processes and nodes.

#include <memory>

#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

class ReadWriteTest : public ProcessTest {};

TEST_F(ReadWriteTest, ABlockIsReadWhereItWasWrittenAndFromAnotherNode) {
  StartCluster({.nodes = 2});
  const std::unique_ptr<Worker> here = WorkerAt(cluster(), 1);
  const std::unique_ptr<Worker> there = WorkerAt(cluster(), 2);
  ASSERT_EQ(here->Do("write 1 50 published")["write_stored"], 50);

  const Reply local = here->Do("read 1 50");
  const Reply remote = there->Do("read 1 50");

  EXPECT_EQ(local["hit"], 50) << local;
  EXPECT_EQ(local["wrong"], 0) << local;
  EXPECT_EQ(local["mapped_bytes"], 50 * kTestBlockBytes) << local;
  EXPECT_EQ(remote["hit"], 50) << remote;
  EXPECT_EQ(remote["wrong"], 0) << remote;
  EXPECT_EQ(remote["remote_bytes"], 50 * kTestBlockBytes) << remote;
}

TEST_F(ReadWriteTest, WhatIsWrittenTwiceIsAlreadyThere) {
  StartCluster({.nodes = 1});
  const std::unique_ptr<Worker> one = WorkerAt(cluster(), 1);
  const std::unique_ptr<Worker> other = WorkerAt(cluster(), 1);

  EXPECT_EQ(one->Do("write 1 10")["write_stored"], 10);
  EXPECT_EQ(other->Do("write 1 10")["write_already_there"], 10);
}

TEST_F(ReadWriteTest, AClientThatHasEndedLeavesNoThreadInItsProcess) {
  StartCluster({.nodes = 2});
  Worker worker(kAliceUid);
  ASSERT_EQ(worker.Do("threads")["threads"], 1);

  // Twice: with the first one, gRPC's own would have begun.
  for (int life = 0; life < 2; ++life) {
    ASSERT_TRUE(worker.Do("connect " + cluster().socket(1)).ok);
    ASSERT_TRUE(worker.Do(StrCat("open granite ", kTestBlockBytes)).ok);
    ASSERT_EQ(worker.Do("write 1 10 published")["write_already_there"],
              life == 0 ? 0 : 10);
    ASSERT_EQ(worker.Do("read 1 10")["hit"], 10);
    EXPECT_GT(worker.Do("threads")["threads"], 1);

    EXPECT_EQ(worker.Do("end")["threads"], 1) << "life " << life;
  }
}

TEST_F(ReadWriteTest, EvictionMakesRoomAndEveryReadIsRight) {
  // 16 MiB hold about 1,000 blocks; 200 chains of 20 are 4,000.
  StartCluster({.nodes = 1, .dram_bytes = 16 * kMiB});
  const std::unique_ptr<Worker> worker = WorkerAt(cluster(), 1);

  for (int chain = 0; chain < 200; ++chain) {
    const Reply written = worker->Do(StrCat("write ", chain, " 20"));
    ASSERT_EQ(written["write_stored"], 20) << written;
  }

  EXPECT_GT(cluster().node(1).Metric("firnkv_node_evicted_blocks_total"), 2000);
  const Reply newest = worker->Do("read 199 20");
  EXPECT_EQ(newest["hit"], 20) << newest;
  EXPECT_EQ(newest["wrong"], 0) << newest;
  EXPECT_EQ(worker->Do("read 0 20")["miss"], 20);
  EXPECT_TRUE(cluster().NodeComesToRest(1));
}

}  // namespace
}  // namespace firnkv
