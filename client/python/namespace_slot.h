// A namespace that is open, or will be as soon as somebody can be asked: an
// engine starts and serves while node and catalog are away, and hits once they
// are there.
//
// Threading. All methods from any thread.
//
// Ownership. Shared by the Python object, calls in flight, and the Client's
// answer that is on its way.

#ifndef FIRNKV_CLIENT_PYTHON_NAMESPACE_SLOT_H_
#define FIRNKV_CLIENT_PYTHON_NAMESPACE_SLOT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/client.h"
#include "client/namespace.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace firnkv::python {

class NamespaceSlot : public std::enable_shared_from_this<NamespaceSlot> {
 public:
  // From one failed try to the next, which a call asks for: at first, twice as
  // long after each, and at most.
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(25);
  static constexpr absl::Duration kLongestPause = absl::Seconds(1);

  explicit NamespaceSlot(OpenNamespaceRequest request)
      : request_(std::move(request)) {}

  const OpenNamespaceRequest& request() const { return request_; }

  // Waits; `client` outlives the call.
  absl::Status Open(Client* client) ABSL_LOCKS_EXCLUDED(mutex_);
  // What is open; else nothing, and a try is under way or follows a pause after
  // the last. `client` outlives the try, as Client::Close ends it.
  std::optional<NamespaceHandle> Get(Client* client, const Clock* clock)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // As it is, without a try.
  std::optional<NamespaceHandle> Peek() ABSL_LOCKS_EXCLUDED(mutex_);
  // Why it is not open yet.
  std::string Why() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Take(absl::StatusOr<NamespaceHandle> opened) ABSL_LOCKS_EXCLUDED(mutex_);

  const OpenNamespaceRequest request_;

  Mutex mutex_;
  std::optional<NamespaceHandle> handle_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_) =
      absl::UnavailableError("nobody has been asked yet");
  bool trying_ ABSL_GUARDED_BY(mutex_) = false;
  BootTime next_try_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_) = kFirstPause;
};

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_NAMESPACE_SLOT_H_
