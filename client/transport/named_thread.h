// A thread with a name, joined by its owner. What the seams of this folder run
// on; nothing else makes threads.
//
// It takes none of the process's signals, so that a host's handlers run on the
// host's threads, except those that a thread causes itself (SIGSEGV, SIGBUS,
// ...) and SIGPROF.
//
// Threading. Start and Join on one thread, the owner's.

#ifndef FIRNKV_CLIENT_TRANSPORT_NAMED_THREAD_H_
#define FIRNKV_CLIENT_TRANSPORT_NAMED_THREAD_H_

#include <pthread.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/base/executor.h"

namespace firnkv {

class NamedThread {
 public:
  NamedThread() = default;
  NamedThread(const NamedThread&) = delete;
  NamedThread& operator=(const NamedThread&) = delete;
  ~NamedThread() { Join(); }

  // Runs `body` on a new thread named by the first 15 bytes of `name`, which is
  // all that the kernel keeps. RESOURCE_EXHAUSTED where the machine gives no
  // more threads. At most once in the life of this value.
  absl::Status Start(std::string_view name, Task body);

  // Waits for the end of `body`. Idempotent; not from inside `body`.
  void Join();

  // From any thread, once Start has returned or from inside `body`.
  bool IsCurrent() const;

 private:
  struct Entry;
  static void* Run(void* entry);

  pthread_t thread_ = {};
  bool running_ = false;
  // Set by the thread before `body`, so that `body` may ask IsCurrent() while
  // Start has not returned yet.
  std::atomic<pthread_t> self_{};
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_NAMED_THREAD_H_
