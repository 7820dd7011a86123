#include "server/node/housekeeper.h"

#include "absl/status/status.h"

namespace firnkv {

void Housekeeper::Start() {
  After(options_.sweep_every, &Housekeeper::Sweep);
  After(options_.memory_every, &Housekeeper::CheckMemory);
}

void Housekeeper::After(absl::Duration delay, void (Housekeeper::*step)()) {
  parts_.executor->PostAt(parts_.executor->clock()->Now() + delay,
                          scope_.Wrap([this, step] { (this->*step)(); }));
}

void Housekeeper::Sweep() {
  const OverdueSessions overdue = parts_.pool->Sweep(options_.sweep_budget);
  for (const SessionId session : overdue.views) {
    overdue_views_.Add();
    parts_.sessions->EndSession(
        session, absl::DeadlineExceededError("a view is beyond its hard age"));
  }
  for (const SessionId session : overdue.mappings) {
    overdue_mappings_.Add();
    parts_.sessions->EndSession(
        session, absl::DeadlineExceededError(
                     "a region was wanted back and is still mapped"));
  }
  After(options_.sweep_every, &Housekeeper::Sweep);
}

void Housekeeper::CheckMemory() {
  parts_.pool->CheckMemory(parts_.staging->mapped_bytes());
  After(options_.memory_every, &Housekeeper::CheckMemory);
}

}  // namespace firnkv
