// Which blocks the pool knows, by block id (rule C1): each has a small number
// (the policy's name for it), the slot of its resident copy if there is one,
// and how many writers have reserved it.
//
// A block is known while it is resident, reserved, or the parent of a present
// block. Numbers are given again once a block is forgotten.
//
// Threading. None: the pool's mutex protects it. Find is one hash look-up.
//
// Owned by ResidentBlocks.

#ifndef FIRNKV_SERVER_TIER_BLOCK_INDEX_H_
#define FIRNKV_SERVER_TIER_BLOCK_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "server/policy/eviction.h"
#include "server/tier/region.h"

namespace firnkv {

class BlockIndex {
 public:
  struct Entry {
    BlockId id;
    // Null unless a copy is resident.
    Slot* resident = nullptr;
    // Reservations that have neither been committed nor ended.
    std::uint32_t writers = 0;
    // The latest end of a reservation of it.
    BootTime written_until;
    bool known = false;
  };

  // kNone if it is not known.
  BlockNumber Find(const BlockId& id) const;
  // Find(id) is soon to come: for a batch, so that what its look-ups need comes
  // from memory together.
  void Prefetch(const BlockId& id) const { numbers_.prefetch(id); }
  // Makes it known.
  BlockNumber Know(const BlockId& id);
  void Forget(BlockNumber number);

  // Of a known block; a reference is good until the next Know.
  Entry& operator[](BlockNumber number);
  const Entry& operator[](BlockNumber number) const;

  std::size_t known() const { return numbers_.size(); }

  // Numbers are below this. An entry may be unknown: check `known`.
  std::uint32_t end() const { return static_cast<std::uint32_t>(size()); }
  const Entry& At(std::uint32_t number) const { return entries_[number]; }

 private:
  std::size_t size() const { return entries_.size(); }

  absl::flat_hash_map<BlockId, BlockNumber> numbers_;
  std::vector<Entry> entries_;
  std::vector<BlockNumber> spare_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_BLOCK_INDEX_H_
