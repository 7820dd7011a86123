// Tells the local node what reads found at other nodes, so that it can fetch
// copies of what is read again and again (server/node/promoter.h), and forgets
// where those blocks were once they are here: the next read asks the local
// node.
//
// Off every read's path: a read leaves its blocks and goes; a task sends them a
// moment later, those of several reads together. Nobody waits for the answer.
// Rate and memory are bounded, and at a bound blocks are dropped, which costs a
// later promotion and nothing else: blocks that wait, calls without an answer,
// and a pause after a call that failed (a long one where the node is too old to
// know the call).
//
// Threading. All methods may be called from any thread. One mutex, never held
// over a call.
//
// Ownership. Belongs to the Client; everything given to it outlives it.

#ifndef FIRNKV_CLIENT_REMOTE_READS_H_
#define FIRNKV_CLIENT_REMOTE_READS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/counters.h"
#include "client/location_cache.h"
#include "client/node_client.h"
#include "client/remote_reads_messages.h"
#include "client/transport/seams.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"

namespace firnkv {

class RemoteReads {
 public:
  // How long the first block waits for others.
  static constexpr absl::Duration kDelay = absl::Milliseconds(5);
  // Blocks that wait, about 200 bytes each.
  static constexpr std::size_t kMostBlocks = 4096;
  static constexpr int kMostCalls = 4;
  // After a failure; after one of a node that does not know the call.
  static constexpr absl::Duration kPause = absl::Seconds(1);
  static constexpr absl::Duration kLongPause = absl::Minutes(1);

  RemoteReads(const Seams* seams, ClientCounters* counters, NodeClient* node,
              LocationCache* locations)
      : seams_(seams),
        counters_(counters),
        node_(node),
        locations_(locations) {}
  ~RemoteReads() { Close(); }

  // One read found these elsewhere; parents before their children.
  void Add(NamespaceId name_space, std::vector<RemoteBlock> blocks)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Nothing is sent any more; no callback of it runs after return.
  void Close() { scope_.Close(); }

 private:
  // One call: of one namespace, no key twice.
  struct Batch {
    NamespaceId name_space;
    std::vector<RemoteBlock> blocks;
    absl::flat_hash_set<BlockKey> keys;
  };

  void Send() ABSL_LOCKS_EXCLUDED(mutex_);
  // A call, and what the node said to it.
  struct Told {
    Batch batch;
    absl::StatusOr<std::vector<std::size_t>> here;
  };
  void OnAnswer(const Told& told) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The batch that takes them, a new one if need be.
  Batch& BatchFor(NamespaceId name_space,
                  const std::vector<RemoteBlock>& blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Seams* const seams_;
  ClientCounters* const counters_;
  NodeClient* const node_;
  LocationCache* const locations_;
  TaskScope scope_;

  Mutex mutex_;
  std::vector<Batch> waiting_ ABSL_GUARDED_BY(mutex_);
  std::size_t blocks_ ABSL_GUARDED_BY(mutex_) = 0;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool timer_set_ ABSL_GUARDED_BY(mutex_) = false;
  BootTime paused_until_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_REMOTE_READS_H_
