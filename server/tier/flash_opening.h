// Takes a flash device into use: reads its superblocks, decides whether it is
// ours, and writes them where it is new or changes hands.
//
//     both pages zeros            new: it is formatted
//     something else, or damage   DATA_LOSS, unless told to format
//     of a newer version          FAILED_PRECONDITION, unless told to format
//     of another cluster          FAILED_PRECONDITION, unless told to format
//     of another node             FAILED_PRECONDITION, unless told to adopt
//     larger than the device      FAILED_PRECONDITION, unless told to format
//
// One valid copy is enough; both are written where anything changes.
//
// Threading. Start once; `done` runs on the device's thread.
//
// Ownership. Everything given to the constructor outlives it, and it outlives
// `done`. Owned by FlashTier.

#ifndef FIRNKV_SERVER_TIER_FLASH_OPENING_H_
#define FIRNKV_SERVER_TIER_FLASH_OPENING_H_

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/random.h"
#include "server/io/block_device.h"
#include "server/io/buffer_pool.h"
#include "server/tier/flash_format.h"

namespace firnkv {

enum class FlashTakeover : std::uint8_t {
  kRefuse,
  // What another node of this cluster wrote becomes this node's.
  kAdopt,
  // Whatever is there is lost.
  kFormat,
};

class FlashOpening {
 public:
  struct Options {
    ClusterId cluster;
    NodeId node;
    FlashTakeover takeover = FlashTakeover::kRefuse;
    // Of a new device; an old one keeps its own.
    std::uint64_t largest_block_bytes = 16 * kMiB;
    std::uint64_t least_segment_bytes = 32 * kMiB;
  };
  using Done = absl::AnyInvocable<void(absl::StatusOr<FlashSuperblock>) &&>;

  FlashOpening(const Options& options, BlockDevice* device, Random* random,
               const Clock* clock);

  void Start(Done done);

 private:
  struct Decision {
    FlashSuperblock superblock;
    // It is not what stands there.
    bool write = false;
  };

  void OnRead(const absl::Status& status);
  absl::StatusOr<Decision> Decide() const;
  absl::StatusOr<Decision> Format() const;
  void Write(std::uint64_t page);
  void OnWritten(std::uint64_t page, const absl::Status& status);
  void OnFlushed(std::uint64_t page, const absl::Status& status);

  const Options options_;
  BlockDevice* const device_;
  Random* const random_;
  const Clock* const clock_;
  AlignedMemory memory_;
  FlashSuperblock superblock_;
  Done done_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_OPENING_H_
