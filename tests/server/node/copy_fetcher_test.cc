// Copies from one node to another: what becomes resident and what does not, and
// what is left of a run that goes wrong.

#include "server/node/copy_fetcher.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "tests/server/node/stream_fixture.h"

namespace firnkv {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::uint64_t kLength = 64 * kKiB;

// The fixture's node is the source; the copies go "here".
class CopyFetcherTest : public StreamFixture {
 protected:
  CopyFetcherTest() { MakeFetcher({}); }
  ~CopyFetcherTest() override {
    fetcher_->Close();
    catalog_of_here_.Close();
    here_.CancelWaiting();
    RunFor(absl::Seconds(5));
    fetcher_.reset();
  }

  void MakeFetcher(const CopyFetcher::Options& options) {
    fetcher_ = std::make_unique<CopyFetcher>(
        options, CopyFetcher::Parts{.seams = &machine_->seams(),
                                    .credentials = &credentials_of_here_,
                                    .namespaces = &namespaces_of_here_,
                                    .pool = &here_});
  }

  // Block n of the chain 1, 2, 3, ...
  static ReserveBlock ChainBlock(std::uint64_t n, std::uint64_t bytes) {
    ChainPlace place;
    place.position = static_cast<std::uint32_t>(n - 1);
    if (n > 1) place.parent = KeyOf(n - 1);
    place.anchor = KeyOf(1);
    place.tokens = 16;
    return {.key = KeyOf(n), .place = place, .length = bytes};
  }
  static void StoreAt(DramPool* pool, BootTime now, const NamespaceFacts& facts,
                      const ReserveBlock& block, std::uint64_t content) {
    ReserveRequest request;
    request.name_space = ToPoolNamespace(facts);
    request.blocks = {block};
    request.deadline = now;
    request.reserved_until = now + absl::Seconds(10);
    std::optional<ReserveAnswer> answer;
    pool->StartReserve(std::move(request),
                       [&](ReserveAnswer got) { answer = std::move(got); });
    CHECK(answer.has_value());
    CHECK(answer->blocks[0].outcome == Outcome::kStored);
    auto begun = pool->BeginCopy(answer->blocks[0].copy);
    CopyTarget& target = std::get<CopyTarget>(begun);
    const std::vector<std::byte> bytes = ContentOf(content, block.length);
    CopyWithCrc32c(target.bytes.data(), bytes);
    CHECK(pool->Commit(std::move(target), PieceChecksums(bytes)).outcome ==
          Outcome::kStored);
  }
  // The source has blocks 1 to `count`.
  void StoreChain(std::uint64_t count, std::uint64_t bytes = kLength) {
    // A region takes a step of its own to come into being.
    Store(chat_, 999, bytes);
    for (std::uint64_t n = 1; n <= count; ++n) {
      StoreAt(pool_.get(), Now(), chat_, ChainBlock(n, bytes), n);
    }
  }

  CopyOrder OrderOf(std::uint64_t from, std::uint64_t to,
                    std::uint64_t bytes = kLength) {
    CopyOrder order;
    order.source.node = state_.memory().node;
    order.source.epoch = NodeEpoch{0xe90c};
    order.source.stream_address = kAddress;
    order.caller = {.tenant = {}, .is_node = true};
    order.name_space = chat_.name_space;
    for (std::uint64_t n = from; n < to; ++n) {
      const ReserveBlock block = ChainBlock(n, bytes);
      order.blocks.push_back(
          {block.key, block.place, block.length, ClearEpoch{1}});
    }
    order.deadline = HereNow() + absl::Seconds(5);
    order.room_wait = absl::Seconds(1);
    return order;
  }
  BootTime HereNow() const { return machine_->process()->clock()->Now(); }

  using Result = std::optional<std::vector<Outcome>>;
  std::shared_ptr<Result> Start(CopyOrder order) {
    // Shared with the completion.
    auto result = std::make_shared<Result>();
    fetcher_->Start(std::move(order), [result](std::vector<Outcome> outcomes) {
      EXPECT_FALSE(result->has_value()) << "told twice";
      *result = std::move(outcomes);
    });
    return result;
  }
  std::vector<Outcome> Fetch(CopyOrder order) {
    const auto result = Start(std::move(order));
    EXPECT_TRUE(world_.executor()->RunUntil([&] { return result->has_value(); },
                                            absl::Seconds(30)));
    return result->value_or(std::vector<Outcome>());
  }

  HeldBlock HoldHere(std::uint64_t n) {
    const PoolNamespace name_space = ToPoolNamespace(chat_);
    const HeldRequest::Key key{.key = KeyOf(n)};
    return std::move(here_
                         .OpenHeld({.name_space = &name_space,
                                    .keys = absl::MakeConstSpan(&key, 1)})
                         .blocks[0]);
  }
  bool IsHere(std::uint64_t n) { return HoldHere(n).outcome == Outcome::kHit; }
  std::uint64_t AskedOfTheSource() const { return metrics_.Outcomes()[1]; }
  void ExpectNothingKept() {
    RunFor(absl::Seconds(10));
    const PoolSnapshot pool = here_.Snapshot();
    EXPECT_EQ(pool.reserved_slots, 0u);
    EXPECT_EQ(pool.holds, 0u);
    EXPECT_EQ(pool.retiring_slots, 0u);
    EXPECT_EQ(fetcher_->bytes(), 0u);
    EXPECT_EQ(fetcher_->runs(), 0u);
  }

  static PoolOptions SmallPool() {
    PoolOptions options;
    options.epoch = NodeEpoch{0x4e5e};
    options.target_bytes = 8 * kMiB;
    options.region_bytes = 4 * kMiB;
    options.reserve_bytes = 0;
    return options;
  }

  NamespaceFacts AddChained() {
    NamespaceFacts facts = catalog_.AddNamespace("alice");
    facts.chained = true;
    catalog_.name_spaces[facts.name_space] = facts;
    return facts;
  }

  const NamespaceFacts chat_ = AddChained();
  SimMachine* const machine_ = world_.NewMachine("here", "here");
  DramPool here_{SmallPool(),
                 DramPool::Parts{.clock = machine_->process()->clock(),
                                 .executor = machine_->process(),
                                 .memory = machine_->seams().memory,
                                 .limits = nullptr,
                                 .events = nullptr,
                                 .hooks = nullptr}};
  NodeCredentials credentials_of_here_{secret_, catalog_.cluster,
                                       machine_->process()->clock()};
  NodeCatalogClient catalog_of_here_{
      machine_->seams().control->Connect(kCatalogAddress),
      &credentials_of_here_};
  NamespaceCache namespaces_of_here_{{},
                                     &catalog_of_here_,
                                     machine_->process()->clock(),
                                     [this](const NamespaceFacts& facts) {
                                       here_.SetClearEpoch(facts.name_space,
                                                           facts.clear_epoch);
                                     }};
  std::unique_ptr<CopyFetcher> fetcher_;
};

TEST_F(CopyFetcherTest, ACopyHasTheSourcesBytesPlaceAndAge) {
  StoreChain(3);
  RunFor(absl::Seconds(100));

  EXPECT_THAT(Fetch(OrderOf(1, 4)), Each(Outcome::kStored));

  for (std::uint64_t n = 1; n <= 3; ++n) {
    const HeldBlock copy = HoldHere(n);
    ASSERT_EQ(copy.outcome, Outcome::kHit);
    const std::vector<std::byte> content = ContentOf(n, kLength);
    EXPECT_TRUE(std::equal(copy.bytes.begin(), copy.bytes.end(),
                           content.begin(), content.end()));
    EXPECT_EQ(copy.header.place, ChainBlock(n, kLength).place);
    EXPECT_EQ(copy.header.digest, chat_.digest);
    EXPECT_EQ(copy.header.clear_epoch, ClearEpoch{1});
    EXPECT_LT(copy.header.commit_time_nanos,
              absl::ToUnixNanos(machine_->process()->clock()->WallNow() -
                                absl::Seconds(90)));
  }
  EXPECT_EQ(fetcher_->counters().bytes.value(), 3 * kLength);
  ExpectNothingKept();
}

TEST_F(CopyFetcherTest, WhatIsHereIsNotAskedFor) {
  StoreChain(2);
  ASSERT_THAT(Fetch(OrderOf(1, 3)), Each(Outcome::kStored));
  const std::uint64_t before = AskedOfTheSource();

  EXPECT_THAT(Fetch(OrderOf(1, 3)), Each(Outcome::kAlreadyThere));

  EXPECT_EQ(AskedOfTheSource(), before);
}

TEST_F(CopyFetcherTest, AChildOfABlockThatIsGoneIsNotFetched) {
  StoreChain(4);
  const BlockKey gone = KeyOf(2);
  pool_->Remove(chat_.name_space, {&gone, 1});

  EXPECT_THAT(Fetch(OrderOf(1, 5)),
              ElementsAre(Outcome::kStored, Outcome::kMiss, Outcome::kMiss,
                          Outcome::kMiss));

  EXPECT_EQ(here_.Snapshot().blocks, 1u);
  ExpectNothingKept();
}

// Rule P14: what the source has under the key is not what was told of.
TEST_F(CopyFetcherTest, ACopyInAnotherPlaceIsNotTaken) {
  StoreChain(3);
  CopyOrder order = OrderOf(1, 4);
  order.blocks[0].place.tokens += 1;
  order.blocks[1].place.parent = KeyOf(77);
  order.blocks[2].place.parent = KeyOf(78);
  order.blocks[2].length -= 1;

  EXPECT_THAT(Fetch(std::move(order)), Each(Outcome::kMiss));

  EXPECT_EQ(here_.Snapshot().blocks, 0u);
  ExpectNothingKept();
}

// Rule P14: hearsay does not push out what a writer has put here.
TEST_F(CopyFetcherTest, ACopyHereThatDiffersStays) {
  StoreChain(1);
  ReserveBlock own = ChainBlock(1, kLength);
  own.place.tokens = 17;
  ASSERT_THAT(Fetch(OrderOf(1, 2)), Each(Outcome::kStored));
  const BlockKey key = KeyOf(1);
  here_.Remove(chat_.name_space, {&key, 1});
  StoreAt(&here_, HereNow(), chat_, own, 5);

  EXPECT_THAT(Fetch(OrderOf(1, 2)), Each(Outcome::kAlreadyThere));

  EXPECT_EQ(HoldHere(1).header.place, own.place);
  EXPECT_EQ(here_.Snapshot().replaced_copies, 0u);
}

// Rule P13.
TEST_F(CopyFetcherTest, ACopyOfAnOlderClearEpochIsNotTaken) {
  StoreChain(1);
  catalog_.Clear(chat_.name_space);
  CopyOrder order = OrderOf(1, 2);
  namespaces_of_here_.Learn({catalog_.name_spaces.at(chat_.name_space)});

  EXPECT_THAT(Fetch(std::move(order)), Each(Outcome::kCleared));

  EXPECT_EQ(AskedOfTheSource(), 0u);
}

// Rule P13: the source knows of a clear that nobody here has heard of.
TEST_F(CopyFetcherTest, ACopyThatComesWithAnotherEpochIsNotTaken) {
  StoreChain(1);
  pool_->SetClearEpoch(chat_.name_space, ClearEpoch{2});
  const BlockKey key = KeyOf(1);
  pool_->Remove(chat_.name_space, {&key, 1});
  NamespaceFacts cleared = chat_;
  cleared.clear_epoch = ClearEpoch{2};
  StoreAt(pool_.get(), Now(), cleared, ChainBlock(1, kLength), 1);

  EXPECT_THAT(Fetch(OrderOf(1, 2)), Each(Outcome::kMiss));

  EXPECT_EQ(here_.Snapshot().blocks, 0u);
  ExpectNothingKept();
}

// Rule P13: it is known here already, and the source has not heard of it.
TEST_F(CopyFetcherTest, ACopyThatIsClearedOnItsWayDoesNotBecomeResident) {
  StoreChain(1, kMiB);
  const auto result = Start(OrderOf(1, 2, kMiB));
  ASSERT_TRUE(
      world_.executor()->RunUntil([&] { return here_.Snapshot().holds > 0; }));

  here_.SetClearEpoch(chat_.name_space, ClearEpoch{2});
  ASSERT_TRUE(world_.executor()->RunUntil([&] { return result->has_value(); }));

  EXPECT_THAT(**result, Each(Outcome::kCleared));
  EXPECT_EQ(here_.Snapshot().blocks, 0u);
  ExpectNothingKept();
}

// Rule P13: the bytes are compared with the source's checksums as they landed.
TEST_F(CopyFetcherTest, ACorruptCopyDoesNotBecomeResident) {
  StoreChain(1, kMiB);
  SeededRandom random(5);
  for (int i = 0; i < 2000; ++i) node_->memory()->FlipOneBit(&random);

  EXPECT_THAT(Fetch(OrderOf(1, 2, kMiB)), Each(Outcome::kCorrupt));

  EXPECT_EQ(here_.Snapshot().blocks, 0u);
  ExpectNothingKept();
}

TEST_F(CopyFetcherTest, ANamespaceOfAnotherTenantIsNotCopied) {
  StoreChain(1);
  CopyOrder order = OrderOf(1, 2);
  order.caller = {.tenant = bob_, .is_node = false};

  EXPECT_THAT(Fetch(std::move(order)), Each(Outcome::kUnavailable));

  EXPECT_EQ(AskedOfTheSource(), 0u);
  EXPECT_EQ(here_.Snapshot().blocks, 0u);
}

TEST_F(CopyFetcherTest, OnlyTheRunThatWasToldOfIsAsked) {
  StoreChain(1);
  CopyOrder order = OrderOf(1, 2);
  order.source.epoch = NodeEpoch{0xdead};

  EXPECT_THAT(Fetch(std::move(order)), Each(Outcome::kMiss));

  EXPECT_EQ(AskedOfTheSource(), 0u);
  ExpectNothingKept();
}

// Rules P8 and S7.
TEST_F(CopyFetcherTest, ASourceThatDiesInTheMiddleLeavesNoSlot) {
  StoreChain(3, kMiB);
  const auto result = Start(OrderOf(1, 4, kMiB));
  ASSERT_TRUE(
      world_.executor()->RunUntil([&] { return here_.Snapshot().holds > 0; }));

  server_.reset();
  ASSERT_TRUE(world_.executor()->RunUntil([&] { return result->has_value(); }));

  EXPECT_THAT(**result, Each(AnyOf(Outcome::kStored, Outcome::kUnavailable)));
  EXPECT_EQ((*result)->back(), Outcome::kUnavailable);
  ExpectNothingKept();
}

// Two ends: outcomes by the deadline, slots at most the grace later.
TEST_F(CopyFetcherTest, ASourceThatStallsCostsNoMoreThanTheDeadline) {
  StoreChain(3, kMiB);
  const BootTime begun = HereNow();
  const auto result = Start(OrderOf(1, 4, kMiB));
  ASSERT_TRUE(
      world_.executor()->RunUntil([&] { return here_.Snapshot().holds > 0; }));

  node_->process()->Pause();
  ASSERT_TRUE(world_.executor()->RunUntil([&] { return result->has_value(); }));

  EXPECT_LE(HereNow() - begun, absl::Seconds(5) + absl::Milliseconds(1));
  EXPECT_THAT(**result, Each(AnyOf(Outcome::kStored, Outcome::kTimedOut)));
  RunFor(absl::Seconds(2));
  EXPECT_EQ(here_.Snapshot().reserved_slots, 0u);
  EXPECT_EQ(here_.Snapshot().holds, 0u);
  node_->process()->Resume();
  ExpectNothingKept();
}

TEST_F(CopyFetcherTest, APeerThatFailedIsLeftAloneForAWhile) {
  StoreChain(2);
  server_.reset();
  ASSERT_THAT(Fetch(OrderOf(1, 2)), Each(Outcome::kUnavailable));

  const auto refused = Start(OrderOf(1, 2));
  ASSERT_TRUE(refused->has_value()) << "at once";
  EXPECT_THAT(**refused, Each(Outcome::kUnavailable));
  EXPECT_EQ(fetcher_->counters().paused.value(), 1u);

  Serve({});
  RunFor(absl::Seconds(1));
  EXPECT_THAT(Fetch(OrderOf(1, 2)), Each(Outcome::kStored));
}

TEST_F(CopyFetcherTest, BytesInFlightAreBounded) {
  MakeFetcher({.max_bytes = 512 * kKiB,
               .max_bytes_a_peer = 256 * kKiB,
               .run = {.step_bytes = 128 * kKiB}});
  StoreChain(24);
  std::vector<std::shared_ptr<Result>> results;
  for (std::uint64_t n = 1; n <= 24; n += 4) {
    results.push_back(Start(OrderOf(n, n + 4)));
  }
  std::uint64_t most = 0;

  ASSERT_TRUE(world_.executor()->RunUntil([&] {
    most = std::max(most, here_.Snapshot().reserved_bytes);
    return std::all_of(results.begin(), results.end(),
                       [](const auto& one) { return one->has_value(); });
  }));

  EXPECT_LE(most, 256 * kKiB);
  EXPECT_GT(most, 128 * kKiB) << "more than one run at a time";
  for (const auto& one : results) EXPECT_THAT(**one, Each(Outcome::kStored));
  ExpectNothingKept();
}

TEST_F(CopyFetcherTest, MoreRunsThanMayWaitAreCongested) {
  MakeFetcher({.max_runs = 2});
  StoreChain(3);
  const auto first = Start(OrderOf(1, 2));
  const auto second = Start(OrderOf(2, 3));

  const auto third = Start(OrderOf(3, 4));

  ASSERT_TRUE(third->has_value());
  EXPECT_THAT(**third, Each(Outcome::kCongested));
  RunFor(absl::Seconds(1));
  EXPECT_THAT(**first, Each(Outcome::kStored));
  EXPECT_THAT(**second, Each(Outcome::kStored));
}

// A drain has a deadline that ends a node; a promotion can wait.
TEST_F(CopyFetcherTest, ADrainsRunGoesBeforeAPromotions) {
  MakeFetcher({.max_bytes = kLength});
  StoreChain(12);
  ASSERT_THAT(Fetch(OrderOf(1, 2)), Each(Outcome::kStored));
  std::vector<int> order;
  const auto start = [&](std::uint64_t n, TrafficClass traffic, int name) {
    CopyOrder wanted = OrderOf(n, n + 1);
    wanted.traffic = traffic;
    fetcher_->Start(std::move(wanted), [&order, name](std::vector<Outcome>) {
      order.push_back(name);
    });
  };
  start(2, TrafficClass::kWarmUp, 1);
  start(3, TrafficClass::kWarmUp, 2);
  start(4, TrafficClass::kRebuild, 3);

  RunFor(absl::Seconds(3));

  // The first one was under way.
  EXPECT_THAT(order, ElementsAre(1, 3, 2));
}

TEST_F(CopyFetcherTest, WhereOnlyWarmerBlocksWouldLeaveNothingIsCopied) {
  // One region, full of what came later.
  here_.SetTarget(4 * kMiB);
  StoreChain(1);
  ASSERT_THAT(Fetch(OrderOf(1, 2)), Each(Outcome::kStored));
  const Warmth then = here_.NextWarmth();
  const BlockKey key = KeyOf(1);
  here_.Remove(chat_.name_space, {&key, 1});
  for (std::uint64_t n = 100; n < 100 + 4 * kMiB / kLength; ++n) {
    ReserveBlock block = ChainBlock(1, kLength);
    block.key = KeyOf(n);
    StoreAt(&here_, HereNow(), chat_, block, n);
  }
  const std::uint64_t evicted = here_.Snapshot().evicted_blocks;
  const std::uint64_t blocks = here_.Snapshot().blocks;
  CopyOrder order = OrderOf(1, 2);
  order.evict_below = then;
  order.room_wait = absl::Milliseconds(200);

  EXPECT_THAT(Fetch(std::move(order)), Each(Outcome::kCongested));

  EXPECT_EQ(here_.Snapshot().evicted_blocks, evicted);
  EXPECT_EQ(here_.Snapshot().blocks, blocks);
  ExpectNothingKept();
}

TEST_F(CopyFetcherTest, OneConnectionServesManyRuns) {
  StoreChain(4);
  for (std::uint64_t n = 1; n <= 4; ++n) {
    ASSERT_THAT(Fetch(OrderOf(n, n + 1)), Each(Outcome::kStored));
    // A token minted for each would end the connection of the one before.
    RunFor(absl::Minutes(1));
  }

  EXPECT_EQ(server_->connections(), 1u);
}

TEST_F(CopyFetcherTest, ADrainingNodeTakesNoMoreAndEndsWhatItHas) {
  StoreChain(2, kMiB);
  const auto first = Start(OrderOf(1, 2, kMiB));

  fetcher_->StopTaking();
  const auto second = Start(OrderOf(2, 3, kMiB));

  ASSERT_TRUE(second->has_value());
  EXPECT_THAT(**second, Each(Outcome::kUnavailable));
  RunFor(absl::Seconds(1));
  ASSERT_TRUE(first->has_value());
  EXPECT_THAT(**first, Each(Outcome::kStored));
}

TEST_F(CopyFetcherTest, ItsEndTellsEverybodyAndLetsNothingLand) {
  StoreChain(2, kMiB);
  const auto first = Start(OrderOf(1, 2, kMiB));
  ASSERT_TRUE(
      world_.executor()->RunUntil([&] { return here_.Snapshot().holds > 0; }));
  const auto second = Start(OrderOf(2, 3, kMiB));

  fetcher_->Close();

  ASSERT_TRUE(first->has_value() && second->has_value());
  EXPECT_THAT(**first, Each(Outcome::kUnavailable));
  EXPECT_THAT(**second, Each(Outcome::kUnavailable));
  EXPECT_EQ(here_.Snapshot().holds, 0u);
}

}  // namespace
}  // namespace firnkv
