// Views of a client under another uid than its node: whatever becomes of node
// and blocks behind them, a byte that a Close vouches for is right.
//
// `view` opens, `look` counts what is wrong in it now, whatever the verdict
// will be, and `close` looks once more and then closes.

#include <csignal>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

constexpr int kBlocks = 20;

class ViewProcessTest : public ProcessTest {
 protected:
  // A client that looks at chain 1 for up to `age_millis`, and another one.
  void StartLooking(int age_millis,
                    std::vector<std::string> node_arguments = {}) {
    StartCluster({.nodes = 1,
                  .dram_bytes = 16 * kMiB,
                  .node_arguments = std::move(node_arguments)});
    viewer_ = WorkerAt(cluster(), 1);
    other_ = WorkerAt(cluster(), 1);
    ASSERT_EQ(viewer_->Do(StrCat("write 1 ", kBlocks))["write_stored"],
              kBlocks);
    const Reply viewed =
        viewer_->Do(StrCat("view 1 ", kBlocks, " ", age_millis));
    ASSERT_EQ(viewed["hit"], kBlocks) << viewed;
    ASSERT_EQ(viewer_->Do("look")["wrong"], 0);
  }

  // Writes more than the pool holds.
  void FloodNode() {
    for (int i = 0; i < 60; ++i) {
      const Reply reply = other_->Do(StrCat("write ", ++flooded_, " 20"));
      EXPECT_EQ(reply["write_stored"], 20) << reply;
    }
  }
  // Until the viewed slots have other bytes.
  void FloodWhatIsViewed() {
    EXPECT_TRUE(Eventually([&] {
      FloodNode();
      return viewer_->Do("look")["wrong"] > 0;
    }));
  }

  std::unique_ptr<Worker> viewer_;
  std::unique_ptr<Worker> other_;
  int flooded_ = 1000;
};

// Rule P7.
TEST_F(ViewProcessTest, UnderItsLeaseAViewIsUntouchedByEvictionAndClear) {
  StartLooking(/*age_millis=*/26'000);

  FloodNode();
  const Finished cleared = cluster().Admin(
      {"namespace", "clear", "granite", "--tenant", "alice", "--yes"});
  EXPECT_EQ(cleared.code, 0) << cleared.output;
  FloodNode();

  const Reply closed = viewer_->Do("close");
  EXPECT_EQ(closed["wrong"], 0) << closed;
  EXPECT_EQ(closed["hit"], kBlocks) << closed;
  EXPECT_TRUE(cluster().NodeComesToRest(1));
}

// Rules P4 and P7.
TEST_F(ViewProcessTest, AViewThatWasOpenForTooLongVouchesForNothing) {
  StartLooking(/*age_millis=*/200);

  FloodWhatIsViewed();

  const Reply closed = viewer_->Do("close");
  EXPECT_EQ(closed["hit"], 0) << closed;
  EXPECT_EQ(closed["timed_out"], kBlocks) << closed;
}

// Rules P4 and A7.
TEST_F(ViewProcessTest, AClientThatStoodStillVouchesForNothingItLost) {
  StartLooking(/*age_millis=*/500);

  viewer_->Signal(SIGSTOP);
  FloodNode();
  viewer_->Signal(SIGCONT);
  FloodWhatIsViewed();

  const Reply closed = viewer_->Do("close");
  EXPECT_EQ(closed["wrong"], 0) << closed;
  EXPECT_EQ(closed["hit"], 0) << closed;
}

TEST_F(ViewProcessTest, AStoppedNodeStopsNoView) {
  StartLooking(/*age_millis=*/26'000);

  cluster().node(1).Signal(SIGSTOP);
  const Reply closed = viewer_->Do("close");
  cluster().node(1).Signal(SIGCONT);

  EXPECT_EQ(closed["wrong"], 0) << closed;
  EXPECT_EQ(closed["hit"], kBlocks) << closed;
}

// Rules P3 and P6.
TEST_F(ViewProcessTest, OfANodeThatWasKilledNothingCountsAndAllIsReadable) {
  StartLooking(/*age_millis=*/26'000);

  cluster().node(1).Kill();
  EXPECT_EQ(viewer_->Do("look")["wrong"], 0);
  ASSERT_TRUE(cluster().node(1).Start()) << cluster().node(1).Log();
  // It has a session with the next run, whose regions have the same numbers.
  EXPECT_TRUE(Eventually(
      [&] { return viewer_->Do("write 2 20")["write_stored"] == 20; }));
  EXPECT_TRUE(Eventually(
      [&] { return other_->Do("write 3 20")["write_stored"] == 20; }));
  FloodNode();

  EXPECT_EQ(viewer_->Do("look")["wrong"], 0);
  const Reply closed = viewer_->Do("close");
  EXPECT_EQ(closed["unavailable"], kBlocks) << closed;
}

// Rule P9.
TEST_F(ViewProcessTest, ASessionThatLooksBeyondTheHardAgeIsEnded) {
  StartLooking(/*age_millis=*/26'000, {"--leases-longest-view", "500ms"});

  EXPECT_TRUE(
      Eventually([&] { return viewer_->Do("look")["sessions_lost"] == 1; }));

  const Reply closed = viewer_->Do("close");
  EXPECT_EQ(closed["wrong"], 0) << closed;
  EXPECT_EQ(closed["hit"], 0) << closed;
  // With its next session it goes on.
  EXPECT_TRUE(Eventually(
      [&] { return viewer_->Do("write 4 20")["write_stored"] == 20; }));
}

// Rule P10: the node's own uid could write what it maps.
TEST_F(ViewProcessTest, TheNodesOwnUidHasNoViews) {
  StartLooking(/*age_millis=*/1'000);
  Worker own(kDaemonUid);
  ASSERT_TRUE(own.Do("connect " + cluster().socket(1)).ok);
  ASSERT_TRUE(own.Do(StrCat("open granite ", kTestBlockBytes)).ok);

  EXPECT_NE(own.Do("view 1 20 1000").text.find("FAILED_PRECONDITION"),
            std::string::npos);
  EXPECT_EQ(viewer_->Do("close")["wrong"], 0);
}

}  // namespace
}  // namespace firnkv
