// Thousands of random operations against what must always be so: no two copies
// in one place, nothing under a lease or hold changes, generations only grow,
// every byte is accounted for, a hit is what was committed under that identity,
// and in the end nothing is left.

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/server/tier/pool_fixture.h"

namespace firnkv {
namespace {

constexpr int kSteps = 1500;
constexpr std::uint64_t kKeys = 40;

class DramPoolModelTest : public PoolTest,
                          public testing::WithParamInterface<std::uint64_t> {
 protected:
  // What the test believes of a reserved slot.
  struct Reserved {
    PoolNamespace name_space;
    ReserveBlock block;
    SlotCopy copy;
    BootTime until;
    std::uint8_t fill = 0;
    std::optional<CopyTarget> target;
  };
  struct Lease {
    SessionId session;
    LeaseId id;
    BootTime ends_at;
    std::vector<std::pair<SlotCopy, std::uint64_t>> copies;  // With lengths.
  };
  struct Kept {
    HeldBlock held;
    std::uint8_t fill = 0;
  };

  // A run is about a second: a refused region is asked for again within it.
  static PoolOptions Options() {
    PoolOptions options = SmallPool();
    options.growth_pause = absl::Milliseconds(20);
    return options;
  }
  DramPoolModelTest() : PoolTest(Options()), random_(GetParam()) {
    for (std::uint64_t i = 0; i < 4; ++i) {
      name_spaces_.push_back(Namespace(i + 1, i / 2 + 1));
    }
    name_spaces_[1].chained = false;
    name_spaces_[2].block_bytes = 20 * kKiB;
  }
  void TearDown() override {
    kept_.clear();
    reserved_.clear();
    PoolTest::TearDown();
  }

  std::uint64_t Below(std::uint64_t bound) { return random_.Below(bound); }
  PoolNamespace& AnyNamespace() { return name_spaces_[Below(4)]; }
  SessionId AnySession() { return MakeId<SessionId>(100 + Below(3)); }
  BlockKey AnyKey() { return Key(1 + Below(kKeys)); }
  // Mostly one that is there: a test that reads only misses shows nothing.
  BlockKey KeyToRead(const PoolNamespace& name_space) {
    std::vector<BlockKey> there;
    for (const auto& [id, generation] : events_.present) {
      if (id.name_space == name_space.id) there.push_back(id.key);
    }
    if (there.empty() || Below(4) == 0) return AnyKey();
    return there[Below(there.size())];
  }

  // --- Looking at memory as a reader does.

  Mapped& MappedRegion(TenantId tenant, std::uint64_t region) {
    const auto it = mapped_.find(region);
    if (it != mapped_.end()) return it->second;
    PoolNamespace of_tenant;
    of_tenant.tenant = tenant;
    const SessionId eye = MakeId<SessionId>(999);
    Mapped mapped = MapRegion(of_tenant, region, eye);
    // The test looks on; the pool shall not count that.
    pool_->NoteUnmapped(eye, region);
    return mapped_.emplace(region, std::move(mapped)).first->second;
  }
  void ExpectBytes(absl::Span<const std::byte> bytes, std::uint8_t fill) {
    const bool same =
        std::all_of(bytes.begin(), bytes.end(),
                    [fill](std::byte b) { return b == std::byte{fill}; });
    ASSERT_TRUE(same);
  }

  // --- No two live things in one place.

  void Claim(SlotCopy copy, std::uint64_t length) {
    for (const auto& [other, other_length] : Claims()) {
      if (other.slot.region != copy.slot.region || other == copy) continue;
      const bool apart =
          copy.slot.offset() + length <= other.slot.offset() ||
          other.slot.offset() + other_length <= copy.slot.offset();
      ASSERT_TRUE(apart) << "page " << copy.slot.page << " is in use";
    }
  }
  // Every slot that somebody may look at or write now, with its length.
  std::vector<std::pair<SlotCopy, std::uint64_t>> Claims() {
    std::vector<std::pair<SlotCopy, std::uint64_t>> claims;
    for (const auto& [generation, placed] : placed_) {
      const auto present = events_.present.find(placed.id);
      if (present != events_.present.end() && present->second == generation) {
        claims.emplace_back(SlotCopy{placed.slot, generation}, placed.length);
      }
    }
    for (const Lease& lease : leases_) {
      if (world_.Now() >= lease.ends_at) continue;
      claims.insert(claims.end(), lease.copies.begin(), lease.copies.end());
    }
    for (const Kept& kept : kept_) {
      claims.emplace_back(kept.held.hold.copy(), kept.held.bytes.size());
    }
    for (const auto& one : reserved_) {
      if (one->target) claims.emplace_back(one->copy, one->block.length);
    }
    return claims;
  }

  // --- Operations.

  ReserveBlock AnyBlock(const PoolNamespace& name_space) {
    const std::uint64_t number = 1 + Below(kKeys);
    static constexpr std::uint64_t kLengths[] = {
        100, 4 * kKiB, 16 * kKiB, 20 * kKiB, 100 * kKiB, 256 * kKiB};
    // Mostly the same length for a key: another one replaces it (P14).
    const std::uint64_t pick = Below(20) == 0 ? Below(6) : number % 6;
    ReserveBlock block =
        Block(number, name_space.block_bytes == 0 ? kLengths[pick]
                                                  : name_space.block_bytes);
    if (name_space.chained && number % 8 != 1) {
      block.place.position = static_cast<std::uint32_t>(number % 8);
      block.place.parent = Key(number - 1);
      if (block.place.position == 0) block.place.position = 8;
    }
    if (Below(20) == 0) block.place.tokens = 1;
    return block;
  }

  void Reserve() {
    const PoolNamespace name_space = AnyNamespace();
    std::map<BlockKey, ReserveBlock> blocks;
    for (std::uint64_t i = Below(6); i < 6; ++i) {
      const ReserveBlock block = AnyBlock(name_space);
      blocks.emplace(block.key, block);
    }
    ReserveRequest request;
    request.name_space = name_space;
    for (const auto& [key, block] : blocks) request.blocks.push_back(block);
    request.deadline = world_.Now() + absl::Milliseconds(Below(50));
    request.reserved_until =
        world_.Now() + absl::Milliseconds(10 + Below(1000));
    ++outstanding_;
    pool_->StartReserve(request, [this, request](ReserveAnswer answer) {
      --outstanding_;
      ASSERT_OK(answer.status);
      for (std::size_t i = 0; i < answer.blocks.size(); ++i) {
        if (answer.blocks[i].outcome != Outcome::kStored) continue;
        ASSERT_GT(answer.blocks[i].copy.generation, Generation::kNone);
        auto one = std::make_unique<Reserved>();
        one->name_space = request.name_space;
        one->block = request.blocks[i];
        one->copy = answer.blocks[i].copy;
        one->until = request.reserved_until;
        reserved_.push_back(std::move(one));
      }
    });
  }

  void BeginCopy() {
    if (reserved_.empty()) return;
    const std::size_t i = Below(reserved_.size());
    Reserved& one = *reserved_[i];
    if (one.target) return;
    auto begun = pool_->BeginCopy(one.copy);
    if (std::holds_alternative<CommitResult>(begun)) {
      ASSERT_NE(std::get<CommitResult>(begun).outcome, Outcome::kStored);
      reserved_.erase(reserved_.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
    Claim(one.copy, one.block.length);
    one.target = std::get<CopyTarget>(std::move(begun));
    ASSERT_EQ(one.target->bytes.size(), one.block.length);
    one.fill = static_cast<std::uint8_t>(1 + Below(255));
    // It writes all the while: what it hits must be its own.
    std::memset(one.target->bytes.data(), one.fill, one.block.length);
  }

  void FinishCopy() {
    for (std::size_t i = 0; i < reserved_.size(); ++i) {
      if (!reserved_[i]->target || Below(2) == 0) continue;
      const std::unique_ptr<Reserved> one = std::move(reserved_[i]);
      reserved_.erase(reserved_.begin() + static_cast<std::ptrdiff_t>(i));
      ExpectBytes(one->target->bytes, one->fill);
      const std::vector<std::uint32_t> pieces =
          PieceChecksums(one->target->bytes);
      const bool late = world_.Now() >= one->until;
      const CommitResult result =
          pool_->Commit(*std::move(one->target), pieces);
      if (late) {
        ASSERT_EQ(result.outcome, Outcome::kReservationOver);
      }
      if (result.outcome == Outcome::kStored) {
        placed_[result.generation] = {
            .id = {one->name_space.id, one->block.key},
            .slot = one->copy.slot,
            .length = one->block.length,
            .fill = one->fill};
      }
      return;
    }
  }

  void EndReservation() {
    if (reserved_.empty()) return;
    const std::size_t i = Below(reserved_.size());
    pool_->EndReservation(absl::MakeConstSpan(&reserved_[i]->copy, 1));
    // With a copy under way, its hold keeps the slot.
    if (reserved_[i]->target) return;
    reserved_.erase(reserved_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void OpenSome() {
    PoolNamespace& name_space = AnyNamespace();
    std::vector<BlockKey> keys;
    for (std::uint64_t i = Below(5); i < 5; ++i)
      keys.push_back(KeyToRead(name_space));
    Lease lease;
    lease.session = AnySession();
    const absl::Duration term = absl::Milliseconds(1 + Below(200));
    lease.ends_at = world_.Now() + term;
    const OpenAnswer answer = Open(name_space, keys, lease.session, term);
    lease.id = answer.lease.id;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Opened& opened = answer.blocks[i];
      const auto present = events_.present.find({name_space.id, keys[i]});
      // Present copies of an older epoch have been withdrawn by the look.
      ASSERT_EQ(opened.outcome == Outcome::kHit,
                present != events_.present.end());
      if (opened.outcome != Outcome::kHit) continue;
      ASSERT_EQ(opened.copy.generation, present->second);
      ++hits_;
      const Placed& placed = placed_.at(opened.copy.generation);
      ASSERT_EQ(placed.slot, opened.copy.slot);
      ASSERT_EQ(placed.length, opened.length);
      lease.copies.emplace_back(opened.copy, opened.length);
      MappedRegion(name_space.tenant, opened.copy.slot.region);
    }
    if (!lease.copies.empty()) leases_.push_back(std::move(lease));
  }

  void ReleaseOrRenew() {
    if (leases_.empty()) return;
    const std::size_t i = Below(leases_.size());
    Lease& lease = leases_[i];
    if (Below(3) == 0) {
      const absl::Duration term = absl::Milliseconds(100);
      const auto renewed = pool_->Renew(lease.session, {lease.id}, term)[0];
      if (renewed == LeaseTable::RenewOutcome::kRenewed) {
        ASSERT_LT(world_.Now(), lease.ends_at);
        lease.ends_at = std::max(lease.ends_at, world_.Now() + term);
      }
      return;
    }
    pool_->Release(lease.session, {lease.id});
    leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void HoldSome() {
    const PoolNamespace& name_space = AnyNamespace();
    Kept kept;
    const HeldRequest::Key key{.key = KeyToRead(name_space)};
    HeldRequest request;
    request.name_space = &name_space;
    request.keys = absl::MakeConstSpan(&key, 1);
    kept.held = std::move(pool_->OpenHeld(request).blocks[0]);
    if (kept.held.outcome != Outcome::kHit) return;
    ++held_;
    kept.fill = placed_.at(kept.held.header.generation).fill;
    kept_.push_back(std::move(kept));
  }
  void EndHold() {
    if (kept_.empty()) return;
    kept_.erase(kept_.begin() +
                static_cast<std::ptrdiff_t>(Below(kept_.size())));
  }

  void EndSession() {
    const SessionId session = AnySession();
    pool_->EndSession(session);
    std::erase_if(leases_, [session](const Lease& lease) {
      return lease.session == session;
    });
  }

  void Clear() {
    PoolNamespace& name_space = AnyNamespace();
    const auto next =
        ClearEpoch{static_cast<std::uint64_t>(name_space.clear_epoch) + 1};
    name_space.clear_epoch = next;
    if (Below(2) == 0) pool_->SetClearEpoch(name_space.id, next);
  }

  void VerifySome() {
    const PoolNamespace& name_space = AnyNamespace();
    const BlockId id{name_space.id, KeyToRead(name_space)};
    const auto present = events_.present.find(id);
    if (present == events_.present.end()) return;
    ASSERT_EQ(pool_->Verify(id, present->second), Outcome::kHit);
  }

  void Step() {
    const std::uint64_t dice = Below(100);
    if (dice < 16) return Reserve();
    if (dice < 34) return BeginCopy();
    if (dice < 52) return FinishCopy();
    if (dice < 55) return EndReservation();
    if (dice < 68) return OpenSome();
    if (dice < 73) return ReleaseOrRenew();
    if (dice < 79) return HoldSome();
    if (dice < 85) return EndHold();
    if (dice < 90) return world_.RunFor(absl::Milliseconds(Below(20)));
    if (dice < 92) return VerifySome();
    if (dice < 97) {
      pool_->Sweep(1 + Below(50));
      return;
    }
    RareStep();
  }
  void RareStep() {
    switch (Below(8)) {
      case 0:
        return Clear();
      case 1:
        return EndSession();
      case 2:
      case 3: {
        PoolNamespace& name_space = AnyNamespace();
        pool_->Remove(name_space.id,
                      {KeyToRead(name_space), KeyToRead(name_space)});
        return;
      }
      case 4: {
        const std::uint64_t before = pool_->Snapshot().resident_bytes;
        const std::uint64_t evicted = pool_->Evict(Below(256 * kKiB));
        ASSERT_GE(before - pool_->Snapshot().resident_bytes, evicted);
        return;
      }
      case 5:
        pool_->SetTarget((2 + Below(3)) * kMiB);
        return;
      case 6:
        limits_.available_bytes = Below(3) == 0 ? kMiB : kGiB;
        return;
      default:
        pool_->CheckMemory(Below(4) == 0 ? kMiB : 0);
        return;
    }
  }

  bool IsPresent(SlotCopy copy) const {
    const auto it = events_.present.find(placed_.at(copy.generation).id);
    return it != events_.present.end() && it->second == copy.generation;
  }

  // Nothing that somebody was promised has changed.
  void CheckPromises() {
    for (const Lease& lease : leases_) {
      if (world_.Now() >= lease.ends_at) continue;
      for (const auto& [copy, length] : lease.copies) {
        ++promises_;
        // Of these, the ones that only the lease keeps.
        promises_of_the_gone_ += !IsPresent(copy);
        const Mapped& mapped = mapped_.at(copy.slot.region);
        ASSERT_EQ(mapped.ReadGeneration(copy.slot), copy.generation);
        ExpectBytes(mapped.slots->bytes().subspan(copy.slot.offset(), length),
                    placed_.at(copy.generation).fill);
      }
    }
    for (const Kept& kept : kept_) ExpectBytes(kept.held.bytes, kept.fill);
    for (const auto& one : reserved_) {
      if (one->target) ExpectBytes(one->target->bytes, one->fill);
    }
  }

  void EndEverything() {
    kept_.clear();
    reserved_.clear();  // Ends the copies' holds.
    leases_.clear();
    mapped_.clear();
    limits_.available_bytes = kGiB;
    world_.RunFor(absl::Seconds(1));
    pool_->SetTarget(0);
    for (int i = 0; i < 3; ++i) {
      world_.RunFor(absl::Seconds(60));
      pool_->Sweep(10'000);
    }
    world_.RunUntilIdle();
  }

  struct Placed {
    BlockId id;
    SlotId slot;
    std::uint64_t length = 0;
    std::uint8_t fill = 0;
  };

  SeededRandom random_;
  std::vector<PoolNamespace> name_spaces_;
  int outstanding_ = 0;
  // What was shown: leased hits, holds, leased copies found unchanged, and
  // those among them that had left the index.
  std::uint64_t hits_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t promises_ = 0;
  std::uint64_t promises_of_the_gone_ = 0;
  std::vector<std::unique_ptr<Reserved>> reserved_;
  std::vector<Lease> leases_;
  std::vector<Kept> kept_;
  // Every copy that was ever stored, by its generation.
  std::map<Generation, Placed> placed_;
  std::map<std::uint64_t, Mapped> mapped_;
};

TEST_P(DramPoolModelTest, NoPromiseIsBrokenAndNothingIsLost) {
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    Step();
    if (Below(2) == 0) world_.RunReady();
    CheckSums();
    if (step % 4 == 0) CheckPromises();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  // Reservations' owners end them (server/node/reservations.h).
  std::vector<SlotCopy> slots;
  for (const auto& one : reserved_) slots.push_back(one->copy);
  pool_->EndReservation(slots);
  EndEverything();
  slots.clear();
  for (const auto& one : reserved_) slots.push_back(one->copy);
  pool_->EndReservation(slots);
  reserved_.clear();
  world_.RunUntilIdle();

  const PoolSnapshot s = pool_->Snapshot();
  // Else this seed has shown nothing of what it is here for.
  EXPECT_GT(s.commits, 50u);
  EXPECT_GT(s.evicted_blocks, 20u);
  EXPECT_GT(hits_, 50u);
  EXPECT_GT(held_, 10u);
  EXPECT_GT(promises_, 200u);
  EXPECT_GT(promises_of_the_gone_, 0u);
  EXPECT_EQ(outstanding_, 0);
  EXPECT_EQ(s.region_bytes, 0u);
  EXPECT_EQ(s.holds + s.leases + s.leased_slots + s.blocks + s.slabs +
                s.known_blocks + s.reserved_slots + s.retiring_slots +
                s.waiting_batches,
            0u);
  EXPECT_EQ(s.block_bytes, 0u);
  EXPECT_TRUE(events_.present.empty());
  EXPECT_EQ(memory_.bytes_made(), 0u);
  for (const PoolNamespace& name_space : name_spaces_) {
    EXPECT_EQ(pool_->ClearPending(name_space.id), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DramPoolModelTest,
                         testing::Range<std::uint64_t>(1, 25));

}  // namespace
}  // namespace firnkv
