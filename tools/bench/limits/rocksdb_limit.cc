// The limit of announcements: RocksDB alone, batches of as many records of the
// same bytes, with the write-ahead log and without syncing it. As the catalog's
// store (server/catalog/rocks_store.cc) in all that costs: the log, a Bloom
// filter, write buffers of the same size.
//
//     open directory=PATH
//     write records=4096 key=BYTES value=BYTES millis=80

#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "proto/base/bytes.h"
#include "tools/bench/command_loop.h"

namespace firnkv {
namespace {

class RocksLimit {
 public:
  absl::StatusOr<Counts> Open(const Command& command) {
    rocksdb::BlockBasedTableOptions table;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    rocksdb::Options options;
    options.create_if_missing = true;
    options.max_background_jobs = 2;
    options.write_buffer_size = 16 * kMiB;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status =
        rocksdb::DB::Open(options, command.Text("directory"), &db);
    db_.reset(db);
    if (!status.ok()) return absl::InternalError(status.ToString());
    return Counts();
  }

  absl::StatusOr<Counts> Write(const Command& command) {
    if (db_ == nullptr) return absl::FailedPreconditionError("not open");
    const std::uint64_t records = command.Number("records", 4096);
    std::string key(command.Number("key", 48), '\0');
    std::string value(command.Number("value", 153), 'v');
    return Measure(command, [&](int) -> absl::StatusOr<std::uint64_t> {
      rocksdb::WriteBatch batch;
      for (std::uint64_t i = 0; i < records; ++i) {
        // Behind a fixed prefix, as a namespace's keys are.
        for (std::size_t at = 16; at + 8 <= key.size(); at += 8) {
          const std::uint64_t word = random_();
          std::memcpy(key.data() + at, &word, sizeof(word));
        }
        // An entry has its block's anchor, which is as random as its key.
        value.replace(50, key.size() - 16, key, 16);
        batch.Put(key, value);
      }
      const rocksdb::Status status =
          db_->Write(rocksdb::WriteOptions(), &batch);
      if (!status.ok()) return absl::InternalError(status.ToString());
      return records * (key.size() + value.size());
    });
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  std::mt19937_64 random_;
};

}  // namespace
}  // namespace firnkv

int main() {
  firnkv::RocksLimit limit;
  firnkv::CommandLoop loop;
  loop.Add("open",
           [&](const firnkv::Command& command) { return limit.Open(command); });
  loop.Add("write", [&](const firnkv::Command& command) {
    return limit.Write(command);
  });
  return loop.Run();
}
