// What a session says that it read elsewhere, and how far it is believed.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/node/whole_node.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::HasSubstr;

class RemoteNotesTest : public WholeNodeTest {
 protected:
  RemoteNotesTest() { StartWith(DefaultOptions()); }
  ~RemoteNotesTest() override {
    alice_session_.reset();
    StopNode();
  }
  void StartWith(const NodeOptions& options) {
    alice_session_.reset();
    if (node_ != nullptr) StopNode();
    StartNode(options);
    alice_session_ = Connect(kAliceUid);
  }

  // Block 1, from a node of the session's invention.
  v1::NoteRemoteReadsRequest NoteOf(SessionId session) {
    v1::NoteRemoteReadsRequest request;
    *request.mutable_header() = HeaderOf(session);
    request.set_name_space(IdToProto(granite_.name_space));
    SeededRandom random(9);
    NodeAddress source;
    source.node = NodeId::Make(&random);
    source.epoch = NodeEpoch{5};
    source.stream_address = kEvil;
    ToProto(source, request.add_nodes());
    request.add_node_indexes(0);
    const std::vector<BlockRow> rows = {
        {KeyOf(1), ChainPlace{.anchor = KeyOf(1)}, 4096}};
    ToProto(rows, request.mutable_blocks());
    request.add_clear_epochs(1);
    return request;
  }
  void NoteTwice(const v1::NoteRemoteReadsRequest& request) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK(Call<v1::NoteRemoteReadsResponse>("NoteRemoteReads", request));
    }
    RunFor(absl::Seconds(2));
  }
  // How often somebody connected there.
  int ConnectionsTo(const char* address, const std::function<void()>& during) {
    int connections = 0;
    SimMachine* const machine = world_.NewMachine("other", "other");
    std::vector<std::unique_ptr<ByteStream>> streams;
    const auto listener = machine->seams().network->Listen(
        address, [&](std::unique_ptr<ByteStream> stream) {
          ++connections;
          streams.push_back(std::move(stream));
        });
    EXPECT_OK(listener);
    during();
    RunFor(absl::Seconds(10));
    return connections;
  }

  static constexpr char kEvil[] = "other:7411";
  std::unique_ptr<SessionPeer> alice_session_;
};

// It would show its token there, which opens every node.
TEST_F(RemoteNotesTest, ANodeConnectsToNobodyOnASessionsWord) {
  EXPECT_EQ(
      ConnectionsTo(kEvil, [&] { NoteTwice(NoteOf(alice_session_->id())); }),
      0);

  EXPECT_EQ(catalog_.calls["Locate"], 1);
}

TEST_F(RemoteNotesTest, ANodeConnectsToWhomTheCatalogNames) {
  v1::NoteRemoteReadsRequest request = NoteOf(alice_session_->id());
  NodeAddress source = *FromProto(request.nodes(0));
  catalog_.located[KeyOf(1)] = source;
  request.mutable_nodes(0)->set_stream_address("nowhere:1");

  EXPECT_GT(ConnectionsTo(kEvil, [&] { NoteTwice(request); }), 0);
}

TEST_F(RemoteNotesTest, AnotherTenantsBlocksAreNotFetched) {
  const auto bob = Connect(kBobUid);

  NoteTwice(NoteOf(bob->id()));

  EXPECT_EQ(catalog_.calls["Locate"], 0);
}

TEST_F(RemoteNotesTest, OneReadIsNotEnough) {
  ASSERT_OK(Call<v1::NoteRemoteReadsResponse>("NoteRemoteReads",
                                              NoteOf(alice_session_->id())));
  RunFor(absl::Seconds(1));

  EXPECT_EQ(catalog_.calls["Locate"], 0);
}

TEST_F(RemoteNotesTest, ASwitchedOffPromotionFetchesNothing) {
  NodeOptions options = DefaultOptions();
  options.promotion.on = false;
  StartWith(options);

  NoteTwice(NoteOf(alice_session_->id()));

  EXPECT_EQ(catalog_.calls["Locate"], 0);
}

TEST_F(RemoteNotesTest, PromotionsUnderWayAreBounded) {
  NodeOptions options = DefaultOptions();
  options.promotion.max_under_way_a_tenant = 2;
  StartWith(options);
  v1::NoteRemoteReadsRequest request = NoteOf(alice_session_->id());
  for (std::uint64_t n = 1; n <= 5; ++n) {
    request.mutable_blocks()->set_keys(IdToProto(KeyOf(n)));
    ASSERT_OK(Call<v1::NoteRemoteReadsResponse>("NoteRemoteReads", request));
  }
  // Their look-ups hang.
  catalog_.silent = true;
  const std::unique_ptr<ControlChannel> channel =
      caller_->seams().control->Connect(kSessionGrpc);
  for (std::uint64_t n = 1; n <= 5; ++n) {
    request.mutable_blocks()->set_keys(IdToProto(KeyOf(n)));
    channel->StartCall("/firnkv.v1.NodeService/NoteRemoteReads",
                       request.SerializeAsString(), absl::Seconds(5),
                       [](const absl::StatusOr<std::string>&) {});
  }

  RunFor(absl::Seconds(1));

  EXPECT_EQ(catalog_.calls["Locate"], 2);
  catalog_.silent = false;
  RunFor(absl::Seconds(5));
}

TEST_F(RemoteNotesTest, ATokenIsNoSession) {
  v1::NoteRemoteReadsRequest request = NoteOf({});
  request.mutable_header()->set_token(TokenOf(Role::kNode));

  EXPECT_THAT(Call<v1::NoteRemoteReadsResponse>("NoteRemoteReads", request),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST_F(RemoteNotesTest, ABadNoteIsRefusedWithItsField) {
  const v1::NoteRemoteReadsRequest good = NoteOf(alice_session_->id());
  const auto expect =
      [&](const char* field,
          const std::function<void(v1::NoteRemoteReadsRequest*)>& spoil) {
        v1::NoteRemoteReadsRequest bad = good;
        spoil(&bad);
        EXPECT_THAT(
            Call<v1::NoteRemoteReadsResponse>("NoteRemoteReads", bad),
            StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)));
      };

  expect("name_space", [](auto* bad) { bad->clear_name_space(); });
  expect("node_indexes", [](auto* bad) { bad->set_node_indexes(0, 1); });
  expect("node_indexes", [](auto* bad) { bad->clear_node_indexes(); });
  expect("nodes", [](auto* bad) { *bad->add_nodes() = bad->nodes(0); });
  expect("clear_epochs", [](auto* bad) { bad->clear_clear_epochs(); });
  expect("clear_epochs", [](auto* bad) { bad->set_clear_epochs(0, 0); });
  expect("blocks.lengths",
         [](auto* bad) { bad->mutable_blocks()->set_lengths(0, 0); });
  expect("blocks.keys", [](auto* bad) {
    bad->mutable_blocks()->set_keys(std::string(BlockKey::kBytes, '\0'));
  });
}

}  // namespace
}  // namespace firnkv
