// A flash tier over a simulated device and time, with the verbs of an operator
// and a saboteur: Boot, Store, Load, Crash.

#ifndef FIRNKV_TESTS_SERVER_TIER_FLASH_FIXTURE_H_
#define FIRNKV_TESTS_SERVER_TIER_FLASH_FIXTURE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "server/tier/flash_tier.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_device.h"
#include "tests/support/sim_executor.h"

namespace firnkv {

// A block of a tenant's one namespace; its bytes follow from all that names it.
struct FlashBlock {
  TenantId tenant;
  SlotHeader header;
  std::vector<std::byte> bytes;
};

inline TenantId TenantOf(int tenant) {
  return CountingId<TenantId>(static_cast<std::uint8_t>(0x50 + tenant));
}
inline NamespaceId NamespaceOf(int tenant) {
  return CountingId<NamespaceId>(static_cast<std::uint8_t>(0x10 + tenant));
}

inline FlashBlock MakeFlashBlock(int tenant, int key, std::uint64_t length,
                                 ClearEpoch epoch = ClearEpoch{1}) {
  FlashBlock block;
  block.tenant = TenantOf(tenant);
  SlotHeader& header = block.header;
  header = SampleHeader();
  header.block.name_space = NamespaceOf(tenant);
  header.block.key = CountingId<BlockKey>(1);
  std::memcpy(header.block.key.bytes.data(), &key, sizeof(key));
  header.clear_epoch = epoch;
  header.length = length;
  header.generation = Generation{77};
  block.bytes.resize(length);
  // Every 8 bytes say whose they are, and where.
  SeededRandom random(static_cast<std::uint64_t>(tenant) << 48 |
                      static_cast<std::uint64_t>(epoch) << 40 |
                      static_cast<std::uint64_t>(key));
  random.Fill({reinterpret_cast<std::uint8_t*>(block.bytes.data()),
               block.bytes.size()});
  header.pieces = PieceChecksums(block.bytes);
  return block;
}

class FlashWorld {
 public:
  static constexpr std::uint64_t kLargestBlock = 4096;

  static FlashTier::Options SmallOptions() {
    FlashTier::Options options;
    options.opening.cluster = CountingId<ClusterId>(0xd0);
    options.opening.node = CountingId<NodeId>(0xa0);
    options.opening.largest_block_bytes = kLargestBlock;
    options.opening.least_segment_bytes = kFlashPage;
    options.writer.round_bytes = 64 * kKiB;
    options.writer.check_one_in = 4;
    options.reader.buffer_bytes = 2 * kMiB;
    options.scrubber.budget.bytes_a_day = 0;
    options.keep_free_segments = 0;
    return options;
  }

  explicit FlashWorld(std::uint64_t seed = 1,
                      std::uint64_t device_bytes = 4 * kMiB)
      : world_(seed),
        process_(world_.NewProcess("node")),
        device_(process_, device_bytes) {}
  ~FlashWorld() {
    process_->Kill();
    device_.Crash(process_);
    tier_.reset();
  }

  // Makes a tier, which is not open yet.
  void Make() {
    tier_ = std::make_unique<FlashTier>(
        options_, &device_, process_, process_->random(), &order_,
        [this](std::uint64_t count) {
          const Generation first{next_generation_};
          next_generation_ += count;
          return first;
        },
        events_);
  }
  // Of the tiers made from now on.
  void TellTo(PoolEvents* events) { events_ = events; }
  // Opens it; UNKNOWN if it never was, since the power went.
  absl::Status Open() {
    if (!tier_) Make();
    absl::Status opened = absl::UnknownError("never opened");
    tier_->Open([&opened](absl::Status status) { opened = std::move(status); });
    world_.RunFor(absl::Seconds(30));
    return opened;
  }
  absl::Status Boot() {
    RETURN_IF_ERROR(Open());
    ConfirmAll();
    return absl::OkStatus();
  }
  void Confirm(int tenant, ClearEpoch epoch = ClearEpoch{1}) {
    tier_->Confirm({.name_space = NamespaceOf(tenant),
                    .tenant = TenantOf(tenant),
                    .clear_epoch = epoch});
  }
  void ConfirmAll() {
    for (int tenant = 0; tenant < 4; ++tenant) Confirm(tenant);
  }
  // Power and process go; the device stays.
  void Crash() {
    process_->Kill();
    process_ = world_.NewProcess("node");
    device_.Crash(process_);
    tier_.reset();
    // Another run's counter, which the last one's says nothing of.
    next_generation_ = ++runs_ * 1'000'000'000;
  }
  // The orderly end, and another run.
  void Restart() {
    bool drained = false;
    tier_->Drain([&drained] { drained = true; });
    ASSERT_TRUE(world_.RunUntil([&drained] { return drained; }));
    Crash();
  }

  // One outcome a block; nullopt: it never ended.
  std::vector<std::optional<StoreOutcome>> StoreAll(
      const std::vector<FlashBlock>& blocks) {
    std::vector<std::optional<StoreOutcome>> outcomes(blocks.size());
    generations_.assign(blocks.size(), Generation::kNone);
    std::vector<Tier::StoreRequest> batch(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      batch[i].header = &blocks[i].header;
      batch[i].bytes = blocks[i].bytes;
      batch[i].done = [this, &outcomes, i](StoreOutcome outcome,
                                           Generation generation) {
        outcomes[i] = outcome;
        generations_[i] = generation;
      };
    }
    tier_->Store(absl::MakeSpan(batch));
    world_.RunFor(absl::Seconds(10));
    return outcomes;
  }
  std::optional<StoreOutcome> Store(const FlashBlock& block) {
    return StoreAll({block})[0];
  }

  struct Loaded {
    std::optional<LoadOutcome> outcome;
    SlotHeader header;
    std::vector<std::byte> bytes;
  };
  std::vector<Loaded> LoadAll(const std::vector<BlockId>& ids,
                              absl::Duration deadline = absl::Seconds(10)) {
    std::vector<Loaded> loaded(ids.size());
    std::vector<Tier::LoadRequest> batch(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      loaded[i].bytes.assign(kLargestBlock, std::byte{0xee});
      batch[i].block = ids[i];
      batch[i].destination = absl::MakeSpan(loaded[i].bytes);
      batch[i].done = [&loaded, i](LoadOutcome outcome,
                                   const SlotHeader& header) {
        loaded[i].outcome = outcome;
        loaded[i].header = header;
      };
    }
    tier_->Load(absl::MakeSpan(batch), process_->clock()->Now() + deadline);
    world_.RunFor(absl::Seconds(30));
    return loaded;
  }
  std::optional<LoadOutcome> Load(const FlashBlock& block) {
    const Loaded loaded = LoadAll({block.header.block})[0];
    if (loaded.outcome == LoadOutcome::kLoaded) {
      EXPECT_TRUE(IsRight(block, loaded));
    }
    return loaded.outcome;
  }
  // What was loaded is exactly that block.
  static bool IsRight(const FlashBlock& block, const Loaded& loaded) {
    SlotHeader header = block.header;
    header.generation = loaded.header.generation;
    return loaded.header == header &&
           std::equal(block.bytes.begin(), block.bytes.end(),
                      loaded.bytes.begin());
  }
  // Frees `bytes`; how many it were.
  std::optional<std::uint64_t> Reclaim(std::uint64_t bytes) {
    // The answer may come after this call.
    auto freed = std::make_shared<std::optional<std::uint64_t>>();
    tier_->Reclaim(bytes, [freed](std::uint64_t done) { *freed = done; });
    world_.RunFor(absl::Seconds(10));
    return *freed;
  }

  FlashTier* tier() { return tier_.get(); }
  SimDevice* device() { return &device_; }
  SimExecutor* world() { return &world_; }
  FlashTier::Options* options() { return &options_; }
  const std::vector<Generation>& generations() const { return generations_; }

 private:
  SimExecutor world_;
  SimProcess* process_;
  SimDevice device_;
  FlashTier::Options options_ = SmallOptions();
  ColdestSegmentFirst order_;
  PoolEvents* events_ = nullptr;
  std::uint64_t next_generation_ = 1;
  std::uint64_t runs_ = 0;
  std::vector<Generation> generations_;
  std::unique_ptr<FlashTier> tier_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_TIER_FLASH_FIXTURE_H_
