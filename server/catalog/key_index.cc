#include "server/catalog/key_index.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/hash/hash.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

// A place in an arena of a shard, counted from 1; 0 is none.
using CellNumber = std::uint32_t;

// One copy, with its run as a number.
struct PackedCopy {
  std::uint64_t generation = 0;
  std::uint32_t run = 0;
  std::uint32_t length : 27;  // kLargestBlockBytes is 2^26.
  std::uint32_t tier : 5;
};
static_assert(sizeof(PackedCopy) == 16);
static_assert(kLargestBlockBytes < (1u << 27));

struct Cell {
  BlockKey key;
  std::uint64_t sequence = 0;
  PackedCopy first;
  std::uint32_t name_space = 0;  // 0: the cell is free.
  std::uint32_t clear_epoch = 0;
  // Further copies; in a free cell the next free one.
  CellNumber next = 0;
  // Of the parent key: enough to count a parent's children when a remote
  // writer asks for a place.
  std::uint32_t parent_hash = 0;
};
static_assert(sizeof(Cell) == 72);

struct FurtherCopy {
  PackedCopy copy;
  CellNumber next = 0;
};
static_assert(sizeof(FurtherCopy) == 24);

// Elements that never move, in chunks, with a list of free ones.
template <typename T>
class Arena {
 public:
  T& At(CellNumber number) {
    return (*chunks_[(number - 1) / kChunk])[(number - 1) % kChunk];
  }
  const T& At(CellNumber number) const {
    return (*chunks_[(number - 1) / kChunk])[(number - 1) % kChunk];
  }
  CellNumber Take() {
    if (free_ != 0) {
      const CellNumber number = free_;
      free_ = At(number).next;
      At(number).next = 0;
      return number;
    }
    if (used_ == chunks_.size() * kChunk) {
      chunks_.push_back(std::make_unique<std::array<T, kChunk>>());
    }
    return static_cast<CellNumber>(++used_);
  }
  void Give(CellNumber number) {
    At(number) = T{};
    At(number).next = free_;
    free_ = number;
  }
  // Numbers ever taken: 1 to used().
  std::size_t used() const { return used_; }
  std::uint64_t bytes() const { return chunks_.size() * kChunk * sizeof(T); }

 private:
  static constexpr std::size_t kChunk = 256;
  std::vector<std::unique_ptr<std::array<T, kChunk>>> chunks_;
  std::size_t used_ = 0;
  CellNumber free_ = 0;
};

// What a look-up compares with.
struct Probe {
  std::uint32_t name_space;
  const BlockKey* key;
};

// Finds nothing: has the cells that the real look-up will compare fetched from
// memory, of many keys at a time.
struct Prefetch {
  std::uint32_t name_space;
  const BlockKey* key;
};

struct CellHash {
  using is_transparent = void;
  const Arena<Cell>* cells;
  static std::size_t Of(std::uint32_t name_space, const BlockKey& key) {
    return absl::HashOf(name_space, key);
  }
  std::size_t operator()(CellNumber number) const {
    return Of(cells->At(number).name_space, cells->At(number).key);
  }
  std::size_t operator()(const Probe& probe) const {
    return Of(probe.name_space, *probe.key);
  }
  std::size_t operator()(const Prefetch& probe) const {
    return Of(probe.name_space, *probe.key);
  }
};

struct CellEqual {
  using is_transparent = void;
  const Arena<Cell>* cells;
  bool operator()(CellNumber a, CellNumber b) const { return a == b; }
  bool operator()(CellNumber a, const Probe& b) const {
    return cells->At(a).name_space == b.name_space &&
           cells->At(a).key == *b.key;
  }
  bool operator()(const Probe& a, CellNumber b) const { return (*this)(b, a); }
  bool operator()(CellNumber a, const Prefetch&) const {
    const auto* const cell = reinterpret_cast<const char*>(&cells->At(a));
    __builtin_prefetch(cell);
    __builtin_prefetch(cell + sizeof(Cell) - 1);
    return false;
  }
  bool operator()(const Prefetch& a, CellNumber b) const {
    return (*this)(b, a);
  }
};

PackedCopy Pack(const Location& location, std::uint32_t run) {
  CHECK(location.length <= kLargestBlockBytes && location.tier <= kLastTier);
  PackedCopy copy;
  copy.generation = static_cast<std::uint64_t>(location.generation);
  copy.run = run;
  copy.length = static_cast<std::uint32_t>(location.length) & 0x7ffffff;
  copy.tier = location.tier & 0x1f;
  return copy;
}

}  // namespace

class KeyIndex::Shard {
 public:
  explicit Shard(std::size_t max_entries)
      : max_entries_(max_entries),
        table_(0, CellHash{&cells_}, CellEqual{&cells_}) {}

  // An entry to be written, its namespace and runs interned.
  struct Packed {
    std::uint32_t name_space;
    const BlockKey* key;
    const EntryRecord* entry;
    const std::vector<std::uint32_t>* runs;
    bool replace;
  };
  // References that the shard no longer needs.
  struct Released {
    std::vector<std::uint32_t> name_spaces;
    std::vector<std::uint32_t> runs;
    bool pushed_out = false;
    bool stored = false;
  };

  std::optional<Entry> Find(const Probe& probe, const NamespaceId& name_space,
                            const InternTable<NamespaceId>& name_spaces,
                            const InternTable<Run>& runs) const
      ABSL_LOCKS_EXCLUDED(mutex_) {
    std::optional<Entry> found;
    MutexLock lock(&mutex_);
    Look(probe, name_space, name_spaces, runs, &found);
    return found;
  }

  // found[i] for keys[i], for each i of `which`.
  void FindSome(std::uint32_t number, const NamespaceId& name_space,
                absl::Span<const BlockKey> keys,
                absl::Span<const std::uint32_t> which,
                const InternTable<NamespaceId>& name_spaces,
                const InternTable<Run>& runs,
                absl::Span<std::optional<Entry>> found) const
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    for (const std::uint32_t i : which) {
      table_.prefetch(Probe{number, &keys[i]});
    }
    for (const std::uint32_t i : which) {
      CHECK(table_.find(Prefetch{number, &keys[i]}) == table_.end());
    }
    for (const std::uint32_t i : which) {
      Look(Probe{number, &keys[i]}, name_space, name_spaces, runs, &found[i]);
    }
  }

  Released Put(const Packed& packed) ABSL_LOCKS_EXCLUDED(mutex_) {
    Released released;
    MutexLock lock(&mutex_);
    const auto it = table_.find(Probe{packed.name_space, packed.key});
    if (it != table_.end()) {
      if (!packed.replace) return released;
      Free(*it, &released);
    } else if (table_.size() >= max_entries_) {
      PushOut(&released);
    }
    const CellNumber number = cells_.Take();
    Cell& cell = cells_.At(number);
    const EntryRecord& entry = *packed.entry;
    cell.key = *packed.key;
    cell.name_space = packed.name_space;
    cell.sequence = entry.sequence;
    CHECK(entry.clear_epoch <= kLastClearEpoch);
    cell.clear_epoch = static_cast<std::uint32_t>(entry.clear_epoch);
    std::memcpy(&cell.parent_hash, entry.place.parent.bytes.data(),
                sizeof(cell.parent_hash));
    cell.first = Pack(entry.locations[0], (*packed.runs)[0]);
    for (std::size_t i = entry.locations.size(); i-- > 1;) {
      const CellNumber further = further_.Take();
      further_.At(further) =
          FurtherCopy{.copy = Pack(entry.locations[i], (*packed.runs)[i]),
                      .next = cell.next};
      cell.next = further;
    }
    locations_ += entry.locations.size();
    table_.insert(number);
    ++by_name_space_[packed.name_space];
    released.stored = true;
    return released;
  }

  Released Erase(const Probe& probe) ABSL_LOCKS_EXCLUDED(mutex_) {
    Released released;
    MutexLock lock(&mutex_);
    const auto it = table_.find(probe);
    if (it != table_.end()) Free(*it, &released);
    return released;
  }

  // Visits cells from number `from` + 1 on; how many numbers it passed, and 0
  // at the end.
  std::size_t Walk(
      std::size_t from, std::size_t budget,
      const InternTable<NamespaceId>& name_spaces, const InternTable<Run>& runs,
      absl::FunctionRef<void(const BlockId&, const Entry&)> visit) const
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    const std::size_t end = std::min(from + budget, cells_.used());
    if (from >= end) return 0;
    for (std::size_t i = from + 1; i <= end; ++i) {
      const Cell& cell = cells_.At(static_cast<CellNumber>(i));
      if (cell.name_space == 0) continue;
      Entry entry;
      Unpack(cell, runs, &entry);
      visit(BlockId{.name_space = name_spaces.Get(cell.name_space),
                    .key = cell.key},
            entry);
    }
    return end - from;
  }

  void AddTo(Totals* totals) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    totals->entries += table_.size();
    totals->locations += locations_;
    // A slot of the table is a number and a control byte.
    totals->bytes += cells_.bytes() + further_.bytes() +
                     table_.capacity() * (sizeof(CellNumber) + 1);
  }
  std::uint64_t EntriesOf(std::uint32_t name_space) const
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    const auto it = by_name_space_.find(name_space);
    return it == by_name_space_.end() ? 0 : it->second;
  }

 private:
  // Into `found`, which is empty.
  void Look(const Probe& probe, const NamespaceId& name_space,
            const InternTable<NamespaceId>& name_spaces,
            const InternTable<Run>& runs, std::optional<Entry>* found) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = table_.find(probe);
    if (it == table_.end()) return;
    // The reader has no reference to the number: since it asked for it, the
    // number may have gone to another tenant's namespace (rule C1).
    const Cell& cell = cells_.At(*it);
    if (name_spaces.Get(cell.name_space) != name_space) return;
    Unpack(cell, runs, &found->emplace());
  }

  // The caller has this shard's mutex, which is what lets it resolve numbers
  // that it read from a cell (intern_table.h).
  void Unpack(const Cell& cell, const InternTable<Run>& runs,
              Entry* entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    entry->sequence = cell.sequence;
    entry->clear_epoch = ClearEpoch{cell.clear_epoch};
    const auto add = [&](const PackedCopy& copy) {
      entry->locations.push_back(
          Location{.run = runs.Get(copy.run),
                   .tier = static_cast<std::uint8_t>(copy.tier),
                   .generation = Generation{copy.generation},
                   .length = copy.length});
    };
    add(cell.first);
    for (CellNumber at = cell.next; at != 0; at = further_.At(at).next) {
      add(further_.At(at).copy);
    }
  }

  void Free(CellNumber number, Released* released)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Cell& cell = cells_.At(number);
    table_.erase(number);
    released->name_spaces.push_back(cell.name_space);
    released->runs.push_back(cell.first.run);
    --locations_;
    for (CellNumber at = cell.next; at != 0;) {
      const CellNumber next = further_.At(at).next;
      released->runs.push_back(further_.At(at).copy.run);
      further_.Give(at);
      --locations_;
      at = next;
    }
    const auto count = by_name_space_.find(cell.name_space);
    if (--count->second == 0) by_name_space_.erase(count);
    cells_.Give(number);
  }

  // Frees one cell, in turn.
  void PushOut(Released* released) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    CHECK(!table_.empty());
    do {
      hand_ = hand_ % cells_.used() + 1;
    } while (cells_.At(static_cast<CellNumber>(hand_)).name_space == 0);
    Free(static_cast<CellNumber>(hand_), released);
    released->pushed_out = true;
  }

  const std::size_t max_entries_;
  mutable Mutex mutex_;
  Arena<Cell> cells_ ABSL_GUARDED_BY(mutex_);
  Arena<FurtherCopy> further_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<CellNumber, CellHash, CellEqual> table_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::uint32_t, std::uint64_t> by_name_space_
      ABSL_GUARDED_BY(mutex_);
  std::uint64_t locations_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t hand_ ABSL_GUARDED_BY(mutex_) = 0;
};

KeyIndex::KeyIndex(std::uint64_t max_entries) {
  CHECK(max_entries >= kShards);
  for (auto& shard : shards_) {
    shard = std::make_unique<Shard>(max_entries / kShards);
  }
}

KeyIndex::~KeyIndex() = default;

std::size_t KeyIndex::ShardNumberOf(const BlockKey& key) {
  // Keys are hashes, and a writer who chooses them unevenly only slows its own.
  return key.bytes[31] % kShards;
}

KeyIndex::Shard& KeyIndex::ShardOf(const BlockKey& key) const {
  return *shards_[ShardNumberOf(key)];
}

std::optional<KeyIndex::Entry> KeyIndex::Find(const BlockId& block) const {
  const std::uint32_t name_space = name_spaces_.Find(block.name_space);
  if (name_space == name_spaces_.kNone) return std::nullopt;
  return ShardOf(block.key).Find(Probe{name_space, &block.key},
                                 block.name_space, name_spaces_, runs_);
}

void KeyIndex::FindAll(const NamespaceId& name_space,
                       absl::Span<const BlockKey> keys,
                       absl::Span<std::optional<Entry>> found) const {
  const std::uint32_t number = name_spaces_.Find(name_space);
  if (number == name_spaces_.kNone) return;
  // Keys by shard: those of shard s stand at begins[s] to begins[s + 1].
  std::array<std::uint32_t, kShards + 1> begins{};
  for (const BlockKey& key : keys) ++begins[ShardNumberOf(key) + 1];
  for (std::size_t s = 0; s < kShards; ++s) begins[s + 1] += begins[s];
  std::vector<std::uint32_t> order(keys.size());
  std::array<std::uint32_t, kShards + 1> next = begins;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    order[next[ShardNumberOf(keys[i])]++] = i;
  }
  for (std::size_t s = 0; s < kShards; ++s) {
    if (begins[s] == begins[s + 1]) continue;
    shards_[s]->FindSome(number, name_space, keys,
                         absl::MakeConstSpan(order).subspan(
                             begins[s], begins[s + 1] - begins[s]),
                         name_spaces_, runs_, found);
  }
}

void KeyIndex::Put(const BlockId& block, const EntryRecord& entry) {
  Store(block, entry, /*replace=*/true);
}

void KeyIndex::PutIfAbsent(const BlockId& block, const EntryRecord& entry) {
  Store(block, entry, /*replace=*/false);
}

void KeyIndex::Store(const BlockId& block, const EntryRecord& entry,
                     bool replace) {
  CHECK(!entry.locations.empty());
  const std::uint32_t name_space = name_spaces_.Intern(block.name_space);
  std::vector<std::uint32_t> runs;
  runs.reserve(entry.locations.size());
  for (const Location& location : entry.locations) {
    runs.push_back(runs_.Intern(location.run));
  }
  Shard::Released released = ShardOf(block.key).Put({.name_space = name_space,
                                                     .key = &block.key,
                                                     .entry = &entry,
                                                     .runs = &runs,
                                                     .replace = replace});
  if (released.pushed_out) {
    pushed_out_.store(true, std::memory_order_relaxed);
    whole_.store(false, std::memory_order_release);
  }
  if (!released.stored) {
    released.name_spaces.push_back(name_space);
    released.runs.insert(released.runs.end(), runs.begin(), runs.end());
  }
  for (const std::uint32_t one : released.name_spaces) {
    name_spaces_.Release(one);
  }
  for (const std::uint32_t one : released.runs) runs_.Release(one);
}

void KeyIndex::Erase(const BlockId& block) {
  const std::uint32_t name_space = name_spaces_.Find(block.name_space);
  if (name_space == name_spaces_.kNone) return;
  const Shard::Released released =
      ShardOf(block.key).Erase(Probe{name_space, &block.key});
  for (const std::uint32_t one : released.name_spaces) {
    name_spaces_.Release(one);
  }
  for (const std::uint32_t one : released.runs) runs_.Release(one);
}

void KeyIndex::MarkWhole() {
  if (!pushed_out_.load(std::memory_order_relaxed)) {
    whole_.store(true, std::memory_order_release);
  }
}

bool KeyIndex::Walk(
    std::uint64_t* cursor, std::size_t budget,
    absl::FunctionRef<void(const BlockId&, const Entry&)> visit) const {
  // Shard in the upper half, cells passed in the lower.
  while (budget > 0) {
    const std::size_t shard = *cursor >> 32;
    if (shard >= kShards) return false;
    const std::size_t from = *cursor & UINT32_MAX;
    const std::size_t passed =
        shards_[shard]->Walk(from, budget, name_spaces_, runs_, visit);
    *cursor = passed == 0 ? std::uint64_t{shard + 1} << 32 : *cursor + passed;
    budget -= std::min(budget, std::max<std::size_t>(passed, 1));
  }
  return true;
}

KeyIndex::Totals KeyIndex::totals() const {
  Totals totals;
  for (const auto& shard : shards_) shard->AddTo(&totals);
  return totals;
}

std::uint64_t KeyIndex::entries_of(NamespaceId name_space) const {
  const std::uint32_t number = name_spaces_.Find(name_space);
  if (number == name_spaces_.kNone) return 0;
  std::uint64_t entries = 0;
  for (const auto& shard : shards_) entries += shard->EntriesOf(number);
  return entries;
}

}  // namespace firnkv
