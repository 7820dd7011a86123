// The entries of all blocks: the index in memory (key_index.h) over the store
// (Family::kKeys), as one thing that can be asked and changed.
//
// After a start the index is empty and every look-up that it cannot answer goes
// to the store; LoadStep fills it in bounded steps, and once it is whole the
// store is only written. So a catalog with millions of entries serves at once.
//
// Writes go to the store first, then to the index: a reader may see an entry
// that has just gone, never one that was not written.
//
// A damaged entry is none: nodes' inventories bring it back, and one bad value
// must not stop a batch of 4,096.
//
// Does not know: what an entry means, who may change it, what is stale.
//
// Threading. Find: any thread. The rest: on the strand only. That the loader
// runs there too is what keeps it from bringing back an entry that was removed
// while it read.

#ifndef FIRNKV_SERVER_CATALOG_ENTRIES_H_
#define FIRNKV_SERVER_CATALOG_ENTRIES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/counter.h"
#include "proto/base/id.h"
#include "server/catalog/cluster_state.h"
#include "server/catalog/key_index.h"
#include "server/catalog/store.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

// Some entries as they are, to be changed and written back in one batch.
class EntryBatch {
 public:
  struct Slot {
    BlockId block;
    // Null: there is none. `place` is right only if place_known.
    std::optional<EntryRecord> entry;
    bool place_known = false;
    // What the store has there must be written anew.
    bool changed = false;
    // The entry comes (again) into being: it gets the next sequence.
    bool is_new = false;
  };

  // Null for a block that was not loaded.
  Slot* Find(const BlockId& block);
  absl::Span<Slot> slots() { return absl::MakeSpan(slots_); }

 private:
  friend class Entries;
  // In the order in which they were named, so that the same batch writes the
  // same bytes.
  std::vector<Slot> slots_;
  absl::flat_hash_map<BlockId, std::size_t> by_block_;
};

class Entries {
 public:
  // All outlive the entries.
  Entries(Store* store, ClusterState* cluster, KeyIndex* index);

  enum class Want { kLeadingRun, kEveryKey };
  // What is known of each key, in order; null: nothing. With kLeadingRun what
  // comes after the first null may be null too.
  absl::StatusOr<std::vector<std::optional<KeyIndex::Entry>>> Find(
      NamespaceId name_space, absl::Span<const BlockKey> keys, Want want) const;

  // The whole record of one block, from the store; null: there is none.
  absl::StatusOr<std::optional<EntryRecord>> Explain(
      const BlockId& block) const;

  // --- On the strand.
  // `blocks` may name a block twice.
  absl::StatusOr<EntryBatch> Load(absl::Span<const BlockId> blocks) const;

  // Writes what changed in `batch`, and `with`, in one store batch. An entry
  // without locations is removed.
  absl::Status Commit(EntryBatch batch, std::vector<Store::Write> with);

  // Puts about `budget` more entries of the store into the index; false once
  // there is nothing left to do.
  absl::StatusOr<bool> LoadStep(std::size_t budget);

  // Visits about `budget` entries from `*cursor` (empty: the first) on and
  // moves it; false once all have been visited.
  absl::StatusOr<bool> Walk(
      std::string* cursor, std::size_t budget,
      absl::FunctionRef<void(const BlockId&, const KeyIndex::Entry&)> visit)
      const;

  const KeyIndex& index() const { return *index_; }
  // Values that failed their checksum.
  const Counter& damaged() const { return damaged_; }

 private:
  std::optional<EntryRecord> Decode(
      const std::optional<std::string>& value) const;
  absl::Status FillPlaces(EntryBatch* batch) const;

  Store* const store_;
  ClusterState* const cluster_;
  KeyIndex* const index_;
  // Where LoadStep goes on. Touched on the strand only.
  std::string load_from_;
  mutable Counter damaged_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_ENTRIES_H_
