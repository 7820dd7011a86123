// Staging to slots: checksums, fairness, order, deadlines.

#include "server/node/copier.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "proto/base/random.h"
#include "tests/server/tier/pool_fixture.h"
#include "tests/support/standing_copy.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class CopierTest : public PoolTest {
 protected:
  static PoolOptions Pool() {
    PoolOptions options;
    options.epoch = kEpoch;
    options.target_bytes = 64 * kMiB;
    options.region_bytes = 32 * kMiB;
    options.reserve_bytes = 0;
    return options;
  }
  CopierTest() : PoolTest(Pool()) { Make(1); }
  void TearDown() override {
    copier_.reset();
    PoolTest::TearDown();
  }
  void Make(int max_parallel) {
    Copier::Options options;
    options.max_parallel = max_parallel;
    options.max_queued_bytes = 8 * kMiB;
    copier_ = std::make_unique<Copier>(
        options, Copier::Parts{.pool = pool_.get(),
                               .executor = &world_,
                               .foreground_busy = [this] { return busy_; }});
  }

  // Random bytes of a writer, kept for the life of the test.
  absl::Span<std::byte> Bytes(std::uint64_t size) {
    buffers_.push_back(std::make_unique<std::vector<std::uint8_t>>(size));
    random_.Fill(absl::MakeSpan(*buffers_.back()));
    return {reinterpret_cast<std::byte*>(buffers_.back()->data()), size};
  }
  // One block ready to be copied, its source cut in `ranges`.
  Copier::Block Prepare(const PoolNamespace& name_space, std::uint64_t number,
                        absl::Span<const std::byte> bytes,
                        std::vector<std::uint64_t> ranges = {}) {
    const ReservedBlock reserved =
        ReserveOne(name_space, Block(number, bytes.size()));
    EXPECT_EQ(reserved.outcome, Outcome::kStored);
    Copier::Block block{.reserved = reserved.copy,
                        .source = {},
                        .pieces = PieceChecksums(bytes)};
    absl::Span<const std::byte> rest = bytes;
    for (const std::uint64_t range : ranges) {
      block.source.push_back({.bytes = rest.first(range), .keeps_mapped = {}});
      rest.remove_prefix(range);
    }
    block.source.push_back({.bytes = rest, .keeps_mapped = {}});
    return block;
  }
  void Start(const std::string& name, const PoolNamespace& name_space,
             std::vector<Copier::Block> blocks,
             absl::Duration deadline = absl::Seconds(10),
             TrafficClass traffic = TrafficClass::kBackgroundWrite) {
    copier_->Start({.tenant = name_space.tenant,
                    .traffic = traffic,
                    .deadline = world_.Now() + deadline,
                    .blocks = std::move(blocks),
                    .done = [this, name](std::size_t i, CommitResult result) {
                      EXPECT_EQ(i, outcomes_[name].size()) << "in order";
                      outcomes_[name].push_back(result.outcome);
                      order_.push_back(name);
                    }});
  }
  void RunReady() { world_.RunReady(); }

  SeededRandom random_{1};
  bool busy_ = false;
  std::vector<std::unique_ptr<std::vector<std::uint8_t>>> buffers_;
  std::map<std::string, std::vector<Outcome>> outcomes_;
  std::vector<std::string> order_;
  std::unique_ptr<Copier> copier_;
};

// Rule P1.
TEST_F(CopierTest, WhatLandsInTheSlotIsWhatTheWriterWrote) {
  const auto bytes = Bytes(3 * kMiB + 12345);
  Start("a", name_space_,
        {Prepare(name_space_, 1, bytes, {1, 65535, 70000, kMiB, 0})});
  RunReady();

  EXPECT_THAT(outcomes_["a"], ElementsAre(Outcome::kStored));
  const HeldBlock held = HoldOne(name_space_, 1);
  ASSERT_EQ(held.bytes.size(), bytes.size());
  EXPECT_EQ(std::memcmp(held.bytes.data(), bytes.data(), bytes.size()), 0);
  EXPECT_EQ(held.header.pieces, PieceChecksums(bytes));
}

// No read waits on the write path: counted by what is done in the middle of a
// copy, on the copying thread.
TEST_F(CopierTest, ReadsAndReservesGoOnWhileACopyStands) {
  WriteMany(name_space_, 10, 4, kMiB);
  StandingCopy staging(2 * kMiB);
  const auto later = Bytes(kMiB);
  Copier::Block standing = Prepare(name_space_, 1, staging.bytes());
  Copier::Block waiting = Prepare(name_space_, 2, later);
  std::uint64_t opened = 0;
  bool reserved = false;
  staging.Arm([&] {
    for (std::uint64_t i = 10; i < 14; ++i) {
      const OpenAnswer answer = Open(name_space_, {Key(i)});
      opened += answer.blocks[0].outcome == Outcome::kHit;
    }
    pool_->StartReserve(Request(name_space_, {Block(3, kMiB)}),
                        [&](const ReserveAnswer&) { reserved = true; });
    Start("b", name_space_, {std::move(waiting)});
    EXPECT_GE(copier_->queued_bytes(), kMiB);
  });

  Start("a", name_space_, {std::move(standing)});
  RunReady();

  EXPECT_EQ(staging.stood(), 1);
  EXPECT_EQ(opened, 4u);
  EXPECT_TRUE(reserved);
  EXPECT_THAT(outcomes_["a"], ElementsAre(Outcome::kStored));
  EXPECT_THAT(outcomes_["b"], ElementsAre(Outcome::kStored));
}

// Rules P1 and S1: staging that is changed during the commit fails.
TEST_F(CopierTest, BytesThatFailTheWritersChecksumNeverBecomeVisible) {
  const auto good = Bytes(kMiB);
  const auto bad = Bytes(kMiB);
  std::vector<Copier::Block> blocks = {Prepare(name_space_, 1, bad),
                                       Prepare(name_space_, 2, good)};
  bad[kMiB - 1] ^= std::byte{1};
  Start("a", name_space_, std::move(blocks));
  RunReady();

  EXPECT_THAT(outcomes_["a"], ElementsAre(Outcome::kCorrupt, Outcome::kStored));
  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 0u);
  EXPECT_EQ(pool_->Snapshot().holds, 0u);
}

// Rule S8.
TEST_F(CopierTest, TenantsTakeTurnsInPiecesOfAMiB) {
  const PoolNamespace small = Namespace(2, 2);
  std::vector<Copier::Block> blocks;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    blocks.push_back(Prepare(name_space_, i, Bytes(4 * kMiB)));
  }
  Start("large", name_space_, std::move(blocks));
  Start("small", small, {Prepare(small, 1, Bytes(4096))});
  RunReady();

  EXPECT_EQ(order_[0], "small") << "not after 12 MiB of the other's";
  EXPECT_EQ(order_.size(), 4u);
}

// Rule S8, counted: however much another tenant has queued before, each MiB of
// a commit waits for at most one piece of the other's, and for those that run.
TEST_F(CopierTest, AFloodingTenantCostsAnotherOneAPieceForEachOfItsOwn) {
  constexpr int kParallel = 2;
  constexpr int kMine = 3;
  Make(kParallel);
  const PoolNamespace mine = Namespace(2, 2);
  std::vector<Copier::Block> flood;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    flood.push_back(Prepare(name_space_, i, Bytes(kMiB)));
  }
  Copier::Block own = Prepare(mine, 1, Bytes(kMine * kMiB));
  for (std::size_t i = 0; i < flood.size(); ++i) {
    Start("flood" + std::to_string(i), name_space_, {std::move(flood[i])});
  }
  Start("mine", mine, {std::move(own)});
  int steps = 0;
  while (outcomes_["mine"].empty() && world_.Step()) ++steps;

  EXPECT_THAT(outcomes_["mine"], ElementsAre(Outcome::kStored));
  EXPECT_LE(steps, 2 * kMine + kParallel);
  EXPECT_LE(order_.size(), 1u + kMine + kParallel);
}

// Rule S8: bytes that were copied in vain count too.
TEST_F(CopierTest, AWriterOfCorruptBlocksStarvesNobody) {
  const PoolNamespace mine = Namespace(2, 2);
  std::vector<Copier::Block> corrupt;
  for (std::uint64_t i = 1; i <= 8; ++i) {
    const auto bytes = Bytes(kMiB);
    corrupt.push_back(Prepare(name_space_, i, bytes));
    bytes[kMiB - 1] ^= std::byte{1};
  }
  Copier::Block own = Prepare(mine, 1, Bytes(kMiB));
  Start("corrupt", name_space_, std::move(corrupt));
  Start("mine", mine, {std::move(own)});
  RunReady();

  EXPECT_EQ(order_[0], "corrupt");
  EXPECT_EQ(order_[1], "mine");
  EXPECT_THAT(outcomes_["corrupt"], Each(Outcome::kCorrupt));
}

// Rule S8: a step of tiny blocks is no longer than one of large ones.
TEST_F(CopierTest, ManyTinyBlocksOfAJobTakeTurnsToo) {
  const PoolNamespace mine = Namespace(2, 2);
  std::vector<Copier::Block> tiny;
  for (std::uint64_t i = 1; i <= 600; ++i) {
    tiny.push_back(Prepare(name_space_, i, Bytes(1)));
  }
  Copier::Block own = Prepare(mine, 1, Bytes(4096));
  Start("tiny", name_space_, std::move(tiny));
  Start("mine", mine, {std::move(own)});
  RunReady();

  EXPECT_EQ(order_[256], "mine");
}

TEST_F(CopierTest, BlocksOfOneJobAreAnsweredInItsOrderAlsoInParallel) {
  copier_.reset();
  Make(4);
  for (const char* name : {"a", "b"}) {
    std::vector<Copier::Block> blocks;
    for (std::uint64_t i = 1; i <= 10; ++i) {
      blocks.push_back(Prepare(name_space_, (name[0] - 'a') * 100 + i,
                               Bytes(i % 3 == 0 ? kMiB : 4096)));
    }
    Start(name, name_space_, std::move(blocks));
  }
  RunReady();

  EXPECT_EQ(outcomes_["a"].size(), 10u);
  EXPECT_THAT(outcomes_["b"], Each(Outcome::kStored));
}

// Rule S8.
TEST_F(CopierTest, BlocksNotBegunByTheDeadlineAreTimedOutAndStillReserved) {
  busy_ = true;
  Copier::Block block = Prepare(name_space_, 1, Bytes(4096));
  const SlotCopy reserved = block.reserved;
  Start("a", name_space_, {std::move(block)}, absl::Milliseconds(1));
  world_.RunFor(absl::Milliseconds(10));

  EXPECT_THAT(outcomes_["a"], ElementsAre(Outcome::kTimedOut));
  EXPECT_EQ(FillAndCommit(reserved, 1).outcome, Outcome::kStored);
}

TEST_F(CopierTest, ABlockThatWasBegunIsFinishedPastTheDeadline) {
  busy_ = true;  // Each step waits 5 ms, and copies 1 MiB.
  std::vector<Copier::Block> blocks = {Prepare(name_space_, 1, Bytes(3 * kMiB)),
                                       Prepare(name_space_, 2, Bytes(4096))};
  Start("a", name_space_, std::move(blocks), absl::Milliseconds(7));
  world_.RunFor(absl::Milliseconds(100));

  EXPECT_THAT(outcomes_["a"],
              ElementsAre(Outcome::kStored, Outcome::kTimedOut));
}

// Rule S8: foreground stream work first, and yet no writer starves.
TEST_F(CopierTest, StepsArePutOffForForegroundWorkButNotForEver) {
  busy_ = true;
  Start("a", name_space_, {Prepare(name_space_, 1, Bytes(4096))});

  world_.RunFor(absl::Milliseconds(4));
  EXPECT_TRUE(outcomes_["a"].empty());
  world_.RunFor(absl::Milliseconds(2));
  EXPECT_THAT(outcomes_["a"], ElementsAre(Outcome::kStored));
}

TEST_F(CopierTest, AStepGoesOnWhenForegroundWorkIsDone) {
  busy_ = true;
  Start("a", name_space_, {Prepare(name_space_, 1, Bytes(4096))});
  world_.RunFor(absl::Milliseconds(1));
  busy_ = false;

  world_.RunFor(absl::Microseconds(200));

  EXPECT_THAT(outcomes_["a"], ElementsAre(Outcome::kStored));
}

// Rule S7.
TEST_F(CopierTest, AReservationThatEndsWhileItIsCopiedIsOver) {
  busy_ = true;
  Copier::Block block = Prepare(name_space_, 1, Bytes(3 * kMiB));
  const SlotCopy reserved = block.reserved;
  Start("a", name_space_, {std::move(block)});
  world_.RunFor(absl::Milliseconds(6));
  ASSERT_EQ(pool_->Snapshot().holds, 1u) << "in the middle of it";

  pool_->EndReservation(absl::MakeConstSpan(&reserved, 1));
  EXPECT_EQ(pool_->Snapshot().retiring_slots, 1u);
  world_.RunFor(absl::Milliseconds(100));

  EXPECT_THAT(outcomes_["a"], ElementsAre(Outcome::kReservationOver));
  EXPECT_EQ(pool_->Snapshot().retiring_slots, 0u);
}

// Rule S8.
TEST_F(CopierTest, TheQueueIsFullAtItsBoundAndNotAfterIt) {
  busy_ = true;
  EXPECT_FALSE(copier_->Full(name_space_.tenant));
  Start("a", name_space_, {Prepare(name_space_, 1, Bytes(8 * kMiB))});
  EXPECT_TRUE(copier_->Full(name_space_.tenant));

  world_.RunFor(absl::Seconds(1));

  EXPECT_FALSE(copier_->Full(name_space_.tenant));
  EXPECT_EQ(copier_->queued_bytes(), 0u);
}

// Rule S8: the queue is shared out, so that nobody can fill it for others.
TEST_F(CopierTest, AFullQueueOfOneTenantIsNotFullForAnother) {
  busy_ = true;
  const PoolNamespace other = Namespace(2, 2);
  Copier::Block theirs = Prepare(name_space_, 1, Bytes(8 * kMiB));
  Copier::Block first = Prepare(other, 1, Bytes(3 * kMiB));
  Copier::Block second = Prepare(other, 2, Bytes(kMiB));
  Start("a", name_space_, {std::move(theirs)});

  EXPECT_FALSE(copier_->Full(other.tenant));
  Start("b", other, {std::move(first)});
  EXPECT_FALSE(copier_->Full(other.tenant));
  Start("c", other, {std::move(second)});

  EXPECT_TRUE(copier_->Full(other.tenant)) << "half of it, of two tenants";
}

TEST_F(CopierTest, DrainCancelsWhatIsQueuedAndEndsItsHolds) {
  busy_ = true;
  Start("a", name_space_,
        {Prepare(name_space_, 1, Bytes(3 * kMiB)),
         Prepare(name_space_, 2, Bytes(4096))});
  world_.RunFor(absl::Milliseconds(6));

  copier_->Drain();
  Start("late", name_space_, {Prepare(name_space_, 3, Bytes(4096))});

  EXPECT_THAT(outcomes_["a"],
              ElementsAre(Outcome::kCancelled, Outcome::kCancelled));
  EXPECT_THAT(outcomes_["late"], ElementsAre(Outcome::kCancelled));
  EXPECT_EQ(pool_->Snapshot().holds, 0u);
  EXPECT_EQ(copier_->queued_bytes(), 0u);
}

TEST_F(CopierTest, StagingIsLetGoWithItsBlocksAnswer) {
  auto mapped = std::make_shared<int>(1);
  Copier::Block block = Prepare(name_space_, 1, Bytes(4096));
  block.source[0].keeps_mapped = mapped;
  Start("a", name_space_, {std::move(block)});
  ASSERT_EQ(mapped.use_count(), 2);

  RunReady();

  EXPECT_EQ(mapped.use_count(), 1);
}

}  // namespace
}  // namespace firnkv
