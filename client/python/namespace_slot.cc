#include "client/python/namespace_slot.h"

#include <algorithm>
#include <utility>

#include "proto/base/text.h"

namespace firnkv::python {

absl::Status NamespaceSlot::Open(Client* client) {
  absl::StatusOr<NamespaceHandle> opened = client->OpenNamespace(request_);
  const absl::Status status = opened.status();
  Take(std::move(opened));
  return status;
}

void NamespaceSlot::Take(absl::StatusOr<NamespaceHandle> opened) {
  MutexLock lock(&mutex_);
  trying_ = false;
  if (opened.ok()) {
    handle_ = *std::move(opened);
  } else {
    failure_ = opened.status();
  }
}

std::optional<NamespaceHandle> NamespaceSlot::Get(Client* client,
                                                  const Clock* clock) {
  {
    MutexLock lock(&mutex_);
    if (handle_) return handle_;
    const BootTime now = clock->Now();
    if (trying_ || now < next_try_) return std::nullopt;
    trying_ = true;
    next_try_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }
  client->StartOpenNamespace(
      request_,
      [self = shared_from_this()](absl::StatusOr<NamespaceHandle> opened) {
        self->Take(std::move(opened));
      });
  // It may have ended inside the call.
  return Peek();
}

std::optional<NamespaceHandle> NamespaceSlot::Peek() {
  MutexLock lock(&mutex_);
  return handle_;
}

std::string NamespaceSlot::Why() {
  MutexLock lock(&mutex_);
  if (handle_) return std::string();
  return StrCat("namespace '", request_.name,
                "' is not open yet: ", failure_.ToString());
}

}  // namespace firnkv::python
