// The keys that schedules use: a small tree of chains (for chained namespaces)
// and a bag of single blocks (for unchained ones), few enough that writers
// meet, and the same for every tenant and in every namespace of a kind: equal
// prompts give equal keys.
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
  // Namespaces, by index: chained, of one declared size; unchained, of any
  // size; chained, of any size; unchained, of one size, cleared strictly.
  static constexpr std::size_t kChained = 0;
  static constexpr std::size_t kUnchained = 1;
  static constexpr std::size_t kDrafts = 2;
  static constexpr std::size_t kStrict = 3;
  static constexpr std::size_t kNameSpaces = 4;
  static constexpr std::uint64_t kChainedBytes = 8192;
  static constexpr std::uint64_t kStrictBytes = 12288;
  static constexpr std::uint32_t kBlockTokens = 16;
  static bool IsChained(std::size_t name_space) {
    return name_space == kChained || name_space == kDrafts;
  }

  KeySpace();

  // Conversations: each starts with one shared block, many share more.
  const std::vector<std::vector<PlannedBlock>>& chains(
      std::size_t name_space = kChained) const {
    return name_space == kDrafts ? drafts_ : chains_;
  }
  const std::vector<PlannedBlock>& singles(
      std::size_t name_space = kUnchained) const {
    return name_space == kStrict ? strict_ : singles_;
  }
  // Each once.
  const std::vector<PlannedBlock>& AllBlocks(std::size_t name_space) const {
    return all_[name_space];
  }

  // How workers open the namespaces, by index.
  static std::vector<OpenNamespaceRequest> NameSpaces();

 private:
  std::vector<PlannedBlock> EachOnce(std::size_t name_space) const;

  std::vector<std::vector<PlannedBlock>> chains_;
  std::vector<std::vector<PlannedBlock>> drafts_;
  std::vector<PlannedBlock> singles_;
  std::vector<PlannedBlock> strict_;
  std::vector<PlannedBlock> all_[kNameSpaces];
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_KEY_SPACE_H_
