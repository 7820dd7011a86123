// Values that the tests of the contract and of its formats share. The golden
// files of tests/format are made of the same ones: changing a value here
// changes them.

#ifndef FIRNKV_TESTS_PROTO_SAMPLES_H_
#define FIRNKV_TESTS_PROTO_SAMPLES_H_

#include <cstddef>
#include <cstdint>

#include "proto/base/contract.h"
#include "proto/base/id.h"
#include "proto/base/request.h"
#include "proto/base/session_frame.h"
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

// --- Calls of a local session as frames.
inline RequestHeader SampleCallHeader() {
  RequestHeader header;
  header.remaining = absl::Milliseconds(250);
  header.traffic = TrafficClass::kWarmUp;
  header.trace = CountingId<TraceId>(0x50);
  header.session = CountingId<SessionId>(0x70);
  header.protocol = 1;
  return header;
}

inline CallOpenReadBody SampleCallOpenRead() {
  CallOpenReadBody body;
  body.header = SampleCallHeader();
  body.name_space = CountingId<NamespaceId>(0x10);
  body.clear_epoch = ClearEpoch{3};
  body.leading_run = true;
  body.for_view = true;
  body.lease = absl::Seconds(10);
  body.keys = {CountingId<BlockKey>(0x20), CountingId<BlockKey>(0x21)};
  return body;
}

// A hit of two extents, and one that found no lease.
inline CallOpenedBody SampleCallOpened() {
  CallOpenedBody body;
  body.lease = 0x1122334455667788;
  body.lease_time = absl::Seconds(10);
  body.clear_epoch = ClearEpoch{3};
  body.retry_after = absl::Milliseconds(20);
  body.blocks.resize(2);
  body.blocks[0].outcome = Outcome::kHit;
  body.blocks[0].generation = Generation{0x0102030405060708};
  body.blocks[0].extents = {{7, 4096, 65'536}, {8, 0, 4'464}};
  body.blocks[1].outcome = Outcome::kCongested;
  return body;
}

inline CallReserveBody SampleCallReserve() {
  CallReserveBody body;
  body.header = SampleCallHeader();
  body.name_space = CountingId<NamespaceId>(0x10);
  body.clear_epoch = ClearEpoch{3};
  body.reservation = absl::Seconds(30);
  body.wait_for = 1;
  body.session_state = 2;
  body.conversation = "chat 12";
  body.blocks.resize(1);
  body.blocks[0].key = CountingId<BlockKey>(0x20);
  body.blocks[0].place = SampleHeader().place;
  body.blocks[0].length = 70'000;
  return body;
}

inline CallReservedBody SampleCallReserved() {
  CallReservedBody body;
  body.reservation = 0x123;
  body.reservation_time = absl::Seconds(30);
  body.clear_epoch = ClearEpoch{3};
  body.outcomes = {Outcome::kStored, Outcome::kAlreadyThere};
  return body;
}

inline CallCommitBody SampleCallCommit() {
  CallCommitBody body;
  body.header = SampleCallHeader();
  body.reservation = 0x123;
  body.wait_for = 1;
  body.blocks.resize(1);
  body.blocks[0].index = 4;
  body.blocks[0].extents = {{7, 4096, 65'536}, {8, 0, 4'464}};
  body.blocks[0].pieces = {0x11223344, 0x55667788};
  return body;
}

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROTO_SAMPLES_H_
