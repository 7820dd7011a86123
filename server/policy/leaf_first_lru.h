// Least recently used first, but never a parent before its child: a block whose
// predecessors in the chain are gone is worth nothing.
//
// Among the present blocks without a present child (the leaves), the one that
// was touched longest ago leaves first; its parent then may have become a leaf.
// A run counts as touched from its last block to its first, so the tail of an
// old chain goes before its head.
//
// It orders events by their arrival and not by their time: an LRU needs no
// more. Hints: an ended conversation's blocks become the coldest, unless
// another chain goes through them (a child is outside the run); kWillReturn
// counts as a touch.
//
// State: 32 bytes a number (below), 4 a leaf. Every event costs O(log leaves)
// a block; TakeVictims O(log leaves) a victim or skipped block.
//
// Threading and ownership: eviction.h.

#ifndef FIRNKV_SERVER_POLICY_LEAF_FIRST_LRU_H_
#define FIRNKV_SERVER_POLICY_LEAF_FIRST_LRU_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/policy/eviction.h"

namespace firnkv {

class LeafFirstLru : public EvictionPolicy {
 public:
  LeafFirstLru() = default;

  void OnStored(const Stored& event) override;
  void OnTouched(BootTime at, absl::Span<const BlockNumber> run) override;
  void OnEvicted(BootTime at, BlockNumber block) override;
  void OnHint(const Hint& hint) override;
  std::uint64_t TakeVictims(EvictionGroup group, std::uint64_t bytes, Skip skip,
                            std::vector<BlockNumber>* victims) override;
  std::uint64_t TakeVictimsOf(absl::Span<const EvictionGroup> groups,
                              std::uint64_t bytes, Skip skip,
                              std::vector<BlockNumber>* victims) override;
  Warmth ColdestOf(EvictionGroup group) const override;
  Warmth WarmthOf(BlockNumber block) const override;
  bool HasChildren(BlockNumber block) const override;

 private:
  static constexpr std::uint32_t kNoIndex = UINT32_MAX;

  // One number.
  //
  // No circle of parents can come into being, whatever writers claim: every
  // link from a present block to its parent that has a parent of its own goes
  // from a higher position to a lower one. A block with a position not above
  // its parent's, or not below that of a child which came before it, gets no
  // parent.
  struct Node {
    // Of the last touch; 0 while the block is not present.
    std::uint64_t stamp = 0;
    std::uint32_t parent = kNoIndex;
    // Present children.
    std::uint32_t children = 0;
    // Place in its group's heap; kNoIndex while it is no leaf.
    std::uint32_t heap_place = kNoIndex;
    std::uint32_t group = 0;
    // Of the block; while it is absent, no child has a lower one.
    std::uint32_t position = 0;
    std::uint32_t bytes = 0;
  };
  static_assert(sizeof(Node) == 32);
  // A binary heap of node indexes, the coldest at the front.
  using Heap = std::vector<std::uint32_t>;

  // Makes room in nodes_ for `block`.
  std::uint32_t Know(BlockNumber block);
  bool IsPresent(std::uint32_t index) const;
  void Restamp(std::uint32_t index, std::uint64_t stamp);
  void Link(std::uint32_t child, std::uint32_t parent);
  void EnterHeap(std::uint32_t index);
  void LeaveHeap(std::uint32_t index);
  // Moves what stands at `place` to where it belongs.
  void Sift(Heap* heap, std::uint32_t place);
  void Put(Heap* heap, std::uint32_t place, std::uint32_t index);
  // Out of the heap, out of its parent's children, not present.
  void Leave(std::uint32_t index);
  // The coldest leaf of `groups`; kNoIndex if they have none.
  std::uint32_t ColdestLeaf(absl::Span<const EvictionGroup> groups) const;

  // Touches count up from the middle, hints of ended conversations down: older
  // than everything that was touched.
  std::uint64_t next_stamp_ = std::uint64_t{1} << 48;
  std::uint64_t next_cold_stamp_ = (std::uint64_t{1} << 48) - 1;
  std::vector<Node> nodes_;
  std::vector<Heap> heaps_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_POLICY_LEAF_FIRST_LRU_H_
