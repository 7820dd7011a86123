// Moving the hottest chains to other nodes: what they are asked for, what their
// answers come to, and that none of them can keep the node from ending.

#include "server/node/drainer.h"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "proto/node.pb.h"
#include "tests/server/node/node_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

// Another node that a test plays: takes what it is told of, or does not.
class FakePeer : public ControlService {
 public:
  FakePeer(const ClusterSecret& secret, const ClusterId& cluster,
           const Clock* clock)
      : secret_(secret), cluster_(cluster), clock_(clock) {}

  std::string_view service() const override { return "firnkv.v1.NodeService"; }
  void Handle(std::string_view method, const ControlPeer&,
              std::string_view bytes, ControlReply reply) override {
    CHECK(method == "/firnkv.v1.NodeService/FetchCopies");
    v1::FetchCopiesRequest request;
    CHECK(request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
    const auto claims = CheckToken(request.header().token(), cluster_, secret_,
                                   0, clock_->WallNow());
    if (!claims.ok() || claims->role != Role::kNode) {
      return std::move(reply)(absl::PermissionDeniedError("not a node's"));
    }
    calls.push_back(request);
    if (silent) {
      unanswered_.push_back(std::move(reply));
      return;
    }
    if (!failures.empty()) {
      const absl::Status failure = failures.front();
      failures.pop_front();
      return std::move(reply)(failure);
    }
    const auto rows = FromProto(request.blocks());
    CHECK(rows.ok());
    v1::FetchCopiesResponse response;
    std::vector<Outcome> outcomes;
    for (const BlockRow& row : *rows) outcomes.push_back(answer(row.key));
    if (short_answer) outcomes.pop_back();
    response.set_outcomes(OutcomesToProto(outcomes));
    response.set_retry_after_millis(50);
    std::move(reply)(response.SerializeAsString());
  }

  std::function<Outcome(const BlockKey&)> answer = [](const BlockKey&) {
    return Outcome::kStored;
  };
  // The next calls fail so, once each.
  std::deque<absl::Status> failures;
  bool silent = false;
  bool short_answer = false;
  std::vector<v1::FetchCopiesRequest> calls;

  // Keys of all calls, in order.
  std::vector<BlockKey> Asked() const {
    std::vector<BlockKey> keys;
    for (const v1::FetchCopiesRequest& call : calls) {
      const absl::StatusOr<std::vector<BlockRow>> rows =
          FromProto(call.blocks());
      for (const BlockRow& row : *rows) {
        keys.push_back(row.key);
      }
    }
    return keys;
  }

 private:
  const ClusterSecret secret_;
  const ClusterId cluster_;
  const Clock* const clock_;
  std::vector<ControlReply> unanswered_;
};

class DrainerTest : public NodeFixture {
 protected:
  static constexpr std::uint64_t kAll = 1 << 30;

  DrainerTest() {
    own_.node = state_.memory().node;
    own_.epoch = NodeEpoch{0xe90c};
    own_.stream_address = "node:7411";
    own_.control_address = "node:7410";
    chained_.chained = true;
  }
  ~DrainerTest() override {
    if (drainer_ != nullptr) drainer_->Close();
  }

  // Peer 1, 2, ... of `capacity`, that the catalog knows.
  FakePeer& AddPeer(std::uint64_t capacity = kGiB) {
    const std::string host = StrCat("peer", peers_.size() + 1);
    SimMachine* const machine = world_.NewMachine(host, host);
    peers_.push_back(std::make_unique<FakePeer>(secret_, catalog_.cluster,
                                                machine->process()->clock()));
    servings_.push_back(world_.control()->Serve(
        host + ":7410", machine->process(), {peers_.back().get()}));
    FakeCatalog::Peer row;
    row.address.node.bytes[0] = static_cast<std::uint8_t>(peers_.size());
    row.address.epoch = NodeEpoch{7};
    row.address.stream_address = host + ":7411";
    row.address.control_address = host + ":7410";
    row.dram_bytes = capacity;
    catalog_.peers.push_back(row);
    return *peers_.back();
  }

  void Move(std::uint64_t bytes, absl::Duration time = absl::Seconds(60)) {
    drainer_ = std::make_unique<Drainer>(
        options_, Drainer::Parts{.executor = executor(),
                                 .control = node_->seams().control,
                                 .log = &log_,
                                 .catalog = &catalog_client_,
                                 .credentials = &credentials_,
                                 .pool = pool_.get(),
                                 .address = &own_});
    ASSERT_OK(drainer_->StartMoving(bytes, In(time), In(time + time / 4),
                                    [this] { done_ = true; }));
  }
  // To the end of the moves.
  DrainReport MoveAll(std::uint64_t bytes = kAll,
                      absl::Duration time = absl::Seconds(60)) {
    Move(bytes, time);
    EXPECT_TRUE(world_.executor()->RunUntil([this] { return done_; }));
    return drainer_->report();
  }
  static std::uint64_t Count(const DrainReport& report, Outcome outcome) {
    return report.outcomes[static_cast<std::size_t>(outcome)];
  }

  NodeAddress own_;
  NamespaceFacts chained_ = granite_;
  Drainer::Options options_;
  Logger log_{Logger::Options{}, node_->process()->clock(), nullptr};
  std::vector<std::unique_ptr<FakePeer>> peers_;
  std::vector<std::unique_ptr<SimControl::Serving>> servings_;
  std::unique_ptr<Drainer> drainer_;
  bool done_ = false;
};

TEST_F(DrainerTest, WhatPeersTakeIsMoved) {
  FakePeer& peer = AddPeer();
  for (std::uint64_t n = 1; n <= 3; ++n) Store(granite_, n);

  const DrainReport report = MoveAll();

  EXPECT_EQ(report.state, DrainState::kEnding);
  EXPECT_EQ(report.planned_blocks, 3u);
  EXPECT_EQ(report.planned_bytes, 3u * 4096);
  EXPECT_EQ(report.moved_blocks, 3u);
  EXPECT_EQ(report.moved_bytes, 3u * 4096);
  EXPECT_EQ(report.left_blocks, 0u);
  EXPECT_EQ(report.trouble, "");
  EXPECT_EQ(Count(report, Outcome::kStored), 3u);
  // As the pool keeps them: the last one stored is the warmest.
  EXPECT_THAT(peer.Asked(), ElementsAre(KeyOf(3), KeyOf(2), KeyOf(1)));
  ASSERT_THAT(peer.calls, SizeIs(1));
  const auto source = FromProto(peer.calls[0].source());
  ASSERT_OK(source);
  EXPECT_EQ(*source, own_);
}

TEST_F(DrainerTest, TheBudgetIsForTheHottest) {
  FakePeer& peer = AddPeer();
  for (std::uint64_t n = 1; n <= 5; ++n) Store(granite_, n);

  const DrainReport report = MoveAll(2 * 4096 + 100);

  EXPECT_THAT(peer.Asked(), ElementsAre(KeyOf(5), KeyOf(4)));
  EXPECT_EQ(report.moved_bytes, 2u * 4096);
}

TEST_F(DrainerTest, ParentsAreNamedBeforeTheirChildren) {
  FakePeer& peer = AddPeer();
  StoreAt(chained_, 1, {.anchor = KeyOf(1)});
  StoreAt(chained_, 2, {.parent = KeyOf(1), .anchor = KeyOf(1), .position = 1});
  StoreAt(chained_, 3, {.parent = KeyOf(2), .anchor = KeyOf(1), .position = 2});

  MoveAll();

  EXPECT_THAT(peer.Asked(), ElementsAre(KeyOf(1), KeyOf(2), KeyOf(3)));
  const auto rows = FromProto(peer.calls[0].blocks());
  ASSERT_OK(rows);
  EXPECT_EQ((*rows)[2].place.parent, KeyOf(2));
  EXPECT_EQ((*rows)[2].length, 4096u);
}

// Rule P13: what is made from a copy carries that copy's clear epoch.
TEST_F(DrainerTest, EachCopyIsNamedWithItsClearEpoch) {
  FakePeer& peer = AddPeer();
  Store(granite_, 1);
  pool_->SetClearEpoch(granite_.name_space, ClearEpoch{5});
  NamespaceFacts later = granite_;
  later.clear_epoch = ClearEpoch{5};
  Store(later, 2);

  MoveAll();

  // What was cleared is not offered.
  EXPECT_THAT(peer.Asked(), ElementsAre(KeyOf(2)));
  EXPECT_THAT(peer.calls[0].clear_epochs(), ElementsAre(5u));
}

TEST_F(DrainerTest, ABatchIsOfOneNamespace) {
  FakePeer& peer = AddPeer();
  const NamespaceFacts other = catalog_.AddNamespace("bob");
  Store(granite_, 1);
  Store(other, 1);
  Store(granite_, 2);

  const DrainReport report = MoveAll();

  ASSERT_THAT(peer.calls, SizeIs(3));
  EXPECT_EQ(peer.calls[0].name_space(), IdToProto(granite_.name_space));
  EXPECT_EQ(peer.calls[1].name_space(), IdToProto(other.name_space));
  EXPECT_EQ(report.moved_blocks, 3u);
}

TEST_F(DrainerTest, ABatchIsBoundedInBlocksAndBytes) {
  FakePeer& peer = AddPeer();
  for (std::uint64_t n = 1; n <= 7; ++n) Store(granite_, n);
  Store(granite_, 8, 64 * kKiB);
  options_.batch_blocks = 3;
  options_.batch_bytes = 2 * 4096;

  const DrainReport report = MoveAll();

  std::vector<int> sizes;
  for (const auto& call : peer.calls)
    sizes.push_back(call.blocks().positions_size());
  // One that is too large for any batch goes alone.
  EXPECT_THAT(sizes, ElementsAre(1, 2, 2, 2, 1));
  EXPECT_EQ(report.moved_blocks, 8u);
}

TEST_F(DrainerTest, APeerIsAskedForOneBatchAtATime) {
  FakePeer& peer = AddPeer();
  peer.silent = true;
  for (std::uint64_t n = 1; n <= 6; ++n) Store(granite_, n);
  options_.batch_blocks = 1;

  Move(kAll);
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer.calls, SizeIs(1));
}

TEST_F(DrainerTest, ADeadPeerCostsItsShareOnly) {
  FakePeer& well = AddPeer();
  AddPeer();
  servings_[1].reset();
  for (std::uint64_t n = 1; n <= 8; ++n) Store(granite_, n, 64 * kKiB);

  const DrainReport report = MoveAll();

  EXPECT_EQ(report.planned_blocks, 8u);
  EXPECT_EQ(report.moved_blocks, 4u);
  EXPECT_THAT(well.Asked(), SizeIs(4));
  EXPECT_EQ(Count(report, Outcome::kUnavailable), 4u);
  EXPECT_THAT(report.trouble, HasSubstr("node at peer2:7410: UNAVAILABLE"));
}

TEST_F(DrainerTest, ASilentPeerIsGivenUpAfterOneTimeout) {
  FakePeer& well = AddPeer();
  FakePeer& silent = AddPeer();
  silent.silent = true;
  for (std::uint64_t n = 1; n <= 8; ++n) Store(granite_, n, 64 * kKiB);
  options_.batch_blocks = 2;
  const BootTime before = Now();

  const DrainReport report = MoveAll();

  EXPECT_THAT(silent.calls, SizeIs(1));
  EXPECT_THAT(well.Asked(), SizeIs(4));
  EXPECT_EQ(Count(report, Outcome::kTimedOut), 4u);
  EXPECT_LT(Now() - before, absl::Seconds(6));
}

TEST_F(DrainerTest, AFailureThatPassesIsTriedAgain) {
  FakePeer& peer = AddPeer();
  peer.failures = {absl::UnavailableError("starting")};
  Store(granite_, 1);

  const DrainReport report = MoveAll();

  EXPECT_EQ(report.moved_blocks, 1u);
  EXPECT_THAT(peer.calls, SizeIs(2));
}

TEST_F(DrainerTest, AnOlderPeerThatKnowsNoSuchCallIsGivenUpAtOnce) {
  FakePeer& peer = AddPeer();
  peer.failures = {absl::UnimplementedError("no method")};
  Store(granite_, 1);

  const DrainReport report = MoveAll();

  EXPECT_EQ(report.left_blocks, 1u);
  EXPECT_THAT(peer.calls, SizeIs(1));
  EXPECT_THAT(report.trouble, HasSubstr("UNIMPLEMENTED"));
}

TEST_F(DrainerTest, AnAnswerThatDoesNotFitTheQuestionMovesNothing) {
  FakePeer& peer = AddPeer();
  peer.short_answer = true;
  Store(granite_, 1);
  Store(granite_, 2);

  const DrainReport report = MoveAll();

  EXPECT_EQ(report.moved_blocks, 0u);
  EXPECT_EQ(report.left_blocks, 2u);
  EXPECT_THAT(report.trouble, HasSubstr("malformed"));
}

TEST_F(DrainerTest, WhatAPeerHasNoRoomForIsAskedForAgainAFewTimes) {
  FakePeer& peer = AddPeer();
  int refusals = 2;
  peer.answer = [&refusals](const BlockKey& key) {
    if (key == KeyOf(1) && refusals-- > 0) return Outcome::kCongested;
    return Outcome::kStored;
  };
  Store(granite_, 1);
  Store(granite_, 2);

  const DrainReport report = MoveAll();

  EXPECT_EQ(report.moved_blocks, 2u);
  EXPECT_THAT(peer.Asked(),
              ElementsAre(KeyOf(2), KeyOf(1), KeyOf(1), KeyOf(1)));
}

TEST_F(DrainerTest, APeerWithoutRoomIsNotAskedForEver) {
  FakePeer& peer = AddPeer();
  peer.answer = [](const BlockKey&) { return Outcome::kCongested; };
  for (std::uint64_t n = 1; n <= 4; ++n) Store(granite_, n);

  const DrainReport report = MoveAll();

  EXPECT_EQ(Count(report, Outcome::kCongested), 4u);
  EXPECT_EQ(report.left_blocks, 4u);
  EXPECT_THAT(peer.calls, SizeIs(options_.tries));
}

TEST_F(DrainerTest, RefusalsAreCountedByTheirOutcome) {
  FakePeer& peer = AddPeer();
  peer.answer = [](const BlockKey& key) {
    if (key == KeyOf(1)) return Outcome::kCleared;
    if (key == KeyOf(2)) return Outcome::kAlreadyThere;
    return Outcome::kMiss;
  };
  for (std::uint64_t n = 1; n <= 4; ++n) Store(granite_, n);

  const DrainReport report = MoveAll();

  EXPECT_EQ(Count(report, Outcome::kCleared), 1u);
  EXPECT_EQ(Count(report, Outcome::kAlreadyThere), 1u);
  EXPECT_EQ(Count(report, Outcome::kMiss), 2u);
  EXPECT_EQ(report.moved_blocks, 1u);
  EXPECT_EQ(report.left_blocks, 3u);
  EXPECT_EQ(drainer_->counters().left_blocks.value(), 3u);
}

TEST_F(DrainerTest, WhatHasLeftMeanwhileIsNotAskedFor) {
  FakePeer& peer = AddPeer();
  options_.batch_blocks = 1;
  Store(granite_, 1);
  Store(granite_, 2);
  peer.answer = [this](const BlockKey&) {
    const BlockKey key = KeyOf(1);
    pool_->Remove(granite_.name_space, {&key, 1});
    return Outcome::kStored;
  };

  const DrainReport report = MoveAll();

  EXPECT_THAT(peer.Asked(), ElementsAre(KeyOf(2)));
  EXPECT_EQ(Count(report, Outcome::kMiss), 1u);
}

TEST_F(DrainerTest, TheDeadlineHoldsWhateverPeersDo) {
  options_.call_timeout = absl::Minutes(2);
  for (int i = 0; i < 3; ++i) AddPeer().silent = true;
  for (std::uint64_t n = 1; n <= 6; ++n) Store(granite_, n, 64 * kKiB);
  const BootTime before = Now();

  const DrainReport report = MoveAll(kAll, absl::Seconds(3));

  EXPECT_LE(Now() - before, absl::Seconds(3) + absl::Milliseconds(1));
  EXPECT_EQ(report.moved_blocks, 0u);
  EXPECT_EQ(report.left_blocks, 6u);
  EXPECT_EQ(Count(report, Outcome::kTimedOut), 6u);
}

TEST_F(DrainerTest, ManyPeersAreAskedAFewAtATime) {
  options_.max_peers = 2;
  for (int i = 0; i < 5; ++i) AddPeer().silent = true;
  for (std::uint64_t n = 1; n <= 10; ++n) Store(granite_, n, 64 * kKiB);
  const auto asked = [this] {
    int count = 0;
    for (const auto& peer : peers_) count += peer->calls.empty() ? 0 : 1;
    return count;
  };

  Move(kAll);
  RunFor(absl::Seconds(1));
  EXPECT_EQ(asked(), 2);

  EXPECT_TRUE(world_.executor()->RunUntil([this] { return done_; }));
  EXPECT_EQ(asked(), 5);
}

TEST_F(DrainerTest, ANodeAloneMovesNothingAndSaysWhy) {
  Store(granite_, 1);

  const DrainReport report = MoveAll();

  EXPECT_EQ(report.planned_blocks, 0u);
  EXPECT_EQ(report.trouble, "no other node is alive");
}

TEST_F(DrainerTest, ACatalogThatIsAwayIsNotWaitedForUntilTheDeadline) {
  AddPeer();
  Store(granite_, 1);
  catalog_.silent = true;
  const BootTime before = Now();

  const DrainReport report = MoveAll(kAll, absl::Minutes(5));

  EXPECT_LT(Now() - before, absl::Seconds(10));
  EXPECT_THAT(report.trouble, HasSubstr("the catalog did not say"));
}

TEST_F(DrainerTest, AnEmptyNodeHasNothingToMove) {
  AddPeer();

  const DrainReport report = MoveAll();

  EXPECT_EQ(report.planned_blocks, 0u);
  EXPECT_EQ(report.trouble, "");
}

TEST_F(DrainerTest, WhoEndsTheNodeEndsTheMoves) {
  AddPeer().silent = true;
  Store(granite_, 1);
  Move(kAll);
  RunFor(absl::Seconds(1));

  drainer_->End(In(absl::Seconds(1)));
  RunFor(absl::Minutes(2));

  EXPECT_FALSE(done_);
  const DrainReport report = drainer_->report();
  EXPECT_EQ(report.state, DrainState::kEnding);
  EXPECT_EQ(Count(report, Outcome::kCancelled), 1u);
}

TEST_F(DrainerTest, ItMovesOnce) {
  AddPeer().silent = true;
  Move(kAll);

  EXPECT_THAT(
      drainer_->StartMoving(kAll, In(absl::Seconds(1)), In(absl::Seconds(2)),
                            [] {}),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("moving")));
}

TEST_F(DrainerTest, AReportIsHeldBackUntilTheMovesAreOver) {
  FakePeer& peer = AddPeer();
  peer.silent = true;
  Store(granite_, 1);
  Move(kAll, absl::Seconds(3));
  std::vector<DrainState> reports;
  const auto take = [&reports](const DrainReport& report) {
    reports.push_back(report.state);
  };

  drainer_->AwaitReport(In(absl::Seconds(1)), take);
  drainer_->AwaitReport(In(absl::Seconds(60)), take);
  EXPECT_THAT(reports, IsEmpty());
  RunFor(absl::Seconds(2));
  EXPECT_THAT(reports, ElementsAre(DrainState::kMoving));
  RunFor(absl::Seconds(2));
  EXPECT_THAT(reports, ElementsAre(DrainState::kMoving, DrainState::kEnding));

  // Nothing more is to come.
  drainer_->AwaitReport(In(absl::Seconds(60)), take);
  EXPECT_THAT(reports, SizeIs(3));
}

TEST_F(DrainerTest, ReportsThatAreHeldBackAreBounded) {
  AddPeer().silent = true;
  Store(granite_, 1);
  options_.max_reports = 2;
  Move(kAll);
  int reports = 0;

  for (int i = 0; i < 3; ++i) {
    drainer_->AwaitReport(In(absl::Seconds(30)),
                          [&reports](const DrainReport&) { ++reports; });
  }

  EXPECT_EQ(reports, 1);
  drainer_->Close();
  EXPECT_EQ(reports, 3);
}

TEST_F(DrainerTest, ItMayEndWithCallsUnderWay) {
  AddPeer().silent = true;
  Store(granite_, 1);
  Move(kAll);
  RunFor(absl::Milliseconds(200));

  drainer_.reset();
  RunFor(absl::Minutes(2));

  EXPECT_FALSE(done_);
}

}  // namespace
}  // namespace firnkv
