// Values that many index cells name, kept once each and named by a small
// number: what lets a location cost 16 bytes instead of 49.
//
// A number is valid while it is referenced: Intern takes a reference, Release
// gives one back, and a number without references may be given to another
// value.
//
// Threading. Intern and Release lock. Get does not, and this is why it may: a
// caller of Get reads the number out of a cell under the cell's own mutex, and
// holds that mutex. Whoever wrote the number into the cell had interned it
// before (so chunk and value were written) and then locked the cell's mutex, so
// those writes happen before the read. Whoever releases the number does so only
// after it took it out of the cell under the same mutex, so after the reader.
// Chunks never move.

#ifndef FIRNKV_SERVER_CATALOG_INTERN_TABLE_H_
#define FIRNKV_SERVER_CATALOG_INTERN_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "proto/base/check.h"
#include "proto/base/mutex.h"

namespace firnkv {

template <typename T>
class InternTable {
 public:
  static constexpr std::uint32_t kNone = 0;

  // The number of `value`, with one more reference. Never kNone.
  std::uint32_t Intern(const T& value) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    const auto [it, added] = numbers_.try_emplace(value, kNone);
    if (added) {
      it->second = Take();
      At(it->second) = value;
    }
    ++references_[it->second];
    return it->second;
  }

  void Release(std::uint32_t number) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    CHECK(references_[number] > 0);
    if (--references_[number] == 0) {
      numbers_.erase(At(number));
      free_.push_back(number);
    }
  }

  // kNone if nobody references `value`.
  std::uint32_t Find(const T& value) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    const auto it = numbers_.find(value);
    return it == numbers_.end() ? kNone : it->second;
  }

  // See above for who may call it.
  const T& Get(std::uint32_t number) const {
    return (*chunks_[number / kChunk])[number % kChunk];
  }

 private:
  static constexpr std::uint32_t kChunk = 1024;
  // 4 million values at once: runs of nodes whose entries have not been reaped,
  // or namespaces; both are bounded far below that.
  static constexpr std::uint32_t kMaxChunks = 4096;
  using Chunk = std::array<T, kChunk>;

  T& At(std::uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (*chunks_[number / kChunk])[number % kChunk];
  }
  std::uint32_t Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!free_.empty()) {
      const std::uint32_t number = free_.back();
      free_.pop_back();
      return number;
    }
    const auto number = static_cast<std::uint32_t>(references_.size());
    CHECK(number / kChunk < kMaxChunks);
    if (chunks_[number / kChunk] == nullptr) {
      chunks_[number / kChunk] = std::make_unique<Chunk>();
    }
    references_.push_back(0);
    return number;
  }

  mutable Mutex mutex_;
  absl::flat_hash_map<T, std::uint32_t> numbers_ ABSL_GUARDED_BY(mutex_);
  // By number; number 0 is kNone and never given.
  std::vector<std::uint64_t> references_ ABSL_GUARDED_BY(mutex_) =
      std::vector<std::uint64_t>(1);
  std::vector<std::uint32_t> free_ ABSL_GUARDED_BY(mutex_);
  // Not guarded; see above.
  std::array<std::unique_ptr<Chunk>, kMaxChunks> chunks_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_INTERN_TABLE_H_
