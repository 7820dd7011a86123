// How a node leaves its cluster (catalog_link.h).

#include <algorithm>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/node/catalog_link.h"

namespace firnkv {

void CatalogLink::Leave(absl::Duration timeout,
                        absl::AnyInvocable<void(absl::Status) &&> done) {
  NodeCatalogClient::UnregisterCall call;
  absl::Status why;
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kRegistered) {
      call = {options_.address->node, options_.address->epoch, registration_};
    } else {
      why = absl::FailedPreconditionError(
          StrCat("not registered (", LinkStateName(state_), ")"));
    }
    // Whatever is under way is of no use any more, nor is another try.
    ++term_;
    if (state_ != State::kSuperseded) state_ = State::kLeft;
    parts_.namespaces->SetMembership(BootTime());
  }
  announcer_.End();
  if (why.ok()) {
    return Unregister(call, parts_.executor->clock()->Now() + timeout, 1,
                      std::move(done));
  }
  parts_.executor->Post(scope_.Wrap(
      [why, done = std::move(done)]() mutable { std::move(done)(why); }));
}

void CatalogLink::Unregister(const NodeCatalogClient::UnregisterCall& call,
                             BootTime until, int tries,
                             absl::AnyInvocable<void(absl::Status) &&> done) {
  constexpr int kMostTries = 2;
  const BootTime now = parts_.executor->clock()->Now();
  // The first try leaves time for the second.
  const absl::Duration timeout =
      std::max((until - now) / (kMostTries + 1 - tries), absl::Milliseconds(1));
  parts_.catalog->StartUnregister(
      call, timeout,
      [this, call, until, tries, done = std::move(done)](
          absl::StatusOr<NodeCatalogClient::Unregistered> answer) mutable {
        parts_.executor->Post(
            scope_.Wrap([this, call, until, tries, status = answer.status(),
                         done = std::move(done)]() mutable {
              if (IsPassing(status) && tries < kMostTries) {
                return Unregister(call, until, tries + 1, std::move(done));
              }
              // The answer to the first try was lost.
              const bool twice = tries > 1 && absl::IsNotFound(status);
              std::move(done)(twice ? absl::OkStatus() : status);
            }));
      });
}

}  // namespace firnkv
