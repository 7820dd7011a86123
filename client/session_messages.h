// The local session's messages (proto/session.proto) as plain values: what the
// client sends, encoded; what the node sends, checked.
//
// Threading. Pure functions.

#ifndef FIRNKV_CLIENT_SESSION_MESSAGES_H_
#define FIRNKV_CLIENT_SESSION_MESSAGES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/id.h"
#include "proto/base/node_address.h"
#include "proto/base/request.h"

namespace firnkv {

// A pool region, or the table of its slots' headers.
enum class DescriptorOf : std::uint8_t { kRegion = 0, kHeaderTable = 1 };

// --- From the client.
struct SessionHello {
  Handshake handshake;
  bool want_mapping = false;
  std::string token;
  std::string client_name;
  // Newest version of call frames that we speak; 0: none are wanted.
  std::uint32_t call_frames = 0;
};
std::string EncodeSessionHello(const SessionHello& hello);
std::string EncodeDescriptorWanted(std::uint64_t region, DescriptorOf what);
std::string EncodeDescriptorTaken(std::uint64_t region, DescriptorOf what);
std::string EncodeAddStaging(std::uint64_t staging, std::uint64_t bytes);
std::string EncodeRegionUnmapped(std::uint64_t region);
std::string EncodeRenewToken();

// --- From the node.
struct SessionWelcome {
  Handshake handshake;
  SessionId session;
  TenantId tenant;
  std::string tenant_name;
  NodeId node;
  NodeEpoch epoch = NodeEpoch::kNone;
  Labels labels;
  bool mapping = false;
  // Views of this session verify checksums (rule P10).
  bool verify_views = false;
  std::string stream_address;
  std::string catalog_address;
  std::string token;
  absl::Duration token_life;
  std::uint64_t largest_block_bytes = 0;
  std::uint64_t max_staging_bytes = 0;
  std::uint32_t max_stagings = 0;
  std::string control_address;
  // The version of call frames that the session speaks; 0: none.
  std::uint32_t call_frames = 0;
};
struct SessionRefused {
  absl::Status reason;
};
struct DescriptorIs {
  std::uint64_t region = 0;
  DescriptorOf what = DescriptorOf::kRegion;
  std::uint64_t bytes = 0;
};
struct DescriptorRefused {
  std::uint64_t region = 0;
  std::string reason;
};
struct StagingAccepted {
  std::uint64_t staging = 0;
};
struct StagingRefused {
  std::uint64_t staging = 0;
  std::string reason;
};
struct RegionRetired {
  std::uint64_t region = 0;
};
struct TokenIs {
  std::string token;
  absl::Duration life;
};
using FromNode = std::variant<SessionWelcome, SessionRefused, DescriptorIs,
                              DescriptorRefused, StagingAccepted,
                              StagingRefused, RegionRetired, TokenIs>;

// INTERNAL where it is no message, or none that a node sends.
absl::StatusOr<FromNode> DecodeFromNode(std::string_view bytes);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_SESSION_MESSAGES_H_
