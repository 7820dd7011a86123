// SIGKILL of every kind of process, at random moments under load: misses and
// refusals, never wrong bytes, a stuck key, a leaked slot or a hang.

#include <poll.h>

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/text.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

constexpr int kChains = 60;
constexpr int kBlocks = 12;

class KillTest : public ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    RecordProperty("seed", StrCat(seed_));
  }

  // More blocks than fit, so that slots are reused all the time.
  void StartSmallCluster(int nodes) {
    StartCluster({.nodes = nodes, .dram_bytes = 8 * kMiB});
  }

  // A load of its own seed, at a node.
  std::unique_ptr<Worker> LoadAt(int number, std::uint32_t uid = kAliceUid) {
    std::unique_ptr<Worker> worker = WorkerAt(cluster(), number, uid);
    worker->Begin(
        StrCat("load ", random_.Next64(), " ", kChains, " ", kBlocks));
    return worker;
  }

  // Until the node has given some hits more, and a random moment on.
  void WaitForSomeLoad(int number) {
    const char kReads[] = "firnkv_node_local_reads_total{outcome=\"hit\"}";
    const double before = cluster().node(number).Metric(kReads).value_or(0);
    EXPECT_TRUE(Eventually([&] {
      return cluster().node(number).Metric(kReads).value_or(0) >=
             before + 3 * kBlocks;
    }));
    poll(nullptr, 0, static_cast<int>(random_.Next64() % 50));
  }

  // What a load has seen must be right, whatever was killed meanwhile.
  static void ExpectRight(const Reply& load) {
    EXPECT_TRUE(load.ok) << load;
    EXPECT_GT(load["hit"], 0) << load;
    EXPECT_EQ(load["wrong"], 0) << load;
    EXPECT_EQ(load["corrupt"], 0) << load;
    EXPECT_EQ(load["bad_requests"], 0) << load;
  }

  // No key is stuck.
  void ExpectEveryKeyCanBeWritten(Worker* worker) {
    for (int chain = 0; chain < kChains; ++chain) {
      EXPECT_TRUE(Eventually([&] {
        const Reply reply = worker->Do(StrCat("write ", chain, " ", kBlocks));
        return reply["write_stored"] + reply["write_already_there"] == kBlocks;
      })) << "chain "
          << chain;
    }
  }

  const std::uint64_t seed_ = SystemRandom().Next64();
  SeededRandom random_{seed_};
};

TEST_F(KillTest, ANodeKilledUnderLoadServesRightBytesOrMisses) {
  StartSmallCluster(2);
  const std::unique_ptr<Worker> one = LoadAt(1);
  const std::unique_ptr<Worker> two = LoadAt(2);
  const std::unique_ptr<Worker> other_tenant = LoadAt(2, kBobUid);

  for (int i = 0; i < 4; ++i) {
    const int victim = 1 + i % 2;
    WaitForSomeLoad(victim);
    cluster().node(victim).Kill();
    poll(nullptr, 0, static_cast<int>(random_.Next64() % 100));
    ASSERT_TRUE(cluster().node(victim).Start());
  }
  WaitForSomeLoad(1);
  WaitForSomeLoad(2);

  for (Worker* worker : {one.get(), two.get(), other_tenant.get()}) {
    ExpectRight(worker->EndLoad());
  }
  ExpectEveryKeyCanBeWritten(one.get());
  ExpectEveryKeyCanBeWritten(two.get());
  EXPECT_TRUE(cluster().NodeComesToRest(1));
  EXPECT_TRUE(cluster().NodeComesToRest(2));
  EXPECT_EQ(cluster().SumOverNodes("firnkv_node_corrupt_copies_total"), 0);
}

TEST_F(KillTest, WithoutItsCatalogANodeGoesOnAndAnnouncesLater) {
  StartCluster({.nodes = 2});
  const std::unique_ptr<Worker> here = WorkerAt(cluster(), 1);
  const std::unique_ptr<Worker> there = WorkerAt(cluster(), 2);
  ASSERT_EQ(here->Do("write 1 20 published")["write_stored"], 20);

  cluster().catalog().Kill();
  EXPECT_EQ(here->Do("read 1 20")["hit"], 20);
  EXPECT_EQ(here->Do("write 2 20")["write_stored"], 20);
  EXPECT_EQ(here->Do("read 2 20")["hit"], 20);
  // What nobody here has is not waited for.
  const Reply cold = here->Do("read 500 20");
  EXPECT_EQ(cold["hit"] + cold["timed_out"], 0) << cold;
  ASSERT_TRUE(cluster().catalog().Start());

  EXPECT_TRUE(Eventually([&] { return there->Do("read 2 20")["hit"] == 20; }));
  const Reply remote = there->Do("read 1 20");
  EXPECT_EQ(remote["hit"], 20) << remote;
  EXPECT_EQ(remote["wrong"], 0) << remote;
}

TEST_F(KillTest, TheCatalogKilledUnderLoadLosesNothing) {
  StartSmallCluster(2);
  const std::unique_ptr<Worker> one = LoadAt(1);
  const std::unique_ptr<Worker> two = LoadAt(2);

  for (int i = 0; i < 3; ++i) {
    WaitForSomeLoad(1 + i % 2);
    cluster().catalog().Kill();
    WaitForSomeLoad(1 + i % 2);
    ASSERT_TRUE(cluster().catalog().Start());
  }
  WaitForSomeLoad(1);

  ExpectRight(one->EndLoad());
  ExpectRight(two->EndLoad());
  EXPECT_TRUE(cluster().NodesAreRegistered());
  // What node 1 has now, node 2 finds.
  ASSERT_TRUE(Eventually([&] {
    return one->Do("write 9000 12 published")["write_stored"] == 12;
  }));
  EXPECT_TRUE(Eventually([&] { return two->Do("read 9000 12")["hit"] == 12; }));
  EXPECT_TRUE(cluster().NodeComesToRest(1));
  EXPECT_TRUE(cluster().NodeComesToRest(2));
}

TEST_F(KillTest, AClusterKilledAsAWholeComesBackInAnyOrder) {
  StartSmallCluster(2);
  const std::unique_ptr<Worker> one = LoadAt(1);
  const std::unique_ptr<Worker> two = LoadAt(2);
  WaitForSomeLoad(1);
  WaitForSomeLoad(2);

  cluster().node(1).Kill();
  cluster().catalog().Kill();
  cluster().node(2).Kill();
  ASSERT_TRUE(cluster().node(2).Start());
  ASSERT_TRUE(cluster().catalog().Start());
  ASSERT_TRUE(cluster().node(1).Start());

  EXPECT_TRUE(cluster().NodesAreRegistered());
  WaitForSomeLoad(1);
  ExpectRight(one->EndLoad());
  ExpectRight(two->EndLoad());
  ExpectEveryKeyCanBeWritten(one.get());
  ExpectEveryKeyCanBeWritten(two.get());
}

TEST_F(KillTest, ANodeEndedAndStartedUnderLoadServesRightBytes) {
  StartSmallCluster(2);
  const std::unique_ptr<Worker> one = LoadAt(1);
  const std::unique_ptr<Worker> two = LoadAt(2);

  for (int i = 0; i < 2; ++i) {
    WaitForSomeLoad(1);
    EXPECT_EQ(cluster().node(1).Terminate(), 0);
    ASSERT_TRUE(cluster().node(1).Start());
  }
  WaitForSomeLoad(1);

  ExpectRight(one->EndLoad());
  ExpectRight(two->EndLoad());
  EXPECT_TRUE(cluster().NodeComesToRest(1));
  EXPECT_TRUE(cluster().NodeComesToRest(2));
}

// Rules S3, S7.
TEST_F(KillTest, AClientKilledInTheMiddleOfAWriteLeavesNothingBehind) {
  StartSmallCluster(1);

  for (int i = 0; i < 4; ++i) {
    const std::unique_ptr<Worker> load = LoadAt(1);
    const std::unique_ptr<Worker> other = LoadAt(1);
    WaitForSomeLoad(1);
    load->Kill();
    other->Kill();
  }

  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_sessions", 0));
  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_staging_bytes", 0));
  EXPECT_TRUE(cluster().NodeComesToRest(1));
  const std::unique_ptr<Worker> next = WorkerAt(cluster(), 1);
  ExpectEveryKeyCanBeWritten(next.get());
}

// Rules S3, S7. Much longer than any test waits, so that no term has run out.
TEST_F(KillTest, LeasesAndReservationsEndWithTheirClient) {
  StartSmallCluster(1);
  const std::unique_ptr<Worker> client = WorkerAt(cluster(), 1);
  ASSERT_EQ(client->Do("write 1 12")["write_stored"], 12);
  ASSERT_TRUE(client->Do("raw " + cluster().socket(1)).ok);
  ASSERT_EQ(client->Do("hold 1 12 60")["hit"], 12);
  ASSERT_EQ(client->Do("reserve 2 12")["reserved"], 12);
  EXPECT_GT(cluster().node(1).Metric("firnkv_node_leases"), 0);
  EXPECT_EQ(cluster().node(1).Metric("firnkv_node_dram_reserved_bytes"),
            12 * kTestBlockBytes);

  client->Kill();

  EXPECT_TRUE(cluster().NodeComesToRest(1));
}

}  // namespace
}  // namespace firnkv
