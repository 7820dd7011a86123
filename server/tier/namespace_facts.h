// What the pool has to know of a namespace version to keep its blocks: a plain
// value out of the node's namespace cache, handed over with each request.

#ifndef FIRNKV_SERVER_TIER_NAMESPACE_FACTS_H_
#define FIRNKV_SERVER_TIER_NAMESPACE_FACTS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/base/id.h"

namespace firnkv {

struct PoolNamespace {
  NamespaceId id;
  TenantId tenant;
  IdentityDigest digest;
  // The highest that the node knows. The pool never goes back to a lower one.
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  // The size of its blocks, of every one, and of their slots: a reader that
  // asked for another size would get none of them. 0: any size.
  std::uint64_t block_bytes = 0;
  // Blocks have parents and positions (rule P14: mixing is refused).
  bool chained = true;
  // Zero: for ever.
  absl::Duration retention;
  // Rule C4.
  bool strict_clear = false;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_NAMESPACE_FACTS_H_
