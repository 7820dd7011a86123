#include "client/namespace_operation.h"

#include <utility>

#include "client/clear_epochs.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

void NamespaceOperation::Start(const ClientParts& parts,
                               const OpenNamespaceRequest& request, Done done) {
  // Shared: see the class.
  const auto operation =
      std::make_shared<NamespaceOperation>(parts, request, std::move(done));
  operation->Begin();
}

NamespaceOperation::NamespaceOperation(const ClientParts& parts,
                                       const OpenNamespaceRequest& request,
                                       Done done)
    : parts_(parts), request_(request), done_(std::move(done)) {}

absl::Status NamespaceOperation::Check() const {
  RETURN_IF_ERROR(
      CheckBatch(parts_, "opening a namespace", request_.deadline, {}));
  if (request_.name.empty() || request_.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        StrCat("a namespace's name has 1 to ", kMaxNameBytes, " bytes"));
  }
  return Validate(request_.contract);
}

void NamespaceOperation::Begin() {
  if (absl::Status status = Check(); !status.ok()) return End(status);
  if (!parts_.operations->Add(shared_from_this())) {
    return End(absl::CancelledError("the Client was closed"));
  }
  const BootTime deadline = parts_.seams->clock->Now() + request_.deadline;
  {
    MutexLock lock(&mutex_);
    timer_ = parts_.seams->executor->PostAt(
        deadline, parts_.scope->Wrap([self = shared_from_this()] {
          self->End(absl::DeadlineExceededError(
              "the catalog has not answered in time"));
        }));
  }
  parts_.catalog->StartOpenNamespace(
      CallContext{.deadline = deadline,
                  .traffic = TrafficClass::kForeground,
                  .trace = {}},
      request_,
      [self = shared_from_this()](
          const absl::StatusOr<CatalogClient::Opened>& opened) {
        if (!opened.ok()) return self->End(opened.status());
        self->End(self->HandleOf(*opened));
      });
}

absl::StatusOr<NamespaceHandle> NamespaceOperation::HandleOf(
    const CatalogClient::Opened& opened) const {
  // What we write must be what readers of this digest expect.
  if (opened.facts.digest != MakeIdentityDigest(request_.contract)) {
    return absl::InternalError(
        "the catalog opened a version of another contract");
  }
  parts_.epochs->Learn(opened.facts.name_space, opened.facts.clear_epoch);
  NamespaceHandle handle;
  handle.id = opened.facts.name_space;
  handle.name = opened.facts.name;
  handle.version = opened.facts.version;
  handle.digest = opened.facts.digest;
  handle.block_bytes = opened.facts.block_bytes;
  handle.chained = opened.facts.chained;
  handle.clear_epoch = opened.facts.clear_epoch;
  handle.created = opened.created;
  return handle;
}

void NamespaceOperation::Cancel() {
  End(absl::CancelledError("the Client was closed"));
}

void NamespaceOperation::End(absl::StatusOr<NamespaceHandle> result) {
  Done done;
  TimerId timer = TimerId::kNone;
  {
    MutexLock lock(&mutex_);
    if (!done_) return;
    done = std::move(done_);
    done_ = nullptr;
    timer = timer_;
  }
  parts_.seams->executor->Cancel(timer);
  std::move(done)(std::move(result));
  parts_.operations->Remove(this);
}

}  // namespace firnkv
