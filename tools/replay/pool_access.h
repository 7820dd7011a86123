// What a worker of a replay does with the pool. A seam: the SDK's Client in
// production (client_access.h), a pool that a test can spoil in tests.
//
// Threading. Each worker has one of its own.

#ifndef FIRNKV_TOOLS_REPLAY_POOL_ACCESS_H_
#define FIRNKV_TOOLS_REPLAY_POOL_ACCESS_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/read.h"
#include "client/stats.h"
#include "client/write.h"

namespace firnkv {

class PoolAccess {
 public:
  virtual ~PoolAccess() = default;

  // As the Client's.
  virtual ReadReport Read(const ReadRequest& request) = 0;
  virtual WriteReport Write(const WriteRequest& request) = 0;
  virtual absl::StatusOr<absl::Span<std::byte>> AllocateShared(
      std::size_t bytes) = 0;
  virtual ClientStats Stats() const = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_POOL_ACCESS_H_
