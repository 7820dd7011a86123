// Values that the tests of the contract and of its formats share. The golden
// files of tests/format are made of the same ones: changing a value here
// changes them.

#ifndef FIRNKV_TESTS_PROTO_SAMPLES_H_
#define FIRNKV_TESTS_PROTO_SAMPLES_H_

#include <cstddef>
#include <cstdint>

#include "proto/base/contract.h"
#include "proto/base/id.h"
#include "proto/base/slot_header.h"

namespace firnkv {

// first, first + 1, ...
template <typename Id>
Id CountingId(std::uint8_t first) {
  Id id;
  for (std::size_t i = 0; i < Id::kBytes; ++i) {
    id.bytes[i] = static_cast<std::uint8_t>(first + i);
  }
  return id;
}

inline StateContract SampleContract() {
  StateContract contract;
  contract.model = "meta-llama/Llama-3.1-8B";
  contract.weights_revision = "d04e592bb4f6aa9cfee91e2e20afa771667e1d4b";
  contract.tokenizer = "llama-3.1@d04e592b";
  contract.preprocessing = "none";
  contract.positional = "rope theta=500000 llama3 factor=8";
  contract.kv_dtype = "bf16";
  contract.layer_order = "layers,kv,tokens,heads,dim";
  contract.kv_order = "k-then-v";
  contract.head_grouping = "8 kv heads";
  contract.page_order = "ascending";
  contract.block_tokens = 16;
  contract.tensor_parallel = 2;
  contract.pipeline_parallel = 1;
  contract.context_parallel = 1;
  contract.layout_version = 1;
  return contract;
}

inline StateContract SampleContractWithOptions() {
  StateContract contract = SampleContract();
  contract.adapters.push_back(Adapter{"legal", "r7"});
  contract.adapters.push_back(Adapter{"german", "2024-05-01"});
  contract.cache_salt = "deployment 12";
  return contract;
}

// Of 70,000 bytes: two pieces, 18 pages.
inline SlotHeader SampleHeader() {
  SlotHeader header;
  header.block.name_space = CountingId<NamespaceId>(0x10);
  header.block.key = CountingId<BlockKey>(0x20);
  header.digest = CountingId<IdentityDigest>(0x40);
  header.clear_epoch = ClearEpoch{3};
  header.place.parent = CountingId<BlockKey>(0x60);
  header.place.anchor = CountingId<BlockKey>(0x80);
  header.place.position = 5;
  header.place.first_token = 80;
  header.place.tokens = 16;
  header.place.shard = Shard{.count = 2, .index = 1};
  header.length = 70'000;
  header.generation = Generation{0x0102030405060708};
  header.commit_time_nanos = 1'700'000'000'123'456'789;
  header.pieces = {0x11223344, 0x55667788};
  return header;
}

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROTO_SAMPLES_H_
