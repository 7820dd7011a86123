// Promotion: what this node's sessions read at other nodes and what deserves a
// copy here (server/policy/promotion.h) is fetched (copy_fetcher.h), so that
// the next read finds it on this host.
//
//     Note -> namespace -> policy -> Locate -> copy_fetcher, a source at a time
//
// A session may be hostile: what it says of a block is compared with what the
// source sends, and it may speak only of its own tenant's namespaces. Where a
// copy is the catalog says, never the session: no node connects to an address
// of a session's choice, where it would show its token.
//
// Bounds: promotions under way, in all and by tenant; beyond them what was
// noted is dropped. Everything else is copy_fetcher.h's.
//
// Does not know: the wire, how a copy comes.
//
// Threading. Thread-safe. One mutex, never held over a call or a callback.
// Nothing here blocks: a session's thread only looks the blocks up.
//
// Ownership. Owned by Node; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_PROMOTER_H_
#define FIRNKV_SERVER_NODE_PROMOTER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/counter.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"
#include "proto/base/random.h"
#include "server/node/copy_fetcher.h"
#include "server/node/namespace_cache.h"
#include "server/node/node_catalog_client.h"
#include "server/policy/promotion.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class Promoter {
 public:
  struct Options {
    bool on = true;
    PromotionPolicy::Options policy;
    // Under way: each is one note, of at most kMaxBatchKeys blocks.
    std::size_t max_under_way = 64;
    std::size_t max_under_way_a_tenant = 16;
    // Of one, from its note to its last copy.
    absl::Duration longest = absl::Seconds(5);
    // For a region that is being made. Where everything is warmer there is
    // nothing to wait for.
    absl::Duration room_wait = absl::Milliseconds(200);
  };
  struct Parts {
    const Clock* clock = nullptr;
    Random* random = nullptr;
    NodeId self;
    NamespaceCache* namespaces = nullptr;
    NodeCatalogClient* catalog = nullptr;
    DramPool* pool = nullptr;
    CopyFetcher* copies = nullptr;
  };
  // Why a block that was chosen did not become resident.
  enum class Refusal : std::uint8_t {
    // Too many promotions under way.
    kBusy,
    // The catalog knows no copy elsewhere, or is away.
    kUnlocated,
    // Only warmer blocks could have made room, or too much was in flight.
    kNoRoom,
    // The source has it no more, or something else under its key.
    kGone,
    kCleared,
    kCorrupt,
    kUnreachable,
    kTimedOut,
  };
  static constexpr std::size_t kRefusals = 8;
  static std::string_view LabelOf(Refusal refusal);
  struct Counters {
    // Blocks.
    Counter noted;
    Counter promoted;
    Counter promoted_bytes;
    std::array<Counter, kRefusals> refused;
  };

  Promoter(const Options& options, const Parts& parts)
      : options_(options), parts_(parts), policy_(options.policy) {}
  Promoter(const Promoter&) = delete;
  Promoter& operator=(const Promoter&) = delete;
  // Its parts have been closed: every `done` has run.
  ~Promoter() = default;

  struct Note {
    TenantId tenant;
    NamespaceId name_space;
    // What one read found elsewhere, in its order; no key twice.
    std::vector<CopyOrder::Block> blocks;
  };
  // The indexes of those blocks that are here now because of it.
  using Done = absl::AnyInvocable<void(std::vector<std::size_t>) &&>;
  // `done` runs exactly once, under no lock: inside Start where nothing is
  // chosen, and after options.longest at the latest where something is.
  void Start(Note note, Done done) ABSL_LOCKS_EXCLUDED(mutex_);

  const Counters& counters() const { return counters_; }

 private:
  // One note's promotion, on its way.
  struct Job {
    Note note;
    Done done;
    BootTime deadline;
    Warmth evict_below = Warmth::kNone;
    // Indexes of the note that are still to be fetched, and where each is.
    struct Wanted {
      std::size_t index = 0;
      std::vector<NodeAddress> sources;
    };
    std::vector<Wanted> wanted;
    // The next one of them.
    std::size_t next = 0;
    int fetches = 0;
    std::vector<std::size_t> here;
  };
  using JobPtr = std::unique_ptr<Job>;

  void OnNamespace(JobPtr job, const NamespaceCache::Answer& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // One more may be under way; counts it.
  bool Admit(TenantId tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnLocated(JobPtr job,
                 const absl::StatusOr<NodeCatalogClient::Sources>& located)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Fetches what comes next from one node.
  void FetchNext(JobPtr job) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFetched(JobPtr job, std::size_t begin,
                 const std::vector<Outcome>& outcomes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish(JobPtr job) ABSL_LOCKS_EXCLUDED(mutex_);
  void Refuse(Refusal refusal, std::size_t blocks) {
    counters_.refused[static_cast<std::size_t>(refusal)].Add(blocks);
  }

  const Options options_;
  const Parts parts_;
  Counters counters_;

  Mutex mutex_;
  PromotionPolicy policy_ ABSL_GUARDED_BY(mutex_);
  std::size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<TenantId, std::size_t> by_tenant_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_PROMOTER_H_
