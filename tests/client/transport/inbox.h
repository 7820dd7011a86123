// What callbacks bring to a test, waited for without a sleep and with a bound:
// a test that waits longer has failed, and ends its program, since what it
// waits for would find its objects gone.

#ifndef FIRNKV_TESTS_CLIENT_TRANSPORT_INBOX_H_
#define FIRNKV_TESTS_CLIENT_TRANSPORT_INBOX_H_

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <utility>

#include "absl/time/time.h"
#include "proto/base/mutex.h"

namespace firnkv {

// Thread-safe.
template <typename T>
class Inbox {
 public:
  void Put(T value) {
    MutexLock lock(&mutex_);
    values_.push_back(std::move(value));
    arrived_.SignalAll();
  }

  // The first value that has come, or comes.
  T Take() {
    MutexLock lock(&mutex_);
    while (values_.empty()) {
      if (arrived_.WaitFor(&mutex_, absl::Seconds(30)) && values_.empty()) {
        std::fputs("nothing came within 30 seconds\n", stderr);
        std::abort();
      }
    }
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }

  std::size_t size() const {
    MutexLock lock(&mutex_);
    return values_.size();
  }
  bool empty() const { return size() == 0; }

 private:
  mutable Mutex mutex_;
  CondVar arrived_;
  std::deque<T> values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_TRANSPORT_INBOX_H_
