#include "client/chain.h"

namespace firnkv {

const Chain::Block& Chain::Append(std::string_view hash) {
  const auto position = static_cast<std::uint32_t>(blocks_.size());
  // The anchor changes where the position is a power of four itself (or 0);
  // between those the last one stands.
  if (AnchorPosition(position) == position) anchor_ = MakeAnchor(hash);

  Block block;
  block.key = MakeBlockKey(hash, shape_.shard);
  if (position > 0) block.place.parent = blocks_.back().key;
  block.place.anchor = anchor_;
  block.place.position = position;
  block.place.first_token = position * shape_.block_tokens;
  block.place.tokens = shape_.block_tokens;
  block.place.shard = shape_.shard;
  blocks_.push_back(block);
  return blocks_.back();
}

Chain::Block UnchainedBlock(std::string_view hash, Shard shard) {
  Chain::Block block;
  block.key = MakeBlockKey(hash, shard);
  block.place.anchor = MakeAnchor(hash);
  block.place.shard = shard;
  return block;
}

}  // namespace firnkv
