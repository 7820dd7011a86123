// What the catalog is told to mend some buckets (rule A5): all copies that the
// pool has in them, as REPAIR batches of whole buckets.
//
//     BucketRepair repair(buckets, options);
//     while (repair.Read(pool) == kMore) {}      // a part of the pool each
//     while (repair.TakePart()) ...
//
// Does not know: who sends, and why no event may be told between the first Read
// and the last part (announcer.h).
//
// Threading. None: one caller at a time. Read takes the pool's lock for one
// part.

#ifndef FIRNKV_SERVER_NODE_BUCKET_REPAIR_H_
#define FIRNKV_SERVER_NODE_BUCKET_REPAIR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/node/announcement_log.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class BucketRepair {
 public:
  struct Options {
    // Entries of one batch, and of the pool's index in one step.
    std::size_t batch = kMaxAnnouncementEntries;
    // All parts together, about 200 bytes each: 25 MiB. More is told by an
    // inventory, which is made part by part.
    std::size_t max_entries = 128 * 1024;
  };
  enum class Progress : std::uint8_t {
    kMore,
    // Everything was read.
    kAll,
    // The buckets hold more than the bounds: tell an inventory.
    kTooMuch,
  };
  // Whole buckets, rising, at most kMaxRepairBuckets of them.
  struct Part {
    std::vector<std::uint32_t> buckets;
    std::vector<AnnouncedEntry> entries;
  };

  // `buckets`: rising, below kCopyBuckets.
  BucketRepair(const Options& options, std::vector<std::uint32_t> buckets);

  Progress Read(const DramPool& pool);
  // Once all was read. nullopt: there is none left.
  std::optional<Part> TakePart();

  bool finished() const { return next_bucket_ == buckets_.size(); }
  std::size_t buckets() const { return buckets_.size(); }
  std::size_t entries() const { return entries_.size(); }

 private:
  // Sorts by bucket; false: one has more copies than a batch.
  bool Arrange();

  Options options_;
  std::vector<std::uint32_t> buckets_;
  // By bucket.
  std::vector<bool> wanted_;
  std::uint32_t cursor_ = 0;
  std::vector<AnnouncedEntry> entries_;
  std::size_t next_bucket_ = 0;
  std::size_t next_entry_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_BUCKET_REPAIR_H_
