#include "server/tier/block_index.h"

#include "proto/base/check.h"

namespace firnkv {

BlockNumber BlockIndex::Find(const BlockId& id) const {
  const auto it = numbers_.find(id);
  return it == numbers_.end() ? BlockNumber::kNone : it->second;
}

BlockNumber BlockIndex::Know(const BlockId& id) {
  const auto [it, is_new] = numbers_.try_emplace(id, BlockNumber::kNone);
  if (!is_new) return it->second;
  if (spare_.empty()) {
    it->second = BlockNumber{static_cast<std::uint32_t>(entries_.size())};
    entries_.emplace_back();
  } else {
    it->second = spare_.back();
    spare_.pop_back();
  }
  Entry& entry = entries_[static_cast<std::size_t>(it->second)];
  entry.id = id;
  entry.known = true;
  return it->second;
}

void BlockIndex::Forget(BlockNumber number) {
  Entry& entry = (*this)[number];
  CHECK(entry.resident == nullptr && entry.writers == 0);
  numbers_.erase(entry.id);
  entry = Entry{};
  spare_.push_back(number);
}

BlockIndex::Entry& BlockIndex::operator[](BlockNumber number) {
  Entry& entry = entries_[static_cast<std::size_t>(number)];
  CHECK(entry.known);
  return entry;
}

const BlockIndex::Entry& BlockIndex::operator[](BlockNumber number) const {
  const Entry& entry = entries_[static_cast<std::size_t>(number)];
  CHECK(entry.known);
  return entry;
}

}  // namespace firnkv
