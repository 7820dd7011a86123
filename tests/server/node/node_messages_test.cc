// Every bound of a message is checked: a bad one gets a clear status, and
// nothing is lost.

#include "server/node/node_messages.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/node/whole_node.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::HasSubstr;

constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;

std::vector<Outcome> OutcomesOf(const std::string& bytes) {
  std::vector<Outcome> outcomes;
  for (const char byte : bytes) outcomes.push_back(static_cast<Outcome>(byte));
  return outcomes;
}

class NodeMessagesTest : public WholeNodeTest {
 protected:
  NodeMessagesTest() {
    StartNode();
    alice_session_ = Connect(kAliceUid);
    session_ = alice_session_->id();
  }
  ~NodeMessagesTest() override {
    alice_session_.reset();
    StopNode();
  }
  // A call that is wrong in one field, which the answer names, changes nothing.
  template <typename Request>
  void ExpectRefused(const char* method, const Request& good,
                     const std::function<void(Request*)>& spoil,
                     const char* field) {
    Request bad = good;
    spoil(&bad);
    const auto answer = CallRaw(kSessionGrpc, method, bad.SerializeAsString());
    EXPECT_THAT(answer.status(), StatusIs(kInvalidArgument, HasSubstr(field)))
        << method << " " << field;
    EXPECT_EQ(node_->pool().leases, 0u);
    EXPECT_EQ(node_->pool().reserved_slots, 0u);
  }

  std::unique_ptr<SessionPeer> alice_session_;
  SessionId session_;
};

TEST_F(NodeMessagesTest, BytesThatAreNoMessageAreRefused) {
  for (const char* method :
       {"OpenRead", "Release", "Renew", "Reserve", "Commit", "Abort", "Exists",
        "Remove", "ReportCorrupt", "NoteRemoteReads", "FetchCopies", "Connect",
        "Drain", "Status"}) {
    EXPECT_THAT(CallRaw(kSessionGrpc, method, "\xff\xff\xff\xff\xff").status(),
                StatusIs(kInvalidArgument))
        << method;
  }
}

TEST_F(NodeMessagesTest, AMessageOverItsBoundIsRefused) {
  EXPECT_THAT(CallRaw(kSessionGrpc, "OpenRead",
                      std::string(kMaxControlMessageBytes + 1, 'a'))
                  .status(),
              StatusIs(kInvalidArgument));
}

TEST_F(NodeMessagesTest, ABadHeaderIsRefused) {
  const v1::OpenReadRequest good = OpenOf(session_, granite_, 1);
  using Request = v1::OpenReadRequest;
  const auto refused = [&](std::function<void(v1::RequestHeader*)> spoil) {
    Request bad = good;
    spoil(bad.mutable_header());
    return !CallRaw(kSessionGrpc, "OpenRead", bad.SerializeAsString()).ok();
  };
  EXPECT_TRUE(refused([](auto* header) { header->set_remaining_micros(0); }));
  EXPECT_TRUE(
      refused([](auto* header) { header->set_remaining_micros(1ull << 62); }));
  EXPECT_TRUE(refused([](auto* header) { header->set_traffic_class(99); }));
  EXPECT_TRUE(refused([](auto* header) { header->set_protocol(99); }));
  EXPECT_TRUE(refused([](auto* header) { header->set_session("short"); }));
  EXPECT_TRUE(refused([](auto* header) { header->set_trace("short"); }));
  EXPECT_TRUE(
      refused([](auto* header) { header->set_token(std::string(5000, 't')); }));
}

TEST_F(NodeMessagesTest, ABadOpenReadIsRefusedWithItsField) {
  const v1::OpenReadRequest good = OpenOf(session_, granite_, 1);
  using Request = v1::OpenReadRequest;
  ExpectRefused<Request>(
      "OpenRead", good, [](Request* bad) { bad->set_name_space("short"); },
      "name_space");
  ExpectRefused<Request>(
      "OpenRead", good,
      [](Request* bad) { bad->set_name_space(std::string(16, '\0')); },
      "name_space");
  ExpectRefused<Request>(
      "OpenRead", good, [](Request* bad) { bad->mutable_keys()->pop_back(); },
      "keys");
  ExpectRefused<Request>(
      "OpenRead", good,
      [](Request* bad) {
        bad->set_keys(std::string(32 * (kMaxBatchKeys + 1), 'k'));
      },
      "keys");
}

TEST_F(NodeMessagesTest, ABadReserveIsRefusedWithItsField) {
  const v1::ReserveRequest good = ReserveOf(session_, granite_, 1, 4096);
  using Request = v1::ReserveRequest;
  const auto refuse = [&](std::function<void(Request*)> spoil,
                          const char* field) {
    ExpectRefused<Request>("Reserve", good, spoil, field);
  };
  refuse([](Request* bad) { bad->set_name_space("x"); }, "name_space");
  refuse([](Request* bad) { bad->mutable_blocks()->clear_lengths(); },
         "lengths");
  refuse([](Request* bad) { bad->mutable_blocks()->set_anchors("x"); },
         "anchors");
  refuse([](Request* bad) { bad->mutable_blocks()->set_lengths(0, 0); },
         "length");
  refuse(
      [](Request* bad) { bad->mutable_blocks()->set_lengths(0, 1ull << 40); },
      "lengths");
  refuse(
      [](Request* bad) {
        bad->mutable_hint()->set_conversation(std::string(33, 'c'));
      },
      "hint.conversation");
  refuse([](Request* bad) { bad->mutable_hint()->set_session_state(3); },
         "hint.session_state");
}

TEST_F(NodeMessagesTest, OneKeyTwiceInABatchIsRefused) {
  v1::ReserveRequest request = ReserveOf(session_, granite_, 1, 4096);
  const BlockRow row{KeyOf(1), ChainPlace{.anchor = KeyOf(1)}, 4096};
  const std::vector<BlockRow> twice = {row, row};
  ToProto(absl::Span<const BlockRow>(twice), request.mutable_blocks());

  EXPECT_THAT(Call<v1::ReserveResponse>("Reserve", request),
              StatusIs(kInvalidArgument));
  EXPECT_EQ(node_->pool().reserved_slots, 0u);
}

TEST_F(NodeMessagesTest, ABadCommitIsRefusedAndTheReservationLives) {
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session_, granite_, 1, 4096));
  LendStaging(alice_session_.get(), ++next_staging_, 1, 4096);
  const v1::CommitRequest good =
      CommitOf(session_, reserved->reservation(), 1, 4096);
  using Request = v1::CommitRequest;
  const std::vector<std::function<void(Request*)>> spoils = {
      [](Request* bad) { bad->set_reservation(0); },
      [](Request* bad) { bad->set_wait_for(2); },
      [](Request* bad) { bad->set_wait_for(77); },
      [](Request* bad) { bad->set_indexes(0, 1); },
      [](Request* bad) { bad->clear_extent_counts(); },
      [](Request* bad) { bad->set_extent_counts(0, 2); },
      [](Request* bad) { bad->set_extent_counts(0, 1u << 31); },
      [](Request* bad) { bad->set_extent_lengths(0, 0); },
      [](Request* bad) { bad->set_extent_lengths(0, ~0ull); },
      [](Request* bad) { bad->set_extent_lengths(0, 2048); },
      [](Request* bad) { bad->set_extent_offsets(0, ~0ull); },
      [](Request* bad) { bad->set_extent_offsets(0, 4096); },
      [](Request* bad) { bad->set_extent_stagings(0, 424242); },
      [](Request* bad) { bad->clear_pieces(); },
      [](Request* bad) { bad->add_pieces(1); },
      [](Request* bad) { bad->add_indexes(0); },
      [](Request* bad) {
        for (int i = 0; i < 5000; ++i) bad->add_indexes(0);
      },
  };
  for (std::size_t i = 0; i < spoils.size(); ++i) {
    Request bad = good;
    spoils[i](&bad);
    EXPECT_THAT(Call<v1::CommitResponse>("Commit", bad),
                StatusIs(kInvalidArgument))
        << i;
  }

  const auto committed = Call<v1::CommitResponse>("Commit", good);

  EXPECT_EQ(OutcomesOf(committed->outcomes()),
            std::vector<Outcome>{Outcome::kStored});
}

TEST_F(NodeMessagesTest, ABadReportIsRefusedWithItsField) {
  v1::ReportCorruptRequest good;
  *good.mutable_header() = HeaderOf(session_);
  good.set_name_space(IdToProto(granite_.name_space));
  good.set_keys(IdToProto(KeyOf(1)));
  good.add_generations(1);
  using Request = v1::ReportCorruptRequest;
  ExpectRefused<Request>(
      "ReportCorrupt", good, [](Request* bad) { bad->add_generations(2); },
      "generations");
  ExpectRefused<Request>(
      "ReportCorrupt", good, [](Request* bad) { bad->set_generations(0, 0); },
      "generations");
}

TEST_F(NodeMessagesTest, TooManyLeasesAreRefused) {
  v1::ReleaseRequest request;
  *request.mutable_header() = HeaderOf(session_);
  for (std::size_t i = 0; i <= kMaxBatchKeys; ++i) request.add_leases(i);

  EXPECT_THAT(Call<v1::ReleaseResponse>("Release", request),
              StatusIs(kInvalidArgument, HasSubstr("leases")));
}

}  // namespace
}  // namespace firnkv
