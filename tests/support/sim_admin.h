// What an operator does with the CLI: calls of AdminService at a catalog, from
// a host of its own.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_ADMIN_H_
#define FIRNKV_TESTS_SUPPORT_SIM_ADMIN_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/id.h"
#include "proto/base/token.h"
#include "tests/support/sim_world.h"

namespace firnkv {

class SimAdmin {
 public:
  // `world` outlives it.
  SimAdmin(SimWorld* world, std::string_view catalog_address,
           const ClusterSecret& secret);

  using Done = std::function<void(absl::Status)>;
  void CreateTenant(std::string_view name, Done done);
  // All versions.
  void ClearNamespace(std::string_view tenant, std::string_view name,
                      Done done);

 private:
  template <typename Request>
  void Call(std::string_view method, Request request, Done done);
  // The cluster's id goes into the token: asked of the catalog first.
  void Connect(std::function<void(absl::Status)> done);

  SimWorld* const world_;
  const ClusterSecret secret_;
  SimMachine* const machine_;
  const std::unique_ptr<ControlChannel> channel_;
  ClusterId cluster_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_ADMIN_H_
