// What a node and the catalog compare to find out whether the one has what the
// other was told (rule A5): sums of digests of copies, by bucket.
//
// A copy's bucket is the first two bytes of its key, big-endian; 256 buckets
// with one first byte are a group. Keys are hashes, so buckets fill evenly. The
// digest of a bucket is the sum, modulo 2^64, of DigestOf over the copies in
// it, so that a copy that comes or goes costs one addition; that of a group is
// the sum of its buckets.
//
// DigestOf is wire format: both ends must compute the same.
//
//     mix(x): x ^= x >> 30, x *= bf58476d1ce4e5b9, x ^= x >> 27,
//             x *= 94d049bb133111eb, x ^= x >> 31       (SplitMix64's)
//     digest: h = 6669726e6b760001; for each of the 8 words w: h = mix(h ^ w)
//     words:  namespace id (2), key (4), both as little-endian numbers, then
//             tier, then generation
//
// It finds what was lost or left over by faults. It is no signature: a node
// that chose its keys to make sums collide would deceive only its own repair.
//
// Pure code. Threading: as plain values.

#ifndef FIRNKV_PROTO_BASE_COPY_DIGEST_H_
#define FIRNKV_PROTO_BASE_COPY_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/base/id.h"

namespace firnkv {

inline constexpr std::size_t kCopyBuckets = 65536;
inline constexpr std::size_t kCopyGroups = 256;
inline constexpr std::size_t kBucketsAGroup = kCopyBuckets / kCopyGroups;

// Buckets of one REPAIR batch. The catalog reads all that any node has in them,
// and with 64 million keys in its index a bucket has a thousand: 64 are about a
// tenth of a second. At 2 million copies on a node they are 2,000 entries.
inline constexpr std::size_t kMaxRepairBuckets = 64;

inline std::uint32_t CopyBucket(const BlockKey& key) {
  return std::uint32_t{key.bytes[0]} << 8 | key.bytes[1];
}

std::uint64_t DigestOf(const BlockId& block, std::uint8_t tier,
                       Generation generation);

// The digests of all buckets of a set of copies: 512 KiB.
class BucketSums {
 public:
  BucketSums() : sums_(kCopyBuckets), groups_(kCopyGroups) {}

  void Add(const BlockId& block, std::uint8_t tier, Generation generation) {
    Change(block.key, DigestOf(block, tier, generation));
  }
  // Of a copy that was added.
  void Subtract(const BlockId& block, std::uint8_t tier,
                Generation generation) {
    Change(block.key, std::uint64_t{0} - DigestOf(block, tier, generation));
  }

  // `bucket` is below kCopyBuckets, `group` below kCopyGroups.
  std::uint64_t Bucket(std::size_t bucket) const { return sums_[bucket]; }
  std::uint64_t Group(std::size_t group) const { return groups_[group]; }

  friend bool operator==(const BucketSums&, const BucketSums&) = default;

 private:
  void Change(const BlockKey& key, std::uint64_t by) {
    sums_[CopyBucket(key)] += by;
    groups_[key.bytes[0]] += by;
  }

  std::vector<std::uint64_t> sums_;
  // Of the buckets of each group: a comparison asks for all of them.
  std::vector<std::uint64_t> groups_;
};

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_COPY_DIGEST_H_
