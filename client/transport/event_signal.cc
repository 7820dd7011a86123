#include "client/transport/event_signal.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace firnkv {

absl::StatusOr<EventSignal> EventSignal::Make() {
  Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  return EventSignal(std::move(event));
}

void EventSignal::Set() {
  const std::uint64_t one = 1;
  // Fails only when the count is full; then it is set.
  [[maybe_unused]] const ssize_t written =
      write(event_.get(), &one, sizeof(one));
}

void EventSignal::Clear() {
  std::uint64_t count = 0;
  // Fails only where it is not set.
  [[maybe_unused]] const ssize_t size =
      read(event_.get(), &count, sizeof(count));
}

}  // namespace firnkv
