// A region of the local node's pool, mapped read-only with the table of its
// slots' headers, and the two ways to read a block out of it: by a copy, and
// where it lies (a view).
//
// Both follow rule P4: the header is compared before, the generation after. The
// copy also compares the checksum of what landed in the reader's buffers, piece
// by piece.
//
// Knows nothing of leases or sessions: the generation alone tells whether what
// was copied was the block.
//
// Threading. A region may be read from any thread.
//
// Ownership. Shared by the session, by copies under way and by open views: it
// is unmapped when the last of them lets go (rule P9), and says so to whoever
// made it, which may be gone by then.

#ifndef FIRNKV_CLIENT_MAPPED_REGION_H_
#define FIRNKV_CLIENT_MAPPED_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/memory_kind.h"
#include "client/transport/byte_run.h"
#include "client/transport/shared_memory.h"
#include "proto/base/id.h"
#include "proto/base/slot_header.h"

namespace firnkv {

class MappedRegion {
 public:
  // FAILED_PRECONDITION where the table is not that of `id` or too small.
  // `on_unmapped` runs in the destructor, after the unmapping.
  static absl::StatusOr<std::unique_ptr<MappedRegion>> Open(
      RegionId id, std::unique_ptr<MemoryMapping> payload,
      std::unique_ptr<MemoryMapping> table,
      absl::AnyInvocable<void() &&> on_unmapped);
  ~MappedRegion();

  RegionId id() const { return id_; }
  absl::Span<const std::byte> bytes() const { return payload_->bytes(); }
  // The slots' bytes, for another look at them (MemoryMapping::Alias).
  const MemoryMapping& payload() const { return *payload_; }
  const HeaderTableReader& headers() const { return headers_; }
  // headers().Read(page) is soon to come: for a batch, so that its headers come
  // from memory together. Any page will do.
  void PrefetchHeader(std::uint32_t page) const;

 private:
  MappedRegion(RegionId id, std::unique_ptr<MemoryMapping> payload,
               std::unique_ptr<MemoryMapping> table, HeaderTableReader headers,
               absl::AnyInvocable<void() &&> on_unmapped);

  const RegionId id_;
  std::unique_ptr<MemoryMapping> payload_;
  std::unique_ptr<MemoryMapping> table_;
  const HeaderTableReader headers_;
  absl::AnyInvocable<void() &&> on_unmapped_;
};

// A granted block in mapped memory: its extents in order, the first one's slot
// having the header.
struct MappedBlock {
  struct Extent {
    // Shared: see MappedRegion.
    std::shared_ptr<const MappedRegion> region;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  BlockId block;
  IdentityDigest digest;
  // At least this; copies of an older one are not read.
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  Generation generation = Generation::kNone;
  std::uint64_t length = 0;
  absl::InlinedVector<Extent, 1> extents;
};

enum class MappedCopy : std::uint8_t {
  // The bytes are in `to`, verified.
  kLanded,
  // The slot has another content by now, or none.
  kTorn,
  // The right block, with bytes that fail their checksum.
  kCorrupt,
  // An extent is not in its region: the node's answer was wrong.
  kOutOfBounds,
};

// Whether its extents lie in their regions and add up to it.
bool InBounds(const MappedBlock& block);

// FirstLook(block) is soon to come; its extents need not be in bounds yet.
void PrefetchHeader(const MappedBlock& block);

// The first look: what stands beside the block, which is in bounds. nullopt
// where its slot has another content, or none.
std::optional<SlotHeader> FirstLook(const MappedBlock& block);

// The second look, after the last use of the block's bytes: true if all that
// was used since a FirstLook that found it was the block.
bool SecondLook(const MappedBlock& block);

// Whether what lies there now, of a block in bounds, has these checksums.
bool LiesSound(const MappedBlock& block,
               absl::Span<const std::uint32_t> pieces);

// Copies [offset, offset + RunBytes(to)) of the block, which must lie within
// it.
MappedCopy CopyMapped(const MappedBlock& from, std::uint64_t offset,
                      const ByteRun& to);

// The caller's buffers as a run.
ByteRun RunOf(absl::Span<const Buffer> buffers);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_MAPPED_REGION_H_
