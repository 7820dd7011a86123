// How many sessions there may be, and what a hostile one costs.

#include "server/node/session_listener.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/node/whole_node.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

constexpr auto kResourceExhausted =
    static_cast<std::uint32_t>(absl::StatusCode::kResourceExhausted);

class SessionListenerTest : public WholeNodeTest {};

// --- Caps.

// Rule S4.
TEST_F(SessionListenerTest, OneUidHasABoundedNumberOfSessions) {
  NodeOptions options = DefaultOptions();
  options.max_sessions_a_uid = 3;
  StartNode(options);
  std::vector<std::unique_ptr<SessionPeer>> sessions;
  for (int i = 0; i < 3; ++i) sessions.push_back(Connect(kAliceUid));

  const auto fourth = Connect(kAliceUid);
  const auto other = Connect(kBobUid);

  ASSERT_NE(fourth->refused(), nullptr);
  EXPECT_EQ(fourth->refused()->code(), kResourceExhausted);
  EXPECT_NE(other->welcome(), nullptr);
}

// Rule S4.
TEST_F(SessionListenerTest, AnEndedSessionMakesRoomForAnother) {
  NodeOptions options = DefaultOptions();
  options.max_sessions_a_uid = 1;
  StartNode(options);
  const auto first = Connect(kAliceUid);
  first->Close();
  RunFor(absl::Milliseconds(10));

  EXPECT_NE(Connect(kAliceUid)->welcome(), nullptr);
}

// Rule S4: what it does not read stays in the socket, as the node's memory.
TEST_F(SessionListenerTest, AnEndedSessionThatReadsNothingKeepsItsPlace) {
  NodeOptions options = DefaultOptions();
  options.max_sessions_a_uid = 1;
  options.max_sessions = 2;
  StartNode(options);
  auto unread = std::make_unique<SessionPeer>(NewClient(kAliceUid), kSocket,
                                              /*reads=*/false);
  unread->Send(SessionPeer::Hello(catalog_.cluster));
  RunFor(absl::Milliseconds(10));
  ASSERT_EQ(Status().sessions(), 1u);
  unread->SendRaw("\xff\xff\xff\xff");
  RunFor(absl::Milliseconds(10));
  ASSERT_EQ(Status().sessions(), 0u);

  EXPECT_EQ(Connect(kAliceUid)->welcome(), nullptr);
  EXPECT_NE(Connect(kBobUid)->welcome(), nullptr);
  unread.reset();
  RunFor(absl::Milliseconds(10));

  EXPECT_NE(Connect(kAliceUid)->welcome(), nullptr);
}

// Rule S4.
TEST_F(SessionListenerTest, TheNodeHasABoundedNumberOfSessions) {
  NodeOptions options = DefaultOptions();
  options.max_sessions = 2;
  StartNode(options);
  const auto alice = Connect(kAliceUid);
  const auto bob = Connect(kBobUid);

  const auto third = Connect(kAliceUid);

  ASSERT_NE(third->refused(), nullptr);
  EXPECT_EQ(third->refused()->code(), kResourceExhausted);
}

TEST_F(SessionListenerTest, SilentConnectionsAreClosed) {
  StartNode();
  SimMachine* const machine = NewClient(kAliceUid);
  std::vector<std::unique_ptr<SessionPeer>> silent;
  for (int i = 0; i < 1000; ++i) {
    silent.push_back(std::make_unique<SessionPeer>(machine, kSocket));
  }

  RunFor(absl::Seconds(6));

  for (const auto& peer : silent) EXPECT_TRUE(peer->closed());
  EXPECT_NE(Connect(kAliceUid)->welcome(), nullptr);
}

// --- Hostile peers.

TEST_F(SessionListenerTest, GarbageEndsTheSession) {
  StartNode();
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"),
                                   std::string(60'000, 'z'), std::string()}) {
    const auto session = Connect(kAliceUid);
    session->SendRaw(bytes);
    RunFor(absl::Milliseconds(10));

    EXPECT_TRUE(session->closed());
  }
  EXPECT_NE(Connect(kAliceUid)->welcome(), nullptr);
}

TEST_F(SessionListenerTest, AMessageBeforeTheHelloIsRefused) {
  StartNode();
  SessionPeer session(NewClient(kAliceUid), kSocket);

  session.WantDescriptor(1, 0);
  RunFor(absl::Milliseconds(10));

  EXPECT_NE(session.refused(), nullptr);
  EXPECT_TRUE(session.closed());
}

TEST_F(SessionListenerTest, AMessageWhileTheTenantIsAskedForIsRefused) {
  StartNode();
  SessionPeer session(NewClient(kAliceUid), kSocket);

  session.Send(SessionPeer::Hello(catalog_.cluster));
  session.WantDescriptor(1, 0);
  RunFor(absl::Seconds(1));

  EXPECT_EQ(session.welcome(), nullptr);
  EXPECT_TRUE(session.closed());
}

TEST_F(SessionListenerTest,
       APeerThatLeavesWhileItsTenantIsAskedForIsForgotten) {
  StartNode();
  {
    SessionPeer session(NewClient(kAliceUid), kSocket);
    session.Send(SessionPeer::Hello(catalog_.cluster));
    RunFor(absl::Microseconds(30));
  }

  RunFor(absl::Seconds(1));

  EXPECT_EQ(Status().sessions(), 0u);
}

TEST_F(SessionListenerTest, ASecondHelloEndsTheSession) {
  StartNode();
  const auto session = Connect(kAliceUid);

  session->Send(
      SessionPeer::Hello(catalog_.cluster, TokenOf(Role::kTenant, bob_)));
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(session->closed());
}

// Rule S4.
TEST_F(SessionListenerTest, ADescriptorThatNobodyAskedForEndsTheSession) {
  StartNode();
  const auto session = Connect(kAliceUid);
  const std::int64_t before = machine_->memory()->descriptors();
  v1::ClientMessage renew;
  renew.mutable_renew_token();

  session->Send(renew, machine_->memory()->MakeUnsealed(4096));
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(session->closed());
  EXPECT_EQ(machine_->memory()->descriptors(), before);
}

TEST_F(SessionListenerTest, APeerThatAsksAndNeverReadsIsClosed) {
  StartNode();
  SessionPeer session(NewClient(kAliceUid), kSocket, /*reads=*/false);
  session.Send(SessionPeer::Hello(catalog_.cluster));
  RunFor(absl::Milliseconds(10));
  v1::ClientMessage renew;
  renew.mutable_renew_token();

  for (int i = 0; i < 1000; ++i) {
    session.Send(renew);
    RunFor(absl::Microseconds(50));
  }

  EXPECT_EQ(Status().sessions(), 0u);
}

}  // namespace
}  // namespace firnkv
