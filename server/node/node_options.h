// NodeOptions: the options of a node's parts, and how they are declared
// (server/base/option.h).

#ifndef FIRNKV_SERVER_NODE_NODE_OPTIONS_H_
#define FIRNKV_SERVER_NODE_NODE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/bytes.h"
#include "proto/base/node_address.h"
#include "server/base/option.h"
#include "server/node/announcement_log.h"
#include "server/node/copier.h"
#include "server/node/copy_fetcher.h"
#include "server/node/digest_watch.h"
#include "server/node/housekeeper.h"
#include "server/node/namespace_cache.h"
#include "server/node/promoter.h"
#include "server/node/reservations.h"
#include "server/node/session_listener.h"
#include "server/node/staging.h"
#include "server/node/stream_server.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

struct NodeOptions {
  // --- Where it listens and whom it talks to.
  std::string socket = "/run/firnkv/node.sock";
  std::string stream = "127.0.0.1:7411";
  // Of the gRPC for administrators; served by the binary.
  std::string control = "127.0.0.1:7410";
  // What others are told; empty: where it listens.
  std::string advertise_stream;
  std::string advertise_control;
  // "host:port"; empty: the embedded catalog.
  std::string catalog;
  // What sessions are told of the catalog where it is not `catalog`.
  std::string advertise_catalog;
  // Without TLS, a bind beyond loopback must be asked for.
  bool plaintext_network = false;
  Labels labels;

  // --- Who is served.
  // "1000=alice".
  std::vector<std::string> uid_map;
  // "auto": only where there is no uid map (rule P10).
  std::string trust_same_uid = "auto";

  // --- Memory.
  std::uint64_t dram_bytes = kGiB;
  // 0: 64 MiB below 4 GiB of DRAM, else 256 MiB.
  std::uint64_t region_bytes = 0;
  std::uint64_t dram_reserve_bytes = 256 * kMiB;
  bool huge_pages = false;

  // --- Parts that have nothing to say about each other.
  LeaseTable::Options leases;
  Reservations::Options reservations;
  Copier::Options copier;
  CopyFetcher::Options copies;
  Promoter::Options promotion;
  Staging::Options staging;
  std::uint64_t max_sessions = 4096;
  std::uint64_t max_sessions_a_uid = 1024;
  std::uint64_t max_descriptors_in_flight = 256;
  std::uint64_t max_descriptors_in_flight_a_tenant = 16;
  // 0: by the machine's processors.
  std::uint64_t stream_threads = 0;
  std::uint64_t max_stream_connections = 1024;
  std::uint64_t max_stream_connections_a_tenant = 256;
  absl::Duration longest_response = absl::Seconds(30);
  AnnouncementLog::Options announcements;
  DigestWatch::Options digests;
  Housekeeper::Options housekeeper;
  NamespaceCache::Options namespaces;
  // How long a drain waits for what is in flight.
  absl::Duration drain_timeout = absl::Seconds(20);

  // Set by the binary, not by the operator.
  std::string version = "0.1.0";
  std::uint32_t own_uid = 0;
};

// Declares what an operator may set.
void Describe(NodeOptions* options, OptionList* list);

// What no single bound says: INVALID_ARGUMENT with the options that do not go
// together.
absl::Status Validate(const NodeOptions& options);

// By the rules above.
std::uint64_t RegionBytes(const NodeOptions& options);
bool TrustSameUid(const NodeOptions& options);
// "127.0.0.1:7411", "localhost:1", "[::1]:1".
bool IsLoopback(const std::string& address);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_OPTIONS_H_
