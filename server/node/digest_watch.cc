#include "server/node/digest_watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "proto/base/check.h"

namespace firnkv {

void DigestWatch::Reset() {
  sums_.reset();
  groups_.clear();
  different_.clear();
  suspects_.clear();
  hasty_ = false;
}

void DigestWatch::Begin(BucketSums sums) {
  sums_ = std::move(sums);
  groups_.clear();
  different_.clear();
}

std::vector<std::uint64_t> DigestWatch::Digests() const {
  CHECK(sums_.has_value());
  std::vector<std::uint64_t> digests;
  if (groups_.empty()) {
    for (std::size_t i = 0; i < kCopyGroups; ++i) {
      digests.push_back(sums_->Group(i));
    }
    return digests;
  }
  for (const std::uint32_t group : groups_) {
    for (std::size_t i = 0; i < kBucketsAGroup; ++i) {
      digests.push_back(sums_->Bucket(group * kBucketsAGroup + i));
    }
  }
  return digests;
}

DigestWatch::Verdict DigestWatch::OnAnswer(
    const std::vector<std::uint32_t>& different) {
  if (groups_.empty()) {
    for (const std::uint32_t group : different) {
      if (group < kCopyGroups) groups_.push_back(group);
    }
    if (!groups_.empty()) return Verdict::kAskBuckets;
  } else {
    for (const std::uint32_t bucket : different) {
      if (bucket < kCopyBuckets &&
          std::binary_search(groups_.begin(), groups_.end(),
                             bucket / kBucketsAGroup)) {
        different_.push_back(bucket);
      }
    }
  }
  sums_.reset();
  return Judge();
}

DigestWatch::Verdict DigestWatch::Judge() {
  const bool hasty = std::exchange(hasty_, false);
  if (different_.empty()) {
    suspects_.clear();
    return Verdict::kSame;
  }
  if (!hasty) {
    if (suspects_.empty()) {
      suspects_ = std::move(different_);
      different_.clear();
      return Verdict::kLookAgain;
    }
    std::vector<std::uint32_t> twice;
    std::set_intersection(different_.begin(), different_.end(),
                          suspects_.begin(), suspects_.end(),
                          std::back_inserter(twice));
    different_ = std::move(twice);
  }
  suspects_.clear();
  // What differs only now is seen again at the next comparison.
  if (different_.empty()) return Verdict::kSame;
  return different_.size() > options_.most_buckets ? Verdict::kInventory
                                                   : Verdict::kRepair;
}

absl::Duration DigestWatch::DelayAfter(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAskBuckets:
      return absl::ZeroDuration();
    case Verdict::kSame:
      return options_.interval *
             (0.75 + 0.5 * static_cast<double>(random_->Below(1024)) / 1024.0);
    case Verdict::kLookAgain:
    case Verdict::kRepair:
    case Verdict::kInventory:
      return options_.second_look;
  }
  return options_.second_look;
}

}  // namespace firnkv
