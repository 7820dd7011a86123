// A tier in memory (server/tier/tier.h): keeps copies with their headers, finds
// damage as the real one must, and fails when told to.
//
// Threading. One thread only: `done` runs as a task of the process.
//
// Ownership. Owns the bytes. Outlives its loads and stores.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_TIER_H_
#define FIRNKV_TESTS_SUPPORT_SIM_TIER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/tier/tier.h"
#include "tests/support/sim_executor.h"

namespace firnkv {

class SimTier : public Tier {
 public:
  SimTier(SimProcess* process, std::uint64_t capacity)
      : process_(process), capacity_(capacity) {}

  void Open(absl::AnyInvocable<void(absl::Status) &&> done) override;
  void Drain(absl::AnyInvocable<void() &&> done) override;
  void Confirm(const Confirmation& confirmation) override;
  bool MayHold(const BlockId& block) const override;
  void Load(absl::Span<LoadRequest> batch, BootTime deadline) override;
  void Store(absl::Span<StoreRequest> batch) override;
  void Erase(const BlockId& block) override;
  Occupancy GetOccupancy() const override;
  std::string_view name() const override { return "sim"; }

  // Every load and store fails until told otherwise.
  void set_failing(bool failing) { failing_ = failing; }
  // What a transfer takes; loads whose deadline is nearer are kCongested.
  void set_delay(absl::Duration delay) { delay_ = delay; }
  // Somewhere in the block's bytes. False: no such block.
  bool CorruptOneByte(const BlockId& block);

 private:
  struct Copy {
    SlotHeader header;
    std::vector<std::byte> bytes;
  };
  void EndOne();
  bool IsCurrent(const SlotHeader& header) const;
  LoadOutcome LoadNow(const LoadRequest& request, SlotHeader* header);
  StoreOutcome StoreNow(const StoreRequest& request);

  SimProcess* const process_;
  const std::uint64_t capacity_;
  std::map<BlockId, Copy> copies_;
  std::map<NamespaceId, ClearEpoch> confirmed_;
  absl::AnyInvocable<void() &&> drained_;
  std::uint64_t used_ = 0;
  Generation last_generation_ = Generation::kNone;
  std::uint64_t in_flight_ = 0;
  bool draining_ = false;
  bool failing_ = false;
  absl::Duration delay_ = absl::Microseconds(100);
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_TIER_H_
