// Which worker gets which request.
//
// In turn; or with affinity to the worker that had the longest prefix of the
// request *beyond its first block*, as a gateway does that knows its engines'
// caches, and in turn where nobody had one. The first block does not count: a
// system prompt is everybody's, and would send everything to one worker.
//
// Threading: none; the one who hands out requests owns it.

#ifndef FIRNKV_TOOLS_REPLAY_REQUEST_ROUTER_H_
#define FIRNKV_TOOLS_REPLAY_REQUEST_ROUTER_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "tools/replay/trace.h"

namespace firnkv {

enum class Routing : std::uint8_t { kInTurn, kAffinity };

class RequestRouter {
 public:
  // `workers` must not be 0.
  RequestRouter(Routing routing, std::size_t workers)
      : routing_(routing), workers_(workers) {}

  // The worker, from 0. It is taken to have all blocks of the request from now
  // on; of several that had one, the last one counts.
  std::size_t Assign(const TraceRequest& request);

 private:
  std::size_t NextInTurn() { return next_++ % workers_; }

  const Routing routing_;
  const std::size_t workers_;
  std::size_t next_ = 0;
  absl::flat_hash_map<std::uint64_t, std::uint32_t> had_;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_REQUEST_ROUTER_H_
