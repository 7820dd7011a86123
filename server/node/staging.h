// Clients' staging: shared memory of their own, in which they write and from
// which the node copies into slots (rules P1, S1).
//
// Accepted only if it is sealed against shrink and grow (the node would die of
// SIGBUS otherwise) and no huge page; capped in size and count by session and
// by tenant; mapped read-only. Its owner may scribble on it and punch holes in
// it at any time: that is why the copier checks what landed and never what it
// read.
//
// Memory counts against the caps from Add until it is unmapped: when it was
// dropped, or its session ended, and the last copy out of it has stopped.
//
// Threading. Thread-safe, one mutex, never held while memory is checked, mapped
// or unmapped.
//
// Ownership. Owned by Node; outlives every StagingRange.

#ifndef FIRNKV_SERVER_NODE_STAGING_H_
#define FIRNKV_SERVER_NODE_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/transport/shared_memory.h"
#include "proto/base/bytes.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"

namespace firnkv {

// Bytes of staging that stay mapped while this lives.
struct StagingRange {
  absl::Span<const std::byte> bytes;
  // Shared: the staging's own, and every copy out of it that is in flight,
  // which may outlive its session.
  std::shared_ptr<const void> keeps_mapped;
};

class Staging {
 public:
  struct Options {
    std::uint64_t max_bytes_a_session = kGiB;
    std::size_t max_count_a_session = 64;
    std::uint64_t max_bytes_a_tenant = 4 * kGiB;
    std::size_t max_count_a_tenant = 1024;
  };

  explicit Staging(const Options& options) : options_(options) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  // CHECKs that everything is unmapped.
  ~Staging();

  // Takes memory that `session` calls `id`. INVALID_ARGUMENT: id zero or in
  // use, `bytes` not its size or zero, seals missing; RESOURCE_EXHAUSTED: a
  // cap, or it cannot be mapped.
  absl::Status Add(SessionId session, TenantId tenant, std::uint64_t id,
                   std::uint64_t bytes, std::shared_ptr<SharedMemory> memory)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // INVALID_ARGUMENT unless the range lies in memory of that session.
  absl::StatusOr<StagingRange> Resolve(SessionId session, std::uint64_t id,
                                       std::uint64_t offset,
                                       std::uint64_t length) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Unknown ones are ignored.
  void Drop(SessionId session, std::uint64_t id) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndSession(SessionId session) ABSL_LOCKS_EXCLUDED(mutex_);

  // Everything still mapped, dropped or not: what rule P11 counts.
  std::uint64_t mapped_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Mapped;
  struct Use {
    std::uint64_t bytes = 0;
    std::size_t count = 0;
  };
  struct SessionState {
    Use use;
    // Shared with copies in flight.
    absl::flat_hash_map<std::uint64_t, std::shared_ptr<Mapped>> stagings;
  };

  absl::Status Charge(SessionId session, TenantId tenant, std::uint64_t bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Refund(SessionId session, TenantId tenant, std::uint64_t bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;

  mutable Mutex mutex_;
  std::uint64_t mapped_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<SessionId, SessionState> sessions_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<TenantId, Use> tenants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_STAGING_H_
