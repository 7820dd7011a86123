// What an operator does with the CLI: calls of AdminService at a catalog, from
// a host of its own.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_ADMIN_H_
#define FIRNKV_TESTS_SUPPORT_SIM_ADMIN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

  struct Cleared {
    absl::Status status;
    // The highest of the versions'.
    ClearEpoch epoch = ClearEpoch::kUnknown;
    // Nodes that have not confirmed it.
    std::size_t pending = 0;
  };
  // All versions. `report_only` clears nothing: who is pending?
  enum class ClearMode { kClear, kReportOnly };
  void Clear(std::string_view tenant, std::string_view name, ClearMode mode,
             std::function<void(Cleared)> done);
  void ClearNamespace(std::string_view tenant, std::string_view name,
                      Done done) {
    Clear(tenant, name, ClearMode::kClear,
          [done = std::move(done)](const Cleared& cleared) {
            done(cleared.status);
          });
  }

  // The administrative state, and a catalog without one gets it (rule A9).
  void Backup(std::function<void(absl::StatusOr<std::string>)> done);
  void Restore(const std::string& state, Done done);
  // Gets the incarnation that begins.
  void AcceptRestore(std::function<void(absl::StatusOr<std::uint64_t>)> done);
  absl::Time WallNow() const;
  // The last that it got: what tokens must name from then on.
  std::uint64_t credentials() const { return credentials_; }
  // What it learns from others: an AcceptRestore that came twice was answered
  // once.
  void NoteCredentials(std::uint64_t seen) {
    credentials_ = std::max(credentials_, seen);
  }

 private:
  // `done` gets the answer's bytes.
  using Answer = std::function<void(absl::StatusOr<std::string>)>;
  template <typename Request>
  void Call(std::string_view method, Request request, Answer done);
  // The cluster's id goes into the token: asked of the catalog first.
  void Connect(Done done);

  SimWorld* const world_;
  const ClusterSecret secret_;
  SimMachine* const machine_;
  const std::unique_ptr<ControlChannel> channel_;
  ClusterId cluster_;
  std::uint64_t credentials_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_ADMIN_H_
