// One Exists or one Remove in flight: what the local node says and what the
// catalog says, put together.
//
// Exists asks the catalog for what the local node lacks; Remove tells both at
// once.
//
// Threading, ownership: as ReadOperation's. These touch no buffers, so they
// have one end.

#ifndef FIRNKV_CLIENT_LOOKUP_OPERATION_H_
#define FIRNKV_CLIENT_LOOKUP_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/catalog_client.h"
#include "client/lookup.h"
#include "client/node_client.h"
#include "client/operation.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"

namespace firnkv {

class ExistsOperation : public Operation,
                        public std::enable_shared_from_this<ExistsOperation> {
 public:
  static void Start(const ClientParts& parts, const ExistsRequest& request,
                    ExistsDone done);

  ExistsOperation(const ClientParts& parts, const ExistsRequest& request,
                  ExistsDone done);
  void Cancel() override;

 private:
  struct Found {
    Outcome outcome = Outcome::kUnavailable;
    std::uint64_t length = 0;
    bool ended = false;
  };

  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLocal(const absl::StatusOr<NodeClient::ExistsAnswer>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Locate() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLocated(const std::vector<std::size_t>& indexes, BootTime asked_at,
                 const absl::StatusOr<CatalogClient::LocateAnswer>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void End(Outcome rest) ABSL_LOCKS_EXCLUDED(mutex_);
  ExistsReport Settle(Outcome rest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ClientParts parts_;
  const ExistsRequest request_;
  const BootTime started_;
  const CallContext context_;

  Mutex mutex_;
  ExistsDone done_ ABSL_GUARDED_BY(mutex_);
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  std::vector<Found> found_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

class RemoveOperation : public Operation,
                        public std::enable_shared_from_this<RemoveOperation> {
 public:
  static void Start(const ClientParts& parts, const RemoveRequest& request,
                    RemoveDone done);

  RemoveOperation(const ClientParts& parts, const RemoveRequest& request,
                  RemoveDone done);
  void Cancel() override;

 private:
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the local node, or of the catalog; the last one ends it.
  void OnAnswer(const absl::StatusOr<std::vector<Outcome>>& answer,
                std::uint64_t pending) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(Outcome rest) ABSL_LOCKS_EXCLUDED(mutex_);

  const ClientParts parts_;
  const RemoveRequest request_;
  const BootTime started_;
  const CallContext context_;

  Mutex mutex_;
  RemoveDone done_ ABSL_GUARDED_BY(mutex_);
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  int answers_left_ ABSL_GUARDED_BY(mutex_) = 0;
  // kMiss until somebody knew it or could not be asked.
  std::vector<Outcome> outcomes_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t pending_ ABSL_GUARDED_BY(mutex_) = 0;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_LOOKUP_OPERATION_H_
