// The control channel to one peer that may change: another session's node,
// another address. Calls go to the channel that is there now; a channel that
// was replaced ends its calls with CANCELLED.
//
// Knows nothing of what the messages say.
//
// Threading. All methods may be called from any thread; Close not from inside
// a reply.

#ifndef FIRNKV_CLIENT_CONTROL_LINK_H_
#define FIRNKV_CLIENT_CONTROL_LINK_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "client/counters.h"
#include "client/replaceable.h"
#include "client/transport/control_channel.h"
#include "client/transport/seams.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace firnkv {

class ControlLink {
 public:
  // Both outlive the link.
  ControlLink(const Seams* seams, ClientCounters* counters);
  ~ControlLink();  // Close().

  // From now on calls go there. Empty: they are UNAVAILABLE.
  void SetAddress(std::string address) ABSL_LOCKS_EXCLUDED(mutex_);

  // `done` runs exactly once, also inside Call. DEADLINE_EXCEEDED at once where
  // no time is left.
  void Call(ControlCall call, std::string request, BootTime deadline,
            ControlReply done) ABSL_LOCKS_EXCLUDED(mutex_);

  // Every reply has run on return; later calls are UNAVAILABLE. Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Seams* const seams_;
  ClientCounters* const counters_;
  Replaceable<ControlChannel> channel_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::string address_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_CONTROL_LINK_H_
