// What a read does at a local node that serves truly, and at one that does not.

#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

class ReadTest : public ClientFixture {
 protected:
  void SetUp() override { Connect(); }
  void PutLocal(int number, std::size_t size) {
    node_->Put(Id(number), BytesFor(number, size));
  }
};

TEST_F(ReadTest, AMappedBlockLandsWhole) {
  PutLocal(1, 200'000);
  std::vector<Landing> wanted{{1, 200'000}};

  const ReadReport report = Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, BytesFor(1, 200'000));
  EXPECT_EQ(report.leading_hits, 1u);
  EXPECT_EQ(report.bytes_mapped, 200'000u);
  EXPECT_EQ(report.bytes_remote, 0u);
}

TEST_F(ReadTest, ADestinationOfOddPiecesIsFilledInOrder) {
  PutLocal(1, 200'000);
  std::vector<Landing> wanted;
  wanted.push_back(Landing(1, 200'000, {1, 65'535, 3, 0, 70'001, 64'460}));

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, BytesFor(1, 200'000));
}

TEST_F(ReadTest, ADestinationMayHave1024Buffers) {
  PutLocal(1, 1024 * 160);
  std::vector<Landing> wanted;
  wanted.push_back(Landing(1, 1024 * 160, std::vector<std::size_t>(1024, 160)));

  Read(wanted);

  EXPECT_EQ(wanted[0].memory, BytesFor(1, 1024 * 160));
}

TEST_F(ReadTest, ADestinationOf1025BuffersIsRefusedBeforeAnythingIsTouched) {
  PutLocal(1, 1025);
  std::vector<Landing> wanted;
  wanted.push_back(Landing(1, 1025, std::vector<std::size_t>(1025, 1)));

  const ReadReport report = Read(wanted);

  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kSkipped));
  EXPECT_EQ(node_->calls["OpenRead"], 0);
}

TEST_F(ReadTest, ABatchOf4096BlocksIsOneCall) {
  std::vector<Landing> wanted;
  for (int i = 0; i < 1024; ++i) PutLocal(i, 64);
  for (int i = 0; i < 4096; ++i) wanted.emplace_back(i, 64);

  const ReadReport report = Read(wanted);

  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(report.leading_hits, 1024u);
  EXPECT_EQ(node_->calls["OpenRead"], 1);
}

TEST_F(ReadTest, ABatchOf4097BlocksIsRefused) {
  std::vector<Landing> wanted;
  for (int i = 0; i < 4097; ++i) wanted.emplace_back(i, 64);

  EXPECT_THAT(Read(wanted).status,
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ReadTest, OneKeyTwiceIsRefused) {
  std::vector<Landing> wanted{{1, 64}, {1, 64}};

  EXPECT_THAT(Read(wanted).status,
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ReadTest, ADeadlineMustBePositiveAndBounded) {
  std::vector<Landing> wanted{{1, 64}};

  EXPECT_THAT(Read(wanted, ReadWant::kLeadingRun, absl::ZeroDuration()).status,
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(
      Read(wanted, ReadWant::kLeadingRun, options_.longest_deadline * 2).status,
      StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ReadTest, ALeadingRunEndsAtTheFirstMiss) {
  PutLocal(1, 64);
  PutLocal(3, 64);
  std::vector<Landing> wanted{{1, 64}, {2, 64}, {3, 64}};

  const ReadReport report = Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted),
              ElementsAre(Outcome::kHit, Outcome::kMiss, Outcome::kSkipped));
  EXPECT_EQ(report.leading_hits, 1u);
}

TEST_F(ReadTest, EveryBlockIsTriedWhereThatIsWanted) {
  PutLocal(1, 64);
  PutLocal(3, 64);
  std::vector<Landing> wanted{{1, 64}, {2, 64}, {3, 64}};

  const ReadReport report = Read(wanted, ReadWant::kEveryBlock);

  EXPECT_THAT(OutcomesOf(wanted),
              ElementsAre(Outcome::kHit, Outcome::kMiss, Outcome::kHit));
  EXPECT_EQ(report.hits, 2u);
}

TEST_F(ReadTest, ABufferOfAnotherLengthIsWrongSize) {
  PutLocal(1, 100);
  std::vector<Landing> wanted{{1, 99}};
  std::vector<Landing> longer{{1, 101}};

  Read(wanted);
  Read(longer);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kWrongSize));
  EXPECT_THAT(OutcomesOf(longer), ElementsAre(Outcome::kWrongSize));
}

TEST_F(ReadTest, ARangeLandsWithoutItsNeighbours) {
  PutLocal(1, 300'000);
  std::vector<Landing> wanted{{1, 100'000}};
  wanted[0].target.offset = 65'000;
  wanted[0].target.length = 100'000;

  Read(wanted);

  const std::vector<std::byte> all = BytesFor(1, 300'000);
  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, std::vector<std::byte>(all.begin() + 65'000,
                                                     all.begin() + 165'000));
}

TEST_F(ReadTest, ARangeBehindTheBlockIsWrongSize) {
  PutLocal(1, 1000);
  std::vector<Landing> wanted{{1, 100}};
  wanted[0].target.offset = 901;
  wanted[0].target.length = 100;

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kWrongSize));
}

// Rule P4.
TEST_F(ReadTest, ACorruptByteIsNeverAHitAndIsReported) {
  PutLocal(1, 200'000);
  node_->CorruptOneByte(Id(1), 150'000);
  std::vector<Landing> wanted{{1, 200'000}};

  Read(wanted);
  RunFor(absl::Milliseconds(10));

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kCorrupt));
  EXPECT_THAT(node_->reported, ElementsAre(KeyOf(1)));
}

TEST_F(ReadTest, ACorruptByteInATouchedPieceSpoilsARangeThatLeavesItOut) {
  PutLocal(1, 200'000);
  node_->CorruptOneByte(Id(1), 1000);
  std::vector<Landing> wanted{{1, 100}};
  wanted[0].target.offset = 2000;
  wanted[0].target.length = 100;

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kCorrupt));
}

TEST_F(ReadTest, ACorruptByteInAnotherPieceDoesNot) {
  PutLocal(1, 200'000);
  node_->CorruptOneByte(Id(1), 1000);
  std::vector<Landing> wanted{{1, 100}};
  wanted[0].target.offset = 70'000;
  wanted[0].target.length = 100;

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
}

// Rule P4: the slot is another block's by the time of the copy.
TEST_F(ReadTest, AReusedSlotIsAskedForOnceMore) {
  PutLocal(1, 4096);
  node_->tamper["OpenRead"] = [&](std::string*) {
    node_->tamper.erase("OpenRead");
    node_->ReuseSlot(Id(1));
    node_->Put(Id(1), BytesFor(1, 4096));
  };
  std::vector<Landing> wanted{{1, 4096}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, BytesFor(1, 4096));
  EXPECT_EQ(client_->Stats().torn_reads, 1u);
  EXPECT_EQ(node_->calls["OpenRead"], 2);
}

// Rule P4.
TEST_F(ReadTest, ASlotThatIsReusedTwiceIsUnavailable) {
  PutLocal(1, 4096);
  node_->tamper["OpenRead"] = [&](std::string*) {
    node_->ReuseSlot(Id(1));
    node_->Put(Id(1), BytesFor(1, 4096));
  };
  std::vector<Landing> wanted{{1, 4096}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kUnavailable));
  EXPECT_EQ(node_->calls["OpenRead"], 2);
}

// Rule P4: the header says so, whatever the checksums.
TEST_F(ReadTest, ACopyOfAnotherContractIsNoHit) {
  IdentityDigest foreign;
  foreign.bytes.fill(9);
  node_->Put(Id(1), BytesFor(1, 64), foreign);
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kUnavailable));
}

// Rule C2.
TEST_F(ReadTest, ACopyOfBeforeAClearThatTheClientKnowsOfIsNoHit) {
  PutLocal(1, 64);
  handle_.clear_epoch = ClearEpoch{2};
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kUnavailable));
}

// Rule A7: a lease of 80 ms is believed for 70, from before it was asked for.
TEST_F(ReadTest, ALeaseIsBelievedForSevenEighthsOfItsTermFromBeforeTheCall) {
  PutLocal(1, 64);
  node_->tamper["OpenRead"] = [](std::string* answer) {
    v1::OpenReadResponse response;
    ASSERT_TRUE(response.ParseFromString(*answer));
    response.set_lease_millis(80);
    *answer = response.SerializeAsString();
  };
  // The worker stands still while the node answers it once.
  absl::Duration still;
  node_->before["OpenRead"] = [&] {
    if (still == absl::ZeroDuration()) return;
    machine_->process()->Pause();
    world_.executor()->root()->PostAfter(
        std::exchange(still, absl::ZeroDuration()),
        [this] { machine_->process()->Resume(); });
  };
  std::vector<Landing> wanted{{1, 64}};
  Read(wanted);  // The region is mapped from here on.

  still = absl::Milliseconds(69);
  Read(wanted);
  EXPECT_EQ(client_->Stats().torn_reads, 0u);
  still = absl::Milliseconds(75);
  Read(wanted);

  EXPECT_EQ(client_->Stats().torn_reads, 1u);
  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
}

TEST_F(ReadTest, LeasesAreReleasedTogetherAndNotAwaited) {
  for (int i = 0; i < 5; ++i) PutLocal(i, 64);
  std::vector<Landing> wanted{{0, 64}, {1, 64}, {2, 64}, {3, 64}, {4, 64}};
  std::vector<std::vector<Landing>> reads;
  for (const Landing& one : wanted) reads.push_back({one});
  for (std::vector<Landing>& read : reads) BeginRead(read);
  std::vector<Landing> last{{0, 64}};
  node_->silent.insert("Release");

  Read(last);
  RunFor(absl::Milliseconds(10));

  EXPECT_THAT(OutcomesOf(last), ElementsAre(Outcome::kHit));
  EXPECT_THAT(node_->calls["Release"], AllOf(Ge(1), Le(2)));
}

TEST_F(ReadTest, ANodeThatNeverAnswersCostsNoMoreThanTheDeadline) {
  node_->silent.insert("OpenRead");
  std::vector<Landing> wanted{{1, 64}, {2, 64}};
  const BootTime begin = Now();

  const auto state =
      BeginRead(wanted, ReadWant::kEveryBlock, absl::Milliseconds(8));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(wanted), Each(Outcome::kTimedOut));
  EXPECT_EQ(*state->told_at - begin, absl::Milliseconds(8));
  EXPECT_EQ(*state->free_at, *state->told_at);
}

TEST_F(ReadTest, RegionsThatAreNeverMappedCostNoMoreThanTheDeadline) {
  PutLocal(1, 64);
  node_->silent_descriptors = true;
  std::vector<Landing> wanted{{1, 64}};
  const BootTime begin = Now();

  const auto state =
      BeginRead(wanted, ReadWant::kEveryBlock, absl::Milliseconds(8));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kTimedOut));
  EXPECT_EQ(*state->free_at - begin, absl::Milliseconds(8));
}

// Rule P10.
TEST_F(ReadTest, ASessionThatMayNotMapReadsTheLocalNodeByItsStream) {
  node_->DropSessions();
  node_->on_welcome = [](v1::SessionWelcome* welcome) {
    welcome->set_mapping(false);
  };
  RunFor(absl::Seconds(1));
  PutLocal(1, 200'000);
  std::vector<Landing> wanted{{1, 200'000}};

  const ReadReport report = Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, BytesFor(1, 200'000));
  EXPECT_EQ(report.bytes_remote, 200'000u);
  EXPECT_EQ(node_->calls["OpenRead"], 0);
}

TEST_F(ReadTest, ARegionThatIsRefusedIsReadByTheStream) {
  PutLocal(1, 64);
  node_->refuse_descriptors = true;
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, BytesFor(1, 64));
}

TEST_F(ReadTest, ARegionThatTheNodeDoesNotKnowItselfIsReadByTheStream) {
  PutLocal(1, 5000);
  node_->tamper["OpenRead"] = [](std::string* answer) {
    v1::OpenReadResponse response;
    ASSERT_TRUE(response.ParseFromString(*answer));
    response.set_extent_regions(0, 77);
    *answer = response.SerializeAsString();
  };
  std::vector<Landing> wanted{{1, 5000}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, BytesFor(1, 5000));
}

// Rule P9.
TEST_F(ReadTest, ARetiredRegionIsUnmappedAndTheNodeIsTold) {
  PutLocal(1, 64);
  std::vector<Landing> wanted{{1, 64}};
  Read(wanted);
  const std::int64_t mapped = node_->machine()->memory()->mappings();
  v1::NodeMessage retired;
  retired.mutable_region_retired()->set_region(1);

  node_->SendToSession(retired);
  RunFor(absl::Milliseconds(10));

  EXPECT_THAT(node_->unmapped, ElementsAre(1u));
  EXPECT_EQ(node_->machine()->memory()->mappings(), mapped - 2);
}

TEST_F(ReadTest, DeniedIsNotTriedElsewhere) {
  node_->instead["OpenRead"] = [](const std::string&) {
    return absl::PermissionDeniedError("not yours");
  };
  catalog_->Locate(Id(1), remote_->address(), 64);
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kDenied));
  EXPECT_EQ(catalog_->calls["Locate"], 0);
}

TEST_F(ReadTest, TheLatencyAndTheOutcomesAreCounted) {
  PutLocal(1, 64);
  std::vector<Landing> wanted{{1, 64}, {2, 64}};

  Read(wanted, ReadWant::kEveryBlock);

  const ClientStats stats = client_->Stats();
  EXPECT_EQ(stats.read_outcomes[static_cast<int>(Outcome::kHit)], 1u);
  EXPECT_EQ(stats.read_outcomes[static_cast<int>(Outcome::kMiss)], 1u);
  EXPECT_EQ(stats.read.count(), 1u);
  EXPECT_EQ(stats.bytes_mapped, 64u);
  EXPECT_EQ(stats.calls.at("NodeService/OpenRead"), 1u);
}

TEST_F(ReadTest, ClosingEndsAReadWithKCancelledBeforeItReturns) {
  node_->silent.insert("OpenRead");
  std::vector<Landing> wanted{{1, 64}, {2, 64}};
  const auto state = BeginRead(wanted);
  RunFor(absl::Milliseconds(1));

  client_->Close();

  ASSERT_TRUE(state->free_at.has_value());
  EXPECT_EQ(state->targets[0].outcome, Outcome::kCancelled);
  EXPECT_EQ(state->targets[1].outcome, Outcome::kCancelled);
}

TEST_F(ReadTest, AReadAfterCloseIsCancelled) {
  client_->Close();
  std::vector<Landing> wanted{{1, 64}};

  const ReadReport report = Read(wanted);

  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kCancelled));
}

// --- Answers that no node should give: none of them is a hit, none crashes.

struct Hostile {
  std::string name;
  std::function<void(v1::OpenReadResponse*)> change;
};

class HostileOpenReadTest : public ReadTest,
                            public ::testing::WithParamInterface<Hostile> {};

TEST_P(HostileOpenReadTest, IsNeverAHit) {
  PutLocal(1, 5000);
  node_->tamper["OpenRead"] = [&](std::string* answer) {
    v1::OpenReadResponse response;
    ASSERT_TRUE(response.ParseFromString(*answer));
    GetParam().change(&response);
    *answer = response.SerializeAsString();
  };
  std::vector<Landing> wanted{{1, 5000}, {2, 5000}};

  Read(wanted, ReadWant::kEveryBlock);

  EXPECT_NE(wanted[0].target.outcome, Outcome::kHit);
  EXPECT_NE(wanted[1].target.outcome, Outcome::kHit);
}

INSTANTIATE_TEST_SUITE_P(
    Answers, HostileOpenReadTest,
    ::testing::Values(
        Hostile{"TooFewOutcomes",
                [](auto* answer) { answer->set_outcomes("\1"); }},
        Hostile{"UnknownOutcome",
                [](auto* answer) { answer->set_outcomes("\1\77"); }},
        Hostile{"OutcomeOfAWrite",
                [](auto* answer) { answer->set_outcomes("\16\17"); }},
        Hostile{"MoreHitsThanColumns",
                [](auto* answer) { answer->set_outcomes("\1\1"); }},
        Hostile{"NoLease", [](auto* answer) { answer->set_lease(0); }},
        Hostile{"NoExtents",
                [](auto* answer) { answer->set_extent_counts(0, 0); }},
        Hostile{"MoreExtentsThanThereAre",
                [](auto* answer) { answer->set_extent_counts(0, 2); }},
        Hostile{"ExtentBehindTheRegion",
                [](auto* answer) {
                  answer->set_extent_offsets(0, std::uint64_t{1} << 40);
                }},
        Hostile{"ExtentThatWrapsAround",
                [](auto* answer) {
                  answer->set_extent_offsets(0, ~std::uint64_t{0} << 12);
                }},
        Hostile{"ExtentOffThePage",
                [](auto* answer) { answer->set_extent_offsets(0, 8); }},
        Hostile{"ExtentsThatDoNotAddUp",
                [](auto* answer) { answer->set_extent_lengths(0, 4999); }},
        Hostile{"LengthOverTheLargest",
                [](auto* answer) {
                  answer->set_lengths(0, std::uint64_t{1} << 50);
                }},
        Hostile{"AnotherGeneration",
                [](auto* answer) { answer->set_generations(0, 4); }},
        Hostile{"NoGeneration",
                [](auto* answer) { answer->set_generations(0, 0); }},
        Hostile{"AnotherSlot",
                [](auto* answer) { answer->set_extent_offsets(0, 8192); }}),
    [](const auto& test) { return test.param.name; });

TEST_F(ReadTest, AnAnswerThatIsNoMessageIsNeverAHit) {
  PutLocal(1, 64);
  node_->tamper["OpenRead"] = [](std::string* answer) { *answer = "\xff\xff"; };
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_NE(wanted[0].target.outcome, Outcome::kHit);
}

}  // namespace
}  // namespace firnkv
