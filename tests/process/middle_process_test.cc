// SIGSTOP in the middle: of staging, of a commit, of a remote read. Behind the
// stopped process its blocks are evicted, cleared, and their slots used again;
// when it wakes it sees no wrong byte and leaves nothing behind.
//
// The middle is caught by looking: an operation is begun, what it takes of the
// node shows in the node's metrics, and what is still taken after the stop was
// taken in the middle. Where it was over already, it is begun again.

#include <csignal>
#include <functional>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"

namespace firnkv {
namespace {

constexpr int kTries = 100;
// Of big blocks, and so some tens of milliseconds.
constexpr int kBlocks = 64;
// Into a node.
constexpr int kFitting = 160;

class MiddleTest : public ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    if (IsSkipped()) return;
    StartCluster(
        {.nodes = 2,
         .dram_bytes = kFitting * kBigBlockBytes,
         .node_arguments = {"--leases-longest", "1s", "--reservations-longest",
                            "1s", "--stream-longest-response", "1s"}});
  }

  double Metric(int node, const char* name) {
    return cluster().node(node).Metric(name).value_or(0);
  }

  // Begins `command` of a chain of its own at each try, until `begun` while it
  // runs, and then stops `victim`. True where it has stopped it while `caught`.
  // Returns the chain, or -1.
  int StopInTheMiddle(Worker* worker, const std::string& verb,
                      const std::function<bool()>& begun,
                      const std::function<void(int)>& victim,
                      const std::function<bool()>& caught) {
    for (int chain = 0; chain < kTries; ++chain) {
      worker->Begin(
          StrCat(verb, " ", verb == "read" ? 0 : chain, " ", kBlocks));
      while (!worker->answered() && !begun()) {
      }
      victim(SIGSTOP);
      if (!worker->answered() && caught()) return chain;
      victim(SIGCONT);
      worker->Answer();
    }
    return -1;
  }

  // Everything that node 1 has is evicted, then cleared, and its slots are
  // written several times over. (Who reserved before a clear is told so.)
  void UseEverySlotAgain(Worker* other) {
    std::int64_t stored = 0;
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 12; ++i) {
        const Reply reply =
            other->Do(StrCat("write ", 1000 + 100 * round + i, " 20"));
        EXPECT_TRUE(reply.ok) << reply;
        stored += reply["write_stored"];
      }
      const Finished cleared = cluster().Admin(
          {"namespace", "clear", "big", "--tenant", "alice", "--yes"});
      EXPECT_EQ(cleared.code, 0) << cleared.output;
    }
    EXPECT_GT(stored, 2 * kFitting);
  }

  void ExpectRightAndAtRest(Worker* worker, const Reply& woken, int chain) {
    EXPECT_TRUE(woken.ok) << woken;
    EXPECT_EQ(woken["wrong"], 0) << woken;
    EXPECT_EQ(woken["bad_requests"], 0) << woken;
    const Reply read = worker->Do(StrCat("read ", chain, " ", kBlocks));
    EXPECT_EQ(read["wrong"] + read["corrupt"], 0) << read;
    // No key is stuck, and what is written now is right.
    EXPECT_TRUE(Eventually([&] {
      const Reply written = worker->Do(StrCat("write ", chain, " ", kBlocks));
      return written["write_stored"] + written["write_already_there"] ==
             kBlocks;
    }));
    const Reply again = worker->Do(StrCat("read ", chain, " ", kBlocks));
    EXPECT_EQ(again["hit"], kBlocks) << again;
    EXPECT_EQ(again["wrong"], 0) << again;
    EXPECT_TRUE(cluster().NodeComesToRest(1));
    EXPECT_TRUE(cluster().NodeComesToRest(2));
  }
};

// Rules S5, S7.
TEST_F(MiddleTest,
       AWriterStoppedWhileItFillsItsStagingFindsItsReservationOver) {
  const std::unique_ptr<Worker> writer = BigWorkerAt(cluster(), 1);
  const std::unique_ptr<Worker> other = BigWorkerAt(cluster(), 1);

  // What is reserved while nothing is being copied, its writer still fills.
  const int chain = StopInTheMiddle(
      writer.get(), "write",
      [&] { return Metric(1, "firnkv_node_reservations") > 0; },
      [&](int signal) { writer->Signal(signal); },
      [&] {
        return cluster().node(1).MetricBecomes("firnkv_node_copy_queue_bytes",
                                               0) &&
               Metric(1, "firnkv_node_reservations") > 0;
      });
  ASSERT_GE(chain, 0);
  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_reservations", 0));
  EXPECT_TRUE(
      cluster().node(1).MetricBecomes("firnkv_node_dram_reserved_bytes", 0));
  UseEverySlotAgain(other.get());
  writer->Signal(SIGCONT);

  ExpectRightAndAtRest(writer.get(), writer->Answer(), chain);
}

// Rules P7, S5.
TEST_F(MiddleTest, AWriterStoppedDuringItsCommitFindsItDone) {
  const std::unique_ptr<Worker> writer = BigWorkerAt(cluster(), 1);
  const std::unique_ptr<Worker> other = BigWorkerAt(cluster(), 1);

  const int chain = StopInTheMiddle(
      writer.get(), "write",
      [&] { return Metric(1, "firnkv_node_copy_queue_bytes") > 0; },
      [&](int signal) { writer->Signal(signal); }, [] { return true; });
  ASSERT_GE(chain, 0);
  EXPECT_TRUE(
      cluster().node(1).MetricBecomes("firnkv_node_copy_queue_bytes", 0));
  UseEverySlotAgain(other.get());
  writer->Signal(SIGCONT);

  ExpectRightAndAtRest(writer.get(), writer->Answer(), chain);
}

// Rules S1, S5: reservation and deadline pass while the node stands still in
// the middle of the copy; the client keeps the staging as it is.
TEST_F(MiddleTest, ANodeStoppedDuringACommitStoresTheRightBytesOrNone) {
  const std::unique_ptr<Worker> writer = BigWorkerAt(cluster(), 1);

  const int chain = StopInTheMiddle(
      writer.get(), "write",
      [&] { return Metric(1, "firnkv_node_copy_queue_bytes") > 0; },
      [&](int signal) { cluster().node(1).Signal(signal); },
      [] { return true; });
  ASSERT_GE(chain, 0);
  const Reply written = writer->Answer();
  const Reply next = writer->Do(StrCat("write 5000 ", kBlocks));
  cluster().node(1).Signal(SIGCONT);

  EXPECT_TRUE(next.ok) << next;
  EXPECT_EQ(next["write_stored"], 0) << next;
  ExpectRightAndAtRest(writer.get(), written, chain);
  ExpectRightAndAtRest(writer.get(), next, 5000);
}

// Rules P8, S3: the copy goes on from the memory of a dead process.
TEST_F(MiddleTest, AWriterKilledDuringItsCommitLeavesNothingBehind) {
  std::unique_ptr<Worker> writer = BigWorkerAt(cluster(), 1);

  const int chain = StopInTheMiddle(
      writer.get(), "write",
      [&] { return Metric(1, "firnkv_node_copy_queue_bytes") > 0; },
      [&](int signal) { cluster().node(1).Signal(signal); },
      [] { return true; });
  ASSERT_GE(chain, 0);
  writer->Kill();
  cluster().node(1).Signal(SIGCONT);

  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_sessions", 0));
  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_staging_bytes", 0));
  const std::unique_ptr<Worker> next = BigWorkerAt(cluster(), 1);
  ExpectRightAndAtRest(next.get(), next->Do(StrCat("read ", chain, " 64")),
                       chain);
}

// Rules P8, T3: its holds end with the response's time, and only then are the
// slots used again.
TEST_F(MiddleTest, AReaderStoppedDuringARemoteReadSeesNoByteOfTheNextBlocks) {
  const std::unique_ptr<Worker> reader = BigWorkerAt(cluster(), 2);
  const std::unique_ptr<Worker> other = BigWorkerAt(cluster(), 1);
  ASSERT_EQ(
      other->Do(StrCat("write 0 ", kBlocks, " published"))["write_stored"],
      kBlocks);

  const int tries = StopInTheMiddle(
      reader.get(), "read", [&] { return Metric(1, "firnkv_node_holds") > 0; },
      [&](int signal) { reader->Signal(signal); },
      [&] { return Metric(1, "firnkv_node_holds") > 0; });
  ASSERT_GE(tries, 0);
  EXPECT_TRUE(cluster().node(1).MetricBecomes("firnkv_node_holds", 0));
  UseEverySlotAgain(other.get());
  reader->Signal(SIGCONT);

  ExpectRightAndAtRest(reader.get(), reader->Answer(), 0);
}

// Rule P7: the bytes of the read are in flight while their blocks go.
TEST_F(MiddleTest, ANodeStoppedDuringARemoteReadCostsTheReaderItsDeadline) {
  const std::unique_ptr<Worker> reader = BigWorkerAt(cluster(), 2);
  const std::unique_ptr<Worker> other = BigWorkerAt(cluster(), 1);
  ASSERT_EQ(
      other->Do(StrCat("write 0 ", kBlocks, " published"))["write_stored"],
      kBlocks);

  const int tries = StopInTheMiddle(
      reader.get(), "read", [&] { return Metric(1, "firnkv_node_holds") > 0; },
      [&](int signal) { cluster().node(1).Signal(signal); },
      [] { return true; });
  ASSERT_GE(tries, 0);
  const Reply read = reader->Answer();
  cluster().node(1).Signal(SIGCONT);
  UseEverySlotAgain(other.get());

  ExpectRightAndAtRest(reader.get(), read, 0);
}

}  // namespace
}  // namespace firnkv
