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
// A touch only notes when it was: a leaf keeps its old place among the leaves
// until it comes to the front, and is moved back then. So reads, which touch,
// cost O(1) a block, and what they leave to be moved is moved at most once a
// touch.
//
// State: 32 bytes a number (below), 12 a leaf. A touch costs O(1) a block,
// every other event O(log leaves); TakeVictims O(log leaves) a victim, a
// skipped block, or a touch that was put off.
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
  std::uint64_t TakeVictims(EvictionGroup group, Room room, Skip skip,
                            std::vector<BlockNumber>* victims) override;
  std::uint64_t TakeVictimsOf(absl::Span<const EvictionGroup> groups, Room room,
                              Skip skip,
                              std::vector<BlockNumber>* victims) override;
  Warmth ColdestOf(EvictionGroup group) override;
  Warmth WarmthOf(BlockNumber block) const override;
  Warmth NextWarmth() const override { return Warmth{next_stamp_}; }
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
  // A leaf where it stands: `stamp` is its own as of when it was put there, so
  // never above its node's, which touches raise without moving it.
#pragma pack(push, 4)
  struct Leaf {
    std::uint64_t stamp = 0;
    std::uint32_t index = kNoIndex;
  };
#pragma pack(pop)
  static_assert(sizeof(Leaf) == 12);
  // A binary heap by these stamps. The front has the lowest; once that is its
  // node's, too, no leaf is colder.
  using Heap = std::vector<Leaf>;

  // Makes room in nodes_ for `block`.
  std::uint32_t Know(BlockNumber block);
  bool IsPresent(std::uint32_t index) const;
  void Restamp(std::uint32_t index, std::uint64_t stamp);
  void Link(std::uint32_t child, std::uint32_t parent);
  void EnterHeap(std::uint32_t index);
  void LeaveHeap(std::uint32_t index);
  // Moves what stands at `place` to where it belongs.
  void Sift(Heap* heap, std::uint32_t place);
  void Put(Heap* heap, std::uint32_t place, Leaf leaf);
  // Out of the heap, out of its parent's children, not present.
  void Leave(std::uint32_t index);
  // The coldest leaf of `groups`; kNoIndex if they have none. Makes up for the
  // touches of those that stand in front of it.
  std::uint32_t ColdestLeaf(absl::Span<const EvictionGroup> groups);

  // Touches count up from the middle, hints of ended conversations down: older
  // than everything that was touched.
  std::uint64_t next_stamp_ = std::uint64_t{1} << 48;
  std::uint64_t next_cold_stamp_ = (std::uint64_t{1} << 48) - 1;
  std::vector<Node> nodes_;
  std::vector<Heap> heaps_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_POLICY_LEAF_FIRST_LRU_H_
