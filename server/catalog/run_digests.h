// Digests of what the catalog has of each run, by bucket: what a node's own are
// compared with (rule A5, proto/base/copy_digest.h).
//
// A run is (node, epoch, inventory serial), so an inventory begins from nothing
// and what it did not name needs no subtraction: the sums of the serial before
// it are dropped as a whole. 512 KiB a run that counts, made when it has its
// first copy: half a gigabyte at 1,024 nodes, where the index has many.
//
// Of a stale run nothing is kept. It never counts again (membership.h), so a
// part of its copies that was missed here does not matter.
//
// Does not know: the index, the store, when a change is counted (entries.h).
//
// Threading. On the strand only.

#ifndef FIRNKV_SERVER_CATALOG_RUN_DIGESTS_H_
#define FIRNKV_SERVER_CATALOG_RUN_DIGESTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "proto/base/copy_digest.h"
#include "proto/base/id.h"
#include "server/catalog/membership.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

class RunDigests {
 public:
  // `membership` outlives it.
  explicit RunDigests(const Membership* membership) : membership_(membership) {}

  // The block had copies at `before` and has them at `after` now.
  void Change(const BlockId& block, absl::Span<const Location> before,
              absl::Span<const Location> after);

  // Null: the run has no copy, or is stale. Valid until the next change.
  const BucketSums* Find(const Run& run) const;

  // Where the run has copies, in order.
  std::vector<NamespaceId> NamespacesOf(const Run& run) const;

  // Forgets the runs that are stale by now.
  void DropStale();

  // Runs of which there are sums.
  std::size_t runs() const { return runs_.size(); }

 private:
  struct Sums {
    BucketSums sums;
    // Copies by namespace; none is 0.
    absl::flat_hash_map<NamespaceId, std::uint64_t> copies;
  };

  // Null: stale. Made where there is none.
  Sums* SumsOf(const Run& run);
  void Add(const BlockId& block, const Location& location);
  void Subtract(const BlockId& block, const Location& location);

  const Membership* const membership_;
  absl::flat_hash_map<Run, std::unique_ptr<Sums>> runs_;
  // The last one asked for: neighbours in a batch are of one run.
  Run last_run_;
  Sums* last_ = nullptr;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_RUN_DIGESTS_H_
