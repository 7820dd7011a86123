// Messages to and from base types, and every bound on the way in.

#include "proto/convert.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/types.pb.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

RequestHeader SampleRequest() {
  RequestHeader header;
  header.remaining = absl::Milliseconds(250);
  header.traffic = TrafficClass::kRebuild;
  header.trace = CountingId<TraceId>(1);
  header.token = "a token";
  return header;
}

v1::RequestHeader SampleRequestMessage() {
  v1::RequestHeader message;
  ToProto(SampleRequest(), &message);
  return message;
}

TEST(ConvertRequestHeader, ComesBackAsItWas) {
  ASSERT_OK_AND_ASSIGN(const RequestHeader header,
                       FromProto(SampleRequestMessage()));

  EXPECT_EQ(header.remaining, absl::Milliseconds(250));
  EXPECT_EQ(header.traffic, TrafficClass::kRebuild);
  EXPECT_EQ(header.trace, CountingId<TraceId>(1));
  EXPECT_TRUE(header.session.IsZero());
  EXPECT_EQ(header.token, "a token");
  EXPECT_EQ(header.protocol, kOldestProtocolVersion);
}

TEST(ConvertRequestHeader, AnEmptyMessageIsRefused) {
  EXPECT_THAT(FromProto(v1::RequestHeader()), StatusIs(kInvalid));
}

TEST(ConvertRequestHeader, EachFieldHasItsBound) {
  v1::RequestHeader message = SampleRequestMessage();
  message.set_trace("short");
  EXPECT_THAT(FromProto(message), StatusIs(kInvalid, HasSubstr("trace")));

  message = SampleRequestMessage();
  message.set_session(std::string(17, 's'));
  EXPECT_THAT(FromProto(message), StatusIs(kInvalid, HasSubstr("session")));

  message = SampleRequestMessage();
  message.set_token(std::string(kMaxTokenBytes + 1, 't'));
  EXPECT_THAT(FromProto(message), StatusIs(kInvalid, HasSubstr("token")));

  message = SampleRequestMessage();
  message.set_traffic_class(257);  // 1 in its lowest byte.
  EXPECT_THAT(FromProto(message), StatusIs(kInvalid, HasSubstr("class")));

  message = SampleRequestMessage();
  message.set_remaining_micros(UINT64_MAX);
  EXPECT_THAT(FromProto(message), StatusIs(kInvalid, HasSubstr("deadline")));

  message = SampleRequestMessage();
  message.set_remaining_micros(0);
  EXPECT_THAT(FromProto(message),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(ConvertHandshake, ComesBackAsItWas) {
  const Handshake sent{.oldest_protocol = 1,
                       .newest_protocol = 4,
                       .cluster = CountingId<ClusterId>(5),
                       .test_vector = HandshakeTestVector()};
  v1::Handshake message;
  ToProto(sent, &message);

  ASSERT_OK_AND_ASSIGN(const Handshake got, FromProto(message));

  EXPECT_EQ(got.newest_protocol, 4u);
  EXPECT_EQ(got.cluster, sent.cluster);
  EXPECT_EQ(got.test_vector, sent.test_vector);
}

TEST(ConvertHandshake, AClusterMayBeUnknownATestVectorNot) {
  v1::Handshake message;
  ToProto(Handshake{.cluster = {}, .test_vector = HandshakeTestVector()},
          &message);
  EXPECT_EQ(message.cluster(), "");
  EXPECT_THAT(FromProto(message), IsOk());

  message.clear_test_vector();

  EXPECT_THAT(FromProto(message), StatusIs(kInvalid, HasSubstr("test_vector")));
}

TEST(ConvertStateContract, ComesBackAsItWas) {
  v1::StateContract message;
  ToProto(SampleContractWithOptions(), &message);

  EXPECT_THAT(FromProto(message), IsOkAndHolds(SampleContractWithOptions()));
}

TEST(ConvertStateContract, AMissingFieldIsLeftToValidateToName) {
  v1::StateContract message;
  ToProto(SampleContract(), &message);
  message.clear_kv_dtype();

  ASSERT_OK_AND_ASSIGN(const StateContract contract, FromProto(message));

  EXPECT_THAT(Validate(contract), StatusIs(kInvalid, HasSubstr("kv_dtype")));
}

TEST(ConvertStateContract, TooManyAdaptersAreRefused) {
  v1::StateContract message;
  ToProto(SampleContract(), &message);
  for (std::size_t i = 0; i <= kMaxContractAdapters; ++i) {
    message.add_adapters()->set_name("a");
  }

  EXPECT_THAT(FromProto(message), StatusIs(kInvalid, HasSubstr("adapters")));
}

NamespaceFacts SampleFacts() {
  NamespaceFacts facts;
  facts.name_space = CountingId<NamespaceId>(1);
  facts.tenant = CountingId<TenantId>(2);
  facts.tenant_name = "acme";
  facts.name = "llama";
  facts.version = 3;
  facts.digest = CountingId<IdentityDigest>(4);
  facts.clear_epoch = ClearEpoch{5};
  facts.block_bytes = 2 * kMiB;
  facts.chained = true;
  facts.retention = absl::Hours(24);
  facts.strict_clear = true;
  facts.flash_mode = FlashMode::kCanary;
  return facts;
}

TEST(ConvertNamespaceFacts, ComesBackAsItWas) {
  v1::NamespaceFacts message;
  ToProto(SampleFacts(), &message);

  EXPECT_THAT(FromProto(message), IsOkAndHolds(SampleFacts()));
}

TEST(ConvertNamespaceFacts, EveryFlashModeComesBack) {
  for (const FlashMode mode : {FlashMode::kOff, FlashMode::kShadow,
                               FlashMode::kCanary, FlashMode::kOn}) {
    NamespaceFacts facts = SampleFacts();
    facts.flash_mode = mode;
    v1::NamespaceFacts message;
    ToProto(facts, &message);

    EXPECT_THAT(FromProto(message), IsOkAndHolds(facts));
  }
}

TEST(ConvertNamespaceFacts, AModeThatIsUnknownHereIsOff) {
  v1::NamespaceFacts message;
  ToProto(SampleFacts(), &message);
  message.set_flash_mode("hyperspace");

  ASSERT_OK_AND_ASSIGN(const NamespaceFacts facts, FromProto(message));

  EXPECT_EQ(facts.flash_mode, FlashMode::kOff);
}

TEST(ConvertNamespaceFacts, EachFieldHasItsBound) {
  using Change = void (*)(v1::NamespaceFacts*);
  const std::pair<const char*, Change> cases[] = {
      {"name_space", [](auto* m) { m->set_name_space("x"); }},
      {"tenant", [](auto* m) { m->clear_tenant(); }},
      {"digest", [](auto* m) { m->set_digest(std::string(31, 'd')); }},
      {"name", [](auto* m) { m->set_name(std::string(129, 'n')); }},
      {"tenant_name",
       [](auto* m) { m->set_tenant_name(std::string(129, 'n')); }},
      {"block_bytes",
       [](auto* m) { m->set_block_bytes(kLargestBlockBytes + 1); }},
      {"retention_seconds",
       [](auto* m) { m->set_retention_seconds(UINT64_MAX); }},
  };

  for (const auto& one : cases) {
    v1::NamespaceFacts message;
    ToProto(SampleFacts(), &message);
    one.second(&message);
    EXPECT_THAT(FromProto(message), StatusIs(kInvalid, HasSubstr(one.first)));
  }
}

TEST(ConvertNodeAddress, ComesBackAsItWas) {
  const NodeAddress address{.node = CountingId<NodeId>(1),
                            .epoch = NodeEpoch{0xfeedfacecafebeef},
                            .stream_address = "10.0.0.1:7411",
                            .control_address = "10.0.0.1:7410",
                            .labels = {"zone a", "rack 4", "host17"}};
  v1::NodeAddress message;
  ToProto(address, &message);

  EXPECT_THAT(FromProto(message), IsOkAndHolds(address));
}

TEST(ConvertNodeAddress, LongLabelsAndAddressesAreRefused) {
  v1::NodeAddress message;
  ToProto(NodeAddress{}, &message);
  message.mutable_labels()->set_rack(std::string(kMaxNameBytes + 1, 'r'));
  EXPECT_THAT(FromProto(message), StatusIs(kInvalid, HasSubstr("rack")));

  message.clear_labels();
  message.set_stream_address(std::string(kMaxNameBytes + 1, 'a'));
  EXPECT_THAT(FromProto(message),
              StatusIs(kInvalid, HasSubstr("stream_address")));
}

TEST(ConvertIncarnation, ComesBackAsItWas) {
  Incarnation incarnation;
  incarnation.incarnation = 7;
  incarnation.random_id.bytes.fill(9);
  incarnation.sequence = 11;
  v1::Incarnation message;
  ToProto(incarnation, &message);

  EXPECT_THAT(FromProto(message), IsOkAndHolds(incarnation));
}

TEST(ConvertKeys, ColumnsComeBackInOrder) {
  const std::vector<BlockKey> keys = {CountingId<BlockKey>(9),
                                      CountingId<BlockKey>(1)};

  EXPECT_THAT(KeysFromProto("keys", KeysToProto(keys)), IsOkAndHolds(keys));
  EXPECT_THAT(KeysFromProto("keys", ""), IsOkAndHolds(SizeIs(0)));
}

TEST(ConvertKeys, HalfAKeyIsRefusedByTheNameOfItsColumn) {
  EXPECT_THAT(KeysFromProto("anchors", std::string(33, 'k')),
              StatusIs(kInvalid, HasSubstr("anchors has 33 bytes")));
}

TEST(ConvertKeys, ABatchHasABound) {
  EXPECT_THAT(KeysFromProto("keys", std::string(32 * kMaxBatchKeys, 'k')),
              IsOkAndHolds(SizeIs(kMaxBatchKeys)));
  EXPECT_THAT(KeysFromProto("keys", std::string(32 * (kMaxBatchKeys + 1), 'k')),
              StatusIs(kInvalid, HasSubstr("4097 entries")));
}

std::vector<BlockRow> SampleRows() {
  BlockRow first{CountingId<BlockKey>(1), SampleHeader().place, 70'000};
  BlockRow second{CountingId<BlockKey>(2), {}, 1};
  second.place.position = UINT32_MAX;
  second.place.shard = {.count = 65'535, .index = 65'534};
  return {first, second};
}

v1::BlockColumns SampleColumns() {
  v1::BlockColumns columns;
  ToProto(SampleRows(), &columns);
  return columns;
}

TEST(ConvertBlockColumns, ComeBackAsRows) {
  EXPECT_THAT(FromProto(SampleColumns()), IsOkAndHolds(SampleRows()));
}

TEST(ConvertBlockColumns, NoRowsAreFine) {
  EXPECT_THAT(FromProto(v1::BlockColumns()), IsOkAndHolds(SizeIs(0)));
}

TEST(ConvertBlockColumns, EachColumnOfAnotherLengthIsRefusedByItsName) {
  using Change = void (*)(v1::BlockColumns*);
  const std::pair<const char*, Change> cases[] = {
      {"keys", [](auto* c) { c->mutable_keys()->pop_back(); }},
      {"parents", [](auto* c) { c->mutable_parents()->pop_back(); }},
      {"anchors", [](auto* c) { c->mutable_anchors()->append(32, 'a'); }},
      {"positions", [](auto* c) { c->add_positions(1); }},
      {"first_tokens", [](auto* c) { c->clear_first_tokens(); }},
      {"tokens", [](auto* c) { c->add_tokens(1); }},
      {"lengths", [](auto* c) { c->mutable_lengths()->RemoveLast(); }},
      {"shard_counts", [](auto* c) { c->add_shard_counts(1); }},
      {"shard_indexes", [](auto* c) { c->clear_shard_indexes(); }},
  };

  for (const auto& one : cases) {
    v1::BlockColumns columns = SampleColumns();
    one.second(&columns);
    EXPECT_THAT(
        FromProto(columns),
        StatusIs(kInvalid, HasSubstr(std::string(one.first) + " has ")));
  }
}

TEST(ConvertBlockColumns, AShardThatIsNoneOfItsCountIsRefused) {
  const std::pair<std::uint32_t, std::uint32_t> cases[] = {
      {2, 2}, {0, 1}, {65'536, 0}, {UINT32_MAX, 1}};
  for (const auto& one : cases) {
    v1::BlockColumns columns = SampleColumns();
    columns.set_shard_counts(1, one.first);
    columns.set_shard_indexes(1, one.second);
    EXPECT_THAT(FromProto(columns), StatusIs(kInvalid, HasSubstr("shard")));
  }
}

TEST(ConvertBlockColumns, TheShardOfAWithdrawalMayBeZeroOfZero) {
  v1::BlockColumns columns = SampleColumns();
  columns.set_shard_counts(1, 0);
  columns.set_shard_indexes(1, 0);

  ASSERT_OK_AND_ASSIGN(const std::vector<BlockRow> rows, FromProto(columns));

  EXPECT_EQ(rows[1].place.shard, Shard{});
}

TEST(ConvertLocations, ComeBackAsRows) {
  const std::vector<LocationRow> rows = {
      {.node = 1, .tier = 0, .generation = Generation{7}, .length = 70'000},
      {.node = 0, .tier = 1, .generation = Generation{8}, .length = 1}};
  v1::LocationColumns columns;
  ToProto(rows, &columns);

  EXPECT_THAT(FromProto(columns, 2, 10), IsOkAndHolds(rows));
}

TEST(ConvertLocations, NodesTiersAndCountsAreBounded) {
  v1::LocationColumns columns;
  ToProto(std::vector<LocationRow>{{.node = 1, .tier = 1}}, &columns);

  EXPECT_THAT(FromProto(columns, 1, 10),
              StatusIs(kInvalid, HasSubstr("node_indexes")));
  EXPECT_THAT(FromProto(columns, 2, 0),
              StatusIs(kInvalid, HasSubstr("at most 0")));
  columns.set_tiers(0, 2);
  EXPECT_THAT(FromProto(columns, 2, 10),
              StatusIs(kInvalid, HasSubstr("tiers")));
  columns.add_lengths(1);
  EXPECT_THAT(FromProto(columns, 2, 10),
              StatusIs(kInvalid, HasSubstr("different lengths")));
}

TEST(ConvertOutcomes, ComeBackInOrder) {
  const std::vector<Outcome> outcomes = {Outcome::kHit, Outcome::kCleared,
                                         Outcome::kMiss};

  EXPECT_THAT(OutcomesFromProto(OutcomesToProto(outcomes), 3),
              IsOkAndHolds(outcomes));
}

TEST(ConvertOutcomes, AnUnsetOrUnknownOneIsRefused) {
  for (const char number : {'\0', '\x13', '\xff'}) {
    EXPECT_THAT(OutcomesFromProto(std::string{'\1', number}, 2),
                StatusIs(kInvalid, HasSubstr("outcomes")));
  }
}

TEST(ConvertOutcomes, TooFewOrTooManyAnswersAreRefused) {
  EXPECT_THAT(OutcomesFromProto("\1\1", 1), StatusIs(kInvalid));
  EXPECT_THAT(OutcomesFromProto("\1\1", 3), StatusIs(kInvalid));
}

TEST(CheckExtents, CountsMustBeOneABlockAndAddUp) {
  EXPECT_THAT(CheckExtents(2, {1, 3}, 4, 4, 4), IsOk());
  EXPECT_THAT(CheckExtents(0, {}, 0, 0, 0), IsOk());

  EXPECT_THAT(CheckExtents(3, {1, 3}, 4, 4, 4), StatusIs(kInvalid));
  EXPECT_THAT(CheckExtents(2, {1, 3}, 3, 4, 4), StatusIs(kInvalid));
  EXPECT_THAT(CheckExtents(2, {1, 3}, 4, 5, 4), StatusIs(kInvalid));
  EXPECT_THAT(CheckExtents(2, {1, 3}, 4, 4, 3), StatusIs(kInvalid));
}

TEST(CheckExtents, ABlockHasAtLeastOneAndAtMostSixteen) {
  EXPECT_THAT(CheckExtents(1, {16}, 16, 16, 16), IsOk());

  EXPECT_THAT(CheckExtents(1, {0}, 0, 0, 0), StatusIs(kInvalid));
  EXPECT_THAT(CheckExtents(1, {17}, 17, 17, 17), StatusIs(kInvalid));
  EXPECT_THAT(CheckExtents(2, {1, UINT32_MAX}, 0, 0, 0), StatusIs(kInvalid));
}

}  // namespace
}  // namespace firnkv
