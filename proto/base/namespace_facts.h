// What everybody but a namespace's owner needs of one namespace version: what
// the node, the catalog and the SDK pass around. The contract itself stays with
// the catalog; its digest is enough to compare.
//
// A plain value, and a snapshot: only the catalog changes it, and only
// clear_epoch, retention, strict_clear and flash_mode ever change.

#ifndef FIRNKV_PROTO_BASE_NAMESPACE_FACTS_H_
#define FIRNKV_PROTO_BASE_NAMESPACE_FACTS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/base/id.h"

namespace firnkv {

// How the flash tier serves a namespace (DESIGN section 5). Numbers are
// RocksDB's, names are wire's.
enum class FlashMode : std::uint8_t {
  kOff = 0,
  // Reads are decided and predicted, not performed.
  kShadow = 1,
  kCanary = 2,
  kOn = 3,
};

struct NamespaceFacts {
  NamespaceId name_space;
  TenantId tenant;
  std::string tenant_name;
  std::string name;
  // Of the name; one a state contract, from 1.
  std::uint32_t version = 0;
  IdentityDigest digest;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  // Every block has exactly this size; 0: any size up to the largest.
  std::uint64_t block_bytes = 0;
  // Blocks have parents and positions; mixing is refused (rule P14).
  bool chained = false;
  // Zero: for ever. Whole seconds.
  absl::Duration retention;
  // Rule C4.
  bool strict_clear = false;
  FlashMode flash_mode = FlashMode::kOff;

  friend bool operator==(const NamespaceFacts&,
                         const NamespaceFacts&) = default;
};

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_NAMESPACE_FACTS_H_
