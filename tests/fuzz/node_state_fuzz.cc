// A node's state file (server/node/node_state.h), with a right checksum line
// under whatever fields.

#include <cstdio>

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "server/node/node_state.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t { kAsIs, kSealed, kParts };

std::string WithChecksumLine(std::string_view fields) {
  char line[32];
  std::snprintf(line, sizeof(line), "crc32c %016x\n",
                Crc32c({reinterpret_cast<const std::byte*>(fields.data()),
                        fields.size()}));
  return std::string(fields) + line;
}

NodeMemory SampleMemory() {
  NodeMemory memory;
  memory.node = CountingId<NodeId>(0x30);
  memory.cluster = CountingId<ClusterId>(1);
  memory.registered_epoch = NodeEpoch{0x98};
  memory.attempted_epoch = NodeEpoch{0x99};
  memory.seen.incarnation = 2;
  memory.seen.random_id.bytes[0] = 3;
  memory.seen.sequence = 4;
  return memory;
}

void Try(const std::string& text) {
  const auto memory = DecodeNodeMemory(text);
  if (!memory.ok()) {
    CHECK(absl::IsDataLoss(memory.status()));
    return;
  }
  CHECK(!memory->node.IsZero());
  const auto again = DecodeNodeMemory(EncodeNodeMemory(*memory));
  CHECK(again.ok() && *again == *memory);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string text = EncodeNodeMemory(SampleMemory());
  const std::string fields = text.substr(0, text.rfind("crc32c"));
  // Else nothing behind the checksum would be fuzzed.
  CHECK(WithChecksumLine(fields) == text);
  return {Seed(kAsIs, text), Seed(kSealed, fields)};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  const std::uint8_t part = input.U8() % kParts;
  const std::string_view rest = input.Rest();
  Try(part == kSealed ? WithChecksumLine(rest) : std::string(rest));
  return 0;
}
