// A thing of a seam (a channel, a socket) that may be replaced while other
// threads are inside calls of it, and must not be destroyed from inside its own
// callbacks. A replaced one lives until nobody uses it, and ends in a task.
//
// Threading. All methods may be called from any thread; Close not from inside a
// callback of the thing.
//
// Ownership. Owns the thing; a Use borrows it for a call.

#ifndef FIRNKV_CLIENT_REPLACEABLE_H_
#define FIRNKV_CLIENT_REPLACEABLE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"

namespace firnkv {

template <typename T>
class Replaceable {
 private:
  struct Held {
    std::unique_ptr<T> thing;
    // Threads that have a Use of it.
    int users = 0;
  };

 public:
  // `executor` outlives it.
  explicit Replaceable(Executor* executor) : executor_(executor) {}
  ~Replaceable() { Close(); }

  // Keeps the thing from being destroyed; short, for one call.
  class Use {
   public:
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (held_ != nullptr) owner_.Leave(held_);
    }
    explicit operator bool() const { return held_ != nullptr; }
    T* operator->() const { return held_->thing.get(); }

   private:
    friend class Replaceable;
    Use(Replaceable* owner, Held* held) : owner_(*owner), held_(held) {}
    Replaceable& owner_;
    Held* const held_;
  };

  // What is there now; empty where nothing is.
  Use Get() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (current_ != nullptr) ++current_->users;
    return Use(this, current_.get());
  }

  // `next` may be null. After Close it is destroyed at once.
  void Replace(std::unique_ptr<T> next) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      if (current_ != nullptr) replaced_.push_back(std::move(current_));
      if (next != nullptr) {
        current_ = std::make_unique<Held>();
        current_->thing = std::move(next);
      }
      if (replaced_.empty()) return;
    }
    executor_->Post(scope_.Wrap([this] { Reap(); }));
  }

  // All have been destroyed on return. Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      closed_ = true;
    }
    // From here on nobody else takes from the list.
    scope_.Close();
    std::vector<std::unique_ptr<Held>> all;
    {
      MutexLock lock(&mutex_);
      if (current_ != nullptr) replaced_.push_back(std::move(current_));
      for (const auto& held : replaced_) {
        while (held->users > 0) left_.Wait(&mutex_);
      }
      all.swap(replaced_);
    }
  }

 private:
  void Leave(Held* held) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      --held->users;
      if (held->users > 0) return;
      left_.SignalAll();
      if (held == current_.get() || closed_) return;
    }
    executor_->Post(scope_.Wrap([this] { Reap(); }));
  }

  void Reap() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<std::unique_ptr<Held>> unused;
    MutexLock lock(&mutex_);
    for (auto it = replaced_.begin(); it != replaced_.end();) {
      if ((*it)->users > 0) {
        ++it;
        continue;
      }
      unused.push_back(std::move(*it));
      it = replaced_.erase(it);
    }
    // Declared before the lock, so destroyed after it: their destructors run
    // callbacks.
  }

  Executor* const executor_;
  TaskScope scope_;
  Mutex mutex_;
  CondVar left_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Held> current_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Held>> replaced_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_REPLACEABLE_H_
