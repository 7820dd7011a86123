// One OpenNamespace in flight. Threading, ownership: as ReadOperation's.

#ifndef FIRNKV_CLIENT_NAMESPACE_OPERATION_H_
#define FIRNKV_CLIENT_NAMESPACE_OPERATION_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/catalog_client.h"
#include "client/namespace.h"
#include "client/operation.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"

namespace firnkv {

class NamespaceOperation
    : public Operation,
      public std::enable_shared_from_this<NamespaceOperation> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<NamespaceHandle>) &&>;
  static void Start(const ClientParts& parts,
                    const OpenNamespaceRequest& request, Done done);

  NamespaceOperation(const ClientParts& parts,
                     const OpenNamespaceRequest& request, Done done);
  void Cancel() override;

 private:
  absl::Status Check() const;
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<NamespaceHandle> HandleOf(
      const CatalogClient::Opened& opened) const;
  void End(absl::StatusOr<NamespaceHandle> result) ABSL_LOCKS_EXCLUDED(mutex_);

  const ClientParts parts_;
  const OpenNamespaceRequest request_;

  Mutex mutex_;
  Done done_ ABSL_GUARDED_BY(mutex_);
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_NAMESPACE_OPERATION_H_
