// Full memory: a node in a memory cgroup that is smaller than its pool's
// target, with a neighbour that wants some too; a pool in which everything is
// leased or reserved.

#include <memory>

#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/memory_cgroup.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kLimit = 640 * kMiB;
constexpr std::uint64_t kReserve = 64 * kMiB;

class CgroupTest : public ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    if (IsSkipped()) return;
    absl::StatusOr<std::unique_ptr<MemoryCgroup>> group =
        MemoryCgroup::Make(kLimit);
    if (!group.ok()) {
      GTEST_SKIP() << "this machine lets nobody make a memory cgroup: "
                   << group.status();
    }
    group_ = *std::move(group);
    StartCluster(
        {.nodes = 1,
         .dram_bytes = 4 * kGiB,
         .region_bytes = 16 * kMiB,
         .node_arguments = {"--dram-reserve-bytes", StrCat(kReserve, "B")},
         .cgroup_file = group_->procs_file()});
  }
  void TearDown() override {
    ProcessTest::TearDown();
    cluster_.reset();
  }

  double Metric(const char* name) {
    return cluster().node(1).Metric(name).value_or(-1);
  }
  // More than the limit, 20 MiB a chain.
  void Flood(Worker* worker, int first_chain) {
    for (int i = 0; i < 40; ++i) {
      const Reply written =
          worker->Do(StrCat("write ", first_chain + i, " 20"));
      EXPECT_TRUE(written.ok) << written;
      EXPECT_EQ(written["write_stored"] + written["write_congested"], 20)
          << written;
    }
  }
  void ExpectTheNodeServes(Worker* worker, int chain) {
    EXPECT_TRUE(Eventually([&] {
      const Reply written = worker->Do(StrCat("write ", chain, " 20"));
      return written["write_stored"] + written["write_already_there"] == 20;
    }));
    const Reply read = worker->Do(StrCat("read ", chain, " 20"));
    EXPECT_EQ(read["hit"], 20) << read;
    EXPECT_EQ(read["wrong"], 0) << read;
    EXPECT_TRUE(cluster().node(1).runs());
    EXPECT_EQ(group_->Killed(), 0);
  }

  std::unique_ptr<MemoryCgroup> group_;
};

// Rule P11: in a cgroup running out is SIGKILL.
TEST_F(CgroupTest, APoolThatMayGrowBeyondItsCgroupStaysBelow) {
  const std::unique_ptr<Worker> worker = BigWorkerAt(cluster(), 1);

  Flood(worker.get(), 0);

  EXPECT_GT(Metric("firnkv_node_growth_refusals_total"), 0);
  EXPECT_GT(Metric("firnkv_node_evicted_blocks_total"), 0);
  EXPECT_GT(Metric("firnkv_node_dram_region_bytes"), kLimit / 8);
  EXPECT_LE(Metric("firnkv_node_dram_region_bytes"), kLimit - kReserve);
  ExpectTheNodeServes(worker.get(), 1000);
  EXPECT_TRUE(cluster().NodeComesToRest(1));
}

// Rule P11.
TEST_F(CgroupTest, APoolMakesRoomForANeighbourInItsCgroup) {
  const std::unique_ptr<Worker> worker = BigWorkerAt(cluster(), 1);
  Flood(worker.get(), 0);
  const double before = Metric("firnkv_node_dram_region_bytes");

  // In steps that the reserve covers.
  Worker neighbour(kAliceUid, {.cgroup_file = group_->procs_file()});
  for (int i = 0; i < 4; ++i) {
    const double at = Metric("firnkv_node_dram_region_bytes");
    ASSERT_TRUE(neighbour.Do(StrCat("take ", kReserve / 2)).ok);
    EXPECT_TRUE(Eventually([&] {
      return Metric("firnkv_node_dram_region_bytes") < at;
    })) << i;
  }

  EXPECT_LT(Metric("firnkv_node_dram_region_bytes"), before - kReserve);
  ExpectTheNodeServes(worker.get(), 1000);
  EXPECT_TRUE(cluster().NodeComesToRest(1));
}

class FullPoolTest : public ProcessTest {
 protected:
  // Holds 512 blocks.
  void SetUp() override {
    ProcessTest::SetUp();
    if (IsSkipped()) return;
    StartCluster({.nodes = 1, .dram_bytes = 8 * kMiB});
    greedy_ = WorkerAt(cluster(), 1);
    writer_ = WorkerAt(cluster(), 1);
    ASSERT_TRUE(greedy_->Do("raw " + cluster().socket(1)).ok);
  }

  void ExpectTheWriterFindsRoom() {
    EXPECT_TRUE(Eventually([&] {
      const Reply written = writer_->Do("write 500 20");
      return written["write_stored"] + written["write_already_there"] == 20;
    }));
    const Reply read = writer_->Do("read 500 20");
    EXPECT_EQ(read["hit"], 20) << read;
    EXPECT_EQ(read["wrong"], 0) << read;
    EXPECT_TRUE(cluster().NodeComesToRest(1));
  }

  std::unique_ptr<Worker> greedy_;
  std::unique_ptr<Worker> writer_;
};

// Rules P7, S9.
TEST_F(FullPoolTest, WhereEverythingIsLeasedOnlyWritersFindNoRoom) {
  for (int chain = 0; chain < 25; ++chain) {
    ASSERT_EQ(writer_->Do(StrCat("write ", chain, " 20"))["write_stored"], 20);
    ASSERT_EQ(greedy_->Do(StrCat("hold ", chain, " 20 60"))["hit"], 20);
  }

  const Reply written = writer_->Do("write 500 20");
  const Reply held = greedy_->Do("check");
  const Reply read = writer_->Do("read 24 20");

  EXPECT_GE(written["write_congested"], 8) << written;
  EXPECT_LE(written["write_stored"], 12) << written;
  EXPECT_EQ(held["wrong"], 0) << held;
  EXPECT_EQ(read["hit"], 20) << read;
  greedy_->Kill();
  ExpectTheWriterFindsRoom();
}

// Rule S7.
TEST_F(FullPoolTest, WhereEverythingIsReservedAWriterFindsNoRoom) {
  for (int chain = 0; chain < 25; ++chain) {
    ASSERT_EQ(greedy_->Do(StrCat("reserve ", chain, " 20"))["reserved"], 20);
  }

  const Reply written = writer_->Do("write 500 20");

  EXPECT_GE(written["write_congested"], 8) << written;
  EXPECT_LE(written["write_stored"], 12) << written;
  greedy_->Kill();
  ExpectTheWriterFindsRoom();
}

}  // namespace
}  // namespace firnkv
