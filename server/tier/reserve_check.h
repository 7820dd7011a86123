// Whether a batch that a writer wants to reserve makes sense at all: pure, and
// before anything is locked.

#ifndef FIRNKV_SERVER_TIER_RESERVE_CHECK_H_
#define FIRNKV_SERVER_TIER_RESERVE_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/tier/pool_types.h"

namespace firnkv {

// INVALID_ARGUMENT with the block's index and what is wrong with it: a key of
// zero or twice in the batch, a length of zero or over `largest` or the
// namespace's block size, a shard that there is not, a place that does not go
// with a chained (or unchained) namespace (rule P14).
absl::Status CheckReserve(const ReserveRequest& request, std::uint64_t largest);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_RESERVE_CHECK_H_
