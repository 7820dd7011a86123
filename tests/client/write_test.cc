// Writes: reserve, stage, commit, and what becomes of memory on every path.

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

class WriteTest : public ClientFixture {
 protected:
  void SetUp() override { Connect(); }
  static std::vector<Outcome> OutcomesOf(const WriteState& state) {
    std::vector<Outcome> outcomes;
    for (const WriteBlock& block : state.blocks) {
      outcomes.push_back(block.outcome);
    }
    return outcomes;
  }
  absl::Span<std::byte> Shared(int number, std::size_t size) {
    auto memory = client_->AllocateShared(size);
    EXPECT_TRUE(memory.ok()) << memory.status();
    const auto bytes = BytesFor(number, size);
    std::memcpy(memory->data(), bytes.data(), size);
    return *memory;
  }
};

TEST_F(WriteTest, WhatWasWrittenIsAtTheNode) {
  const auto one = BytesFor(1, 100'000);
  const auto two = BytesFor(2, 70);

  const auto state = BeginWrite({{1, one}, {2, two}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), Each(Outcome::kStored));
  EXPECT_EQ(node_->BytesOf(Id(1)), one);
  EXPECT_EQ(node_->BytesOf(Id(2)), two);
  EXPECT_EQ(state->report->stored, 2u);
  EXPECT_EQ(state->report->bytes_stored, 100'070u);
}

TEST_F(WriteTest, ASourceOfOddPiecesIsOneBlock) {
  const auto bytes = BytesFor(1, 150'000);
  const auto state = std::make_shared<WriteState>();
  state->sources = {{{.address = bytes.data(), .length = 1},
                     {.address = bytes.data() + 1, .length = 0},
                     {.address = bytes.data() + 1, .length = 70'000},
                     {.address = bytes.data() + 70'001, .length = 79'999}}};
  WriteBlock block;
  block.key = KeyOf(1);
  block.place.anchor = block.key;
  block.source = state->sources[0];
  state->blocks.push_back(block);

  StartWrite(state, absl::Seconds(1));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kStored));
  EXPECT_EQ(node_->BytesOf(Id(1)), bytes);
}

TEST_F(WriteTest, WhatIsAlreadyThereIsNotCopied) {
  const auto bytes = BytesFor(1, 1000);
  node_->Put(Id(1), bytes);

  const auto state = BeginWrite({{1, bytes}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kAlreadyThere));
  EXPECT_EQ(state->report->bytes_copied, 0u);
  EXPECT_EQ(node_->commits, 0);
}

TEST_F(WriteTest, SharedMemoryIsWrittenFromWithoutACopy) {
  const auto memory = Shared(1, 100'000);

  const auto state = BeginWrite({{1, memory}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kStored));
  EXPECT_EQ(node_->BytesOf(Id(1)), BytesFor(1, 100'000));
  EXPECT_EQ(state->report->bytes_copied, 0u);
}

TEST_F(WriteTest, SharedMemoryThatTheNodeRefusesIsCopied) {
  node_->refuse_staging = [](std::uint64_t staging) { return staging == 1; };
  const auto memory = Shared(1, 100'000);  // The Client's first memory.

  const auto state = BeginWrite({{1, memory}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kStored));
  EXPECT_GE(state->report->bytes_copied, 100'000u);
}

TEST_F(WriteTest, MoreThanTheStagingHoldsGoesThroughItInTurns) {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::pair<int, absl::Span<const std::byte>>> wanted;
  for (int i = 0; i < 7; ++i) blocks.push_back(BytesFor(i, kMiB));
  for (int i = 0; i < 7; ++i) wanted.emplace_back(i, blocks[i]);

  const auto state = BeginWrite(wanted, absl::Seconds(10));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), Each(Outcome::kStored));
  for (int i = 0; i < 7; ++i) EXPECT_EQ(node_->BytesOf(Id(i)), blocks[i]);
  EXPECT_GT(node_->commits, 1);
}

// Rule S8: in chain order.
TEST_F(WriteTest, BlocksAreCommittedInTheOrderOfTheRequest) {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::pair<int, absl::Span<const std::byte>>> wanted;
  for (int i = 0; i < 300; ++i) blocks.push_back(BytesFor(i, 1000));
  for (int i = 0; i < 300; ++i) wanted.emplace_back(i, blocks[i]);

  const auto state = BeginWrite(wanted);
  Finish(state.get());

  std::vector<std::uint32_t> indexes;
  for (const auto& commit : node_->commit_requests) {
    indexes.insert(indexes.end(), commit.indexes().begin(),
                   commit.indexes().end());
  }
  EXPECT_THAT(indexes, SizeIs(300));
  EXPECT_TRUE(std::is_sorted(indexes.begin(), indexes.end()));
}

TEST_F(WriteTest, TheNodesLookForRoomEndsBeforeTheDeadline) {
  const std::vector<std::byte> block = BytesFor(1, 1000);

  const auto state = BeginWrite({{1, block}}, absl::Milliseconds(800));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kStored));
  ASSERT_THAT(node_->reserve_requests, SizeIs(1));
  EXPECT_LE(node_->reserve_requests[0].header().remaining_micros(), 700'000u);
  ASSERT_THAT(node_->commit_requests, SizeIs(1));
  EXPECT_GT(node_->commit_requests[0].header().remaining_micros(), 700'000u);
}

TEST_F(WriteTest, StagingThatStaysFullIsCongestedAtTheDeadline) {
  node_->silent.insert("Commit");
  std::vector<std::vector<std::byte>> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(BytesFor(i, 2 * kMiB));
  const auto first =
      BeginWrite({{0, blocks[0]}, {1, blocks[1]}}, absl::Seconds(5));
  RunFor(absl::Milliseconds(100));

  const auto second = BeginWrite({{2, blocks[2]}}, absl::Milliseconds(50));
  Finish(second.get());

  EXPECT_THAT(OutcomesOf(*second), ElementsAre(Outcome::kCongested));
  EXPECT_EQ(*second->free_at, *second->told_at);
}

TEST_F(WriteTest, BytesThatTheNodeSawOtherwiseAreCorrupt) {
  const auto memory = Shared(1, 1000);
  node_->before["Commit"] = [&] { memory[5] ^= std::byte{1}; };

  const auto state = BeginWrite({{1, memory}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kCorrupt));
  EXPECT_FALSE(node_->Has(Id(1)));
}

// Rule S9: the node waits for what is there, so it has to know for what.
TEST_F(WriteTest, AReserveSaysWhatIsAwaitedOfWhatIsThere) {
  const auto bytes = BytesFor(1, 1000);
  node_->Put(Id(1), bytes);
  for (const WriteWait wait : {WriteWait::kLocal, WriteWait::kPublished}) {
    wait_for_ = wait;
    const auto state = BeginWrite({{1, bytes}});
    Finish(state.get());

    EXPECT_EQ(node_->reserve_requests.back().wait_for(),
              static_cast<std::uint32_t>(wait));
  }
}

TEST_F(WriteTest, AWriteOfAnotherSizeThanTheNamespaceDeclaresIsWrongSize) {
  handle_.block_bytes = 1000;
  const auto bytes = BytesFor(1, 999);

  const auto state = BeginWrite({{1, bytes}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kWrongSize));
}

TEST_F(WriteTest, OneKeyTwiceIsRefused) {
  const auto bytes = BytesFor(1, 100);

  const auto state = BeginWrite({{1, bytes}, {1, bytes}});
  Finish(state.get());

  EXPECT_THAT(state->report->status,
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(node_->calls["Reserve"], 0);
}

TEST_F(WriteTest, WithoutASessionWritesAreUnavailable) {
  node_->StopServing();
  RunFor(absl::Milliseconds(10));
  const auto bytes = BytesFor(1, 100);

  const auto state = BeginWrite({{1, bytes}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kUnavailable));
}

// Its node ended the session in a pause of which this Client has not heard yet.
TEST_F(WriteTest, AWriteUnderASessionThatIsOverIsUnavailableAndNotDenied) {
  const auto bytes = BytesFor(1, 100);
  for (const std::string method : {"Reserve", "Commit"}) {
    node_->instead[method] = [](const std::string&) {
      return absl::UnauthenticatedError("there is no such session");
    };

    const auto state = BeginWrite({{1, bytes}});
    Finish(state.get());

    EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kUnavailable))
        << method;
    node_->instead.clear();
  }
}

// --- A node that stops answering, at each stage.

class SilentStageTest : public WriteTest,
                        public ::testing::WithParamInterface<std::string> {};

TEST_P(SilentStageTest, CostsNoMoreThanTheDeadlineAndTheGrace) {
  if (GetParam() == "AddStaging") {
    node_->silent_staging = true;
  } else {
    node_->silent.insert(GetParam());
  }
  const auto bytes = BytesFor(1, 100'000);
  const BootTime begin = Now();

  const auto state = BeginWrite({{1, bytes}}, absl::Milliseconds(30));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kTimedOut));
  EXPECT_EQ(*state->told_at - begin, absl::Milliseconds(30));
  EXPECT_LE(*state->free_at - *state->told_at, options_.buffer_grace);
}

INSTANTIATE_TEST_SUITE_P(Stages, SilentStageTest,
                         ::testing::Values("Reserve", "AddStaging", "Commit"),
                         [](const auto& test) { return test.param; });

// Rule S1: the answer to the Abort frees the staging.
TEST_F(WriteTest, AnUnansweredCommitIsAbortedAndItsStagingUsedAgain) {
  node_->silent.insert("Commit");
  const auto bytes = BytesFor(1, 2 * kMiB);
  for (int i = 0; i < 4; ++i) {
    const auto state = BeginWrite({{i, bytes}}, absl::Milliseconds(100));
    Finish(state.get());
    EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kTimedOut));
  }

  EXPECT_EQ(node_->aborts, 4);
  EXPECT_EQ(node_->sessions, 1);
}

// Rule S1: without any answer only the session's end does.
TEST_F(WriteTest, WhereNeitherCommitNorAbortIsAnsweredTheSessionIsEnded) {
  node_->silent = {"Commit", "Abort"};
  const auto memory = Shared(1, 1000);

  const auto state = BeginWrite({{1, memory}}, absl::Milliseconds(100));
  Finish(state.get());
  RunFor(absl::Seconds(1));

  EXPECT_LE(*state->free_at - *state->told_at, options_.buffer_grace);
  EXPECT_EQ(client_->Stats().sessions_lost, 1u);
  EXPECT_EQ(node_->sessions, 2);
}

// Rule S1: what is freed while a Commit may still read it is not given out.
TEST_F(WriteTest, SharedMemoryInFlightIsNotGivenOutAgain) {
  node_->silent.insert("Commit");
  const auto memory = Shared(1, 40 * kMiB);
  std::byte* const address = memory.data();
  const auto state = BeginWrite({{1, memory.first(1000)}});
  RunFor(absl::Milliseconds(10));

  client_->FreeShared(address);
  const auto during = client_->AllocateShared(40 * kMiB);
  Finish(state.get());
  const auto after = client_->AllocateShared(40 * kMiB);

  ASSERT_OK(during);
  ASSERT_OK(after);
  EXPECT_NE(during->data(), address);
  EXPECT_EQ(after->data(), address);
}

TEST_F(WriteTest, SharedMemoryIsZeroWhenItIsGivenOutAgain) {
  const auto memory = Shared(1, 1000);
  client_->FreeShared(memory.data());

  const auto again = client_->AllocateShared(1000);

  ASSERT_OK(again);
  EXPECT_THAT(*again, Each(std::byte{0}));
}

TEST_F(WriteTest, SharedMemoryIsBounded) {
  EXPECT_THAT(client_->AllocateShared(options_.shared_bytes + 1),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

// --- A session that ends, at each stage.

class LostSessionTest : public WriteTest,
                        public ::testing::WithParamInterface<std::string> {};

TEST_P(LostSessionTest, MakesAWriteUnavailableAndTheNextOneWorks) {
  node_->silent.insert(GetParam());
  const auto bytes = BytesFor(1, 100'000);
  const auto state = BeginWrite({{1, bytes}});
  ASSERT_TRUE(Run([&] { return node_->calls[GetParam()] > 0; }));

  node_->DropSessions();
  Finish(state.get());
  node_->silent.clear();
  RunFor(absl::Seconds(1));
  const auto again = BeginWrite({{1, bytes}});
  Finish(again.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kUnavailable));
  EXPECT_THAT(OutcomesOf(*again), ElementsAre(Outcome::kStored));
  EXPECT_EQ(node_->BytesOf(Id(1)), bytes);
}

INSTANTIATE_TEST_SUITE_P(Stages, LostSessionTest,
                         ::testing::Values("Reserve", "Commit"),
                         [](const auto& test) { return test.param; });

// Rule S1.
TEST_F(WriteTest, StagingIsHandedToTheNextSessionToo) {
  const auto memory = Shared(1, 1000);
  const auto before = node_->stagings_added.size();
  node_->DropSessions();
  RunFor(absl::Seconds(1));

  const auto state = BeginWrite({{1, memory}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kStored));
  EXPECT_GT(node_->stagings_added.size(), before);
}

TEST_F(WriteTest, ClosingEndsAWriteWithKCancelled) {
  node_->silent.insert("Commit");
  const auto bytes = BytesFor(1, 1000);
  const auto state = BeginWrite({{1, bytes}});
  ASSERT_TRUE(Run([&] { return node_->calls["Commit"] > 0; }));

  client_->Close();

  ASSERT_TRUE(state->free_at.has_value());
  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kCancelled));
}

TEST_F(WriteTest, AHostileReserveIsNotFollowed) {
  node_->tamper["Reserve"] = [](std::string* answer) {
    v1::ReserveResponse response;
    ASSERT_TRUE(response.ParseFromString(*answer));
    response.set_outcomes(std::string(5, '\16'));
    *answer = response.SerializeAsString();
  };
  const auto bytes = BytesFor(1, 1000);

  const auto state = BeginWrite({{1, bytes}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kUnavailable));
  EXPECT_EQ(node_->commits, 0);
}

TEST_F(WriteTest, AHostileCommitIsNoSuccess) {
  node_->tamper["Commit"] = [](std::string* answer) { *answer = "\xff"; };
  const auto bytes = BytesFor(1, 1000);

  const auto state = BeginWrite({{1, bytes}});
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), ElementsAre(Outcome::kUnavailable));
}

// A location elsewhere is of no use once the block is here.
TEST_F(WriteTest, WhatWasWrittenIsReadLocally) {
  remote_->Put(Id(1), BytesFor(1, 1000));
  catalog_->Locate(Id(1), remote_->address(), 1000);
  std::vector<Landing> cold{{1, 1000}};
  Read(cold);
  const auto bytes = BytesFor(1, 1000);
  const auto state = BeginWrite({{1, bytes}});
  Finish(state.get());
  std::vector<Landing> warm{{1, 1000}};

  const ReadReport report = Read(warm);

  EXPECT_EQ(report.bytes_mapped, 1000u);
}

}  // namespace
}  // namespace firnkv
