// SIGSTOP and SIGCONT: a process that stands still for a while, and whose world
// has moved on when it wakes, sees no wrong byte.

#include <poll.h>

#include <csignal>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/text.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

class StopTest : public ProcessTest {
 protected:
  // Writes several times what the pool holds.
  void FloodNode(Worker* worker, int first_chain) {
    for (int i = 0; i < 100; ++i) {
      const Reply reply = worker->Do(StrCat("write ", first_chain + i, " 20"));
      EXPECT_EQ(reply["write_stored"], 20) << reply;
    }
  }
};

// Rule P7.
TEST_F(StopTest, AStoppedClientFindsUnderItsLeaseWhatItLeft) {
  StartCluster({.nodes = 1, .dram_bytes = 16 * kMiB});
  const std::unique_ptr<Worker> stopped = WorkerAt(cluster(), 1);
  const std::unique_ptr<Worker> other = WorkerAt(cluster(), 1);
  ASSERT_EQ(stopped->Do("write 1 20")["write_stored"], 20);
  ASSERT_TRUE(stopped->Do("raw " + cluster().socket(1)).ok);
  const Reply held = stopped->Do("hold 1 20 60");
  ASSERT_EQ(held["hit"], 20) << held;

  stopped->Signal(SIGSTOP);
  FloodNode(other.get(), 1000);
  EXPECT_GT(cluster().node(1).Metric("firnkv_node_evicted_blocks_total"), 500);
  stopped->Signal(SIGCONT);

  const Reply after = stopped->Do("check");
  EXPECT_TRUE(after.ok) << after;
  EXPECT_EQ(after["wrong"], 0) << after;
}

TEST_F(StopTest, AStoppedNodeCostsItsReadersTheirDeadlineAndNoMore) {
  StartCluster({.nodes = 2, .catalog_arguments = {"--catalog-lease", "1s"}});
  const std::unique_ptr<Worker> here = WorkerAt(cluster(), 1);
  const std::unique_ptr<Worker> there = WorkerAt(cluster(), 2);
  ASSERT_EQ(here->Do("write 1 20 published")["write_stored"], 20);
  ASSERT_EQ(there->Do("read 1 20")["hit"], 20);

  cluster().node(1).Signal(SIGSTOP);
  const Reply remote = there->Do("read 1 20");
  const Reply local = here->Do("read 1 20");
  EXPECT_TRUE(cluster().catalog().MetricBecomes(
      "firnkv_catalog_nodes{state=\"expired\"}", 1));
  cluster().node(1).Signal(SIGCONT);

  EXPECT_TRUE(remote.ok) << remote;
  EXPECT_EQ(remote["hit"], 0) << remote;
  EXPECT_TRUE(local.ok) << local;
  EXPECT_EQ(local["wrong"], 0) << local;
  // It comes back with all it had.
  EXPECT_TRUE(Eventually([&] { return there->Do("read 1 20")["hit"] == 20; }));
  EXPECT_TRUE(Eventually([&] { return here->Do("read 1 20")["hit"] == 20; }));
}

// Rule P4: leases are shorter than what processes stand still for, so that
// copies under way find their slots reused.
TEST_F(StopTest, ProcessesThatStandStillUnderLoadSeeNoWrongByte) {
  StartCluster({.nodes = 2,
                .dram_bytes = 8 * kMiB,
                .catalog_arguments = {"--catalog-lease", "1s"},
                .node_arguments = {"--leases-longest", "100ms"}});
  const std::uint64_t seed = SystemRandom().Next64();
  RecordProperty("seed", StrCat(seed));
  SeededRandom random(seed);
  std::vector<std::unique_ptr<Worker>> loads;
  for (int i = 0; i < 4; ++i) {
    loads.push_back(
        WorkerAt(cluster(), 1 + i % 2, i == 3 ? kBobUid : kAliceUid));
    loads.back()->Begin(StrCat("load ", random.Next64(), " 120 12"));
  }

  // Every process in turn; moments of up to 0.3 s.
  for (int i = 0; i < 8; ++i) {
    const auto signal = [&](int number) {
      if (i % 2 == 0) return loads[i / 2]->Signal(number);
      if (i % 4 == 1) return cluster().node(1 + i / 4).Signal(number);
      cluster().catalog().Signal(number);
    };
    poll(nullptr, 0, static_cast<int>(random.Next64() % 100));
    signal(SIGSTOP);
    poll(nullptr, 0, static_cast<int>(random.Next64() % 300));
    signal(SIGCONT);
  }

  for (const std::unique_ptr<Worker>& load : loads) {
    const Reply reply = load->EndLoad();
    EXPECT_TRUE(reply.ok) << reply;
    EXPECT_GT(reply["hit"], 0) << reply;
    EXPECT_EQ(reply["wrong"], 0) << reply;
    EXPECT_EQ(reply["corrupt"], 0) << reply;
  }
  EXPECT_TRUE(cluster().NodeComesToRest(1));
  EXPECT_TRUE(cluster().NodeComesToRest(2));
}

}  // namespace
}  // namespace firnkv
