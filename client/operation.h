// What reads, writes and lookups have in common: they are known to the Client
// while they are in flight, so that Close can end them.
//
// Threading. All methods may be called from any thread.

#ifndef FIRNKV_CLIENT_OPERATION_H_
#define FIRNKV_CLIENT_OPERATION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/options.h"
#include "client/transport/seams.h"
#include "client/transport/stream_transport.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"

namespace firnkv {

class BounceMemory;
class CatalogClient;
class ClearEpochs;
struct ClientCounters;
class LocationCache;
class NodeClient;
class OperationSet;
class PeerProbes;
class RemoteReads;
class Poison;
class RetryBudget;
class Router;
class Session;
class StagingPool;
class TaskScope;
class ViewTie;

// What an operation needs of the rest of a Client; all outlive every
// operation.
struct ClientParts {
  const ClientOptions* options = nullptr;
  const Seams* seams = nullptr;
  ClientCounters* counters = nullptr;
  NodeClient* node = nullptr;
  CatalogClient* catalog = nullptr;
  Session* session = nullptr;
  StagingPool* staging = nullptr;
  StreamTransport* streams = nullptr;
  LocationCache* locations = nullptr;
  Router* router = nullptr;
  PeerProbes* probes = nullptr;
  RemoteReads* remote_reads = nullptr;
  RetryBudget* retries = nullptr;
  ClearEpochs* epochs = nullptr;
  BounceMemory* bounce = nullptr;
  OperationSet* operations = nullptr;
  Poison* poison = nullptr;
  TaskScope* scope = nullptr;
  // Shared with batches of views, which may outlive the Client.
  std::shared_ptr<ViewTie> views;
};

// What every batch is bound by; INVALID_ARGUMENT with what is wrong. `what` is
// "a read", "a write".
absl::Status CheckBatch(const ClientParts& parts, std::string_view what,
                        absl::Duration deadline,
                        const std::vector<BlockKey>& keys);

// The outcome of blocks whose whole call failed: kDenied, kTimedOut,
// kCongested or kUnavailable.
Outcome OutcomeOf(const absl::Status& failure);

// An invariant of the SDK's own that turned out broken: the Client is of no use
// from then on, and its host goes on living.
class Poison {
 public:
  // `log` must be callable as long as this.
  explicit Poison(std::function<void(std::string_view)> log)
      : log_(std::move(log)) {}

  bool broken() const { return broken_.load(std::memory_order_relaxed); }
  // Logs the first time.
  void Break(std::string_view what) {
    if (broken_.exchange(true, std::memory_order_relaxed)) return;
    log_(what);
  }

 private:
  const std::function<void(std::string_view)> log_;
  // Relaxed: it orders nothing; a call that begins meanwhile is as good as one
  // that began before.
  std::atomic<bool> broken_{false};
};

class Operation {
 public:
  virtual ~Operation() = default;
  // Ends it with kCancelled; its callbacks run as soon as its buffers are free.
  virtual void Cancel() = 0;
};

// The operations in flight; keeps them alive.
class OperationSet {
 public:
  // False: the Client is closed, do not begin. Shared with the callbacks that
  // the operation waits for.
  bool Add(std::shared_ptr<Operation> operation) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (closed_) return false;
    const Operation* const key = operation.get();
    live_.emplace(key, std::make_pair(next_++, std::move(operation)));
    return true;
  }

  // It has ended.
  void Remove(const Operation* operation) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::shared_ptr<Operation> last;  // May be destroyed without the lock.
    MutexLock lock(&mutex_);
    const auto it = live_.find(operation);
    if (it == live_.end()) return;
    last = std::move(it->second.second);
    live_.erase(it);
  }

  // Cancels all, in the order in which they began; none begins from now on.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::map<std::uint64_t, std::shared_ptr<Operation>> ordered;
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      for (const auto& [key, entry] : live_) ordered.insert(entry);
    }
    for (const auto& [number, operation] : ordered) operation->Cancel();
  }

  bool empty() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return live_.empty();
  }

 private:
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  // Shared: see Add.
  std::map<const Operation*,
           std::pair<std::uint64_t, std::shared_ptr<Operation>>>
      live_ ABSL_GUARDED_BY(mutex_);
};

// Memory of the SDK's own in which blocks land of which only a part is wanted.
// Bounded; a receipt gives it back.
class BounceMemory {
 public:
  explicit BounceMemory(std::uint64_t most) : left_(most) {}

  class Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) noexcept { *this = std::move(other); }
    Piece& operator=(Piece&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Piece() {
      if (owner_ != nullptr) owner_->Give(bytes_.size());
    }
    explicit operator bool() const { return owner_ != nullptr; }
    absl::Span<std::byte> bytes() { return absl::MakeSpan(bytes_); }

   private:
    friend class BounceMemory;
    BounceMemory* owner_ = nullptr;
    std::vector<std::byte> bytes_;
  };

  // Empty where there is no room.
  Piece Take(std::uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_) {
    Piece piece;
    {
      MutexLock lock(&mutex_);
      if (bytes > left_) return piece;
      left_ -= bytes;
    }
    piece.owner_ = this;
    piece.bytes_.resize(bytes);
    return piece;
  }

 private:
  void Give(std::uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    left_ += bytes;
  }

  Mutex mutex_;
  std::uint64_t left_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_OPERATION_H_
