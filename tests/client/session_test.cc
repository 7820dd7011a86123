// How a Client comes to its node, loses it, and finds it again; and what it
// does in a forked child.

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SessionTest : public ClientFixture {};

TEST_F(SessionTest, AClientKnowsWhereItIs) {
  Connect();

  const Client::About about = client_->Describe();

  EXPECT_TRUE(about.session);
  EXPECT_EQ(about.node, node_->address().node);
  EXPECT_EQ(about.cluster, cluster_);
  EXPECT_EQ(about.tenant_name, "default");
  EXPECT_EQ(about.labels.host, "node1");
  EXPECT_TRUE(about.mapping);
}

TEST_F(SessionTest, WithoutANodeConnectingFailsInTime) {
  node_->StopServing();
  const BootTime begin = Now();

  const absl::Status status = TryConnect();

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Now() - begin, options_.connect_timeout);
}

TEST_F(SessionTest, ANodeThatDoesNotAnswerTheHelloFailsInTime) {
  node_->silent_hello = true;
  const BootTime begin = Now();

  EXPECT_THAT(TryConnect(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Now() - begin, options_.connect_timeout);
}

TEST_F(SessionTest, ARefusalSaysWhyAtOnce) {
  node_->refuse_session = absl::PermissionDeniedError("uid 7 is nobody's");
  const BootTime begin = Now();

  EXPECT_THAT(TryConnect(), StatusIs(absl::StatusCode::kPermissionDenied,
                                     HasSubstr("uid 7 is nobody's")));
  EXPECT_LT(Now() - begin, absl::Seconds(1));
}

// Rule S6.
TEST_F(SessionTest, NothingIsSentToAServerOfAnotherUid) {
  options_.server_uid = 1001;

  EXPECT_THAT(TryConnect(), StatusIs(absl::StatusCode::kPermissionDenied,
                                     HasSubstr("uid 1000")));
  EXPECT_EQ(node_->sessions, 0);
}

TEST_F(SessionTest, AnotherKeyRecipeIsRefused) {
  node_->on_welcome = [](v1::SessionWelcome* welcome) {
    welcome->mutable_handshake()->set_test_vector(std::string(32, 'x'));
  };

  EXPECT_THAT(TryConnect(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(SessionTest, AWelcomeWithoutASessionIsNone) {
  node_->on_welcome = [](v1::SessionWelcome* welcome) {
    welcome->clear_session();
  };

  EXPECT_THAT(TryConnect(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(SessionTest, AClientMayBeMadeBeforeItsNode) {
  node_->StopServing();
  options_.wait_for_node = false;
  Connect();
  std::vector<Landing> early{{1, 64}};
  Read(early);
  node_->StartServing();
  node_->Put(Id(1), BytesFor(1, 64));
  RunFor(absl::Seconds(3));
  std::vector<Landing> later{{1, 64}};

  Read(later);

  EXPECT_THAT(OutcomesOf(early), ElementsAre(Outcome::kUnavailable));
  EXPECT_THAT(OutcomesOf(later), ElementsAre(Outcome::kHit));
}

TEST_F(SessionTest, ALostSessionIsFollowedByAnother) {
  Connect();
  node_->Put(Id(1), BytesFor(1, 64));
  std::vector<Landing> first{{1, 64}};
  Read(first);

  node_->StopServing();
  RunFor(absl::Milliseconds(100));
  EXPECT_FALSE(client_->Describe().session);
  node_->StartServing();
  RunFor(absl::Seconds(3));
  std::vector<Landing> second{{1, 64}};
  Read(second);

  EXPECT_THAT(OutcomesOf(second), ElementsAre(Outcome::kHit));
  EXPECT_EQ(client_->Stats().sessions, 2u);
  EXPECT_EQ(client_->Stats().sessions_lost, 1u);
  EXPECT_EQ(log_.size(), 1u);
}

TEST_F(SessionTest, AClusterThatChangedIsRefused) {
  Connect();
  node_->on_welcome = [](v1::SessionWelcome* welcome) {
    welcome->mutable_handshake()->set_cluster(std::string(16, 'z'));
  };
  node_->DropSessions();
  RunFor(absl::Seconds(3));

  EXPECT_FALSE(client_->Describe().session);
}

TEST_F(SessionTest, ASessionThatEndsWhileARegionIsMappedCostsNoHang) {
  Connect();
  node_->Put(Id(1), BytesFor(1, 64));
  node_->silent_descriptors = true;
  std::vector<Landing> wanted{{1, 64}};
  const auto state = BeginRead(wanted);
  RunFor(absl::Milliseconds(5));
  ASSERT_FALSE(state->report.has_value());

  node_->DropSessions();
  Finish(state.get());

  EXPECT_LT(state->report->took, absl::Seconds(1));
}

TEST_F(SessionTest, ATokenIsRenewedAtHalfItsLife) {
  Connect();
  RunFor(absl::Minutes(31));
  remote_->Put(Id(1), BytesFor(1, 64));
  catalog_->Locate(Id(1), remote_->address(), 64);
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_EQ(node_->tokens_renewed, 1);
  EXPECT_THAT(remote_->stream().tokens, ElementsAre("token 2"));
}

TEST_F(SessionTest, AMessageThatNobodyAskedForEndsTheSession) {
  Connect();
  v1::NodeMessage message;
  message.mutable_descriptor_is()->set_region(3);

  node_->SendToSession(message);
  RunFor(absl::Seconds(1));

  EXPECT_EQ(client_->Stats().sessions_lost, 1u);
  EXPECT_EQ(client_->Stats().sessions, 2u);
}

TEST_F(SessionTest, ARetiredRegionThatWasNeverMappedIsNoNews) {
  Connect();
  v1::NodeMessage message;
  message.mutable_region_retired()->set_region(99);

  node_->SendToSession(message);
  RunFor(absl::Seconds(1));

  EXPECT_EQ(client_->Stats().sessions_lost, 0u);
}

// Rules P9 and P11: the node counts a region as mapped from its first
// descriptor on, and closes a session that never says that it unmapped it.
TEST_F(SessionTest, ARegionRefusedHalfWayIsSaidToBeUnmapped) {
  Connect();
  node_->Put(Id(1), BytesFor(1, 64));
  node_->refuse_tables = true;
  const std::int64_t mapped = node_->machine()->memory()->mappings();
  std::vector<Landing> wanted{{1, 64}};
  Read(wanted);
  RunFor(absl::Seconds(1));

  EXPECT_EQ(node_->machine()->memory()->mappings(), mapped);
  EXPECT_THAT(node_->unmapped, ElementsAre(1u));
  EXPECT_EQ(client_->Stats().sessions_lost, 0u);
}

TEST_F(SessionTest, ClosingLeavesNothingMapped) {
  Connect();
  node_->Put(Id(1), BytesFor(1, 64));
  const std::int64_t mapped = node_->machine()->memory()->mappings();
  std::vector<Landing> wanted{{1, 64}};
  Read(wanted);
  EXPECT_EQ(node_->machine()->memory()->mappings(), mapped + 2);

  client_.reset();
  RunFor(absl::Seconds(1));

  EXPECT_EQ(node_->machine()->memory()->mappings(), mapped);
}

TEST_F(SessionTest, OptionsOutOfBoundsAreRefusedByName) {
  options_.buffer_grace = absl::ZeroDuration();

  EXPECT_THAT(TryConnect(), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("buffer_grace")));
}

TEST_F(SessionTest, ANodeOrACatalogIsNeeded) {
  options_.socket_path = "";

  EXPECT_THAT(TryConnect(), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Rule S6.
TEST_F(SessionTest, InAForkedChildEveryCallAndTheDestructorDoNothing) {
  Connect();
  node_->Put(Id(1), BytesFor(1, 64));

  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<Landing> wanted{{1, 64}};
    wanted[0].Aim();
    const ReadReport report =
        client_->Read({.name_space = handle_,
                       .blocks = absl::MakeSpan(&wanted[0].target, 1),
                       .deadline = absl::Seconds(1)});
    bool right = report.hits == 0;
    right = right && wanted[0].target.outcome == Outcome::kUnavailable;
    right = right && !client_->AllocateShared(10).ok();
    right = right && !client_->OpenNamespace({.name = "x"}).ok();
    client_->FreeShared(nullptr);
    client_->Close();
    client_.reset();
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  std::vector<Landing> wanted{{1, 64}};
  Read(wanted);

  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
}

}  // namespace
}  // namespace firnkv
