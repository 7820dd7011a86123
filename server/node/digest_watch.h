// When a node compares digests with the catalog, how one comparison goes, and
// what follows from it (rule A5).
//
// A comparison has two steps: 256 groups, then the buckets of those that
// differ. It is made at a batch's number: no batch is under way from its begin
// to its last answer (announcer.h sees to it), so both steps are about the same
// state, the catalog's after that batch and ours of what was told with it.
//
// What differs is mended at once only after a registration that was kept: what
// a power cut of the catalog lost will not come by itself. Otherwise it must
// differ again, at a second look: a clear that the catalog has and this node
// not yet, an entry that was refused and whose copy this node is dropping,
// differ for a moment and mend themselves. Both need a heartbeat and the
// batches that follow it; the second look is later than that. It does not ask
// for another batch number: nothing is told on a quiet node, and what differs
// there twice differs for good.
//
// Does not know: calls, batches, the pool, the executor.
//
// Threading. None: its owner's mutex protects it.
//
// Owned by Announcer. `random` must outlive it.

#ifndef FIRNKV_SERVER_NODE_DIGEST_WATCH_H_
#define FIRNKV_SERVER_NODE_DIGEST_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/copy_digest.h"
#include "proto/base/random.h"

namespace firnkv {

class DigestWatch {
 public:
  struct Options {
    // Between two comparisons, a quarter more or less, so that nodes which
    // registered together do not compare together.
    absl::Duration interval = absl::Minutes(1);
    // To the second look: four heartbeats.
    absl::Duration second_look = absl::Seconds(10);
    // After a comparison that could not be made.
    absl::Duration retry = absl::Seconds(1);
    // More buckets that differ are told by a full inventory.
    std::size_t most_buckets = kCopyBuckets / 4;
  };

  enum class Verdict : std::uint8_t {
    kSame,
    // Ask again, with the buckets of the groups that differ.
    kAskBuckets,
    // They differ; look again before anything is done.
    kLookAgain,
    // Tell the catalog all that is in different().
    kRepair,
    // Too much differs to name it.
    kInventory,
  };

  DigestWatch(const Options& options, Random* random)
      : options_(options), random_(random) {}

  // The registration was kept: the next comparison mends at once.
  void ExpectLoss() { hasty_ = true; }
  bool hasty() const { return hasty_; }
  // An inventory begins: nothing that was seen before counts.
  void Reset();

  // A comparison begins, of these sums.
  void Begin(BucketSums sums);
  // What its next call carries. Groups: none in the first.
  const std::vector<std::uint32_t>& groups() const { return groups_; }
  std::vector<std::uint64_t> Digests() const;
  // The catalog compared: groups or buckets, rising, that differ. INVALID
  // ones (which were not asked about) are left out.
  Verdict OnAnswer(const std::vector<std::uint32_t>& different);
  // It did not.
  void OnFailure() { sums_.reset(); }

  // Buckets, rising: of kRepair and kInventory.
  const std::vector<std::uint32_t>& different() const { return different_; }

  // How long after it the next comparison is due.
  absl::Duration DelayAfter(Verdict verdict);
  absl::Duration DelayAfterFailure() const { return options_.retry; }

 private:
  Verdict Judge();

  const Options options_;
  Random* const random_;
  // Of the comparison under way.
  std::optional<BucketSums> sums_;
  std::vector<std::uint32_t> groups_;
  std::vector<std::uint32_t> different_;
  // What differed at the last look, if that is to be confirmed; rising.
  std::vector<std::uint32_t> suspects_;
  bool hasty_ = false;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_DIGEST_WATCH_H_
