// One flash device as a tier: blocks in log-structured segments, sealed and
// self-describing (flash_format.h, docs/FLASH_FORMAT.md).
//
// It wires the parts below and decides what none of them can: who owns a
// namespace and of which clear epoch its blocks are (rules C2, C3), what the
// endurance budget lets in, and whether the device is to be asked at all.
//
//     flash_opening    superblocks: ours, foreign, new
//     flash_recovery   what the last run left
//     flash_space      segments, index, holds
//     flash_writer     append, flush, publish, seal
//     flash_reader     find, share, verify, copy out
//     flash_reclaimer  whole segments, in the policy's order
//     flash_scrubber   reads again what nobody asked for
//     flash_contents   what stands in a segment, by name
//     flash_sweep      what others were told follows what may be served
//
// Of a device that fails or stalls, loads and stores end at once with
// kDeviceFailed from the moment that this is noticed (the breaker, rule F5): a
// run of failures, or a queue in which nothing has ended for `stall`. It is
// asked again, by one load or store at a time, after `retry_after`.
//
// Threading. Thread-safe. `done` runs on the executor, under no lock.
//
// Ownership. Everything given to the constructor outlives it. Owned by the
// node, one a device.

#ifndef FIRNKV_SERVER_TIER_FLASH_TIER_H_
#define FIRNKV_SERVER_TIER_FLASH_TIER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/policy/byte_budget.h"
#include "server/policy/segment_order.h"
#include "server/tier/flash_breaker.h"
#include "server/tier/flash_contents.h"
#include "server/tier/flash_ledger.h"
#include "server/tier/flash_opening.h"
#include "server/tier/flash_reader.h"
#include "server/tier/flash_reclaimer.h"
#include "server/tier/flash_recovery.h"
#include "server/tier/flash_scrubber.h"
#include "server/tier/flash_space.h"
#include "server/tier/flash_sweep.h"
#include "server/tier/flash_writer.h"
#include "server/tier/tier.h"

namespace firnkv {

class FlashTier : public Tier {
 public:
  struct Options {
    // "flash:nvme0".
    std::string name = "flash";
    FlashOpening::Options opening;
    FlashSpace::Options space;
    FlashWriter::Options writer;
    FlashReader::Options reader;
    FlashScrubber::Options scrubber;
    FlashBreaker::Options breaker;
    // Of blocks that are stored or written again. 0 bytes a day: no limit.
    ByteBudget::Options endurance;
    // As many are kept free, so that a tenant's next segment need not wait.
    std::uint32_t keep_free_segments = 2;
  };

  FlashTier(const Options& options, BlockDevice* device, Executor* executor,
            Random* random, const SegmentOrder* order,
            FlashSpace::TakeGenerations take_generations,
            PoolEvents* events = nullptr);
  ~FlashTier() override;

  void Open(absl::AnyInvocable<void(absl::Status) &&> done) override;
  void Drain(absl::AnyInvocable<void() &&> done) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Confirm(const Confirmation& confirmation) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool MayHold(const BlockId& block) const override;
  void Load(absl::Span<LoadRequest> batch, BootTime deadline) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Store(absl::Span<StoreRequest> batch) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What collides with its fingerprint goes too: a miss, once in 2^64.
  void Erase(const BlockId& block) override;
  Occupancy GetOccupancy() const override;
  std::string_view name() const override { return options_.name; }

  // Of the youngest record that may be this block's; nullopt as MayHold's
  // false.
  std::optional<std::uint64_t> LengthOf(const BlockId& block) const;

  // What `events` was told of one segment: the first at or after `from`. `got`
  // runs on the executor with where to go on; nullopt: that was the last one.
  // A segment that cannot be read is left out.
  using ToldOnes =
      absl::AnyInvocable<void(std::vector<SlotHeader>,
                              std::optional<std::uint32_t> next) &&>;
  void ReadTold(std::uint32_t from, ToldOnes got);
  // What was told is what may be served.
  bool settled() const;

  // Frees whole segments (FlashReclaimer::Reclaim).
  void Reclaim(std::uint64_t bytes, FlashReclaimer::Freed freed);

  // Of an open tier. Its private buffers, for a device that registers memory
  // (UringDevice::RegisterMemory); they live as long as the tier.
  std::vector<absl::Span<std::byte>> memory() const {
    return {writer_->memory(), reader_->memory()};
  }
  const FlashSuperblock& layout() const { return space_->layout(); }
  const RecoveryReport& recovered() const { return recovered_; }
  FlashSpaceSnapshot Look() const { return space_->Look(); }
  ScrubProgress scrub_progress() const { return scrubber_->progress(); }
  const FlashLedger& ledger() const { return ledger_; }
  bool failing() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether Open has ended well.
  bool open() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins a walk of the scrubber now.
  void ScrubNow();
  DeviceLoad load() const { return device_->GetLoad(); }

 private:
  void OnOpened(const absl::StatusOr<FlashSuperblock>& superblock);
  void OnRecovered(const RecoveryReport& report);
  void StoreOne(StoreRequest request, const TenantId& tenant);
  void Append(StoreRequest request, const TenantId& tenant);
  FlashSweep::Standings StandingsOf(const TenantId& tenant) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  void SweepIfOpen() ABSL_LOCKS_EXCLUDED(mutex_);
  // nullopt: not confirmed, or not served now, or the tier is not open.
  std::optional<Confirmation> ConfirmedOf(const NamespaceId& name_space) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool MayAppendAgain(const TenantId& tenant, const SlotHeader& header)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // False: draining, or the breaker is open.
  bool Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  enum class DeviceSaid : std::uint8_t { kNothing, kWorks, kFails };
  void EndOne(DeviceSaid said) ABSL_LOCKS_EXCLUDED(mutex_);
  void StopParts();
  void Later(Task task);

  const Options options_;
  BlockDevice* const device_;
  Executor* const executor_;
  Random* const random_;
  const SegmentOrder* const order_;
  const FlashSpace::TakeGenerations take_generations_;
  PoolEvents* const events_;
  FlashLedger ledger_;
  TaskScope scope_;

  absl::AnyInvocable<void(absl::Status) &&> opened_;
  FlashOpening opening_;
  // Made once the layout is known; in the order in which they need each other.
  std::unique_ptr<FlashSpace> space_;
  std::unique_ptr<FlashWriter> writer_;
  std::unique_ptr<FlashReader> reader_;
  std::unique_ptr<FlashContents> contents_;
  std::unique_ptr<FlashRecovery> recovery_;
  std::unique_ptr<FlashReclaimer> reclaimer_;
  std::unique_ptr<FlashScrubber> scrubber_;
  std::unique_ptr<FlashSweep> sweep_;
  RecoveryReport recovered_;

  mutable Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<NamespaceId, Confirmation> confirmed_
      ABSL_GUARDED_BY(mutex_);
  ByteBudget endurance_ ABSL_GUARDED_BY(mutex_);
  FlashBreaker breaker_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::AnyInvocable<void() &&> drained_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_TIER_H_
