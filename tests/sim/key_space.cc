#include "tests/sim/key_space.h"

#include <set>
#include <string>
#include <utility>

#include "client/chain.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::size_t kConversations = 20;
constexpr std::size_t kSingles = 70;
// Of the namespaces that are there for their settings, fewer.
constexpr std::size_t kDraftConversations = 6;
constexpr std::size_t kStrictSingles = 24;

// Around the bounds: one byte, pages, pieces of checksums.
// Few are long, since bytes are what a schedule's time goes to.
constexpr std::uint64_t kLengths[] = {1,     100,   4096,  4097,  8192, 5000,
                                      20000, 12288, 65537, 1,     300,  9000,
                                      8192,  4096,  6000,  120000};

StateContract Contract() {
  StateContract contract;
  contract.model = "granite";
  contract.weights_revision = "r1";
  contract.tokenizer = "granite@r1";
  contract.preprocessing = "none";
  contract.positional = "rope";
  contract.kv_dtype = "bf16";
  contract.layer_order = "layers,kv,heads,tokens,dim";
  contract.kv_order = "k-then-v";
  contract.head_grouping = "8 kv heads";
  contract.page_order = "tokens";
  contract.block_tokens = KeySpace::kBlockTokens;
  contract.tensor_parallel = 1;
  contract.pipeline_parallel = 1;
  contract.context_parallel = 1;
  contract.layout_version = 1;
  return contract;
}

}  // namespace

KeySpace::KeySpace() {
  for (std::size_t c = 0; c < kConversations; ++c) {
    Chain chain({.block_tokens = kBlockTokens, .shard = {}});
    const std::size_t blocks = 4 + c % 5 * 3;
    std::vector<PlannedBlock> planned;
    std::string hash = "prompt";
    for (std::size_t i = 0; i < blocks; ++i) {
      // Block 0 is everybody's, 1 and 2 those of a third, the rest its own.
      if (i == 1) absl::StrAppend(&hash, "/", c % 3);
      if (i >= 3) absl::StrAppend(&hash, "/", c);
      absl::StrAppend(&hash, ".");
      const Chain::Block& block = chain.Append(hash);
      planned.push_back({block.key, block.place, kChainedBytes});
    }
    chains_.push_back(std::move(planned));
  }
  for (std::size_t i = 0; i < kSingles; ++i) {
    const Chain::Block block = UnchainedBlock(StrCat("single ", i));
    singles_.push_back(
        {block.key, block.place, kLengths[i % std::size(kLengths)]});
  }
  drafts_.assign(chains_.begin(), chains_.begin() + kDraftConversations);
  for (std::vector<PlannedBlock>& chain : drafts_) {
    for (PlannedBlock& block : chain) {
      // By position: a prefix is shared, so its lengths are.
      block.length = kLengths[block.place.position % std::size(kLengths)];
    }
  }
  strict_.assign(singles_.begin(), singles_.begin() + kStrictSingles);
  for (PlannedBlock& block : strict_) block.length = kStrictBytes;
  for (std::size_t i = 0; i < kNameSpaces; ++i) all_[i] = EachOnce(i);
}

std::vector<PlannedBlock> KeySpace::EachOnce(std::size_t name_space) const {
  if (!IsChained(name_space)) return singles(name_space);
  std::vector<PlannedBlock> blocks;
  std::set<BlockKey> taken;
  for (const std::vector<PlannedBlock>& chain : chains(name_space)) {
    for (const PlannedBlock& block : chain) {
      if (taken.insert(block.key).second) blocks.push_back(block);
    }
  }
  return blocks;
}

std::vector<OpenNamespaceRequest> KeySpace::NameSpaces() {
  OpenNamespaceRequest chat;
  chat.name = "chat";
  chat.contract = Contract();
  chat.block_bytes = kChainedBytes;
  OpenNamespaceRequest files;
  files.name = "files";
  files.contract = Contract();
  files.chained = false;
  OpenNamespaceRequest drafts;
  drafts.name = "drafts";
  drafts.contract = Contract();
  OpenNamespaceRequest ledger;
  ledger.name = "ledger";
  ledger.contract = Contract();
  ledger.block_bytes = kStrictBytes;
  ledger.chained = false;
  ledger.strict_clear = true;
  return {chat, files, drafts, ledger};
}

}  // namespace firnkv
