// Asking whether blocks are there, and removing them: calls that move no block
// bytes.

#ifndef FIRNKV_CLIENT_LOOKUP_H_
#define FIRNKV_CLIENT_LOOKUP_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/namespace.h"
#include "client/read.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"

namespace firnkv {

struct ExistsTarget {
  BlockKey key;
  BlockKey anchor;  // As ReadTarget's.
  // kHit: the local node has it, or the catalog knows who has. A promise of
  // nothing: it may be gone when it is read.
  Outcome outcome = Outcome::kSkipped;
  // Of a hit; 0 where that is not known.
  std::uint64_t length = 0;
};

struct ExistsRequest {
  NamespaceHandle name_space;
  absl::Span<ExistsTarget> blocks;  // As ReadRequest's.
  absl::Duration deadline;
  ReadWant want = ReadWant::kLeadingRun;
  TraceId trace;
};

struct ExistsReport {
  absl::Status status;  // As ReadReport's.
  std::size_t leading_hits = 0;
  std::size_t hits = 0;
  absl::Duration took;
};

struct RemoveTarget {
  BlockKey key;
  // kHit: it was known and is gone or on its way out; kMiss: nobody had it.
  Outcome outcome = Outcome::kSkipped;
};

// Best effort: gone from the local node on return, from others once the catalog
// has told them. A clear of the namespace is the strong way.
struct RemoveRequest {
  NamespaceHandle name_space;
  absl::Span<RemoveTarget> blocks;
  absl::Duration deadline;
  TraceId trace;
};

struct RemoveReport {
  absl::Status status;
  std::size_t removed = 0;
  // Copies whose nodes have not yet said that they are gone.
  std::uint64_t pending = 0;
  absl::Duration took;
};

// These touch no buffers, so they have one end: at the deadline at the latest.
using ExistsDone = absl::AnyInvocable<void(const ExistsReport&) &&>;
using RemoveDone = absl::AnyInvocable<void(const RemoveReport&) &&>;

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_LOOKUP_H_
