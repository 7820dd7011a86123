// What the catalog keeps on disk: ordered keys and values in column families,
// written in atomic batches. A seam: RocksDB in production (rocks_store.h, the
// only place that knows it), and SimStore in tests, which on a crash loses the
// tail that was not synced, as a machine's power cut does.
//
// Threading. Thread-safe. Blocking: calls take microseconds to a disk's sync,
// so they are made by the catalog's own tasks and never by a data path.

#ifndef FIRNKV_SERVER_CATALOG_STORE_H_
#define FIRNKV_SERVER_CATALOG_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace firnkv {

// Numbers index the list of column families; names are in rocks_store.cc.
enum class Family : std::uint8_t {
  kMeta = 0,  // Cluster id, schema version, incarnation (rule A9), counters.
  kTenants = 1,
  kNamespaces = 2,
  kKeys = 3,    // (namespace id, key) -> locations.
  kNodes = 4,   // Last registration of each node.
  kLeases = 5,  // Memberships, segments.
  kPins = 6,
  kApplied = 7,  // Announcement numbers, by node.
};
inline constexpr int kFamilies = 8;

class Store {
 public:
  virtual ~Store() = default;

  // One write; nullopt value = delete.
  struct Write {
    Family family;
    std::string key;
    std::optional<std::string> value;
  };
  enum class Durability : std::uint8_t {
    // Survives a kill of the process; a power cut may lose it.
    kLogged,
    // On disk on return.
    kSynced,
  };

  // All or nothing. A failure means that the store is broken: the catalog
  // stops serving.
  virtual absl::Status Apply(absl::Span<const Write> batch,
                             Durability durability) = 0;

  // nullopt: not there.
  virtual absl::StatusOr<std::optional<std::string>> Get(
      Family family, std::string_view key) const = 0;

  // Results in order of `keys`.
  virtual absl::StatusOr<std::vector<std::optional<std::string>>> MultiGet(
      Family family, absl::Span<const std::string> keys) const = 0;

  // Calls `each` for every key that begins with `prefix`, from the first one
  // not less than `from`, in order, until it returns false.
  virtual absl::Status Scan(
      Family family, std::string_view prefix, std::string_view from,
      absl::FunctionRef<bool(std::string_view key, std::string_view value)>
          each) const = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_STORE_H_
