// A hold is the node's own keep on a slot for a transfer in flight: a copy on
// commit, a stream send, a device's I/O, the check of a checksum. While it
// lives, the slot is not reused, its region not punched and not unmapped. It is
// ended by its own destruction and by nothing else, never by time (rule P8): a
// stalled device still has the address.
//
// A Hold is a move-only receipt that gives itself back. Whoever starts a
// transfer moves the hold into its completion.
//
// Threading. One Hold belongs to one thread at a time; any thread may end it.
//
// Ownership. The keeper (dram_pool.h) counts its holds and must outlive them
// all: it CHECKs that none is left when it is destroyed.

#ifndef FIRNKV_SERVER_TIER_HOLDS_H_
#define FIRNKV_SERVER_TIER_HOLDS_H_

#include <utility>

#include "server/tier/slot_id.h"

namespace firnkv {

class HoldKeeper {
 public:
  virtual ~HoldKeeper() = default;
  // Called once for each hold that the keeper has given, under no lock of the
  // caller's that the keeper's completions take.
  virtual void EndHold(SlotCopy copy) = 0;
};

class [[nodiscard]] Hold {
 public:
  // Holds nothing.
  Hold() = default;
  // Only for keepers, who have counted it.
  Hold(HoldKeeper* keeper, SlotCopy copy) : keeper_(keeper), copy_(copy) {}

  Hold(Hold&& other) noexcept
      : keeper_(std::exchange(other.keeper_, nullptr)), copy_(other.copy_) {}
  Hold& operator=(Hold&& other) noexcept {
    if (this != &other) {
      End();
      keeper_ = std::exchange(other.keeper_, nullptr);
      copy_ = other.copy_;
    }
    return *this;
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { End(); }

  // The transfer has completed. Idempotent.
  void End() {
    if (HoldKeeper* keeper = std::exchange(keeper_, nullptr)) {
      keeper->EndHold(copy_);
    }
  }

  // For the keeper, which counts the hold as ended itself.
  SlotCopy GiveUp() {
    keeper_ = nullptr;
    return copy_;
  }

  bool held() const { return keeper_ != nullptr; }
  // Meaningful while held.
  SlotCopy copy() const { return copy_; }

 private:
  HoldKeeper* keeper_ = nullptr;
  SlotCopy copy_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_HOLDS_H_
