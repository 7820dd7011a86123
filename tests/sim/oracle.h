// What is true in a schedule: which contents were ever handed to a write, which
// clears were made, and so which bytes a read may return. Collects violations.
//
// The rules it judges by:
//   - a hit's bytes are those of one write of that very namespace and key, of
//     the right range, all from one write;
//   - a write that had ended before a clear was asked for is not read by a
//     client that has seen the clear, nor by anybody once the cluster is quiet,
//     nor, where the namespace is cleared strictly, in a read that begins after
//     the clear was waited for;
//   - every operation ends: its outcome once, by its deadline, then its buffers
//     once, within the grace.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SIM_ORACLE_H_
#define FIRNKV_TESTS_SIM_ORACLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "proto/base/id.h"
#include "tests/support/sim_executor.h"

namespace firnkv {

class Oracle {
 public:
  // `world` outlives it.
  explicit Oracle(SimExecutor* world) : world_(world) {}

  // --- Writes.
  // A salt for the write of `block` that begins now.
  std::uint64_t BeginWrite(const BlockId& block, std::uint64_t length);
  // Its outcome was kStored.
  void EndStored(const BlockId& block, std::uint64_t salt);
  // Its outcome was another one: it may have been stored, or will be, until
  // its reservation is over.
  void EndUnknown(const BlockId& block, std::uint64_t salt);

  // --- Clears.
  // Returns the number of this clear of the namespace, from 1.
  std::size_t BeginClear(NamespaceId name_space);
  // It was answered with OK: the namespace is at `epoch` now.
  void EndClear(NamespaceId name_space, std::size_t number, ClearEpoch epoch);
  // Nobody is pending any more (rule C4).
  void EndWait(NamespaceId name_space, std::size_t number);
  // Clears of the namespace that whoever knows of `epoch` has seen.
  std::size_t ClearsUpTo(NamespaceId name_space, ClearEpoch epoch) const;

  // --- The catalog.
  // Something that it had acknowledged is gone, or another state of it serves.
  void NoteCatalogLoss() { ++catalog_losses_; }
  std::uint64_t catalog_losses() const { return catalog_losses_; }

  // --- Reads.
  struct Reader {
    // Clears of the namespace that the reader's client had seen when the read
    // began.
    std::size_t clears_seen = 0;
    // True nanoseconds.
    std::int64_t began = 0;
    // The cluster is quiet: no cleared content may be read by anybody.
    bool quiet = false;
    std::string_view who;
  };
  // `bytes` is the range at `offset` of what was read as kHit.
  void CheckHit(const BlockId& block, std::uint64_t offset,
                absl::Span<const std::byte> bytes, const Reader& reader);

  void Violation(std::string what);
  const std::vector<std::string>& violations() const { return violations_; }
  std::uint64_t hits_checked() const { return hits_checked_; }

 private:
  struct Version {
    std::uint64_t salt = 0;
    std::uint64_t length = 0;
    // True nanoseconds; INT64_MAX while its end is not known.
    std::int64_t stored_at = INT64_MAX;
  };
  struct Clear {
    std::int64_t began = 0;
    bool ended = false;
    ClearEpoch epoch = ClearEpoch::kUnknown;
    // INT64_MAX until then.
    std::int64_t waited_for = INT64_MAX;
  };
  void CheckCleared(const BlockId& block, const Version& version,
                    const Reader& reader);
  void SetStoredAt(const BlockId& block, std::uint64_t salt, std::int64_t when);
  // Whose bytes these are instead.
  std::string Recognize(absl::Span<const std::byte> bytes,
                        std::uint64_t offset) const;

  SimExecutor* const world_;
  std::uint64_t next_salt_ = 1;
  std::map<BlockId, std::vector<Version>> versions_;
  std::map<NamespaceId, std::vector<Clear>> clears_;
  std::uint64_t catalog_losses_ = 0;
  std::uint64_t hits_checked_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_ORACLE_H_
