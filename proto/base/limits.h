// Every hard bound of the system, with its arithmetic. A decoder of outside
// bytes checks against these before it allocates.

#ifndef FIRNKV_PROTO_BASE_LIMITS_H_
#define FIRNKV_PROTO_BASE_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/base/bytes.h"

namespace firnkv {

// Checksums are per piece, so that a reader can verify while it copies and a
// range needs only the pieces it touches.
inline constexpr std::uint64_t kPieceBytes = 64 * kKiB;

// Slots start and end on pages: the unit of mapping, of punching and of direct
// device I/O.
inline constexpr std::uint64_t kPageBytes = 4 * kKiB;

// Largest block: a quarter of a region, at most this.
inline constexpr std::uint64_t kLargestBlockBytes = 64 * kMiB;
inline constexpr std::size_t kMaxPieces = kLargestBlockBytes / kPieceBytes;

// Keys in one batch. A chain of 1M tokens in blocks of 256 is 4,096 blocks.
inline constexpr std::size_t kMaxBatchKeys = 4096;

// Destination pieces (pointer, length) of one block: 80 layers of K and V in
// separate pages is 160; the bound is that of a vectored system call.
inline constexpr std::size_t kMaxBuffersABlock = 1024;

// Extents that one block's location may have.
inline constexpr std::size_t kMaxExtents = 16;

// One control message: a batch of 4,096 keys with parents, anchors and
// everything else is 4,096 * ~140 B = 560 KiB; an announcement batch the same.
inline constexpr std::size_t kMaxControlMessageBytes = 4 * kMiB;

// Entries of one announcement or inventory batch.
inline constexpr std::size_t kMaxAnnouncementEntries = 4096;

// One message of the local session's socket. Bulk never goes there.
inline constexpr std::size_t kMaxSessionMessageBytes = 64 * kKiB;

// The body of one data-path frame without its payload: a batch of 4,096 keys of
// 32 B and little else.
inline constexpr std::size_t kMaxFrameBodyBytes = 256 * kKiB;

inline constexpr std::size_t kMaxNameBytes = 128;

// One text of a state contract, and its adapters: room for any name, template
// hash or scaling rule; 145 such texts are 580 KiB at the very most.
inline constexpr std::size_t kMaxContractTextBytes = 4 * kKiB;
inline constexpr std::size_t kMaxContractAdapters = 64;

// The reason in a refusal that crosses the wire; longer ones are cut.
inline constexpr std::size_t kMaxReasonBytes = 1024;

inline constexpr std::size_t kMaxTokenBytes = 512;

// No operation has a longer deadline: it also bounds what a peer can make us
// remember.
inline constexpr absl::Duration kLongestDeadline = absl::Minutes(2);

// Holders of a lease stop at 7/8 of its term, counted from before they asked
// (rule A7).
inline constexpr std::int64_t kLeaseHolderNumerator = 7;
inline constexpr std::int64_t kLeaseHolderDenominator = 8;
inline absl::Duration HolderTerm(absl::Duration granted) {
  return granted * kLeaseHolderNumerator / kLeaseHolderDenominator;
}

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_LIMITS_H_
