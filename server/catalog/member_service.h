// The nodes' part of CatalogService: Register, KeepAlive, Unregister,
// ListPeers, Announce, CompareDigests, as messages in and messages out around
// membership.h, announcements.h, run_digests.h and removals.h.
//
// Digests (rule A5) are compared on the strand, so no batch comes between the
// look at the applied number and the look at the sums. They are not compared
// while the catalog has more than counts: before it has read its store, and
// until the reaper has removed what a clear left, which nodes no longer have.
//
// Threading. KeepAlive: any thread once ClusterState::told. ListPeers: any
// thread. The rest: on the strand.

#ifndef FIRNKV_SERVER_CATALOG_MEMBER_SERVICE_H_
#define FIRNKV_SERVER_CATALOG_MEMBER_SERVICE_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "proto/base/counter.h"
#include "proto/base/token.h"
#include "server/catalog/announcements.h"
#include "server/catalog/cluster_state.h"
#include "server/catalog/entries.h"
#include "server/catalog/membership.h"
#include "server/catalog/reaper.h"
#include "server/catalog/registry.h"
#include "server/catalog/removals.h"
#include "server/catalog/run_digests.h"

namespace firnkv {

namespace v1 {
class AnnounceRequest;
class AnnounceResponse;
class CompareDigestsRequest;
class CompareDigestsResponse;
class KeepAliveRequest;
class KeepAliveResponse;
class ListPeersRequest;
class ListPeersResponse;
class RegisterRequest;
class RegisterResponse;
class UnregisterRequest;
class UnregisterResponse;
}  // namespace v1

class MemberService {
 public:
  // Of one KeepAlive answer: 1,024 namespaces are 200 KiB, 4,096 removals the
  // same.
  static constexpr std::size_t kMaxChangesTold = 1024;
  static constexpr std::size_t kMaxRemovalsTold = 4096;

  // All outlive it.
  struct Parts {
    ClusterState* cluster;
    Registry* registry;
    Membership* membership;
    Announcements* announcements;
    Entries* entries;
    RunDigests* digests;
    Removals* removals;
    Reaper* reaper;
  };
  explicit MemberService(const Parts& parts) : parts_(parts) {}

  absl::StatusOr<v1::RegisterResponse> Register(
      const TokenClaims& caller, const v1::RegisterRequest& request);
  absl::StatusOr<v1::KeepAliveResponse> KeepAlive(
      const TokenClaims& caller, const v1::KeepAliveRequest& request);
  absl::StatusOr<v1::UnregisterResponse> Unregister(
      const TokenClaims& caller, const v1::UnregisterRequest& request);
  absl::StatusOr<v1::ListPeersResponse> ListPeers(
      const TokenClaims& caller, const v1::ListPeersRequest& request) const;
  absl::StatusOr<v1::AnnounceResponse> Announce(
      const TokenClaims& caller, const v1::AnnounceRequest& request);
  absl::StatusOr<v1::CompareDigestsResponse> CompareDigests(
      const TokenClaims& caller, const v1::CompareDigestsRequest& request);

  struct Counters {
    Counter batches;
    Counter entries;
    Counter refused_batches;
    Counter refused_entries;
    Counter registrations;
    Counter kept_registrations;
    Counter unregistrations;
    Counter inventories;
    Counter repaired_buckets;
    Counter compares;
    Counter different_buckets;
  };
  const Counters& counters() const { return counters_; }

 private:
  const Parts parts_;
  Counters counters_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_MEMBER_SERVICE_H_
