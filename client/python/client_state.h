// A Client as Python holds it: with what was submitted and not drained, the
// namespaces that are being opened, and the order in which all that ends.
//
// A submit only puts the call aside; a thread of its own begins it, so that
// hashing and encoding keep no engine thread. That thread, the Client's and the
// drainer's never wait for the GIL while they have a lock.
//
// Threading. All methods from any thread. Those that say so run without the GIL
// (Close may wait for seconds); calls are destroyed under it only.
//
// In a forked child (rule S6) nothing here takes a lock: every method says
// UNAVAILABLE or does nothing.

#ifndef FIRNKV_CLIENT_PYTHON_CLIENT_STATE_H_
#define FIRNKV_CLIENT_PYTHON_CLIENT_STATE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/python/call.h"
#include "client/python/namespace_slot.h"
#include "client/transport/event_signal.h"
#include "client/transport/thread_executor.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace firnkv::python {

// A token that may be replaced while the Client uses it.
class TokenBox {
 public:
  explicit TokenBox(std::string token) : token_(std::move(token)) {}
  std::string Get() ABSL_LOCKS_EXCLUDED(mutex_);
  void Set(std::string token) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
};

class ClientState {
 public:
  // Without the GIL: waits for the node where the options say so.
  // FAILED_PRECONDITION in a fork of a process that has had a Client. Shared by
  // the Python objects of a Client, its namespaces and its memory.
  static absl::StatusOr<std::shared_ptr<ClientState>> Connect(
      ClientOptions options);
  // Close(). Never runs in a forked child. Under the GIL, which it gives away
  // meanwhile.
  ~ClientState();

  bool forked() const;
  Client* client() const { return client_.get(); }
  const Clock* clock() const { return &clock_; }
  // As ClientOptions::token, from now on.
  void SetToken(std::string token);

  // Without the GIL. Ends what is outstanding as kCancelled; it can be drained
  // afterwards. Idempotent.
  void Close();

  // Does `call` in this thread, without the GIL.
  void Run(Call* call, NamespaceSlot* slot);
  // RESOURCE_EXHAUSTED: kMaxUndrained calls have not been drained; `call` is
  // the caller's still. Keeps the GIL, as Drain does: whoever has the lock has
  // it for moments and does not wait for the GIL, while getting the GIL back
  // from a busy thread of Python's takes milliseconds.
  absl::StatusOr<std::uint64_t> Submit(std::unique_ptr<Call>* call,
                                       std::shared_ptr<NamespaceSlot> slot)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What has finished, in that order, at most so many.
  std::vector<std::unique_ptr<Call>> Drain(std::size_t most)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Readable while something can be drained.
  absl::StatusOr<int> CompletionFd() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiting {
    std::unique_ptr<Call> call;
    // Shared by the Python object and calls in flight.
    std::shared_ptr<NamespaceSlot> slot;
  };

  // Shared: see token_.
  explicit ClientState(std::shared_ptr<TokenBox> token);

  void End();
  // The first one that waits, on the starter's thread.
  void BeginNext() ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish(std::unique_ptr<Call> call) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EnsureStarter() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const pid_t pid_;
  const SystemClock clock_;
  // Shared with the Client's options.
  const std::shared_ptr<TokenBox> token_;
  std::unique_ptr<Client> client_;

  std::atomic<bool> closing_{false};

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Submitted and not drained, wherever they are.
  std::size_t undrained_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Call>> done_ ABSL_GUARDED_BY(mutex_);
  std::optional<EventSignal> signal_ ABSL_GUARDED_BY(mutex_);
  // Made at the first submit; replaced by nothing, so that Close may stop it
  // without the lock.
  std::unique_ptr<ThreadExecutor> starter_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_CLIENT_STATE_H_
