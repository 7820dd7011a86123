// Reads and writes over TCP with our frames: a few connections to each node for
// either, made when they are first needed and kept while they are good. Bytes
// of a write so never stand before a read.
//
// Picks the connection of a node that has least to do, and opens another one
// while all have something; what happens on one stands in stream_connection.h.
// A thread in a blocking call has its connections for itself meanwhile, and
// receives from them (lent_streams.h): they do not count among the few.
// Knows nothing of which node has what, nor of trying again.
//
// Threading. All methods may be called from any thread.
//
// Ownership. Belongs to a Client (or a node's mover of blocks). Sinks are
// shared with it until their OnEnd.

#ifndef FIRNKV_CLIENT_TRANSPORT_STREAM_TRANSPORT_H_
#define FIRNKV_CLIENT_TRANSPORT_STREAM_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "client/transport/seams.h"
#include "client/transport/stream_connection.h"
#include "proto/base/mutex.h"

namespace firnkv {

class StreamTransport {
 public:
  struct Options {
    int connections_per_node = 4;
    // To one node, of threads in blocking calls; others share, as if they did
    // not block.
    int kept_per_node = 16;
    absl::Duration connect_timeout = absl::Seconds(1);
    // To all nodes together. At the bound, idle ones are closed to make room;
    // with none idle a read is kUnreachable.
    std::size_t max_connections = 1024;
  };

  // `seams` outlive the transport. `credentials` is asked for each new
  // connection, since tokens are renewed.
  StreamTransport(const Seams* seams, const Options& options,
                  std::function<StreamCredentials()> credentials);
  ~StreamTransport();  // Close().

  // Names a read for Cancel. Weak: a connection that has gone took its reads
  // with it.
  struct Ticket {
    std::weak_ptr<StreamConnection> connection;
    std::uint64_t id = 0;
  };
  // The sink's OnEnd runs exactly once, also inside StartRead.
  Ticket StartRead(const StreamPeer& peer, StreamRead read,
                   std::shared_ptr<StreamSink> sink)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // As StartRead.
  Ticket StartWrite(const StreamPeer& peer, const StreamWrite& write,
                    const std::shared_ptr<StreamWriteSink>& sink)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // See StreamConnection::SendBlock.
  static bool SendBlock(const Ticket& ticket, StreamBlock block);

  // See StreamConnection::Cancel.
  void Cancel(const Ticket& ticket, absl::Duration grace);

  // Ends everything with kCancelled; every callback has run on return.
  // Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  const StreamCounters& counters() const { return counters_; }

 private:
  // Shared: see StreamConnection.
  using Connections = std::vector<std::shared_ptr<StreamConnection>>;

  enum class Use : std::uint8_t { kRead, kWrite };
  // Begins something on a connection: its id, nullopt if it is closed.
  using Begin =
      absl::FunctionRef<std::optional<std::uint64_t>(StreamConnection*)>;

  // nullopt: no connection; `*closed`: there will be none.
  std::optional<Ticket> Start(const StreamPeer& peer, Use use, Begin begin,
                              bool* closed) ABSL_LOCKS_EXCLUDED(mutex_);
  // Shared: as Connections.
  std::shared_ptr<StreamConnection> Choose(const StreamPeer& peer, Use use,
                                           bool* fresh, Connections* dead)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of those that are not kept by others: the one with least to do, claimed;
  // null where another one is to be opened. `least`: in any case, unclaimed
  // then.
  struct Shared {
    std::shared_ptr<StreamConnection> least;  // Shared: see Connections.
  };
  std::shared_ptr<StreamConnection> ChooseShared(const Connections& all,
                                                 Shared* shared) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves one idle connection to `dead`; false if there is none.
  bool DropIdle(Connections* dead) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Destroyed by a task, since a callback of theirs may be running here.
  void Bury(Connections dead) ABSL_LOCKS_EXCLUDED(mutex_);

  const Seams* const seams_;
  const Options options_;
  const std::function<StreamCredentials()> credentials_;
  StreamCounters counters_;
  TaskScope scope_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Ordered, so that a seeded run is the same each time.
  std::map<std::pair<std::string, Use>, Connections> nodes_
      ABSL_GUARDED_BY(mutex_);
  std::size_t connections_ ABSL_GUARDED_BY(mutex_) = 0;
  Connections buried_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_STREAM_TRANSPORT_H_
