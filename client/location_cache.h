// What the catalog said lately about who has which block, and until when that
// is believed. A location that is believed costs no catalog call; one that
// turned out wrong is dropped and looked up once more.
//
// Knows nothing of addresses or of how good a node is: router.h does.
//
// Threading. All methods may be called from any thread.
//
// Bound. At most `most` blocks; one that was not told for long makes room.

#ifndef FIRNKV_CLIENT_LOCATION_CACHE_H_
#define FIRNKV_CLIENT_LOCATION_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"

namespace firnkv {

// One copy of a block.
struct KnownLocation {
  NodeId node;
  NodeEpoch epoch = NodeEpoch::kNone;
  Generation generation = Generation::kNone;
  std::uint64_t length = 0;
  friend bool operator==(const KnownLocation&, const KnownLocation&) = default;
};
using Locations = absl::InlinedVector<KnownLocation, 1>;

class LocationCache {
 public:
  // Copies remembered of one block: enough for a second try.
  static constexpr std::size_t kCopiesKept = 3;

  // `clock` must outlive the cache. `life` zero: nothing is remembered.
  LocationCache(std::size_t most, absl::Duration life, const Clock* clock);

  // Of each key what is still believed; empty for the others.
  std::vector<Locations> Find(NamespaceId name_space,
                              absl::Span<const BlockKey> keys)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The catalog said so in answer to a question asked at `asked_at`, from when
  // the belief is counted.
  void Learn(const BlockId& block, const Locations& locations,
             BootTime asked_at) ABSL_LOCKS_EXCLUDED(mutex_);

  // The same of many blocks of one namespace, in one step; `blocks` and
  // `locations` go in pairs.
  void LearnAll(NamespaceId name_space, absl::Span<const BlockKey> blocks,
                absl::Span<const Locations> locations, BootTime asked_at)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // It is not there any more, or is here by now.
  void Forget(const BlockId& block) ABSL_LOCKS_EXCLUDED(mutex_);

  std::size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    Locations locations;
    BootTime believed_until;
    // Number of its place in order_.
    std::uint64_t place = 0;
    // Since it came to that place.
    bool told_again = false;
  };
  using Entries = absl::flat_hash_map<BlockId, Entry>;
  struct Place {
    BlockId block;
    std::uint64_t number = 0;
  };

  void Store(const BlockId& block, const Locations& locations,
             BootTime asked_at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until there is no more than there may be.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The entry of that place; the end where it was forgotten.
  Entries::iterator EntryAt(const Place& place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::size_t most_;
  const absl::Duration life_;
  const Clock* const clock_;

  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  // Blocks in the order of their first telling. One that is at its front and
  // was told again goes to the back instead of out: being told once more costs
  // nothing. What was forgotten stays until it is at the front, or too many.
  std::deque<Place> order_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_place_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_LOCATION_CACHE_H_
