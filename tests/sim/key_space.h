// The keys that schedules use: a small tree of chains (for a chained namespace)
// and a bag of single blocks (for an unchained one), few enough that writers
// meet, and the same for every tenant: equal prompts give equal keys.
//
// Pure values; made once.

#ifndef FIRNKV_TESTS_SIM_KEY_SPACE_H_
#define FIRNKV_TESTS_SIM_KEY_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/namespace.h"
#include "proto/base/id.h"

namespace firnkv {

struct PlannedBlock {
  BlockKey key;
  ChainPlace place;
  // What writers and readers take it to be; some writers say otherwise.
  std::uint64_t length = 0;
};

class KeySpace {
 public:
  static constexpr std::size_t kChained = 0;
  static constexpr std::size_t kUnchained = 1;
  static constexpr std::uint64_t kChainedBytes = 8192;
  static constexpr std::uint32_t kBlockTokens = 16;

  KeySpace();

  // Conversations: each starts with one shared block, many share more.
  const std::vector<std::vector<PlannedBlock>>& chains() const {
    return chains_;
  }
  const std::vector<PlannedBlock>& singles() const { return singles_; }

  // How workers open the two namespaces, by index.
  static std::vector<OpenNamespaceRequest> NameSpaces();

 private:
  std::vector<std::vector<PlannedBlock>> chains_;
  std::vector<PlannedBlock> singles_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_KEY_SPACE_H_
