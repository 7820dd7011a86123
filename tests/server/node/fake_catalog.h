// A catalog that a test plays: answers CatalogService's calls of one node as
// told, remembers what it was told, and holds the node to the rules of
// announcing (rule A1: a gap or a foreign registration is refused whole).
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SERVER_NODE_FAKE_CATALOG_H_
#define FIRNKV_TESTS_SERVER_NODE_FAKE_CATALOG_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/transport/control_channel.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"
#include "proto/base/random.h"
#include "proto/base/token.h"
#include "proto/catalog.pb.h"

namespace firnkv {

class FakeCatalog : public ControlService {
 public:
  FakeCatalog(const ClusterSecret& secret, const Clock* clock);

  std::string_view service() const override {
    return "firnkv.v1.CatalogService";
  }
  void Handle(std::string_view method, const ControlPeer& peer,
              std::string_view request, ControlReply reply) override;

  // --- What it says.
  TenantId AddTenant(const std::string& name);
  // Of a tenant that was added; clear epoch 1.
  NamespaceFacts AddNamespace(const std::string& tenant);
  // Raises the epoch; a heartbeat will say so.
  void Clear(NamespaceId id);
  // Makes it forget the registration: batches and heartbeats are NOT_FOUND.
  void ForgetRegistration() { registration_ = RegistrationId{}; }
  // What was announced is kept from one registration to the next.
  bool keeps = false;
  // It still reads its store, and cannot compare.
  bool loading = false;
  // The next call of the method fails so, once each.
  void FailNext(const std::string& method, absl::Status status) {
    failures_[method].push_back(std::move(status));
  }
  // Calls are never answered, or only their answers are lost.
  bool silent = false;
  bool loses_answers = false;
  absl::Duration lease = absl::Seconds(10);
  Incarnation incarnation;
  ClusterId cluster;
  // What it calls itself in a registration; zero: `cluster`.
  ClusterId answers_as;
  // Published copies of these are refused.
  std::map<BlockKey, Outcome> refused;
  std::vector<std::pair<BlockId, Generation>> removals;
  std::map<NamespaceId, NamespaceFacts> name_spaces;
  // Who has a copy of a block, whatever was announced.
  std::map<BlockKey, NodeAddress> located;
  // The nodes besides the one that asks.
  struct Peer {
    NodeAddress address;
    std::uint64_t dram_bytes = 0;
    std::uint64_t dram_used_bytes = 0;
  };
  std::vector<Peer> peers;

  // --- What it was told.
  struct Batch {
    std::uint64_t number = 0;
    v1::AnnounceRequest::Kind kind = v1::AnnounceRequest::EVENTS;
    std::size_t entries = 0;
    std::vector<std::uint32_t> buckets;
    // Of the keys: 1 publish, 2 withdraw.
    std::vector<std::pair<BlockKey, int>> operations;
  };
  std::vector<v1::RegisterRequest> registrations;
  std::vector<v1::KeepAliveRequest> beats;
  // Registrations that ended by themselves.
  std::vector<v1::UnregisterRequest> departures;
  std::vector<Batch> batches;
  // Entries of all of them.
  std::size_t entries() const;
  // Batches that were refused: gaps and the like.
  int refusals = 0;
  std::uint64_t removals_done = 0;
  std::map<std::string, int> calls;
  // What the node has, as far as it was announced.
  std::map<BlockId, Generation> published;
  // Batches that came again, as a lost answer makes them.
  int repeats = 0;

 private:
  absl::StatusOr<std::string> Serve(std::string_view method,
                                    std::string_view request);
  absl::Status CheckNode(const v1::RequestHeader& header) const;
  absl::StatusOr<std::string> Register(const v1::RegisterRequest& request);
  absl::StatusOr<std::string> KeepAlive(const v1::KeepAliveRequest& request);
  absl::StatusOr<std::string> Unregister(const v1::UnregisterRequest& request);
  absl::StatusOr<std::string> ListPeers(const v1::ListPeersRequest& request);
  absl::StatusOr<std::string> Announce(const v1::AnnounceRequest& request);
  absl::StatusOr<std::string> Locate(const v1::LocateRequest& request);
  absl::StatusOr<std::string> Compare(const v1::CompareDigestsRequest& request);
  void Apply(const v1::AnnounceRequest& request, v1::AnnounceResponse* answer);

  const ClusterSecret secret_;
  const Clock* const clock_;
  SeededRandom random_{7};
  std::map<std::string, TenantId> tenants_;
  std::map<std::string, std::deque<absl::Status>> failures_;
  RegistrationId registration_;
  RegistrationId last_registration_;
  std::uint64_t applied_ = 0;
  std::string last_answer_;
  std::set<BlockId> named_;
  bool inventory_ = false;
  bool complete_ = false;
  std::uint64_t changes_ = 1;
  std::map<NamespaceId, std::uint64_t> changed_at_;
  // Replies that are never given: their callers time out.
  std::vector<ControlReply> unanswered_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_NODE_FAKE_CATALOG_H_
