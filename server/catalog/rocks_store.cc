#include "server/catalog/rocks_store.h"

#include <array>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/options.h"
#include "rocksdb/table.h"
#include "rocksdb/write_batch.h"

namespace firnkv {
namespace {

// In the order of Family. On disk: never renamed.
constexpr std::array<const char*, kFamilies> kNames = {
    "default",  // kMeta: RocksDB insists on a family of this name.
    "tenants", "namespaces", "keys", "nodes", "leases", "pins", "applied"};

rocksdb::Slice ToSlice(std::string_view bytes) {
  return rocksdb::Slice(bytes.data(), bytes.size());
}
std::string_view ToView(const rocksdb::Slice& slice) {
  return std::string_view(slice.data(), slice.size());
}

absl::Status ToStatus(const rocksdb::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = StrCat(what, ": ", status.ToString());
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  if (status.IsInvalidArgument()) return absl::InvalidArgumentError(message);
  return absl::InternalError(message);
}

rocksdb::DBOptions DatabaseOptions() {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // What a restart after a kill replays: 150,000 entries, a fifth of a second.
  options.max_total_wal_size = 32 * kMiB;
  // A replayed log stays in memory until it is flushed in its time: opening
  // must not wait for a flush.
  options.avoid_flush_during_recovery = true;
  // A torn tail is what a crash leaves; what is before it counts.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.max_background_jobs = 2;
  // Descriptors belong to connections; 512 tables are 32 GiB of entries.
  options.max_open_files = 512;
  options.keep_log_file_num = 4;
  options.max_log_file_size = 16 * kMiB;
  return options;
}

rocksdb::ColumnFamilyOptions FamilyOptions(
    const std::shared_ptr<rocksdb::Cache>& cache, Family family) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  // The index of every table is in memory, a key of it for each block: with
  // blocks of 4 KiB that was three bytes an entry. Nearly all reads are scans.
  table.block_size = 16 * kKiB;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  rocksdb::ColumnFamilyOptions options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.write_buffer_size = family == Family::kKeys ? 8 * kMiB : kMiB;
  // Every small table overlaps the whole next level, and what is merged is
  // merged with all of that: so seldom. Reads by key are rare, since the
  // entries are in memory, and a filter answers most of them.
  if (family == Family::kKeys) {
    options.level0_file_num_compaction_trigger = 16;
    options.level0_slowdown_writes_trigger = 40;
    options.level0_stop_writes_trigger = 64;
  }
  // Digests and random ids do not get smaller: compressing cost a tenth of what
  // announcements cost, and as much again at a start.
  if (family == Family::kKeys) options.compression = rocksdb::kNoCompression;
  return options;
}

}  // namespace

struct RocksStore::Database {
  std::string directory;
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> families;

  ~Database() {
    for (rocksdb::ColumnFamilyHandle* const family : families) {
      db->DestroyColumnFamilyHandle(family);
    }
  }
  rocksdb::ColumnFamilyHandle* Of(Family family) const {
    return families[static_cast<std::size_t>(family)];
  }
};

absl::StatusOr<std::unique_ptr<RocksStore>> RocksStore::Open(
    std::string_view directory) {
  // RocksDB holds on to the cache too.
  const std::shared_ptr<rocksdb::Cache> cache = rocksdb::NewLRUCache(64 * kMiB);
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (int i = 0; i < kFamilies; ++i) {
    families.emplace_back(kNames[static_cast<std::size_t>(i)],
                          FamilyOptions(cache, static_cast<Family>(i)));
  }
  auto database = std::make_unique<Database>();
  database->directory = std::string(directory);
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened =
      rocksdb::DB::Open(DatabaseOptions(), database->directory, families,
                        &database->families, &db);
  if (opened.IsIOError() &&
      opened.ToString().find("LOCK") != std::string::npos) {
    return absl::FailedPreconditionError(
        StrCat("catalog directory ", directory,
               " is in use by another process (or its LOCK file may not be "
               "written): stop that process, or use another directory. ",
               opened.ToString()));
  }
  if (!opened.ok()) {
    return ToStatus(opened, StrCat("catalog directory ", directory));
  }
  database->db.reset(db);
  CHECK(database->families.size() == kFamilies);
  return std::unique_ptr<RocksStore>(new RocksStore(std::move(database)));
}

RocksStore::RocksStore(std::unique_ptr<Database> database)
    : database_(std::move(database)) {}

RocksStore::~RocksStore() = default;

absl::Status RocksStore::Apply(absl::Span<const Write> batch,
                               Durability durability) {
  rocksdb::WriteBatch writes;
  for (const Write& write : batch) {
    rocksdb::ColumnFamilyHandle* const family = database_->Of(write.family);
    const rocksdb::Status added =
        write.value.has_value()
            ? writes.Put(family, ToSlice(write.key), ToSlice(*write.value))
            : writes.Delete(family, ToSlice(write.key));
    CHECK(added.ok());
  }
  rocksdb::WriteOptions options;
  // A batch in the order of its keys costs a fifth less so.
  options.memtable_insert_hint_per_batch = true;
  options.sync = durability == Durability::kSynced;
  return ToStatus(database_->db->Write(options, &writes),
                  StrCat("writing ", database_->directory));
}

absl::StatusOr<std::optional<std::string>> RocksStore::Get(
    Family family, std::string_view key) const {
  std::string value;
  const rocksdb::Status status = database_->db->Get(
      rocksdb::ReadOptions(), database_->Of(family), ToSlice(key), &value);
  if (status.IsNotFound()) return std::optional<std::string>();
  if (!status.ok()) {
    return ToStatus(status, StrCat("reading ", database_->directory));
  }
  return std::optional<std::string>(std::move(value));
}

absl::StatusOr<std::vector<std::optional<std::string>>> RocksStore::MultiGet(
    Family family, absl::Span<const std::string> keys) const {
  std::vector<rocksdb::Slice> slices(keys.begin(), keys.end());
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  database_->db->MultiGet(rocksdb::ReadOptions(), database_->Of(family),
                          slices.size(), slices.data(), values.data(),
                          statuses.data());
  std::vector<std::optional<std::string>> results(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (statuses[i].IsNotFound()) continue;
    if (!statuses[i].ok()) {
      return ToStatus(statuses[i], StrCat("reading ", database_->directory));
    }
    results[i].emplace(ToView(values[i]));
  }
  return results;
}

absl::Status RocksStore::Scan(
    Family family, std::string_view prefix, std::string_view from,
    absl::FunctionRef<bool(std::string_view key, std::string_view value)> each)
    const {
  rocksdb::ReadOptions options;
  // Passes over everything must not push out what readers ask for.
  options.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> it(
      database_->db->NewIterator(options, database_->Of(family)));
  for (it->Seek(ToSlice(std::max(prefix, from)));
       it->Valid() && it->key().starts_with(ToSlice(prefix)); it->Next()) {
    if (!each(ToView(it->key()), ToView(it->value()))) break;
  }
  return ToStatus(it->status(), StrCat("reading ", database_->directory));
}

}  // namespace firnkv
