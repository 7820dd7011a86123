// Which blocks the benchmarks read, write and announce: namespaces and keys
// that every measuring program derives alike from a name and a number.

#ifndef FIRNKV_TOOLS_BENCH_BENCH_BLOCKS_H_
#define FIRNKV_TOOLS_BENCH_BENCH_BLOCKS_H_

#include <cstdint>
#include <string>

#include "client/chain.h"
#include "client/namespace.h"
#include "proto/base/text.h"

namespace firnkv {

// `block_bytes` 0: blocks of any size.
inline OpenNamespaceRequest BenchNamespace(const std::string& name,
                                           std::uint64_t block_bytes) {
  OpenNamespaceRequest request;
  request.name = name;
  request.block_bytes = block_bytes;
  request.chained = false;
  StateContract& contract = request.contract;
  contract.model = "bench";
  contract.weights_revision = "1";
  contract.tokenizer = "none";
  contract.preprocessing = "none";
  contract.positional = "none";
  contract.kv_dtype = "bytes";
  contract.layer_order = "none";
  contract.kv_order = "none";
  contract.head_grouping = "none";
  contract.page_order = "none";
  contract.block_tokens = 512;
  contract.tensor_parallel = 1;
  contract.pipeline_parallel = 1;
  contract.context_parallel = 1;
  contract.layout_version = 1;
  return request;
}

inline Chain::Block BenchBlock(const std::string& name, std::uint64_t number) {
  return UnchainedBlock(StrCat(name, "/", number));
}

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_BENCH_BENCH_BLOCKS_H_
