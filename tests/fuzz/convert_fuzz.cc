// Messages that several services share, from protobuf to base types
// (proto/convert.h): what is taken can be said again, and means the same.

#include "proto/base/check.h"
#include "proto/convert.h"
#include "proto/types.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t {
  kHeader,
  kHandshake,
  kContract,
  kFacts,
  kLabels,
  kAddress,
  kIncarnation,
  kBlocks,
  kLocations,
  kOutcomes,
  kExtents,
  kParts,
};

constexpr std::size_t kNodes = 3;
constexpr std::size_t kMostLocations = 100;

// Said again, it is taken again and has the same bytes.
template <typename Message>
void TryMessage(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return;
  }
  const auto value = FromProto(message);
  if (!value.ok()) return;
  Message again;
  ToProto(*value, &again);
  const auto second = FromProto(again);
  CHECK(second.ok());
  Message third;
  ToProto(*second, &third);
  CHECK(again.SerializeAsString() == third.SerializeAsString());
}

void TryBlocks(std::string_view bytes) {
  v1::BlockColumns message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return;
  }
  const auto rows = FromProto(message);
  if (!rows.ok()) return;
  CHECK(rows->size() <= kMaxBatchKeys);
  for (const BlockRow& row : *rows) {
    CHECK(row.place.shard.index < row.place.shard.count);
  }
  v1::BlockColumns again;
  ToProto(*rows, &again);
  const auto second = FromProto(again);
  CHECK(second.ok() && *second == *rows);
}

void TryLocations(std::string_view bytes) {
  v1::LocationColumns message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return;
  }
  const auto rows = FromProto(message, kNodes, kMostLocations);
  if (!rows.ok()) return;
  CHECK(rows->size() <= kMostLocations);
  for (const LocationRow& row : *rows) CHECK(row.node < kNodes);
  v1::LocationColumns again;
  ToProto(*rows, &again);
  const auto second = FromProto(again, kNodes, kMostLocations);
  CHECK(second.ok() && *second == *rows);
}

void TryOutcomes(FuzzInput input) {
  const std::size_t wanted = input.U16();
  const std::string_view bytes = input.Rest();
  const auto outcomes = OutcomesFromProto(bytes, wanted);
  if (!outcomes.ok()) return;
  CHECK(outcomes->size() == wanted);
  CHECK(OutcomesToProto(*outcomes) == bytes);
}

void TryExtents(FuzzInput input) {
  const std::size_t blocks = input.U8();
  const std::size_t sizes[] = {input.U16(), input.U16(), input.U16()};
  std::vector<std::uint32_t> counts;
  std::size_t sum = 0;
  while (!input.empty()) {
    // Small ones, and such as overflow a sum.
    const std::uint8_t one = input.U8();
    counts.push_back(one < 0xf0 ? one : 0xffffff00U + one);
    sum += counts.back();
  }
  if (!CheckExtents(blocks, counts, sizes[0], sizes[1], sizes[2]).ok()) return;
  CHECK(counts.size() == blocks);
  for (const std::size_t size : sizes) CHECK(size == sum);
}

template <typename Value, typename Message>
std::string Encoded(const Value& value) {
  Message message;
  ToProto(value, &message);
  return message.SerializeAsString();
}

NamespaceFacts SampleFacts() {
  NamespaceFacts facts;
  facts.name_space = CountingId<NamespaceId>(0x10);
  facts.tenant = CountingId<TenantId>(2);
  facts.name = "granite";
  facts.version = 1;
  facts.digest = CountingId<IdentityDigest>(0x40);
  facts.clear_epoch = ClearEpoch{1};
  facts.block_bytes = 65536;
  facts.tenant_name = "alice";
  return facts;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  RequestHeader header;
  header.remaining = absl::Seconds(1);
  header.session = CountingId<SessionId>(3);
  Handshake handshake;
  handshake.cluster = CountingId<ClusterId>(1);
  handshake.test_vector = HandshakeTestVector();
  const Labels labels{.zone = "z", .rack = "r", .host = "h"};
  const NodeAddress address{.node = CountingId<NodeId>(0x30),
                            .epoch = NodeEpoch{0x99},
                            .stream_address = "host:7411",
                            .control_address = "host:7410",
                            .labels = labels};
  Incarnation incarnation;
  incarnation.incarnation = 4;
  incarnation.random_id.bytes[0] = 5;
  incarnation.sequence = 6;
  const std::vector<BlockRow> blocks = {
      {SampleHeader().block.key, SampleHeader().place, 70'000}};
  const std::vector<LocationRow> locations = {
      {.node = 2, .tier = 1, .generation = Generation{8}, .length = 4096}};
  std::vector<std::string> seeds = {
      Seed(kHeader, Encoded<RequestHeader, v1::RequestHeader>(header)),
      Seed(kHandshake, Encoded<Handshake, v1::Handshake>(handshake)),
      Seed(kContract, Encoded<StateContract, v1::StateContract>(
                          SampleContractWithOptions())),
      Seed(kFacts, Encoded<NamespaceFacts, v1::NamespaceFacts>(SampleFacts())),
      Seed(kLabels, Encoded<Labels, v1::Labels>(labels)),
      Seed(kAddress, Encoded<NodeAddress, v1::NodeAddress>(address)),
      Seed(kIncarnation, Encoded<Incarnation, v1::Incarnation>(incarnation)),
      Seed(kBlocks, Encoded<std::vector<BlockRow>, v1::BlockColumns>(blocks)),
      Seed(kLocations,
           Encoded<std::vector<LocationRow>, v1::LocationColumns>(locations)),
      Seed(kOutcomes, std::string("\3\0\1\2\17", 5)),
      Seed(kExtents, std::string("\2\3\0\3\0\3\0\1\2", 9))};
  return seeds;
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  switch (input.U8() % kParts) {
    case kHeader:
      TryMessage<v1::RequestHeader>(input.Rest());
      break;
    case kHandshake:
      TryMessage<v1::Handshake>(input.Rest());
      break;
    case kContract:
      TryMessage<v1::StateContract>(input.Rest());
      break;
    case kFacts:
      TryMessage<v1::NamespaceFacts>(input.Rest());
      break;
    case kLabels:
      TryMessage<v1::Labels>(input.Rest());
      break;
    case kAddress:
      TryMessage<v1::NodeAddress>(input.Rest());
      break;
    case kIncarnation:
      TryMessage<v1::Incarnation>(input.Rest());
      break;
    case kBlocks:
      TryBlocks(input.Rest());
      break;
    case kLocations:
      TryLocations(input.Rest());
      break;
    case kOutcomes:
      TryOutcomes(input);
      break;
    case kExtents:
      TryExtents(input);
      break;
  }
  return 0;
}
