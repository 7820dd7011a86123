#include "server/policy/leaf_first_lru.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"

namespace firnkv {
namespace {

std::uint32_t IndexOf(BlockNumber block) {
  return static_cast<std::uint32_t>(block);
}

}  // namespace

std::uint32_t LeafFirstLru::Know(BlockNumber block) {
  CHECK(block != BlockNumber::kNone);
  const std::uint32_t index = IndexOf(block);
  if (index >= nodes_.size()) nodes_.resize(index + 1);
  return index;
}

bool LeafFirstLru::IsPresent(std::uint32_t index) const {
  return index < nodes_.size() && nodes_[index].stamp != 0;
}

void LeafFirstLru::OnStored(const Stored& event) {
  CHECK(event.bytes > 0 && event.bytes <= UINT32_MAX);
  const std::uint32_t index = Know(event.block);
  const std::uint32_t parent =
      event.parent == BlockNumber::kNone ? kNoIndex : Know(event.parent);
  CHECK(!IsPresent(index));
  Node& node = nodes_[index];
  const bool below_its_children =
      node.children == 0 || event.position < node.position;
  node.stamp = next_stamp_++;
  node.group = static_cast<std::uint32_t>(event.group);
  node.position = event.position;
  node.bytes = static_cast<std::uint32_t>(event.bytes);
  if (parent != kNoIndex && below_its_children) Link(index, parent);
  if (node.children == 0) EnterHeap(index);
}

void LeafFirstLru::OnTouched(BootTime /*at*/,
                             absl::Span<const BlockNumber> run) {
  for (std::size_t i = run.size(); i-- > 0;) {
    CHECK(IsPresent(IndexOf(run[i])));
    Restamp(IndexOf(run[i]), next_stamp_++);
  }
}

void LeafFirstLru::OnEvicted(BootTime /*at*/, BlockNumber block) {
  CHECK(IsPresent(IndexOf(block)));
  Leave(IndexOf(block));
}

void LeafFirstLru::OnHint(const Hint& hint) {
  switch (hint.state) {
    case ConversationState::kUnknown:
      return;
    case ConversationState::kWillReturn:
      OnTouched(hint.at, hint.run);
      return;
    case ConversationState::kEnded:
      break;
  }
  // From the end: where another chain leaves the run, what stands before that
  // point is the other's too.
  for (std::size_t i = hint.run.size(); i-- > 0;) {
    const std::uint32_t index = IndexOf(hint.run[i]);
    CHECK(IsPresent(index));
    // Besides the run's own next block.
    if (nodes_[index].children > (i + 1 < hint.run.size() ? 1u : 0u)) return;
    Restamp(index, next_cold_stamp_--);
  }
}

std::uint64_t LeafFirstLru::TakeVictims(EvictionGroup group, Room room,
                                        Skip skip,
                                        std::vector<BlockNumber>* victims) {
  return TakeVictimsOf(absl::MakeConstSpan(&group, 1), room, skip, victims);
}

std::uint64_t LeafFirstLru::TakeVictimsOf(
    absl::Span<const EvictionGroup> groups, Room room, Skip skip,
    std::vector<BlockNumber>* victims) {
  std::uint64_t taken = 0;
  std::vector<std::uint32_t> skipped;
  while (taken < room.bytes) {
    const std::uint32_t index = ColdestLeaf(groups);
    // No other leaf is colder than this one.
    if (index == kNoIndex || Warmth{nodes_[index].stamp} >= room.below) break;
    if (skip(BlockNumber{index})) {
      LeaveHeap(index);
      skipped.push_back(index);
      continue;
    }
    taken += nodes_[index].bytes;
    Leave(index);
    victims->push_back(BlockNumber{index});
  }
  for (const std::uint32_t index : skipped) EnterHeap(index);
  return taken;
}

Warmth LeafFirstLru::ColdestOf(EvictionGroup group) {
  const std::uint32_t index = ColdestLeaf(absl::MakeConstSpan(&group, 1));
  return index == kNoIndex ? Warmth::kNone : Warmth{nodes_[index].stamp};
}

Warmth LeafFirstLru::WarmthOf(BlockNumber block) const {
  return IsPresent(IndexOf(block)) ? Warmth{nodes_[IndexOf(block)].stamp}
                                   : Warmth::kNone;
}

bool LeafFirstLru::HasChildren(BlockNumber block) const {
  return IndexOf(block) < nodes_.size() && nodes_[IndexOf(block)].children > 0;
}

std::uint32_t LeafFirstLru::ColdestLeaf(
    absl::Span<const EvictionGroup> groups) {
  std::uint32_t coldest = kNoIndex;
  for (const EvictionGroup group : groups) {
    const auto number = static_cast<std::uint32_t>(group);
    if (number >= heaps_.size() || heaps_[number].empty()) continue;
    Heap& heap = heaps_[number];
    // Ends: each round takes one leaf's put-off touch away.
    while (heap.front().stamp < nodes_[heap.front().index].stamp) {
      heap.front().stamp = nodes_[heap.front().index].stamp;
      Sift(&heap, 0);
    }
    const std::uint32_t front = heap.front().index;
    if (coldest == kNoIndex || nodes_[front].stamp < nodes_[coldest].stamp) {
      coldest = front;
    }
  }
  return coldest;
}

void LeafFirstLru::Restamp(std::uint32_t index, std::uint64_t stamp) {
  Node& node = nodes_[index];
  node.stamp = stamp;
  if (node.heap_place == kNoIndex) return;
  Heap& heap = heaps_[node.group];
  // A touch is put off; what gets colder has to come forward now.
  if (heap[node.heap_place].stamp <= stamp) return;
  heap[node.heap_place].stamp = stamp;
  Sift(&heap, node.heap_place);
}

void LeafFirstLru::Link(std::uint32_t child, std::uint32_t parent) {
  Node& above = nodes_[parent];
  Node& below = nodes_[child];
  if (IsPresent(parent)) {
    if (above.position >= below.position) return;
    if (above.heap_place != kNoIndex) LeaveHeap(parent);
  } else {
    above.position = above.children == 0
                         ? below.position
                         : std::min(above.position, below.position);
  }
  below.parent = parent;
  ++above.children;
}

void LeafFirstLru::Leave(std::uint32_t index) {
  Node& node = nodes_[index];
  if (node.heap_place != kNoIndex) LeaveHeap(index);
  node.stamp = 0;
  const std::uint32_t parent = std::exchange(node.parent, kNoIndex);
  // Children that stay are all above it, if it had a parent; else they may be
  // anywhere, and it gets none again while they are there.
  node.position = parent == kNoIndex ? 0 : node.position + 1;
  if (parent == kNoIndex) return;
  CHECK(nodes_[parent].children > 0);
  if (--nodes_[parent].children == 0 && IsPresent(parent)) EnterHeap(parent);
}

void LeafFirstLru::EnterHeap(std::uint32_t index) {
  Node& node = nodes_[index];
  CHECK(node.heap_place == kNoIndex && node.children == 0);
  if (node.group >= heaps_.size()) heaps_.resize(node.group + 1);
  Heap& heap = heaps_[node.group];
  heap.push_back({.stamp = node.stamp, .index = index});
  node.heap_place = static_cast<std::uint32_t>(heap.size() - 1);
  Sift(&heap, node.heap_place);
}

void LeafFirstLru::LeaveHeap(std::uint32_t index) {
  Node& node = nodes_[index];
  Heap& heap = heaps_[node.group];
  const std::uint32_t place = node.heap_place;
  CHECK(place < heap.size() && heap[place].index == index);
  node.heap_place = kNoIndex;
  const Leaf last = heap.back();
  heap.pop_back();
  if (last.index == index) return;
  Put(&heap, place, last);
  Sift(&heap, place);
}

void LeafFirstLru::Put(Heap* heap, std::uint32_t place, Leaf leaf) {
  (*heap)[place] = leaf;
  nodes_[leaf.index].heap_place = place;
}

void LeafFirstLru::Sift(Heap* heap, std::uint32_t place) {
  const Leaf leaf = (*heap)[place];
  while (place > 0) {
    const std::uint32_t above = (place - 1) / 2;
    if ((*heap)[above].stamp <= leaf.stamp) break;
    Put(heap, place, (*heap)[above]);
    place = above;
  }
  const auto size = static_cast<std::uint32_t>(heap->size());
  for (;;) {
    std::uint32_t below = 2 * place + 1;
    if (below >= size) break;
    if (below + 1 < size && (*heap)[below + 1].stamp < (*heap)[below].stamp) {
      ++below;
    }
    if ((*heap)[below].stamp >= leaf.stamp) break;
    Put(heap, place, (*heap)[below]);
    place = below;
  }
  Put(heap, place, leaf);
}

}  // namespace firnkv
