// What a node does by the clock: ends leases whose time has passed, lets
// cleared copies and empty regions go, looks at the machine's memory (rule
// P11), and closes sessions whose views are beyond their hard age, or that
// never unmap what is wanted back (rule P9).
//
// It keeps no free watermark: DramPool::StartReserve evicts to the byte what a
// batch needs, in the same step, so memory kept free ahead of need would only
// hold fewer blocks.
//
// Threading. Runs as tasks. Start and Stop by the owner.
//
// Ownership. Owned by Node; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_HOUSEKEEPER_H_
#define FIRNKV_SERVER_NODE_HOUSEKEEPER_H_

#include <cstddef>

#include "absl/time/time.h"
#include "proto/base/counter.h"
#include "proto/base/executor.h"
#include "server/node/session_listener.h"
#include "server/node/staging.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class Housekeeper {
 public:
  struct Options {
    absl::Duration sweep_every = absl::Milliseconds(250);
    // Leases and copies in one sweep: 8,192 at some 200 ns each keep the pool's
    // lock for under 2 ms.
    std::size_t sweep_budget = 8192;
    absl::Duration memory_every = absl::Seconds(1);
  };
  struct Parts {
    Executor* executor = nullptr;
    DramPool* pool = nullptr;
    const Staging* staging = nullptr;
    SessionListener* sessions = nullptr;
  };

  Housekeeper(const Options& options, const Parts& parts)
      : options_(options), parts_(parts) {}
  ~Housekeeper() { Stop(); }

  void Start();
  // No task of it runs after this returns.
  void Stop() { scope_.Close(); }

  const Counter& overdue_views() const { return overdue_views_; }
  const Counter& overdue_mappings() const { return overdue_mappings_; }

 private:
  void Sweep();
  void CheckMemory();
  void After(absl::Duration delay, void (Housekeeper::*step)());

  const Options options_;
  const Parts parts_;
  Counter overdue_views_;
  Counter overdue_mappings_;
  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_HOUSEKEEPER_H_
