// The catalog's store over RocksDB: the only place that knows it.
//
// Every batch goes through the write-ahead log; a synced one is flushed to the
// device before Apply returns. After a kill the log is replayed, up to the
// first torn record: what was logged and not torn is there. The log is kept
// small (32 MiB), so that this takes a fraction of a second.
//
// Threading. Thread-safe. RocksDB has threads of its own for flushes and
// compactions.

#ifndef FIRNKV_SERVER_CATALOG_ROCKS_STORE_H_
#define FIRNKV_SERVER_CATALOG_ROCKS_STORE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/catalog/store.h"

namespace firnkv {

class RocksStore : public Store {
 public:
  // Makes the directory where there is none. FAILED_PRECONDITION where another
  // process has it open; DATA_LOSS where it is damaged; else what the system
  // said.
  static absl::StatusOr<std::unique_ptr<RocksStore>> Open(
      std::string_view directory);
  ~RocksStore() override;

  absl::Status Apply(absl::Span<const Write> batch,
                     Durability durability) override;
  absl::StatusOr<std::optional<std::string>> Get(
      Family family, std::string_view key) const override;
  absl::StatusOr<std::vector<std::optional<std::string>>> MultiGet(
      Family family, absl::Span<const std::string> keys) const override;
  absl::Status Scan(
      Family family, std::string_view prefix, std::string_view from,
      absl::FunctionRef<bool(std::string_view key, std::string_view value)>
          each) const override;

 private:
  struct Database;
  explicit RocksStore(std::unique_ptr<Database> database);
  const std::unique_ptr<Database> database_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_ROCKS_STORE_H_
