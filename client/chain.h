// From an engine's block hashes to keys, anchors and places.
//
// An engine numbers a request's full blocks and hashes each together with all
// tokens before it. Chain turns these hashes, in order, into what reads and
// writes need. Append is incremental: a chain grows with its conversation.
//
//     firnkv::Chain chain({.block_tokens = 16, .shard = {8, rank}});
//     for (std::string_view hash : engine_hashes) chain.Append(hash);
//     targets[i].key = chain.block(i).key;
//
// Not thread-safe; a plain value.

#ifndef FIRNKV_CLIENT_CHAIN_H_
#define FIRNKV_CLIENT_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/base/id.h"

namespace firnkv {

class Chain {
 public:
  struct Shape {
    // Tokens of each block.
    std::uint32_t block_tokens = 0;
    // Which part of each position this process has.
    Shard shard;
  };
  struct Block {
    BlockKey key;
    ChainPlace place;
  };

  explicit Chain(Shape shape) : shape_(shape) {}

  // The next block; `hash` is the engine's, over the block and all tokens
  // before it, at most 4 KiB. Textual hashes as their bytes.
  const Block& Append(std::string_view hash);

  std::size_t size() const { return blocks_.size(); }
  const Block& block(std::size_t position) const { return blocks_[position]; }
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  Shape shape_;
  // Of the largest power of four up to the last position.
  BlockKey anchor_;
  std::vector<Block> blocks_;
};

// Key, anchor and place of a block that stands in no chain, for namespaces that
// are not chained: its anchor is its own shard-free key.
Chain::Block UnchainedBlock(std::string_view hash, Shard shard = {});

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_CHAIN_H_
