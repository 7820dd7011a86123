// Accepts stream connections, keeps them, and bounds how many there are: in
// all, of those that have not said who they are, and by tenant. One beyond a
// cap is refused with the reason.
//
// Does not know: frames (served_connection.h).
//
// Threading. Thread-safe. One mutex, never held over a connection's methods.
//
// Ownership. Owned by Node; everything in Parts outlives it. Owns the
// connections; one that has closed is destroyed by a task.

#ifndef FIRNKV_SERVER_NODE_STREAM_SERVER_H_
#define FIRNKV_SERVER_NODE_STREAM_SERVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "client/transport/byte_stream.h"
#include "proto/base/counter.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "server/node/served_connection.h"

namespace firnkv {

class StreamServer {
 public:
  struct Options {
    std::size_t max_connections = 1024;
    std::size_t max_unidentified = 128;
    std::size_t max_connections_a_tenant = 256;
    ServedConnection::Options connection;
  };
  struct Counters {
    Counter accepted;
    Counter over_caps;
  };

  // `parts.busy` is set here.
  StreamServer(const Options& options, const ServedConnection::Parts& parts);
  // Close().
  ~StreamServer();

  // Connections may come from now on.
  absl::Status Listen(Network* network, std::string_view address)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // "host:port", after Listen.
  std::string address() const ABSL_LOCKS_EXCLUDED(mutex_);
  // No more connections, and those that there are end. Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // Reads are being answered: what the copier gives way to (rule S8).
  bool busy() const { return busy_.load(std::memory_order_relaxed) > 0; }
  std::int64_t reads_in_flight() const {
    return busy_.load(std::memory_order_relaxed);
  }
  std::size_t connections() const ABSL_LOCKS_EXCLUDED(mutex_);
  const Counters& counters() const { return counters_; }

 private:
  // Shared: the table, and whoever starts it just now.
  using ConnectionPtr = std::shared_ptr<ServedConnection>;
  struct Entry {
    // Null while it is being made.
    ConnectionPtr connection;
    bool identified = false;
    TenantId tenant;
  };

  void OnAccept(std::unique_ptr<ByteStream> stream) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnIdentified(std::uint64_t number, const TokenClaims& claims)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnClosed(std::uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  void Uncount(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropClosed() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  ServedConnection::Parts parts_;
  Counters counters_;
  // Relaxed: a hint to whoever may give way.
  std::atomic<std::int64_t> busy_{0};

  mutable Mutex mutex_;
  std::unique_ptr<ByteStreamListener> listener_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 1;
  // In the order in which they came: see SessionListener's.
  absl::btree_map<std::uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::size_t unidentified_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<TenantId, std::size_t> by_tenant_ ABSL_GUARDED_BY(mutex_);
  std::vector<ConnectionPtr> dropped_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_STREAM_SERVER_H_
