#include "server/node/bucket_repair.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/copy_digest.h"

namespace firnkv {

BucketRepair::BucketRepair(const Options& options,
                           std::vector<std::uint32_t> buckets)
    : options_(options), buckets_(std::move(buckets)), wanted_(kCopyBuckets) {
  for (const std::uint32_t bucket : buckets_) wanted_[bucket] = true;
}

BucketRepair::Progress BucketRepair::Read(const DramPool& pool) {
  const bool more = pool.EachResident(
      &cursor_, options_.batch, [this](const SlotHeader& header) {
        if (wanted_[CopyBucket(header.block.key)]) {
          entries_.push_back(PublishOf(header));
        }
      });
  if (entries_.size() > options_.max_entries) return Progress::kTooMuch;
  if (more) return Progress::kMore;
  return Arrange() ? Progress::kAll : Progress::kTooMuch;
}

bool BucketRepair::Arrange() {
  std::sort(entries_.begin(), entries_.end(),
            [](const AnnouncedEntry& a, const AnnouncedEntry& b) {
              const auto order = [](const AnnouncedEntry& one) {
                return std::tie(one.block.key, one.block.name_space,
                                one.generation);
              };
              return order(a) < order(b);
            });
  // A block whose copy left and came again while the pool was read may have
  // been seen twice: the later copy, which has the higher generation, counts.
  std::size_t kept = 0;
  std::size_t in_bucket = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const bool last =
        i + 1 == entries_.size() || entries_[i + 1].block != entries_[i].block;
    if (!last) continue;
    const bool same = kept > 0 && CopyBucket(entries_[kept - 1].block.key) ==
                                      CopyBucket(entries_[i].block.key);
    in_bucket = same ? in_bucket + 1 : 1;
    if (in_bucket > options_.batch) return false;
    if (kept != i) entries_[kept] = std::move(entries_[i]);
    ++kept;
  }
  entries_.resize(kept);
  return true;
}

std::optional<BucketRepair::Part> BucketRepair::TakePart() {
  if (finished()) return std::nullopt;
  Part part;
  while (!finished() && part.buckets.size() < kMaxRepairBuckets) {
    const std::uint32_t bucket = buckets_[next_bucket_];
    std::size_t end = next_entry_;
    while (end < entries_.size() &&
           CopyBucket(entries_[end].block.key) == bucket) {
      ++end;
    }
    if (part.entries.size() + (end - next_entry_) > options_.batch) break;
    for (; next_entry_ < end; ++next_entry_) {
      part.entries.push_back(entries_[next_entry_]);
    }
    part.buckets.push_back(bucket);
    ++next_bucket_;
  }
  CHECK(!part.buckets.empty());
  return part;
}

}  // namespace firnkv
