// A node's end as its operator and the cluster see it: the short form, which
// SIGTERM is too, and the planned one. What moves is drainer_test.cc's.

#include <memory>

#include "gtest/gtest.h"
#include "tests/server/node/whole_node.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

class NodeDrainTest : public WholeNodeTest {
 protected:
  NodeDrainTest() { StartNode(); }

  v1::RequestHeader AdminHeader() {
    v1::RequestHeader header = HeaderOf(SessionId());
    header.set_token(TokenOf(Role::kAdmin));
    return header;
  }
};

TEST_F(NodeDrainTest, ADrainRefusesNewWritesAndWaitsForThoseThatRun) {
  const auto session = Connect(kAliceUid);
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session->id(), granite_, 1, 4096));
  bool drained = false;
  node_->StartDrain(machine_->process()->clock()->Now() + absl::Seconds(20),
                    [&] { drained = true; });
  RunFor(absl::Seconds(1));
  EXPECT_FALSE(drained);
  EXPECT_EQ(Write(session.get(), granite_, 2), Outcome::kUnavailable);
  EXPECT_FALSE(SessionPeer(NewClient(kAliceUid), kSocket).connected());

  LendStaging(session.get(), ++next_staging_, 1, 4096);
  const auto committed = Call<v1::CommitResponse>(
      "Commit", CommitOf(session->id(), reserved->reservation(), 1, 4096));
  RunFor(absl::Seconds(1));

  EXPECT_EQ(static_cast<Outcome>(committed->outcomes()[0]), Outcome::kStored);
  EXPECT_TRUE(drained);
}

TEST_F(NodeDrainTest, ADrainEndsAtItsDeadline) {
  const auto session = Connect(kAliceUid);
  ASSERT_OK(Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session->id(), granite_, 1, 4096)));
  bool drained = false;

  node_->StartDrain(machine_->process()->clock()->Now() + absl::Seconds(3),
                    [&] { drained = true; });
  RunFor(absl::Seconds(4));

  EXPECT_TRUE(drained);
}

TEST_F(NodeDrainTest, ADrainDoesNotWaitForACatalogThatIsAway) {
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  catalog_.silent = true;
  RunFor(absl::Seconds(20));
  ASSERT_EQ(Write(session.get(), granite_, 2), Outcome::kStored);
  bool drained = false;

  node_->StartDrain(machine_->process()->clock()->Now() + absl::Seconds(20),
                    [&] { drained = true; });
  RunFor(absl::Seconds(1));

  EXPECT_TRUE(drained);
}

TEST_F(NodeDrainTest, ADrainLeavesTheCatalogOnceNoWriteIsUnderWay) {
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session->id(), granite_, 2, 4096));
  bool drained = false;
  node_->StartDrain(machine_->process()->clock()->Now() + absl::Seconds(20),
                    [&] { drained = true; });
  RunFor(absl::Seconds(1));
  EXPECT_TRUE(catalog_.departures.empty());

  v1::AbortRequest abort;
  *abort.mutable_header() = HeaderOf(session->id());
  abort.set_reservation(reserved->reservation());
  ASSERT_OK(Call<v1::AbortResponse>("Abort", abort));
  RunFor(absl::Seconds(1));

  EXPECT_TRUE(drained);
  EXPECT_EQ(catalog_.departures.size(), 1u);
  EXPECT_TRUE(catalog_.published.empty());
  // Readers are served to the end.
  EXPECT_EQ(Read(session.get(), granite_, 1), Outcome::kHit);
}

// A writer that does not end, and a catalog that does not answer.
TEST_F(NodeDrainTest, NothingKeepsADrainBeyondItsDeadline) {
  const auto session = Connect(kAliceUid);
  ASSERT_OK(Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session->id(), granite_, 1, 4096)));
  catalog_.silent = true;
  const SimProcess* const process = machine_->process();
  const BootTime deadline = process->clock()->Now() + absl::Seconds(3);
  BootTime drained;

  node_->StartDrain(deadline, [&] { drained = process->clock()->Now(); });
  RunFor(absl::Seconds(10));

  EXPECT_EQ(catalog_.calls["Unregister"], 2);
  EXPECT_GT(drained, BootTime());
  EXPECT_LE(drained, deadline + absl::Milliseconds(20));
}

TEST_F(NodeDrainTest, AReportOfADrainBeginsNone) {
  v1::DrainRequest look;
  look.set_report_only(true);
  look.set_move_bytes(kMiB);
  look.set_wait_millis(1000);
  *look.mutable_header() = AdminHeader();

  const auto report = Call<v1::DrainResponse>("Drain", look, kTcpGrpc);

  ASSERT_OK(report);
  EXPECT_EQ(report->drain(), "serving");
  EXPECT_EQ(Status().drain(), "serving");
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(drains_asked_, 0);
}

// Without another node: it says so, and ends all the same.
TEST_F(NodeDrainTest, ADrainThatMovesEndsOnceNothingMoreMoves) {
  v1::DrainRequest drain;
  drain.set_move_bytes(kMiB);
  drain.set_deadline_millis(8000);
  drain.set_wait_millis(5000);
  *drain.mutable_header() = AdminHeader();

  const auto report = Call<v1::DrainResponse>("Drain", drain, kTcpGrpc);

  ASSERT_OK(report);
  EXPECT_EQ(report->drain(), "ending");
  EXPECT_EQ(report->trouble(), "no other node is alive");
  EXPECT_GT(report->left_millis(), 2000u);
  EXPECT_LE(report->left_millis(), 8000u);
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(drains_asked_, 1);
}

TEST_F(NodeDrainTest, WhileBlocksMoveReadsAreServedAndWritesAreNot) {
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  catalog_.silent = true;
  v1::DrainRequest drain;
  drain.set_move_bytes(kMiB);
  drain.set_deadline_millis(60'000);
  *drain.mutable_header() = AdminHeader();
  const auto begun = Call<v1::DrainResponse>("Drain", drain, kTcpGrpc);
  ASSERT_OK(begun);
  EXPECT_EQ(begun->drain(), "moving");

  EXPECT_EQ(Status().drain(), "moving");
  EXPECT_EQ(Read(session.get(), granite_, 1), Outcome::kHit);
  EXPECT_EQ(Write(session.get(), granite_, 2), Outcome::kUnavailable);
  // A reader that comes now is served too.
  EXPECT_FALSE(Connect(kAliceUid)->closed());
  EXPECT_THAT(Call<v1::DrainResponse>("Drain", drain, kTcpGrpc),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Two nodes that drain at once must not move blocks to each other.
TEST_F(NodeDrainTest, ANodeThatDrainsTakesNoCopiesOfOthers) {
  catalog_.silent = true;
  v1::DrainRequest drain;
  drain.set_move_bytes(kMiB);
  drain.set_deadline_millis(60'000);
  *drain.mutable_header() = AdminHeader();
  ASSERT_OK(Call<v1::DrainResponse>("Drain", drain, kTcpGrpc));
  v1::FetchCopiesRequest fetch;
  *fetch.mutable_header() = HeaderOf(SessionId());
  fetch.mutable_header()->set_token(TokenOf(Role::kNode));

  EXPECT_THAT(Call<v1::FetchCopiesResponse>("FetchCopies", fetch, kTcpGrpc),
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace firnkv
