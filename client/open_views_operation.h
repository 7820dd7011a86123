// One OpenViews in flight: ask the local node, map what it granted, look at
// each block once.
//
//     Begin -> OnOpened -> MapRegions -> OnRegion (of each) -> End
//
// Threading. Any thread; one mutex, no callback under it.
//
// Ownership. Shared by the set of operations in flight and by the callbacks
// that it waits for. The batch that it makes is the caller's.

#ifndef FIRNKV_CLIENT_OPEN_VIEWS_OPERATION_H_
#define FIRNKV_CLIENT_OPEN_VIEWS_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/mapped_region.h"
#include "client/node_client.h"
#include "client/opened_views.h"
#include "client/operation.h"
#include "client/session.h"
#include "client/view.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"

namespace firnkv {

class OpenViewsOperation
    : public Operation,
      public std::enable_shared_from_this<OpenViewsOperation> {
 public:
  static void Start(const ClientParts& parts, const OpenViewsRequest& request,
                    CallSite opened_at, OpenViewsDone done);
  // A batch of `keys` blocks that were not tried.
  static ViewBatch Refuse(std::size_t keys, Outcome outcome,
                          absl::Status status);

  OpenViewsOperation(const ClientParts& parts, const OpenViewsRequest& request,
                     CallSite opened_at, OpenViewsDone done);
  void Cancel() override;

 private:
  absl::Status Validate() const;
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  void Ask() ABSL_LOCKS_EXCLUDED(mutex_);
  // `welcome`: of the session that lived when it was asked.
  void OnOpened(BootTime asked_at, const SessionWelcome& welcome,
                absl::StatusOr<NodeClient::OpenReadAnswer> answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeGrant(std::size_t index, const NodeClient::Grant& grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MapRegions() ABSL_LOCKS_EXCLUDED(mutex_);
  // Shared: see MappedRegion.
  void OnRegion(std::uint64_t serial,
                absl::StatusOr<std::shared_ptr<const MappedRegion>> region)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void PlaceBlocks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Blocks that are not decided end with `rest`.
  void End(Outcome rest) ABSL_LOCKS_EXCLUDED(mutex_);
  void Settle(Outcome rest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ClientParts parts_;
  const NamespaceHandle name_space_;
  const std::vector<BlockKey> keys_;
  const bool leading_;
  const absl::Duration max_age_;
  const BootTime started_;
  const absl::Duration deadline_;
  const CallContext context_;

  Mutex mutex_;
  OpenViewsDone done_ ABSL_GUARDED_BY(mutex_);
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  // A block that is not decided is kUnset.
  std::unique_ptr<OpenedViews> opened_ ABSL_GUARDED_BY(mutex_);
  // Of the granted blocks, by serial; null until mapped, or where it cannot be.
  // Shared: see MappedRegion.
  std::map<std::uint64_t, std::shared_ptr<const MappedRegion>> regions_
      ABSL_GUARDED_BY(mutex_);
  std::size_t regions_left_ ABSL_GUARDED_BY(mutex_) = 0;
  // Serials of each block's extents.
  std::vector<absl::InlinedVector<std::uint64_t, 1>> serials_
      ABSL_GUARDED_BY(mutex_);
  ClearEpoch clear_epoch_ ABSL_GUARDED_BY(mutex_) = ClearEpoch::kUnknown;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_OPEN_VIEWS_OPERATION_H_
