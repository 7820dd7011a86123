// Answers where blocks are, and passes on wishes to remove them: what readers
// ask. Reads only; a whole batch takes no more than short mutexes, and the
// store only while the index is not whole (entries.h).
//
// A copy is told of only if its run is alive and its entry of the namespace's
// present clear epoch (rule C2). A block whose copies all stand at nodes that
// cannot be reached now is kUnavailable: recompute, and do not conclude that it
// is gone.
//
// Threading. Any thread.

#ifndef FIRNKV_SERVER_CATALOG_LOCATOR_H_
#define FIRNKV_SERVER_CATALOG_LOCATOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/counter.h"
#include "proto/base/id.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"
#include "server/catalog/entries.h"
#include "server/catalog/membership.h"
#include "server/catalog/removals.h"

namespace firnkv {

class Locator {
 public:
  // Copies told of one block. More than anybody would try before recomputing.
  static constexpr std::size_t kMaxCopiesTold = 16;

  // All outlive it.
  struct Parts {
    Membership* membership;
    Entries* entries;
    Removals* removals;
  };
  explicit Locator(const Parts& parts) : parts_(parts) {}

  struct Copy {
    // Into Answer::nodes.
    std::uint32_t node = 0;
    std::uint8_t tier = 0;
    Generation generation = Generation::kNone;
    std::uint64_t length = 0;
  };
  struct Answer {
    // kHit, kMiss, kUnavailable; kSkipped after the end of the leading run.
    std::vector<Outcome> outcomes;
    // One a hit: how many of `copies` are its.
    std::vector<std::uint32_t> counts;
    std::vector<Copy> copies;
    std::vector<NodeAddress> nodes;
  };
  // `facts` are those of a namespace that the caller may see, as they are now.
  absl::StatusOr<Answer> Locate(const NamespaceFacts& facts,
                                absl::Span<const BlockKey> keys,
                                Entries::Want want);

  struct Removed {
    // kHit: copies are known, and their nodes will be told; kMiss; kCongested:
    // a node has too much to remove already.
    std::vector<Outcome> outcomes;
    std::uint32_t pending = 0;
  };
  absl::StatusOr<Removed> Remove(const NamespaceFacts& facts,
                                 absl::Span<const BlockKey> keys);

  struct Counters {
    Counter hits;
    Counter misses;
    Counter unavailable;
    Counter skipped;
  };
  const Counters& counters() const { return counters_; }

 private:
  using Found = std::vector<std::optional<KeyIndex::Entry>>;
  // The nodes of one answer.
  class NodesTold;

  // Appends what was found; true: the leading run is over, and the rest of
  // `found` is not told.
  bool Tell(const NamespaceFacts& facts, const Found& found, Entries::Want want,
            NodesTold* nodes, Answer* answer) const;
  // Verdicts about all locations of all entries, in their order.
  std::vector<Verdict> JudgeAll(const Found& found) const;

  const Parts parts_;
  Counters counters_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_LOCATOR_H_
