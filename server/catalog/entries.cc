#include "server/catalog/entries.h"

#include <algorithm>

#include "proto/base/check.h"
#include "proto/base/copy_digest.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

// Keys that are looked up together at first; then four times as many.
constexpr std::size_t kFirstStep = 32;

KeyIndex::Entry ShortOf(const EntryRecord& record) {
  KeyIndex::Entry entry{.sequence = record.sequence,
                        .clear_epoch = record.clear_epoch,
                        .locations = {}};
  entry.locations.assign(record.locations.begin(), record.locations.end());
  return entry;
}

// Not above any key of the bucket, and above all keys of those before it.
std::string BucketKey(const NamespaceId& name_space, std::uint32_t bucket) {
  std::string key(name_space.view());
  key.push_back(static_cast<char>(bucket >> 8));
  key.push_back(static_cast<char>(bucket));
  return key;
}

absl::InlinedVector<Location, 2> BeforeOf(const EntryRecord& entry) {
  return {entry.locations.begin(), entry.locations.end()};
}

}  // namespace

EntryBatch::Slot* EntryBatch::Find(const BlockId& block) {
  const auto it = by_block_.find(block);
  return it == by_block_.end() ? nullptr : &slots_[it->second];
}

std::optional<EntryRecord> Entries::Decode(
    const std::optional<std::string>& value) const {
  if (!value.has_value()) return std::nullopt;
  absl::StatusOr<EntryRecord> record = DecodeEntry(*value);
  if (record.ok()) return *std::move(record);
  damaged_.Add();
  return std::nullopt;
}

absl::StatusOr<std::vector<std::optional<KeyIndex::Entry>>> Entries::Find(
    NamespaceId name_space, absl::Span<const BlockKey> keys, Want want) const {
  std::vector<std::optional<KeyIndex::Entry>> found(keys.size());
  // Asked first: an entry that the loader puts meanwhile is found either way.
  const bool whole = parts_.index->whole();
  std::vector<std::size_t> missing;
  std::vector<std::string> missing_keys;
  // A run that ends early is not looked for far beyond its end.
  std::size_t step = want == Want::kLeadingRun
                         ? kFirstStep
                         : std::max<std::size_t>(1, keys.size());
  bool run_over = false;
  for (std::size_t at = 0; at < keys.size() && !run_over; step *= 4) {
    const std::size_t size = std::min(step, keys.size() - at);
    parts_.index->FindAll(name_space, keys.subspan(at, size),
                          absl::MakeSpan(found).subspan(at, size));
    for (const std::size_t end = at + size; at < end; ++at) {
      if (found[at].has_value()) continue;
      if (!whole) {
        missing.push_back(at);
        missing_keys.push_back(
            EntryKey({.name_space = name_space, .key = keys[at]}));
      } else if (want == Want::kLeadingRun) {
        run_over = true;
      }
    }
  }
  if (missing.empty()) return found;
  ASSIGN_OR_RETURN(const auto values,
                   parts_.store->MultiGet(Family::kKeys, missing_keys));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::optional<EntryRecord> record = Decode(values[i]);
    if (record.has_value()) found[missing[i]] = ShortOf(*record);
  }
  return found;
}

absl::StatusOr<std::optional<EntryRecord>> Entries::Explain(
    const BlockId& block) const {
  ASSIGN_OR_RETURN(const std::optional<std::string> value,
                   parts_.store->Get(Family::kKeys, EntryKey(block)));
  return Decode(value);
}

absl::StatusOr<EntryBatch> Entries::Load(
    absl::Span<const BlockId> blocks) const {
  EntryBatch batch;
  batch.slots_.reserve(blocks.size());
  std::vector<std::size_t> missing;
  std::vector<std::string> missing_keys;
  for (const BlockId& block : blocks) {
    const std::size_t number = batch.slots_.size();
    if (!batch.by_block_.try_emplace(block, number).second) continue;
    EntryBatch::Slot slot;
    slot.block = block;
    if (const auto found = parts_.index->Find(block); found.has_value()) {
      slot.entry.emplace();
      slot.entry->sequence = found->sequence;
      slot.entry->clear_epoch = found->clear_epoch;
      slot.entry->locations.assign(found->locations.begin(),
                                   found->locations.end());
    } else if (!parts_.index->whole()) {
      missing.push_back(number);
      missing_keys.push_back(EntryKey(block));
    }
    if (slot.entry.has_value()) slot.before = BeforeOf(*slot.entry);
    batch.slots_.push_back(std::move(slot));
  }
  if (missing.empty()) return batch;
  ASSIGN_OR_RETURN(const auto values,
                   parts_.store->MultiGet(Family::kKeys, missing_keys));
  for (std::size_t i = 0; i < values.size(); ++i) {
    EntryBatch::Slot& slot = batch.slots_[missing[i]];
    slot.entry = Decode(values[i]);
    slot.place_known = true;
    if (slot.entry.has_value()) slot.before = BeforeOf(*slot.entry);
  }
  return batch;
}

absl::Status Entries::FillPlaces(EntryBatch* batch) const {
  std::vector<EntryBatch::Slot*> slots;
  std::vector<std::string> keys;
  for (EntryBatch::Slot& slot : batch->slots()) {
    if (slot.changed && slot.entry.has_value() && !slot.place_known &&
        !slot.entry->locations.empty()) {
      slots.push_back(&slot);
      keys.push_back(EntryKey(slot.block));
    }
  }
  if (slots.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto values,
                   parts_.store->MultiGet(Family::kKeys, keys));
  for (std::size_t i = 0; i < values.size(); ++i) {
    // What the index has is in the store, written there first; where that is
    // damaged the place is lost, and the copies are as good as before.
    const std::optional<EntryRecord> record = Decode(values[i]);
    if (record.has_value()) slots[i]->entry->place = record->place;
    slots[i]->place_known = true;
  }
  return absl::OkStatus();
}

absl::Status Entries::Commit(EntryBatch batch, std::vector<Store::Write> with) {
  RETURN_IF_ERROR(FillPlaces(&batch));
  std::uint64_t new_entries = 0;
  for (const EntryBatch::Slot& slot : batch.slots()) {
    if (slot.changed && slot.is_new) ++new_entries;
  }
  std::uint64_t sequence = 0;
  if (new_entries > 0) {
    ASSIGN_OR_RETURN(sequence, parts_.cluster->TakeSequences(new_entries));
  }
  std::vector<Store::Write> writes = std::move(with);
  const std::size_t others = writes.size();
  for (EntryBatch::Slot& slot : batch.slots()) {
    if (!slot.changed) continue;
    if (slot.is_new && slot.entry.has_value()) {
      slot.entry->sequence = sequence++;
    }
    const bool lives = slot.entry.has_value() && !slot.entry->locations.empty();
    writes.push_back({Family::kKeys, EntryKey(slot.block), {}});
    if (lives) writes.back().value = Encode(*slot.entry);
  }
  if (writes.empty()) return absl::OkStatus();
  // Each key once, so their order is ours: the store finds the place of the
  // next one near that of the last.
  std::sort(writes.begin() + static_cast<std::ptrdiff_t>(others), writes.end(),
            [](const Store::Write& a, const Store::Write& b) {
              return a.key < b.key;
            });
  RETURN_IF_ERROR(parts_.store->Apply(writes, Store::Durability::kLogged));
  for (const EntryBatch::Slot& slot : batch.slots()) {
    if (!slot.changed) continue;
    absl::Span<const Location> now;
    if (slot.entry.has_value()) now = slot.entry->locations;
    if (!now.empty()) {
      parts_.index->Put(slot.block, *slot.entry);
    } else {
      parts_.index->Erase(slot.block);
    }
    if (Passed(EntryKey(slot.block))) {
      parts_.digests->Change(slot.block, slot.before, now);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Entries::LoadStep(std::size_t budget) {
  if (loaded_) return false;
  std::size_t seen = 0;
  const std::string from = load_from_;
  RETURN_IF_ERROR(parts_.store->Scan(
      Family::kKeys, "", from,
      [&](std::string_view key, std::string_view value) {
        const std::optional<BlockId> block = DecodeEntryKey(key);
        const std::optional<EntryRecord> record = Decode(std::string(value));
        if (block.has_value() && record.has_value()) {
          parts_.index->PutIfAbsent(*block, *record);
          parts_.digests->Change(*block, {}, record->locations);
        }
        // The next possible key. Also if the scan ends with an error: what was
        // counted is not counted again.
        load_from_.assign(key);
        load_from_.push_back('\0');
        return ++seen < budget;
      }));
  if (seen == budget) return true;
  loaded_ = true;
  parts_.index->MarkWhole();
  return false;
}

absl::StatusOr<std::vector<BlockId>> Entries::BlocksOf(
    const Run& run, absl::Span<const std::uint32_t> buckets) const {
  CHECK(loaded_);
  std::vector<BlockId> blocks;
  const auto look = [&](const BlockId& block, std::string_view value) {
    const std::optional<EntryRecord> record = Decode(std::string(value));
    if (!record.has_value()) return;
    const auto& all = record->locations;
    if (std::any_of(all.begin(), all.end(),
                    [&](const Location& one) { return one.run == run; })) {
      blocks.push_back(block);
    }
  };
  for (const NamespaceId& name_space : parts_.digests->NamespacesOf(run)) {
    auto bucket = buckets.begin();
    while (bucket != buckets.end()) {
      // From the bucket on, to the first entry that is in none of them: that
      // one says which buckets between have nothing.
      bool more = false;
      RETURN_IF_ERROR(parts_.store->Scan(
          Family::kKeys, name_space.view(), BucketKey(name_space, *bucket),
          [&](std::string_view key, std::string_view value) {
            const std::optional<BlockId> block = DecodeEntryKey(key);
            if (!block.has_value()) return true;
            const std::uint32_t in = CopyBucket(block->key);
            while (bucket != buckets.end() && *bucket < in) ++bucket;
            if (bucket == buckets.end() || *bucket != in) {
              more = true;
              return false;
            }
            look(*block, value);
            return true;
          }));
      if (!more) break;
    }
  }
  return blocks;
}

absl::StatusOr<bool> Entries::Walk(
    std::string* cursor, std::size_t budget,
    absl::FunctionRef<void(const BlockId&, const KeyIndex::Entry&)> visit)
    const {
  // Two kinds of cursor, told apart by their length: a walk that began over one
  // goes on over it, whatever becomes of the index meanwhile.
  if (cursor->empty() && parts_.index->whole()) cursor->assign(8, '\0');
  if (cursor->size() == 8) {
    std::uint64_t at = WireReader(*cursor).U64();
    const bool more = parts_.index->Walk(&at, budget, visit);
    cursor->clear();
    WireWriter(cursor).U64(at);
    return more;
  }
  std::size_t seen = 0;
  std::string last;
  RETURN_IF_ERROR(parts_.store->Scan(
      Family::kKeys, "", *cursor,
      [&](std::string_view key, std::string_view value) {
        const std::optional<BlockId> block = DecodeEntryKey(key);
        const std::optional<EntryRecord> record = Decode(std::string(value));
        if (block.has_value() && record.has_value()) {
          visit(*block, ShortOf(*record));
        }
        last.assign(key);
        return ++seen < budget;
      }));
  *cursor = last + '\0';
  return seen == budget;
}

}  // namespace firnkv
