// A descriptor that is readable while a signal is set: what another program's
// loop (epoll, asyncio) waits on for us. An eventfd.
//
// Threading. All methods may be called from any thread.

#ifndef FIRNKV_CLIENT_TRANSPORT_EVENT_SIGNAL_H_
#define FIRNKV_CLIENT_TRANSPORT_EVENT_SIGNAL_H_

#include <utility>

#include "absl/status/statusor.h"
#include "client/transport/descriptor.h"

namespace firnkv {

class EventSignal {
 public:
  // Not set. RESOURCE_EXHAUSTED where there are no descriptors.
  static absl::StatusOr<EventSignal> Make();

  // Neither blocks. Setting a set one changes nothing.
  void Set();
  void Clear();

  int fd() const { return event_.get(); }

 private:
  explicit EventSignal(Descriptor event) : event_(std::move(event)) {}
  Descriptor event_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_EVENT_SIGNAL_H_
