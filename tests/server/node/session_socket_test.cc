// The local session: who is it, what may it map, what does it cost.

#include "server/node/session_socket.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/server/node/whole_node.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

constexpr auto kPermissionDenied =
    static_cast<std::uint32_t>(absl::StatusCode::kPermissionDenied);
constexpr auto kUnauthenticated =
    static_cast<std::uint32_t>(absl::StatusCode::kUnauthenticated);
constexpr auto kUnavailable =
    static_cast<std::uint32_t>(absl::StatusCode::kUnavailable);

class SessionSocketTest : public WholeNodeTest {
 protected:
  // A session of alice's with a block in the pool, so that there is a region.
  std::unique_ptr<SessionPeer> AliceWithARegion(std::uint64_t* region) {
    auto session = Connect(kAliceUid);
    EXPECT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
    const auto opened = Call<v1::OpenReadResponse>(
        "OpenRead", OpenOf(session->id(), granite_, 1));
    *region = opened->extent_regions(0);
    return session;
  }
  // A session whose peer receives nothing, not even its welcome.
  std::unique_ptr<SessionPeer> ConnectUnreading(std::uint32_t uid) {
    auto peer = std::make_unique<SessionPeer>(NewClient(uid), kSocket,
                                              /*reads=*/false);
    peer->Send(SessionPeer::Hello(catalog_.cluster));
    RunFor(absl::Milliseconds(10));
    return peer;
  }
  const v1::NodeMessage& Last(const SessionPeer& session) {
    return session.got.back().message;
  }
};

// --- Who is it?

// Rule S2.
TEST_F(SessionSocketTest, AUidOfTheMapSpeaksForItsTenant) {
  StartNode();

  const auto alice = Connect(kAliceUid);
  const auto bob = Connect(kBobUid);

  ASSERT_NE(alice->welcome(), nullptr);
  EXPECT_EQ(alice->welcome()->tenant(), alice_.view());
  EXPECT_EQ(alice->welcome()->tenant_name(), "alice");
  EXPECT_EQ(bob->welcome()->tenant(), bob_.view());
}

// Rule S2.
TEST_F(SessionSocketTest, AUidThatIsNotInTheMapNeedsAToken) {
  StartNode();

  const auto nobody = Connect(4711);

  ASSERT_NE(nobody->refused(), nullptr);
  EXPECT_EQ(nobody->refused()->code(), kPermissionDenied);
  EXPECT_EQ(node_->pool().leases, 0u);
}

// Rule S2: containers share uids.
TEST_F(SessionSocketTest, AMappedUidOfAnotherUserNamespaceIsNobody) {
  StartNode();

  const auto session =
      Connect(NewClient({.uid = kAliceUid, .uid_trusted = false}));

  ASSERT_NE(session->refused(), nullptr);
  EXPECT_EQ(session->refused()->code(), kPermissionDenied);
}

// Rule S2.
TEST_F(SessionSocketTest, ATokenSpeaksWhereCredentialsDoNot) {
  StartNode();

  const auto session = Connect(NewClient({.uid = 65534, .uid_trusted = false}),
                               TokenOf(Role::kTenant, bob_));

  ASSERT_NE(session->welcome(), nullptr);
  EXPECT_EQ(session->welcome()->tenant(), bob_.view());
}

TEST_F(SessionSocketTest, AForgedTokenIsRefusedAndNotReplacedByTheUid) {
  StartNode();
  std::string token = TokenOf(Role::kTenant, bob_);
  token.back() = static_cast<char>(token.back() ^ 1);

  const auto session = Connect(NewClient(kAliceUid), token);

  ASSERT_NE(session->refused(), nullptr);
  EXPECT_EQ(session->refused()->code(), kUnauthenticated);
}

TEST_F(SessionSocketTest, TokensOfAdministratorsAndNodesOpenNoSession) {
  StartNode();

  for (const Role role : {Role::kAdmin, Role::kNode}) {
    const auto session = Connect(NewClient(kAliceUid), TokenOf(role));

    ASSERT_NE(session->refused(), nullptr);
    EXPECT_EQ(session->refused()->code(), kPermissionDenied);
  }
}

// Rule P10.
TEST_F(SessionSocketTest, WithoutAMapOnlyTheOwnUidIsServedAsDefault) {
  NodeOptions options = DefaultOptions();
  options.uid_map.clear();
  StartNode(options);

  const auto own = Connect(kNodeUid);
  const auto other = Connect(kAliceUid);

  ASSERT_NE(own->welcome(), nullptr);
  EXPECT_EQ(own->welcome()->tenant(), default_.view());
  ASSERT_NE(other->refused(), nullptr);
  EXPECT_EQ(other->refused()->code(), kPermissionDenied);
}

TEST_F(SessionSocketTest, AnUnknownTenantCannotBeAskedForWithTheCatalogAway) {
  StartNode();
  catalog_.silent = true;

  const auto session = Connect(kAliceUid);

  ASSERT_NE(session->refused(), nullptr);
  EXPECT_EQ(session->refused()->code(), kUnavailable);
}

TEST_F(SessionSocketTest, AKnownTenantIsServedWithTheCatalogAway) {
  StartNode();
  ASSERT_NE(Connect(kAliceUid)->welcome(), nullptr);
  catalog_.silent = true;

  EXPECT_NE(Connect(kAliceUid)->welcome(), nullptr);
}

TEST_F(SessionSocketTest, AClientOfAnotherClusterIsRefused) {
  StartNode();
  SeededRandom random(1);
  SessionPeer session(NewClient(kAliceUid), kSocket);

  session.Send(SessionPeer::Hello(ClusterId::Make(&random)));
  RunFor(absl::Seconds(1));

  EXPECT_NE(session.refused(), nullptr);
  EXPECT_TRUE(session.closed());
}

TEST_F(SessionSocketTest, AClientWithAnotherKeyRecipeIsRefused) {
  StartNode();
  SessionPeer session(NewClient(kAliceUid), kSocket);
  v1::ClientMessage hello = SessionPeer::Hello(catalog_.cluster);
  hello.mutable_hello()->mutable_handshake()->set_test_vector(
      std::string(32, '\1'));

  session.Send(hello);
  RunFor(absl::Seconds(1));

  EXPECT_NE(session.refused(), nullptr);
}

// Rule S3.
TEST_F(SessionSocketTest, SessionIdsAre128BitsAndNeverTheSame) {
  StartNode();
  SimMachine* const machine = NewClient(kAliceUid);

  const auto first = Connect(machine);
  const auto second = Connect(machine);

  EXPECT_EQ(first->welcome()->session().size(), 16u);
  EXPECT_NE(first->id(), second->id());
  EXPECT_FALSE(first->id().IsZero());
}

TEST_F(SessionSocketTest, TheTokenOfTheWelcomeIsTheTenantsAndTheSessions) {
  StartNode();
  const auto session = Connect(kAliceUid);

  const auto claims =
      CheckToken(session->welcome()->token(), catalog_.cluster, secret_, 0,
                 caller_->process()->clock()->WallNow());

  ASSERT_OK(claims);
  EXPECT_EQ(claims->tenant, alice_);
  EXPECT_EQ(claims->role, Role::kTenant);
  EXPECT_EQ(claims->session, session->id());
}

TEST_F(SessionSocketTest, ATokenIsRenewedOnRequest) {
  StartNode();
  const auto session = Connect(kAliceUid);
  RunFor(absl::Minutes(50));
  v1::ClientMessage renew;
  renew.mutable_renew_token();

  session->Send(renew);
  RunFor(absl::Minutes(50));

  ASSERT_TRUE(Last(*session).has_token_is());
  EXPECT_OK(CheckToken(Last(*session).token_is().token(), catalog_.cluster,
                       secret_, 0, caller_->process()->clock()->WallNow()));
}

// Rule A9.
TEST_F(SessionSocketTest, AnAcceptedRestoreEndsSessionsAndOutdatesTheirTokens) {
  StartNode();
  const auto session = Connect(kAliceUid);
  const std::string before = session->welcome()->token();
  catalog_.incarnation.incarnation += 5;
  catalog_.incarnation.credentials = catalog_.incarnation.incarnation;

  RunFor(absl::Seconds(5));

  EXPECT_TRUE(session->closed());
  const auto next = Connect(kAliceUid);
  ASSERT_NE(next->welcome(), nullptr);
  const auto check = [this](std::string_view token) {
    return CheckToken(token, catalog_.cluster, secret_,
                      catalog_.incarnation.credentials,
                      caller_->process()->clock()->WallNow());
  };
  EXPECT_THAT(check(before), StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_OK(check(next->welcome()->token()));
}

// --- What may it map?

// Rule P10.
TEST_F(SessionSocketTest, AnotherUidMapsAndNeedNotVerifyViews) {
  StartNode();

  const auto session = Connect(kAliceUid);

  EXPECT_TRUE(session->welcome()->mapping());
  EXPECT_FALSE(session->welcome()->verify_views());
}

// Rule P10.
TEST_F(SessionSocketTest, TheNodesOwnUidMapsNothingWhereThereIsAMap) {
  NodeOptions options = DefaultOptions();
  options.uid_map.push_back("1000=alice");
  StartNode(options);

  const auto session = Connect(kNodeUid);
  session->WantDescriptor(1, 0);
  RunFor(absl::Milliseconds(10));

  EXPECT_FALSE(session->welcome()->mapping());
  EXPECT_TRUE(Last(*session).has_descriptor_refused());
}

// Rule P10.
TEST_F(SessionSocketTest, APrivilegedPeerMapsNothing) {
  StartNode();

  const auto session = Connect(
      NewClient({.uid = kAliceUid, .uid_trusted = true, .privileged = true}));

  EXPECT_FALSE(session->welcome()->mapping());
}

// Rule P10.
TEST_F(SessionSocketTest, WithoutAMapTheOwnUidMapsAndVerifiesItsViews) {
  NodeOptions options = DefaultOptions();
  options.uid_map.clear();
  StartNode(options);

  const auto session = Connect(kNodeUid);

  EXPECT_TRUE(session->welcome()->mapping());
  EXPECT_TRUE(session->welcome()->verify_views());
}

// Rule P10.
TEST_F(SessionSocketTest, TrustSameUidIsWhatTheOperatorSays) {
  NodeOptions options = DefaultOptions();
  options.uid_map = {"1000=alice"};
  options.trust_same_uid = "true";
  StartNode(options);
  EXPECT_TRUE(Connect(kNodeUid)->welcome()->mapping());
  StopNode();
  options.uid_map.clear();
  options.trust_same_uid = "false";
  StartNode(options);

  EXPECT_FALSE(Connect(kNodeUid)->welcome()->mapping());
}

TEST_F(SessionSocketTest, AClientThatCannotReadTheLayoutMapsNothing) {
  StartNode();
  SessionPeer session(NewClient(kAliceUid), kSocket);
  v1::ClientMessage hello = SessionPeer::Hello(catalog_.cluster);
  hello.mutable_hello()->clear_mapped_layouts();
  hello.mutable_hello()->add_mapped_layouts(999);

  session.Send(hello);
  RunFor(absl::Seconds(1));

  ASSERT_NE(session.welcome(), nullptr);
  EXPECT_FALSE(session.welcome()->mapping());
}

TEST_F(SessionSocketTest, ARegionAndItsHeadersComeAsReadOnlyDescriptors) {
  StartNode();
  std::uint64_t region = 0;
  const auto session = AliceWithARegion(&region);

  for (const std::uint32_t what : {0u, 1u}) {
    session->WantDescriptor(region, what);
    RunFor(absl::Milliseconds(10));
    session->Taken(region, what);

    ASSERT_TRUE(Last(*session).has_descriptor_is());
    const auto& memory = session->got.back().memory;
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(memory->bytes(), Last(*session).descriptor_is().bytes());
    EXPECT_OK(memory->Map(MapAccess::kRead));
    EXPECT_FALSE(memory->Map(MapAccess::kReadWrite).ok());
  }
}

// Rule C5.
TEST_F(SessionSocketTest, AnotherTenantsRegionIsAsUnknownAsNone) {
  StartNode();
  std::uint64_t region = 0;
  const auto alice = AliceWithARegion(&region);
  const auto bob = Connect(kBobUid);

  bob->WantDescriptor(region, 0);
  RunFor(absl::Milliseconds(10));
  const std::string reason = Last(*bob).descriptor_refused().reason();
  bob->WantDescriptor(region + 1000, 0);
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(Last(*bob).has_descriptor_refused());
  EXPECT_EQ(bob->got.back().memory, nullptr);
  EXPECT_FALSE(reason.empty());
  EXPECT_FALSE(bob->closed());
}

// Rule S4.
TEST_F(SessionSocketTest, OneDescriptorIsInFlightAtATime) {
  StartNode();
  std::uint64_t region = 0;
  const auto session = AliceWithARegion(&region);

  session->WantDescriptor(region, 0);
  session->WantDescriptor(region, 1);
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(Last(*session).has_descriptor_refused());
}

// Rule S4.
TEST_F(SessionSocketTest, ADescriptorThatIsNotTakenInASecondEndsTheSession) {
  StartNode();
  std::uint64_t region = 0;
  const auto session = AliceWithARegion(&region);
  session->WantDescriptor(region, 0);
  RunFor(absl::Milliseconds(900));
  ASSERT_FALSE(session->closed());

  RunFor(absl::Milliseconds(200));

  EXPECT_TRUE(session->closed());
  EXPECT_EQ(Status().sessions(), 0u);
}

// Rule S4.
TEST_F(SessionSocketTest, ATakenDescriptorLetsTheSessionLive) {
  StartNode();
  std::uint64_t region = 0;
  const auto session = AliceWithARegion(&region);

  session->WantDescriptor(region, 0);
  RunFor(absl::Milliseconds(10));
  session->Taken(region, 0);
  RunFor(absl::Seconds(10));

  EXPECT_FALSE(session->closed());
}

// Rule S4: what a client says of a descriptor that it has not received is
// nothing.
TEST_F(SessionSocketTest, ADescriptorThatIsNotReceivedEndsItsSession) {
  StartNode();
  std::uint64_t region = 0;
  const auto session = AliceWithARegion(&region);
  const auto idle = ConnectUnreading(kAliceUid);

  idle->WantDescriptor(region, 0);
  idle->Taken(region, 0);
  idle->WantDescriptor(region, 1);
  RunFor(absl::Milliseconds(900));
  ASSERT_EQ(Status().sessions(), 2u);
  RunFor(absl::Milliseconds(200));

  EXPECT_EQ(Status().sessions(), 1u);
  EXPECT_FALSE(session->closed());
}

// Rule S4.
TEST_F(SessionSocketTest, TheNextDescriptorComesOnceTheLastOneIsReceived) {
  StartNode();
  std::uint64_t region = 0;
  const auto session = AliceWithARegion(&region);

  session->WantDescriptor(region, 0);
  RunFor(absl::Milliseconds(10));
  session->Taken(region, 0);
  session->WantDescriptor(region, 1);
  RunFor(absl::Milliseconds(10));

  ASSERT_TRUE(Last(*session).has_descriptor_is());
  EXPECT_EQ(Last(*session).descriptor_is().what(), 1u);
}

// Rule S4: what is in flight counts until it is received, also where nobody is
// left to receive it but a process that keeps its end of the socket.
TEST_F(SessionSocketTest, DescriptorsInFlightAreBoundedByTenantAndInAll) {
  NodeOptions options = DefaultOptions();
  options.max_descriptors_in_flight = 3;
  options.max_descriptors_in_flight_a_tenant = 2;
  StartNode(options);
  std::uint64_t region = 0;
  const auto session = AliceWithARegion(&region);
  std::vector<std::unique_ptr<SessionPeer>> idle;
  for (int i = 0; i < 5; ++i) {
    idle.push_back(ConnectUnreading(kAliceUid));
    idle.back()->WantDescriptor(region, 0);
    idle.back()->Taken(region, 0);
    RunFor(absl::Seconds(2));
  }
  ASSERT_EQ(node_->descriptors_in_flight(), 2u);

  session->WantDescriptor(region, 0);
  RunFor(absl::Milliseconds(10));
  EXPECT_TRUE(Last(*session).has_descriptor_refused());
  const NamespaceFacts bobs = catalog_.AddNamespace("bob");
  const auto bob = Connect(kBobUid);
  ASSERT_EQ(Write(bob.get(), bobs, 1), Outcome::kStored);
  const auto opened =
      Call<v1::OpenReadResponse>("OpenRead", OpenOf(bob->id(), bobs, 1));
  bob->WantDescriptor(opened->extent_regions(0), 0);
  RunFor(absl::Milliseconds(10));
  EXPECT_TRUE(Last(*bob).has_descriptor_is()) << "another tenant's";

  idle.clear();
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(node_->descriptors_in_flight(), 0u);
  session->WantDescriptor(region, 0);
  RunFor(absl::Milliseconds(10));
  EXPECT_TRUE(Last(*session).has_descriptor_is());
}

TEST_F(SessionSocketTest, TakingADescriptorThatWasNotSentEndsTheSession) {
  StartNode();
  const auto session = Connect(kAliceUid);

  session->Taken(1, 0);
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(session->closed());
}

// --- Staging.

// Rule S1.
TEST_F(SessionSocketTest, SealedStagingIsAccepted) {
  StartNode();
  const auto session = Connect(kAliceUid);

  LendStaging(session.get(), 7, 1, 4096);

  ASSERT_TRUE(Last(*session).has_staging_accepted());
  EXPECT_EQ(Last(*session).staging_accepted().staging(), 7u);
  EXPECT_EQ(Status().staging_bytes(), 4096u);
}

// Rule S1.
TEST_F(SessionSocketTest, UnsealedStagingIsRefusedAndTheSessionLives) {
  StartNode();
  const auto session = Connect(kAliceUid);

  session->AddStaging(7, machine_->memory()->MakeUnsealed(4096), 4096);
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(Last(*session).has_staging_refused());
  EXPECT_EQ(Status().staging_bytes(), 0u);
  EXPECT_FALSE(session->closed());
}

// Rule S1.
TEST_F(SessionSocketTest, StagingIsCappedBySession) {
  NodeOptions options = DefaultOptions();
  options.staging.max_count_a_session = 2;
  StartNode(options);
  const auto session = Connect(kAliceUid);

  for (std::uint64_t id = 1; id <= 3; ++id) {
    LendStaging(session.get(), id, 1, 4096);
  }

  EXPECT_TRUE(Last(*session).has_staging_refused());
}

TEST_F(SessionSocketTest, StagingWithoutADescriptorEndsTheSession) {
  StartNode();
  const auto session = Connect(kAliceUid);

  session->AddStaging(7, nullptr, 4096);
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(session->closed());
}

// --- Its end.

// Rule S3.
TEST_F(SessionSocketTest, ASessionsEndEndsItsLeasesReservationsAndStaging) {
  StartNode();
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  ASSERT_OK(Call<v1::OpenReadResponse>("OpenRead",
                                       OpenOf(session->id(), granite_, 1)));
  ASSERT_OK(Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session->id(), granite_, 2, 4096)));
  LendStaging(session.get(), 7, 2, 4096);
  ASSERT_EQ(node_->pool().leases, 1u);
  ASSERT_EQ(node_->pool().reserved_slots, 1u);

  session->Close();
  RunFor(absl::Milliseconds(10));

  EXPECT_EQ(node_->pool().leases, 0u);
  EXPECT_EQ(node_->pool().reserved_slots, 0u);
  EXPECT_EQ(Status().reservations(), 0u);
  EXPECT_EQ(Status().staging_bytes(), 0u);
  EXPECT_EQ(Status().sessions(), 0u);
}

// Rule S3.
TEST_F(SessionSocketTest, AProcessThatDiesEndsItsSessions) {
  StartNode();
  SimMachine* const machine = NewClient(kAliceUid);
  const auto session = Connect(machine);
  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  ASSERT_OK(Call<v1::OpenReadResponse>("OpenRead",
                                       OpenOf(session->id(), granite_, 1)));

  machine->process()->Kill();
  RunFor(absl::Milliseconds(10));

  EXPECT_EQ(node_->pool().leases, 0u);
  EXPECT_EQ(Status().sessions(), 0u);
}

// Rule S3.
TEST_F(SessionSocketTest, AnEndedSessionsIdIsNobodys) {
  StartNode();
  const auto session = Connect(kAliceUid);
  const SessionId id = session->id();
  session->Close();
  RunFor(absl::Milliseconds(10));

  EXPECT_THAT(Call<v1::OpenReadResponse>("OpenRead", OpenOf(id, granite_, 1)),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

}  // namespace
}  // namespace firnkv
