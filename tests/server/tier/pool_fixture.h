// A DramPool over simulated memory and time, and verbs for its tests.
//
// Threading and ownership: one test, one thread.

#ifndef FIRNKV_TESTS_SERVER_TIER_POOL_FIXTURE_H_
#define FIRNKV_TESTS_SERVER_TIER_POOL_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "proto/base/checksum.h"
#include "proto/base/slot_header.h"
#include "server/tier/dram_pool.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_executor.h"
#include "tests/support/sim_memory.h"

namespace firnkv {

template <typename Id>
Id MakeId(std::uint64_t number) {
  Id id;
  std::memcpy(id.bytes.data(), &number, sizeof(number));
  return id;
}

inline BlockKey Key(std::uint64_t number) { return MakeId<BlockKey>(number); }
inline const SessionId kReader = MakeId<SessionId>(1);
inline const SessionId kOtherReader = MakeId<SessionId>(2);
inline constexpr NodeEpoch kEpoch{77};

// Limits that a test sets.
class FixedLimits : public MemoryLimits {
 public:
  absl::StatusOr<Reading> Read() const override {
    if (while_reading) while_reading();
    return Reading{.available_bytes = available_bytes,
                   .limited_by = "the test",
                   .out_of_memory = out_of_memory};
  }
  std::uint64_t available_bytes = kGiB;
  std::uint64_t out_of_memory = 0;
  std::function<void()> while_reading;
};

// What the pool reported, and what a catalog would make of it.
class EventRecorder : public PoolEvents {
 public:
  void OnPublished(const SlotHeader& copy) override {
    published.push_back(copy);
    // Never two published copies of one block.
    EXPECT_TRUE(present.emplace(copy.block, copy.generation).second);
    EXPECT_GT(copy.generation, last_generation) << "generations only grow";
    last_generation = copy.generation;
  }
  void OnWithdrawn(const SlotHeader& copy) override {
    withdrawn.push_back(copy);
    const auto it = present.find(copy.block);
    ASSERT_NE(it, present.end());
    EXPECT_EQ(it->second, copy.generation);
    present.erase(it);
  }

  std::vector<SlotHeader> published;
  std::vector<SlotHeader> withdrawn;
  std::map<BlockId, Generation> present;
  Generation last_generation = Generation::kNone;
};

class HookRecorder : public RegionHooks {
 public:
  void OnRegionMade(TenantId, std::uint64_t region) override {
    Note("made", region);
  }
  void OnRegionRetiring(TenantId, std::uint64_t region) override {
    Note("retiring", region);
  }
  void ReplaceIoRegistration(std::uint64_t region) override {
    Note("io", region);
  }
  void DeregisterTransports(std::uint64_t region) override {
    Note("transports", region);
  }
  void OnRegionGone(TenantId, std::uint64_t region) override {
    Note("gone", region);
  }

  std::vector<std::string> steps;
  std::function<void(const std::string& step)> in_step;

 private:
  void Note(const char* what, std::uint64_t region) {
    if (in_step) in_step(what);
    steps.push_back(what + (" " + std::to_string(region)));
  }
};

class PoolTest : public testing::Test {
 protected:
  // 4 regions of 1 MiB: a unit of 16 KiB, a largest block of 256 KiB.
  static PoolOptions SmallPool() {
    PoolOptions options;
    options.epoch = kEpoch;
    options.target_bytes = 4 * kMiB;
    options.region_bytes = kMiB;
    options.reserve_bytes = 0;
    return options;
  }
  explicit PoolTest(PoolOptions options = SmallPool())
      : options_(options),
        pool_(std::make_unique<DramPool>(
            options, DramPool::Parts{.clock = world_.clock(),
                                     .executor = &world_,
                                     .memory = &memory_,
                                     .limits = &limits_,
                                     .events = &events_,
                                     .hooks = &hooks_})) {
    name_space_ = Namespace(1, 1);
  }

  // Before whatever a test's waiting completions refer to.
  void TearDown() override { pool_.reset(); }

  static PoolNamespace Namespace(std::uint64_t id, std::uint64_t tenant) {
    PoolNamespace made;
    made.id = MakeId<NamespaceId>(id);
    made.tenant = MakeId<TenantId>(tenant);
    made.digest = MakeId<IdentityDigest>(id);
    made.clear_epoch = ClearEpoch{1};
    return made;
  }

  // Block `number` of a chain, whose parent is the number before it.
  static ReserveBlock Chained(std::uint64_t number, std::uint64_t length,
                              std::uint32_t position) {
    ReserveBlock block;
    block.key = Key(number);
    block.length = length;
    block.place.anchor = Key(number);
    block.place.position = position;
    if (position > 0) block.place.parent = Key(number - 1);
    return block;
  }
  static ReserveBlock Block(std::uint64_t number, std::uint64_t length) {
    return Chained(number, length, 0);
  }

  ReserveRequest Request(const PoolNamespace& name_space,
                         std::vector<ReserveBlock> blocks) {
    ReserveRequest request;
    request.name_space = name_space;
    request.blocks = std::move(blocks);
    request.deadline = world_.Now() + absl::Seconds(1);
    request.reserved_until = world_.Now() + absl::Seconds(30);
    return request;
  }
  // Runs what has to run, up to the deadline, until the answer is there.
  ReserveAnswer Reserve(ReserveRequest request) {
    std::optional<ReserveAnswer> answer;
    pool_->StartReserve(std::move(request), [&answer](ReserveAnswer a) {
      ASSERT_FALSE(answer.has_value());
      answer = std::move(a);
    });
    world_.RunUntil([&answer] { return answer.has_value(); });
    EXPECT_TRUE(answer.has_value());
    return answer ? *std::move(answer) : ReserveAnswer{};
  }
  ReservedBlock ReserveOne(const PoolNamespace& name_space,
                           const ReserveBlock& block) {
    const ReserveAnswer answer = Reserve(Request(name_space, {block}));
    EXPECT_OK(answer.status);
    return answer.blocks.empty() ? ReservedBlock{} : answer.blocks[0];
  }

  // Fills with `fill` and commits.
  CommitResult FillAndCommit(SlotCopy reserved, std::uint8_t fill) {
    auto begun = pool_->BeginCopy(reserved);
    if (std::holds_alternative<CommitResult>(begun)) {
      return std::get<CommitResult>(begun);
    }
    CopyTarget target = std::get<CopyTarget>(std::move(begun));
    std::memset(target.bytes.data(), fill, target.bytes.size());
    std::vector<std::uint32_t> pieces = PieceChecksums(target.bytes);
    return pool_->Commit(std::move(target), std::move(pieces));
  }
  CommitResult Write(const PoolNamespace& name_space, const ReserveBlock& block,
                     std::uint8_t fill = 7) {
    const ReservedBlock reserved = ReserveOne(name_space, block);
    if (reserved.outcome != Outcome::kStored) {
      return {.outcome = reserved.outcome,
              .generation = reserved.copy.generation};
    }
    return FillAndCommit(reserved.copy, fill);
  }
  // kStored blocks first, first + 1, ... of one size.
  void WriteMany(const PoolNamespace& name_space, std::uint64_t first,
                 std::uint64_t count, std::uint64_t length) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      ASSERT_EQ(Write(name_space, Block(i, length)).outcome, Outcome::kStored)
          << i;
    }
  }

  OpenAnswer Open(const PoolNamespace& name_space, std::vector<BlockKey> keys,
                  SessionId session = kReader,
                  absl::Duration lease = absl::Seconds(10),
                  LeaseUse use = LeaseUse::kCopy) {
    OpenRequest request;
    request.name_space = &name_space;
    request.session = session;
    request.keys = keys;
    request.span = ReadSpan::kEveryBlock;
    request.use = use;
    request.lease = lease;
    return pool_->Open(request);
  }
  Outcome Look(const PoolNamespace& name_space, std::uint64_t number) {
    const BlockKey key = Key(number);
    return pool_
        ->Contains(name_space, absl::MakeConstSpan(&key, 1),
                   ReadSpan::kEveryBlock)[0]
        .outcome;
  }
  HeldBlock HoldOne(const PoolNamespace& name_space, std::uint64_t number) {
    const HeldRequest::Key key{.key = Key(number)};
    HeldRequest request;
    request.name_space = &name_space;
    request.keys = absl::MakeConstSpan(&key, 1);
    return std::move(pool_->OpenHeld(request).blocks[0]);
  }
  std::uint64_t CountHits(const PoolNamespace& name_space, std::uint64_t first,
                          std::uint64_t count) {
    std::uint64_t hits = 0;
    for (std::uint64_t i = first; i < first + count; ++i) {
      hits += Look(name_space, i) == Outcome::kHit;
    }
    return hits;
  }

  // What a session sees: a read-only mapping of a region and its headers.
  struct Mapped {
    std::unique_ptr<MemoryMapping> slots;
    std::unique_ptr<MemoryMapping> headers;
    std::optional<SlotHeader> Header(SlotId slot) const {
      const auto reader = HeaderTableReader::Open(
          headers->bytes(), RegionId{kEpoch, slot.region});
      return reader ? reader->Read(slot.page) : std::nullopt;
    }
    std::optional<Generation> ReadGeneration(SlotId slot) const {
      return HeaderTableReader::Open(headers->bytes(),
                                     RegionId{kEpoch, slot.region})
          ->ReadGeneration(slot.page);
    }
    std::byte ByteAt(SlotId slot) const {
      return slots->bytes()[slot.offset()];
    }
  };
  Mapped MapRegion(const PoolNamespace& name_space, std::uint64_t region,
                   SessionId session = kReader) {
    auto files = pool_->MapRegion(name_space.tenant, session, region);
    EXPECT_OK(files);
    return {.slots = *(*files).slots->Map(MapAccess::kRead),
            .headers = *(*files).headers->Map(MapAccess::kRead)};
  }

  // Every byte of every region is accounted for.
  void CheckSums() {
    const PoolSnapshot s = pool_->Snapshot();
    EXPECT_EQ(s.live_region_bytes + s.retiring_region_bytes,
              s.free_slot_bytes + s.reserved_bytes + s.resident_bytes +
                  s.retiring_bytes + s.unused_unit_bytes + s.slab_rest_bytes);
    EXPECT_LE(s.region_bytes, std::max(s.target_bytes, options_.target_bytes));
    EXPECT_EQ(s.blocks, events_.present.size());
  }

  const PoolOptions options_;
  SimExecutor world_;
  SimMemory memory_;
  FixedLimits limits_;
  EventRecorder events_;
  HookRecorder hooks_;
  std::unique_ptr<DramPool> pool_;
  PoolNamespace name_space_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_TIER_POOL_FIXTURE_H_
