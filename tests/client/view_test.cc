// Views: what is handed out, and on what the verdict depends.

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Outcomes = std::vector<Outcome>;

class ViewTest : public ClientFixture {
 protected:
  ViewTest() { options_.check_views = true; }

  void SetUp() override {
    Connect();
    node_->Put(Id(1), BytesFor(1, 5000));
    node_->Put(Id(2), BytesFor(2, 200'000));
    node_->Put(Id(3), BytesFor(3, 64));
  }

  struct Opening {
    std::vector<BlockKey> keys;
    std::optional<ViewBatch> batch;
  };
  std::shared_ptr<Opening> Begin(const std::vector<int>& numbers,
                                 OpenViewsRequest request = {}) {
    auto opening = std::make_shared<Opening>();
    for (const int number : numbers) opening->keys.push_back(KeyOf(number));
    request.name_space = handle_;
    request.keys = opening->keys;
    if (request.deadline == absl::ZeroDuration()) {
      request.deadline = absl::Seconds(1);
    }
    client_->StartOpenViews(request, [opening](ViewBatch batch) {
      EXPECT_FALSE(opening->batch.has_value());
      opening->batch.emplace(std::move(batch));
    });
    return opening;
  }
  ViewBatch Open(const std::vector<int>& numbers,
                 OpenViewsRequest request = {}) {
    const auto opening = Begin(numbers, request);
    EXPECT_TRUE(Run([&] { return opening->batch.has_value(); }));
    return *std::move(opening->batch);
  }

  static std::vector<std::byte> BytesOf(const ViewBatch& batch,
                                        std::size_t index) {
    std::vector<std::byte> bytes;
    for (const auto span : batch.spans(index)) {
      bytes.insert(bytes.end(), span.begin(), span.end());
    }
    return bytes;
  }
  static Outcomes OutcomesOf(const ViewBatch& batch) {
    Outcomes outcomes;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      outcomes.push_back(batch.outcome(i));
    }
    return outcomes;
  }
  // Mappings of the node's memory, its own two among them.
  std::int64_t Mapped() { return node_->machine()->memory()->mappings(); }
  // Another session, whose welcome is changed.
  void BeginSession(std::function<void(v1::SessionWelcome*)> change) {
    node_->DropSessions();
    node_->on_welcome = std::move(change);
    RunFor(absl::Seconds(1));
  }
  void GrantFor(absl::Duration time) {
    node_->tamper["OpenRead"] = [time](std::string* answer) {
      v1::OpenReadResponse response;
      ASSERT_TRUE(response.ParseFromString(*answer));
      response.set_lease_millis(
          static_cast<std::uint32_t>(absl::ToInt64Milliseconds(time)));
      *answer = response.SerializeAsString();
    };
  }
};

// --- What is opened.

// Rule P4.
TEST_F(ViewTest, ABlockIsHandedOutWhereItLiesAndCountsOnceItsCloseSaysHit) {
  ViewBatch views = Open({1, 2, 3});

  EXPECT_THAT(OutcomesOf(views), Each(Outcome::kHit));
  for (const int i : {0, 1, 2}) {
    EXPECT_EQ(BytesOf(views, i), BytesFor(i + 1, views.length(i)));
  }
  EXPECT_EQ(views.length(1), 200'000u);
  EXPECT_EQ(views.report().leading_hits, 3u);
  EXPECT_EQ(views.report().hits, 3u);
  EXPECT_EQ(views.report().bytes, 205'064u);
  EXPECT_THAT(std::move(views).Close(), Each(Outcome::kHit));
}

TEST_F(ViewTest, NothingIsCopied) {
  ViewBatch views = Open({1});
  // What the node writes is seen through the view: they are the same bytes.
  node_->CorruptOneByte(Id(1), 17);
  std::vector<std::byte> expected = BytesFor(1, 5000);
  expected[17] ^= std::byte{1};

  EXPECT_EQ(BytesOf(views, 0), expected);

  EXPECT_THAT(std::move(views).Close(), ElementsAre(Outcome::kHit));
  const ClientStats stats = client_->Stats();
  EXPECT_EQ(stats.bytes_viewed, 5000u);
  EXPECT_EQ(stats.bytes_mapped, 0u);
  EXPECT_EQ(stats.bytes_remote, 0u);
  EXPECT_EQ(stats.view_outcomes[static_cast<int>(Outcome::kHit)], 1u);
  EXPECT_EQ(stats.open_views.count(), 1u);
}

// Rule P9.
TEST_F(ViewTest, TheNodeIsToldThatItIsForAView) {
  bool for_view = false;
  std::uint32_t lease_millis = 0;
  node_->instead["OpenRead"] = [&](const std::string& bytes) {
    v1::OpenReadRequest request;
    EXPECT_TRUE(request.ParseFromString(bytes));
    for_view = request.for_view();
    lease_millis = request.lease_millis();
    return absl::UnavailableError("enough");
  };

  const ViewBatch views = Open({1}, {.max_age = absl::Seconds(7)});

  EXPECT_TRUE(for_view);
  EXPECT_EQ(lease_millis, 8001u);
  EXPECT_THAT(OutcomesOf(views), ElementsAre(Outcome::kUnavailable));
}

TEST_F(ViewTest, ALocalMissStaysAMiss) {
  remote_->Put(Id(7), BytesFor(7, 64));
  catalog_->Locate(Id(7), remote_->address(), 64);

  ViewBatch views = Open({7, 1}, {.want = ReadWant::kEveryBlock});

  EXPECT_THAT(OutcomesOf(views), ElementsAre(Outcome::kMiss, Outcome::kHit));
  EXPECT_TRUE(views.spans(0).empty());
  EXPECT_EQ(views.length(0), 0u);
  EXPECT_EQ(views.report().leading_hits, 0u);
  EXPECT_EQ(catalog_->calls["Locate"], 0);
  EXPECT_THAT(std::move(views).Close(),
              ElementsAre(Outcome::kMiss, Outcome::kHit));
}

TEST_F(ViewTest, ALeadingRunEndsAtTheFirstMiss) {
  ViewBatch views = Open({1, 7, 2});

  EXPECT_THAT(OutcomesOf(views),
              ElementsAre(Outcome::kHit, Outcome::kMiss, Outcome::kSkipped));
  EXPECT_EQ(views.report().leading_hits, 1u);
  EXPECT_EQ(views.report().hits, 1u);
  EXPECT_THAT(std::move(views).Close(),
              ElementsAre(Outcome::kHit, Outcome::kMiss, Outcome::kSkipped));
}

TEST_F(ViewTest, ABatchWithoutHitsGivesItsLeaseBackAtOnce) {
  node_->refuse_descriptors = true;
  const ViewBatch views = Open({1});
  RunFor(absl::Milliseconds(10));

  EXPECT_THAT(OutcomesOf(views), ElementsAre(Outcome::kUnavailable));
  EXPECT_EQ(node_->released.size(), 1u);
}

TEST_F(ViewTest, NoKeysAreNoCall) {
  ViewBatch views = Open({});

  EXPECT_OK(views.report().status);
  EXPECT_EQ(views.size(), 0u);
  EXPECT_EQ(node_->calls["OpenRead"], 0);
  EXPECT_THAT(std::move(views).Close(), IsEmpty());
}

TEST_F(ViewTest, WrongRequestsAreRefusedAndTouchNothing) {
  for (const OpenViewsRequest& wrong :
       {OpenViewsRequest{.deadline = -absl::Seconds(1)},
        OpenViewsRequest{.max_age = absl::ZeroDuration()},
        // Rule P9: no view is older than the hard age.
        OpenViewsRequest{.max_age = absl::Seconds(27)}}) {
    ViewBatch views = Open({1}, wrong);
    EXPECT_THAT(views.report().status,
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::move(views).Close(), ElementsAre(Outcome::kSkipped));
  }
  EXPECT_THAT(Open({1, 1}).report().status,
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(node_->calls["OpenRead"], 0);
}

TEST_F(ViewTest, ANodeThatDoesNotAnswerCostsTheDeadline) {
  node_->silent.insert("OpenRead");
  const BootTime begin = Now();

  const ViewBatch views = Open({1}, {.deadline = absl::Milliseconds(8)});

  EXPECT_THAT(OutcomesOf(views), ElementsAre(Outcome::kTimedOut));
  EXPECT_EQ(Now() - begin, absl::Milliseconds(8));
}

TEST_F(ViewTest, ARegionThatIsNeverMappedCostsTheDeadlineAndItsLeaseGoesBack) {
  node_->silent_descriptors = true;

  const ViewBatch views = Open({1}, {.deadline = absl::Milliseconds(8)});
  RunFor(absl::Milliseconds(10));

  EXPECT_THAT(OutcomesOf(views), ElementsAre(Outcome::kTimedOut));
  EXPECT_EQ(node_->released.size(), 1u);
}

TEST_F(ViewTest, AnAnswerAfterTheDeadlineGivesItsLeaseBack) {
  node_->machine()->process()->Pause();
  const ViewBatch views = Open({1}, {.deadline = absl::Milliseconds(8)});

  node_->machine()->process()->Resume();
  RunFor(absl::Milliseconds(100));

  EXPECT_THAT(OutcomesOf(views), ElementsAre(Outcome::kTimedOut));
  EXPECT_EQ(node_->released.size(), 1u);
}

// Rule P10.
TEST_F(ViewTest, ASessionThatMayNotMapHasNoViews) {
  BeginSession(
      [](v1::SessionWelcome* welcome) { welcome->set_mapping(false); });

  const ViewBatch views = Open({1});

  EXPECT_THAT(OutcomesOf(views), ElementsAre(Outcome::kUnavailable));
  EXPECT_THAT(views.report().status,
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(node_->calls["OpenRead"], 0);
}

TEST_F(ViewTest, ADeniedNamespaceIsDenied) {
  node_->instead["OpenRead"] = [](const std::string&) {
    return absl::PermissionDeniedError("not yours");
  };

  EXPECT_THAT(OutcomesOf(Open({1})), ElementsAre(Outcome::kDenied));
}

// Rule P4: the node's answer alone makes no hit.
TEST_F(ViewTest, ASlotThatHoldsAnotherBlockIsNotHandedOut) {
  for (const auto& wrong :
       std::vector<std::function<void(v1::OpenReadResponse*)>>{
           [](auto* answer) { answer->set_generations(0, 4); },
           [](auto* answer) { answer->set_extent_offsets(0, 8192); },
           [](auto* answer) {
             answer->set_extent_offsets(0, std::uint64_t{1} << 40);
           },
           [](auto* answer) { answer->set_extent_regions(0, 77); }}) {
    node_->tamper["OpenRead"] = [&](std::string* answer) {
      v1::OpenReadResponse response;
      ASSERT_TRUE(response.ParseFromString(*answer));
      wrong(&response);
      *answer = response.SerializeAsString();
    };

    const ViewBatch views = Open({1});

    EXPECT_THAT(OutcomesOf(views), ElementsAre(Outcome::kUnavailable));
    EXPECT_TRUE(views.spans(0).empty());
  }
}

// --- The verdict.

// Rule A7: believed from before the request, for 7/8 of what was granted.
TEST_F(ViewTest, AViewOutlivesNoLease) {
  GrantFor(absl::Milliseconds(800));
  for (const bool late : {false, true}) {
    const BootTime asked = Now();
    ViewBatch views = Open({1});
    EXPECT_GT(Now(), asked);
    EXPECT_EQ(views.report().good_for, asked + absl::Milliseconds(700) - Now());
    RunFor(views.report().good_for -
           (late ? absl::ZeroDuration() : absl::Nanoseconds(1)));

    EXPECT_THAT(std::move(views).Close(),
                ElementsAre(late ? Outcome::kTimedOut : Outcome::kHit));
  }
}

TEST_F(ViewTest, AViewOutlivesNotItsMaxAgeWhateverWasGranted) {
  GrantFor(absl::Hours(1));
  for (const bool late : {false, true}) {
    const BootTime asked = Now();
    ViewBatch views = Open({1}, {.max_age = kLongestViewAge});
    RunFor(asked + kLongestViewAge - Now() -
           (late ? absl::ZeroDuration() : absl::Nanoseconds(1)));

    EXPECT_THAT(std::move(views).Close(),
                ElementsAre(late ? Outcome::kTimedOut : Outcome::kHit));
  }
}

// Rule P7.
TEST_F(ViewTest, ASlotThatWasReusedBeneathAViewIsNoHit) {
  ViewBatch views = Open({1, 2, 3});

  node_->ReuseSlot(Id(2));

  EXPECT_THAT(std::move(views).Close(),
              ElementsAre(Outcome::kHit, Outcome::kUnavailable, Outcome::kHit));
  EXPECT_EQ(
      client_->Stats().view_outcomes[static_cast<int>(Outcome::kUnavailable)],
      1u);
}

// Rules P6 and P9: first the generations, then the memory; a view says no hit
// over zeros, and keeps its pages until it is closed.
TEST_F(ViewTest, ARegionRetiredBeneathAViewIsNoHitAndUnmappedAfterIt) {
  ViewBatch views = Open({1, 2});
  const std::int64_t mapped = Mapped();

  node_->RetireRegion();
  RunFor(absl::Milliseconds(10));

  EXPECT_THAT(node_->unmapped, IsEmpty());
  EXPECT_EQ(Mapped(), mapped);
  EXPECT_THAT(BytesOf(views, 0), Each(std::byte{0}));
  EXPECT_THAT(std::move(views).Close(), Each(Outcome::kUnavailable));
  RunFor(absl::Milliseconds(10));
  EXPECT_THAT(node_->unmapped, ElementsAre(1u));
  EXPECT_EQ(Mapped(), mapped - 2);
}

// Rule P6: a verdict needs a live session.
TEST_F(ViewTest, ASessionThatTheNodeEndedLeavesNoHits) {
  ViewBatch views = Open({1});

  node_->DropSessions();
  RunFor(absl::Seconds(1));

  EXPECT_TRUE(client_->Describe().session);
  EXPECT_EQ(BytesOf(views, 0), BytesFor(1, 5000));
  EXPECT_THAT(std::move(views).Close(), ElementsAre(Outcome::kUnavailable));
  // The lease ended with its session; the next one's are its own.
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(node_->calls["Release"], 0);
}

// Rule P3: another run of the node, with regions of the same numbers.
TEST_F(ViewTest, AMappingOfAnEarlierRunAnswersForNothing) {
  ViewBatch before = Open({1});
  const auto place = before.spans(0)[0].data();
  node_.reset();
  node_ = std::make_unique<FakeNode>(&world_, "node1", cluster_);
  node_->Put(Id(1), BytesFor(41, 5000));
  RunFor(absl::Seconds(3));

  ViewBatch after = Open({1});

  EXPECT_EQ(BytesOf(before, 0), BytesFor(1, 5000));
  EXPECT_EQ(BytesOf(after, 0), BytesFor(41, 5000));
  EXPECT_NE(after.spans(0)[0].data(), place);
  EXPECT_THAT(std::move(before).Close(), ElementsAre(Outcome::kUnavailable));
  EXPECT_THAT(std::move(after).Close(), ElementsAre(Outcome::kHit));
}

// Rule P10.
TEST_F(ViewTest, ASessionThatCouldScribbleVerifiesChecksums) {
  BeginSession(
      [](v1::SessionWelcome* welcome) { welcome->set_verify_views(true); });
  ViewBatch views = Open({1, 2, 3});

  node_->CorruptOneByte(Id(2), 199'999);

  EXPECT_THAT(std::move(views).Close(),
              ElementsAre(Outcome::kHit, Outcome::kCorrupt, Outcome::kHit));
  // Rule P12.
  RunFor(absl::Milliseconds(10));
  EXPECT_THAT(node_->reported, ElementsAre(KeyOf(2)));
  EXPECT_EQ(client_->Stats().corrupt_blocks, 1u);
}

// Rule P12: who read another block's bytes accuses nobody.
TEST_F(ViewTest, AReusedSlotIsNotReportedAsCorrupt) {
  BeginSession(
      [](v1::SessionWelcome* welcome) { welcome->set_verify_views(true); });
  ViewBatch views = Open({1});

  node_->ReuseSlot(Id(1));

  EXPECT_THAT(std::move(views).Close(), ElementsAre(Outcome::kUnavailable));
  RunFor(absl::Milliseconds(10));
  EXPECT_THAT(node_->reported, IsEmpty());
}

// --- Ends.

TEST_F(ViewTest, ManyBatchesAreReleasedByOneCall) {
  std::vector<ViewBatch> open;
  for (int i = 0; i < 5; ++i) open.push_back(Open({1, 2, 3}));

  for (ViewBatch& views : open) {
    EXPECT_THAT(std::move(views).Close(), Each(Outcome::kHit));
  }
  RunFor(absl::Milliseconds(10));

  EXPECT_EQ(node_->calls["OpenRead"], 5);
  EXPECT_EQ(node_->calls["Release"], 1);
  EXPECT_EQ(node_->released.size(), 5u);
}

TEST_F(ViewTest, AForgottenBatchIsReleasedCountedAndNamed) {
  { const ViewBatch views = Open({1}); }
  RunFor(absl::Milliseconds(10));

  EXPECT_EQ(node_->released.size(), 1u);
  EXPECT_EQ(client_->Stats().views_dropped, 1u);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("view_test.cc")));
}

TEST_F(ViewTest, AMovedBatchIsClosedOnceByItsNewOwner) {
  ViewBatch first = Open({1});
  ViewBatch second = Open({2});
  const auto place = first.spans(0)[0].data();

  // What `second` had is dropped.
  second = std::move(first);

  EXPECT_EQ(second.spans(0)[0].data(), place);
  EXPECT_EQ(first.size(), 0u);  // NOLINT: what a moved one says.
  EXPECT_TRUE(first.spans(0).empty());
  EXPECT_THAT(std::move(first).Close(), IsEmpty());
  EXPECT_THAT(std::move(second).Close(), ElementsAre(Outcome::kHit));
  EXPECT_THAT(std::move(second).Close(), IsEmpty());
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(node_->released.size(), 2u);
  EXPECT_EQ(client_->Stats().views_dropped, 1u);
}

TEST_F(ViewTest, ABatchMayOutliveItsClient) {
  const std::int64_t mapped = Mapped();
  ViewBatch closed_after = Open({1});
  ViewBatch dropped_after = Open({2});

  client_.reset();
  RunFor(absl::Seconds(1));

  // Rule P9: readable, and no hit.
  EXPECT_EQ(BytesOf(closed_after, 0), BytesFor(1, 5000));
  EXPECT_THAT(std::move(closed_after).Close(),
              ElementsAre(Outcome::kCancelled));
  EXPECT_EQ(Mapped(), mapped + 2);
  dropped_after = ViewBatch();
  EXPECT_EQ(Mapped(), mapped);
}

TEST_F(ViewTest, ClosingTheClientEndsAnOpeningWithKCancelled) {
  node_->silent.insert("OpenRead");
  const auto opening = Begin({1, 2});
  RunFor(absl::Milliseconds(1));

  client_->Close();

  ASSERT_TRUE(opening->batch.has_value());
  EXPECT_THAT(OutcomesOf(*opening->batch), Each(Outcome::kCancelled));
  const ViewBatch later = Open({1});
  EXPECT_THAT(later.report().status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(OutcomesOf(later), ElementsAre(Outcome::kCancelled));
}

// Rule S6.
TEST_F(ViewTest, InAForkedChildABatchDoesNothing) {
  ViewBatch closed = Open({1});
  auto dropped = std::make_unique<ViewBatch>(Open({2}));
  const std::vector<BlockKey> keys = {KeyOf(1)};

  const pid_t child = ::fork();
  if (child == 0) {
    bool right = std::move(closed).Close() == Outcomes{Outcome::kUnavailable};
    dropped.reset();
    ViewBatch opened = client_->OpenViews(
        {.name_space = handle_, .keys = keys, .deadline = absl::Seconds(1)});
    right = right && opened.outcome(0) == Outcome::kUnavailable;
    right =
        right && std::move(opened).Close() == Outcomes{Outcome::kUnavailable};
    ::_exit(right && node_->released.empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);

  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(std::move(closed).Close(), ElementsAre(Outcome::kHit));
  EXPECT_THAT(std::move(*dropped).Close(), ElementsAre(Outcome::kHit));
}

}  // namespace
}  // namespace firnkv
