// Carries the pool's news about regions (pool_events.h) to the local sessions.
// There are no devices and no transports with registered memory yet; their two
// steps of rule P6 are in their place and do nothing.
//
// Threading. Thread-safe; sessions are told by tasks.
//
// Owned by Node; outlives the pool. Close before the sessions are destroyed.

#ifndef FIRNKV_SERVER_NODE_REGION_NOTICES_H_
#define FIRNKV_SERVER_NODE_REGION_NOTICES_H_

#include <cstdint>

#include "proto/base/executor.h"
#include "server/node/session_listener.h"
#include "server/tier/pool_events.h"

namespace firnkv {

class RegionNotices : public RegionHooks {
 public:
  explicit RegionNotices(Executor* executor) : executor_(executor) {}

  // Once, before the pool makes its first region.
  void SetSessions(SessionListener* sessions) { sessions_ = sessions; }
  // Nobody is told from now on.
  void Close() { scope_.Close(); }

  void OnRegionMade(TenantId, std::uint64_t) override {}
  void OnRegionRetiring(TenantId, std::uint64_t region) override {
    executor_->Post(
        scope_.Wrap([this, region] { sessions_->OnRegionRetiring(region); }));
  }
  void ReplaceIoRegistration(std::uint64_t) override {}
  void DeregisterTransports(std::uint64_t) override {}
  void OnRegionGone(TenantId, std::uint64_t) override {}

 private:
  Executor* const executor_;
  SessionListener* sessions_ = nullptr;
  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_REGION_NOTICES_H_
