// Where a node is and what run of it: what travels with every location.

#ifndef FIRNKV_PROTO_BASE_NODE_ADDRESS_H_
#define FIRNKV_PROTO_BASE_NODE_ADDRESS_H_

#include <cstdint>
#include <string>

#include "proto/base/id.h"

namespace firnkv {

// An operator's words for where a node stands; each at most kMaxNameBytes.
struct Labels {
  std::string zone;
  std::string rack;
  std::string host;
  friend bool operator==(const Labels&, const Labels&) = default;
};

struct NodeAddress {
  NodeId node;
  NodeEpoch epoch = NodeEpoch::kNone;
  // "host:port" of its stream and of its gRPC.
  std::string stream_address;
  std::string control_address;
  Labels labels;
  friend bool operator==(const NodeAddress&, const NodeAddress&) = default;
};

// One life of the catalog's state (rule A9): raised at every start and every
// administrative write. Of two equal `incarnation`, another random id means
// another state: a restored backup or a copied directory.
struct Incarnation {
  std::uint64_t incarnation = 0;
  ByteId<struct IncarnationRandomTag, 16> random_id;
  std::uint64_t sequence = 0;
  // The incarnation that the last accept-restore began: what was minted before
  // is refused (TokenClaims::credentials).
  std::uint64_t credentials = 0;
  friend bool operator==(const Incarnation&, const Incarnation&) = default;
};

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_NODE_ADDRESS_H_
