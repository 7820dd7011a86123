// How many of something each key has, bounded for each key and for all of them
// together: connections by uid, descriptors in flight by tenant (rule S4).
//
// Threading. Thread-safe. One mutex, a leaf.
//
// Ownership. Receipts may outlive the counts: what they count may be kept by
// the kernel for as long as a peer likes.

#ifndef FIRNKV_SERVER_BASE_CAPPED_COUNTS_H_
#define FIRNKV_SERVER_BASE_CAPPED_COUNTS_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "proto/base/check.h"
#include "proto/base/mutex.h"

namespace firnkv {

template <typename Key>
class CappedCounts {
 private:
  struct State;

 public:
  struct Caps {
    std::size_t in_all = 0;
    std::size_t a_key = 0;
  };

  // One that counts until it is destroyed, or none.
  class Receipt {
   public:
    Receipt() = default;
    Receipt(Receipt&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)), key_(other.key_) {}
    Receipt& operator=(Receipt&& other) noexcept {
      Receipt old(std::move(*this));
      state_ = std::exchange(other.state_, nullptr);
      key_ = other.key_;
      return *this;
    }
    ~Receipt() {
      if (state_ != nullptr) state_->GiveBack(key_);
    }

    explicit operator bool() const { return state_ != nullptr; }

   private:
    friend class CappedCounts;
    // Shared with the counts.
    Receipt(std::shared_ptr<State> state, const Key& key)
        : state_(std::move(state)), key_(key) {}

    // Shared with the counts.
    std::shared_ptr<State> state_;
    Key key_{};
  };

  explicit CappedCounts(const Caps& caps)
      : caps_(caps), state_(std::make_shared<State>()) {}

  // None at a bound.
  [[nodiscard]] Receipt Take(const Key& key) {
    if (!state_->Take(caps_, key)) return Receipt();
    return Receipt(state_, key);
  }

  const Caps& caps() const { return caps_; }
  std::size_t size() const {
    MutexLock lock(&state_->mutex);
    return state_->in_all;
  }
  std::size_t Of(const Key& key) const {
    MutexLock lock(&state_->mutex);
    const auto it = state_->by_key.find(key);
    return it == state_->by_key.end() ? 0 : it->second;
  }

 private:
  struct State {
    bool Take(const Caps& caps, const Key& key) ABSL_LOCKS_EXCLUDED(mutex) {
      MutexLock lock(&mutex);
      if (in_all >= caps.in_all || caps.a_key == 0) return false;
      const auto it = by_key.try_emplace(key, 0).first;
      if (it->second >= caps.a_key) return false;
      ++it->second;
      ++in_all;
      return true;
    }
    void GiveBack(const Key& key) ABSL_LOCKS_EXCLUDED(mutex) {
      MutexLock lock(&mutex);
      const auto it = by_key.find(key);
      CHECK(it != by_key.end() && it->second > 0 && in_all > 0);
      // No key stays that has none: there may be many keys in time.
      if (--it->second == 0) by_key.erase(it);
      --in_all;
    }

    mutable Mutex mutex;
    std::size_t in_all ABSL_GUARDED_BY(mutex) = 0;
    absl::flat_hash_map<Key, std::size_t> by_key ABSL_GUARDED_BY(mutex);
  };

  const Caps caps_;
  // Shared with the receipts.
  const std::shared_ptr<State> state_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_CAPPED_COUNTS_H_
