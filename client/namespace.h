// Namespaces as a caller sees them: one tenant's blocks under one state
// contract.

#ifndef FIRNKV_CLIENT_NAMESPACE_H_
#define FIRNKV_CLIENT_NAMESPACE_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/base/contract.h"
#include "proto/base/id.h"

namespace firnkv {

struct OpenNamespaceRequest {
  std::string name;
  // From the engine's resolved settings. The version of `name` whose digest is
  // this contract's is opened.
  StateContract contract;
  // Make the version, and the name, where none has this contract. False: it is
  // FAILED_PRECONDITION naming the field that differs; NOT_FOUND for the name.
  bool create = true;
  // For the version that is made; must agree with one that is there, where they
  // are not their defaults. Block bytes 0: blocks of any size. A declared size
  // is allocated without waste.
  std::uint64_t block_bytes = 0;
  // Blocks have parents and positions (Chain, chain.h). Blocks of a namespace
  // that is not chained have neither; mixing is refused (rule P14).
  bool chained = true;
  // Zero: for ever, until evicted.
  absl::Duration retention;
  // No read that begins after a clear has returned is served (rule C4), at the
  // price of serving nothing while a node has no catalog.
  bool strict_clear = false;
  // Positive, at most ClientOptions::longest_deadline.
  absl::Duration deadline = absl::Seconds(5);
};

// A namespace version that was opened; a plain value, good for the life of the
// Client and of every later one of the same tenant and cluster.
struct NamespaceHandle {
  NamespaceId id;
  std::string name;
  std::uint32_t version = 0;
  IdentityDigest digest;
  std::uint64_t block_bytes = 0;
  bool chained = true;
  // At the time it was opened. The Client remembers the highest that it has
  // seen since.
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  // This OpenNamespace made it.
  bool created = false;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_NAMESPACE_H_
