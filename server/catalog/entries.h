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
// A damaged entry is none: nodes' inventories and repairs bring it back, and
// one bad value must not stop a batch of 4,096.
//
// It counts the copies of each run (run_digests.h, rule A5): Commit by what it
// changes, and after a start the loader, entry by entry in the store's order.
// An entry before the loader is counted when it gets there, as it is then, so
// Commit counts only what the loader has passed. Once loaded() all is counted.
//
// Does not know: what an entry means, who may change it, what is stale.
//
// Threading. Find: any thread. The rest: on the strand only. That the loader
// runs there too is what keeps it from bringing back an entry that was removed
// while it read.

#ifndef FIRNKV_SERVER_CATALOG_ENTRIES_H_
#define FIRNKV_SERVER_CATALOG_ENTRIES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/counter.h"
#include "proto/base/id.h"
#include "server/catalog/cluster_state.h"
#include "server/catalog/key_index.h"
#include "server/catalog/run_digests.h"
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
    // The locations with which it was loaded.
    absl::InlinedVector<Location, 2> before;
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
  struct Parts {
    Store* store;
    ClusterState* cluster;
    KeyIndex* index;
    RunDigests* digests;
  };
  explicit Entries(const Parts& parts) : parts_(parts) {}

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
  // Every entry of the store has been read once: digests are whole. (The index
  // need not be: its bound may have pushed entries out.)
  bool loaded() const { return loaded_; }

  // The blocks of which `run` has copies in these buckets (copy_digest.h,
  // rising). Only once loaded(). It scans the store, in each namespace in which
  // the run has anything, once for each of the buckets that has something and
  // once more: as much as there is, not buckets times namespaces.
  absl::StatusOr<std::vector<BlockId>> BlocksOf(
      const Run& run, absl::Span<const std::uint32_t> buckets) const;

  // Visits about `budget` entries from `*cursor` (empty: the first) on and
  // moves it; false once all have been visited.
  absl::StatusOr<bool> Walk(
      std::string* cursor, std::size_t budget,
      absl::FunctionRef<void(const BlockId&, const KeyIndex::Entry&)> visit)
      const;

  const KeyIndex& index() const { return *parts_.index; }
  // Values that failed their checksum.
  const Counter& damaged() const { return damaged_; }

 private:
  std::optional<EntryRecord> Decode(
      const std::optional<std::string>& value) const;
  absl::Status FillPlaces(EntryBatch* batch) const;

  // The loader has passed the entry with this key.
  bool Passed(std::string_view key) const {
    return loaded_ || key < load_from_;
  }

  const Parts parts_;
  // Where LoadStep goes on, and whether it has come to the end. Touched on the
  // strand only.
  std::string load_from_;
  bool loaded_ = false;
  mutable Counter damaged_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_ENTRIES_H_
