// BlockId -> where copies are, in memory: what Locate answers from.
//
// It mirrors what the store has (Family::kKeys), less the place in the chain:
// 72 bytes a cell and at most 12 of hash table make at most 84 for an entry
// with one copy, 24 more for each further copy. A namespace is a number, and so
// is a run of a node (intern_table.h); 64 shards, so that neither a reader nor
// a growing table stops the others.
//
// Bound. At max_entries a new entry takes the place of another one, in turn:
// the store still has that, but from then on the index is not whole, and who
// does not find a key here asks the store (entries.h).
//
// Does not know: which nodes are alive, which epochs are current, what is
// stale; the store.
//
// Threading. Thread-safe; a mutex a shard. Only the strand changes it; readers
// see each entry before or after a change, never in between.

#ifndef FIRNKV_SERVER_CATALOG_KEY_INDEX_H_
#define FIRNKV_SERVER_CATALOG_KEY_INDEX_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "server/catalog/intern_table.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

class KeyIndex {
 public:
  struct Entry {
    std::uint64_t sequence = 0;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    absl::InlinedVector<Location, 2> locations;
  };

  // Clear epochs are 32 bits in a cell; the registry never gives a higher one.
  static constexpr ClearEpoch kLastClearEpoch{UINT32_MAX};

  explicit KeyIndex(std::uint64_t max_entries);
  ~KeyIndex();
  KeyIndex(const KeyIndex&) = delete;
  KeyIndex& operator=(const KeyIndex&) = delete;

  std::optional<Entry> Find(const BlockId& block) const;
  // The same for many keys of one namespace, found[i] for keys[i]: a shard is
  // locked once, and what its look-ups need comes from memory together.
  void FindAll(const NamespaceId& name_space, absl::Span<const BlockKey> keys,
               absl::Span<std::optional<Entry>> found) const;

  // Replaces what is there. `entry.locations` must not be empty.
  void Put(const BlockId& block, const EntryRecord& entry);
  // As Put, unless there is an entry already.
  void PutIfAbsent(const BlockId& block, const EntryRecord& entry);
  void Erase(const BlockId& block);

  // Everything in the store is here too: who finds nothing here need not ask
  // the store.
  bool whole() const { return whole_.load(std::memory_order_acquire); }
  // The loader has put every entry of the store. Does nothing where the bound
  // has pushed one out.
  void MarkWhole();

  // Visits about `budget` cells from `cursor` (0: the first) on and moves it;
  // false once all have been visited. Cells that come meanwhile may be missed.
  // `visit` runs under a shard's mutex and must not call back.
  bool Walk(std::uint64_t* cursor, std::size_t budget,
            absl::FunctionRef<void(const BlockId&, const Entry&)> visit) const;

  struct Totals {
    std::uint64_t entries = 0;
    std::uint64_t locations = 0;
    // Of cells, further copies and tables.
    std::uint64_t bytes = 0;
  };
  Totals totals() const;
  std::uint64_t entries_of(NamespaceId name_space) const;

 private:
  class Shard;
  static constexpr std::size_t kShards = 64;

  static std::size_t ShardNumberOf(const BlockKey& key);
  Shard& ShardOf(const BlockKey& key) const;
  void Store(const BlockId& block, const EntryRecord& entry, bool replace);

  // Numbers of namespaces and runs; referenced by cells.
  InternTable<NamespaceId> name_spaces_;
  InternTable<Run> runs_;
  std::array<std::unique_ptr<Shard>, kShards> shards_;
  std::atomic<bool> pushed_out_{false};
  // Release in MarkWhole: who sees true sees every Put before it.
  std::atomic<bool> whole_{false};
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_KEY_INDEX_H_
