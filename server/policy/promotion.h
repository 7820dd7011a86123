// Which blocks that were read at another node deserve a copy here. A pure
// decision: no I/O, no clock, no threads, no randomness.
//
// The rule: a block that is read elsewhere a second time within a window, by
// whichever session, will be read again; and with it all that stands before it
// in its chain, since a block without its predecessors is worth nothing. What
// the copy may push out is only what was last used before the block was first
// noted: the pool says how warm that moment was (EvictionPolicy::NextWarmth),
// and is told so when room is made (ReserveRequest::evict_below).
//
// State: what was noted once, about 200 bytes a block, bounded in all and by
// tenant, so that no tenant's reads make another's forgotten. At a bound the
// oldest note goes; a forgotten note costs one remote read more.
//
// Does not know: where copies are, how they come here, what there is room for.
//
// Threading. None: the owner's mutex protects it.

#ifndef FIRNKV_SERVER_POLICY_PROMOTION_H_
#define FIRNKV_SERVER_POLICY_PROMOTION_H_

#include <cstddef>
#include <list>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "server/policy/eviction.h"

namespace firnkv {

class PromotionPolicy {
 public:
  struct Options {
    // Between the first and the second read.
    absl::Duration window = absl::Minutes(10);
    std::size_t max_notes = 64 * 1024;
    std::size_t max_notes_a_tenant = 16 * 1024;
  };

  explicit PromotionPolicy(const Options& options) : options_(options) {}

  struct Read {
    BlockKey key;
    // Zero at the beginning of a chain, and where there are no chains.
    BlockKey parent;
  };
  struct Choice {
    // Indexes of the run, rising: parents before their children.
    std::vector<std::size_t> blocks;
    // Only what is colder may leave for them.
    Warmth evict_below = Warmth::kNone;
  };
  // One read found these at another node; parents stand before their children,
  // no key twice. `warmth` is what a touch at this moment gives. What is chosen
  // is forgotten: if it does not come, it is noted anew.
  Choice OnRemoteRead(BootTime at, Warmth warmth, TenantId tenant,
                      NamespaceId name_space, absl::Span<const Read> run);

  std::size_t notes() const { return notes_.size(); }

 private:
  // Of one tenant, the oldest first.
  using Ages = std::list<BlockId>;
  struct Note {
    BootTime at;
    Warmth warmth = Warmth::kNone;
    TenantId tenant;
    Ages::iterator age;
  };
  using Notes = absl::flat_hash_map<BlockId, Note>;

  // The warmth of its first read, if this is its second; else notes it, and
  // kNone.
  Warmth LookAt(BootTime at, Warmth warmth, TenantId tenant,
                const BlockId& block);
  void MakeRoom(TenantId tenant);
  void Forget(Notes::iterator it);

  const Options options_;
  Notes notes_;
  // Tenants that have notes.
  absl::flat_hash_map<TenantId, Ages> ages_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_POLICY_PROMOTION_H_
