// A whole catalog as its callers see it: encoded messages in and out, tokens,
// roles, background work, restarts. What a node and a client do with the
// answers is theirs.

#include "server/catalog/catalog.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/catalog/service_fixture.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using CatalogTest = ServiceFixture;

TEST_F(CatalogTest, ConnectNeedsNoTokenAndTellsTheCluster) {
  v1::ConnectRequest request;
  Handshake theirs;
  theirs.test_vector = HandshakeTestVector();
  ToProto(theirs, request.mutable_handshake());

  const auto response = Catalogs<v1::ConnectResponse>("Connect", "", request);

  ASSERT_OK(response);
  EXPECT_EQ(response->handshake().cluster(), IdToProto(catalog_->cluster()));
  EXPECT_EQ(response->agreed_protocol(), kProtocolVersion);
}

TEST_F(CatalogTest, ConnectRefusesAnotherRecipeAndAnotherCluster) {
  v1::ConnectRequest request;
  Handshake theirs;
  theirs.test_vector = Key(1);
  ToProto(theirs, request.mutable_handshake());
  EXPECT_FALSE(Catalogs<v1::ConnectResponse>("Connect", "", request).ok());

  theirs.test_vector = HandshakeTestVector();
  theirs.cluster.bytes[0] = 9;
  ToProto(theirs, request.mutable_handshake());
  EXPECT_FALSE(Catalogs<v1::ConnectResponse>("Connect", "", request).ok());
}

TEST_F(CatalogTest, WithoutATokenNothingIsServed) {
  const auto refused = StatusIs(absl::StatusCode::kUnauthenticated);
  const v1::NamespaceFacts facts = Open(DefaultTenant(), "granite")->facts();

  EXPECT_THAT(Locate("", facts, {1}), refused);
  EXPECT_THAT(Locate("rubbish", facts, {1}), refused);
  EXPECT_THAT((Call<v1::BackupResponse>("AdminService", "Backup", "",
                                        v1::BackupRequest())),
              refused);
  EXPECT_THAT(
      Catalogs<v1::RegisterResponse>("Register", "", RegisterRequestOf(1, 100)),
      refused);
  const std::string foreign =
      MintToken({.cluster = ClusterId{{1}},
                 .tenant = {},
                 .role = Role::kAdmin,
                 .session = {},
                 .expires = world_.clock()->WallNow() + kTokenLife},
                kSecret);
  EXPECT_THAT((Call<v1::BackupResponse>("AdminService", "Backup", foreign,
                                        v1::BackupRequest())),
              refused);
  std::string old = Token(Role::kAdmin);
  world_.RunFor(kTokenLife + kTokenSkew + absl::Seconds(1));
  EXPECT_THAT((Call<v1::BackupResponse>("AdminService", "Backup", old,
                                        v1::BackupRequest())),
              refused);
}

TEST_F(CatalogTest, ARoleMayDoWhatIsItsAndNothingElse) {
  const auto denied = StatusIs(absl::StatusCode::kPermissionDenied);
  const std::string tenant = Token(Role::kTenant, DefaultTenant());
  const std::string node = Token(Role::kNode);
  const std::string admin = Token(Role::kAdmin);
  const v1::NamespaceFacts facts = Open(DefaultTenant(), "granite")->facts();

  for (const std::string& token : {tenant, admin}) {
    EXPECT_THAT(Catalogs<v1::RegisterResponse>("Register", token,
                                               RegisterRequestOf(1, 100)),
                denied);
    EXPECT_THAT((Catalogs<v1::KeepAliveResponse>("KeepAlive", token,
                                                 v1::KeepAliveRequest())),
                denied);
    EXPECT_THAT((Catalogs<v1::AnnounceResponse>("Announce", token,
                                                v1::AnnounceRequest())),
                denied);
  }
  EXPECT_THAT(Locate(admin, facts, {1}), denied);
  for (const std::string& token : {tenant, node}) {
    EXPECT_THAT((Call<v1::TenantResponse>("AdminService", "CreateTenant", token,
                                          v1::CreateTenantRequest())),
                denied);
    EXPECT_THAT((Call<v1::BackupResponse>("AdminService", "Backup", token,
                                          v1::BackupRequest())),
                denied);
    EXPECT_THAT(
        (Call<v1::ClearNamespaceResponse>("AdminService", "ClearNamespace",
                                          token, v1::ClearNamespaceRequest())),
        denied);
  }
  v1::MintTokenRequest mint;
  mint.set_role(static_cast<std::uint32_t>(Role::kAdmin));
  EXPECT_THAT((Catalogs<v1::MintTokenResponse>("MintToken", node, mint)),
              denied);
  EXPECT_THAT((Catalogs<v1::MintTokenResponse>("MintToken", tenant, mint)),
              denied);
}

TEST_F(CatalogTest, ANodeMintsTokensForTenants) {
  v1::MintTokenRequest mint;
  mint.set_role(static_cast<std::uint32_t>(Role::kTenant));
  mint.set_tenant_name("default");

  const auto minted =
      Catalogs<v1::MintTokenResponse>("MintToken", Token(Role::kNode), mint);

  ASSERT_OK(minted);
  const auto claims = CheckToken(minted->token(), catalog_->cluster(), kSecret,
                                 0, world_.clock()->WallNow());
  ASSERT_OK(claims);
  EXPECT_EQ(claims->tenant, DefaultTenant());
  EXPECT_EQ(claims->role, Role::kTenant);
}

// Rule C1: equal prompts, equal contracts, equal names.
TEST_F(CatalogTest, ATenantNeverSeesAnothersBlocks) {
  const TenantId mine = DefaultTenant();
  const TenantId theirs = MakeTenant("other");
  const v1::NamespaceFacts facts = Open(mine, "granite")->facts();
  const v1::NamespaceFacts other = Open(theirs, "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1});

  EXPECT_THAT(OutcomesOf(mine, facts, {1}), ElementsAre(Outcome::kHit));
  EXPECT_THAT(OutcomesOf(theirs, other, {1}), ElementsAre(Outcome::kMiss));
  EXPECT_THAT(OutcomesOf(theirs, facts, {1}), ElementsAre(Outcome::kDenied));
  v1::DescribeNamespacesRequest describe;
  describe.set_name_spaces(facts.name_space() + other.name_space());
  const auto described = Catalogs<v1::DescribeNamespacesResponse>(
      "DescribeNamespaces", Token(Role::kTenant, theirs), describe);
  ASSERT_OK(described);
  ASSERT_EQ(described->facts_size(), 1);
  EXPECT_EQ(described->facts(0).name_space(), other.name_space());
  v1::CatalogRemoveRequest remove;
  remove.set_name_space(facts.name_space());
  remove.set_keys(IdToProto(Key(1)));
  const auto removed = Catalogs<v1::CatalogRemoveResponse>(
      "Remove", Token(Role::kTenant, theirs), remove);
  ASSERT_OK(removed);
  EXPECT_EQ(removed->outcomes(), OutcomesToProto({Outcome::kDenied}));
  v1::ShowNamespaceRequest show;
  show.set_tenant_name("default");
  show.set_name("granite");
  EXPECT_THAT((Call<v1::NamespaceResponse>("AdminService", "ShowNamespace",
                                           Token(Role::kTenant, theirs), show)),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CatalogTest, LocateAnswersTheLeadingRun) {
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1, 2, 4});

  EXPECT_THAT(OutcomesOf(tenant, facts, {1, 2, 3, 4}, /*leading_run=*/true),
              ElementsAre(Outcome::kHit, Outcome::kHit, Outcome::kMiss,
                          Outcome::kSkipped));
  // Presence is not monotone.
  EXPECT_THAT(
      OutcomesOf(tenant, facts, {1, 2, 3, 4}),
      ElementsAre(Outcome::kHit, Outcome::kHit, Outcome::kMiss, Outcome::kHit));
}

TEST_F(CatalogTest, LocateNamesEachNodeOnce) {
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member a = Join(1, 100);
  Member b = Join(2, 200);
  Publish(&a, facts, {1, 2});
  Publish(&b, facts, {2});

  const auto response = Locate(Token(Role::kTenant, tenant), facts, {1, 2});

  ASSERT_OK(response);
  EXPECT_EQ(response->nodes_size(), 2);
  EXPECT_THAT(response->location_counts(), ElementsAre(1, 2));
  EXPECT_EQ(response->locations().node_indexes_size(), 3);
  EXPECT_EQ(response->nodes(0).labels().zone(), "z");
  EXPECT_EQ(response->clear_epoch(), 1u);
}

// Rule C2: the client knows of a clear that this catalog does not.
TEST_F(CatalogTest, LocateOfALaterClearEpochIsUnavailable) {
  const TenantId tenant = DefaultTenant();
  v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1});
  facts.set_clear_epoch(2);

  EXPECT_THAT(OutcomesOf(tenant, facts, {1}),
              ElementsAre(Outcome::kUnavailable));
}

// Rule C2.
TEST_F(CatalogTest, AClearIsSeenAtOnceAndReportsWhoHasNotHeardOfIt) {
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1});
  ASSERT_OK(KeepAlive(&node));

  const auto cleared = Clear("granite");

  ASSERT_OK(cleared);
  EXPECT_EQ(cleared->cleared(0).clear_epoch(), 2u);
  EXPECT_THAT(cleared->pending_nodes(), ElementsAre(ToHex(Node(1))));
  EXPECT_THAT(OutcomesOf(tenant, facts, {1}), ElementsAre(Outcome::kMiss));
  // The first answer tells the node, the second call confirms that it heard.
  const auto told = KeepAlive(&node);
  ASSERT_OK(told);
  ASSERT_EQ(told->changed_size(), 1);
  EXPECT_EQ(told->changed(0).clear_epoch(), 2u);
  EXPECT_THAT(Clear("granite", /*report_only=*/true)->pending_nodes(),
              SizeIs(1));
  ASSERT_OK(KeepAlive(&node));
  const auto after = Clear("granite", /*report_only=*/true);
  ASSERT_OK(after);
  EXPECT_THAT(after->pending_nodes(), IsEmpty());
  EXPECT_EQ(after->cleared(0).clear_epoch(), 2u);
}

TEST_F(CatalogTest, WhatWasClearedIsReaped) {
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1, 2, 3});
  EXPECT_EQ(store_.size(Family::kKeys), 3u);

  ASSERT_OK(Clear("granite"));
  world_.RunFor(absl::Seconds(1));

  EXPECT_EQ(store_.size(Family::kKeys), 0u);
  EXPECT_EQ(CatalogStatus().keys(), 0u);
}

// Rules A3 and A4.
TEST_F(CatalogTest, WhatADeadNodeHadIsReapedAfterItsGrace) {
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member dead = Join(1, 100);
  Member alive = Join(2, 200);
  Publish(&dead, facts, {1, 2});
  Publish(&alive, facts, {2, 3});
  const auto live_for = [&](absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(2)) {
      world_.RunFor(absl::Seconds(2));
      ASSERT_OK(KeepAlive(&alive));
    }
  };

  live_for(absl::Seconds(20));
  EXPECT_THAT(OutcomesOf(tenant, facts, {1, 2, 3}),
              ElementsAre(Outcome::kUnavailable, Outcome::kHit, Outcome::kHit));
  EXPECT_EQ(store_.size(Family::kKeys), 3u);
  live_for(absl::Minutes(15));

  EXPECT_THAT(OutcomesOf(tenant, facts, {1, 2, 3}),
              ElementsAre(Outcome::kMiss, Outcome::kHit, Outcome::kHit));
  EXPECT_EQ(store_.size(Family::kKeys), 2u);
  EXPECT_EQ(CatalogStatus().locations(), 2u);
}

TEST_F(CatalogTest, ACatalogServesFromTheStoreBeforeItHasLoaded) {
  options_.reaper.step_entries = 16;
  options_.reaper.load_pause = absl::Seconds(1);
  Restart();
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member node = Join(1, 100);
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 0; key < 100; ++key) keys.push_back(key);
  Publish(&node, facts, keys);
  Restart();
  ASSERT_OK(KeepAlive(&node));
  ASSERT_LT(CatalogStatus().keys(), 100u);

  const std::vector<Outcome> outcomes = OutcomesOf(tenant, facts, keys);

  EXPECT_THAT(outcomes, testing::Each(Outcome::kHit));
  world_.RunFor(absl::Seconds(10));
  EXPECT_EQ(CatalogStatus().keys(), 100u);
}

TEST_F(CatalogTest, AKeyRemovedBeforeItIsLoadedStaysRemoved) {
  options_.reaper.step_entries = 16;
  options_.reaper.load_pause = absl::Seconds(1);
  Restart();
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1});
  Restart();
  ASSERT_OK(KeepAlive(&node));
  v1::AnnounceRequest withdraw =
      BatchOf(node, v1::AnnounceRequest::EVENTS, facts, {1});
  withdraw.set_operations(std::string(1, 2));
  ASSERT_OK((Catalogs<v1::AnnounceResponse>("Announce", Token(Role::kNode),
                                            withdraw)));

  world_.RunFor(absl::Seconds(10));

  EXPECT_THAT(OutcomesOf(tenant, facts, {1}), ElementsAre(Outcome::kMiss));
  EXPECT_EQ(store_.size(Family::kKeys), 0u);
}

TEST_F(CatalogTest, ARemovalReachesTheNodeUntilItIsAcknowledged) {
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1});
  v1::CatalogRemoveRequest request;
  request.set_name_space(facts.name_space());
  request.set_keys(IdToProto(Key(1)) + IdToProto(Key(2)));

  for (int twice = 0; twice < 2; ++twice) {
    const auto removed = Catalogs<v1::CatalogRemoveResponse>(
        "Remove", Token(Role::kTenant, tenant), request);
    ASSERT_OK(removed);
    EXPECT_EQ(removed->outcomes(),
              OutcomesToProto({Outcome::kHit, Outcome::kMiss}));
    EXPECT_EQ(removed->pending(), 1u);
  }

  Member lost = node;  // The answer that tells of it is lost.
  ASSERT_OK(KeepAlive(&lost));
  const auto told = KeepAlive(&node);
  ASSERT_OK(told);
  EXPECT_EQ(told->remove_keys(), IdToProto(Key(1)));
  EXPECT_EQ(told->remove_name_spaces(), facts.name_space());
  EXPECT_THAT(told->remove_generations(), ElementsAre(2));
  const auto after = KeepAlive(&node);
  ASSERT_OK(after);
  EXPECT_THAT(after->remove_keys(), IsEmpty());
}

TEST_F(CatalogTest, RemovalsBeyondTheirBoundAreCongested) {
  options_.removals.max_pending_a_node = 2;
  Restart();
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1, 2, 3});
  v1::CatalogRemoveRequest request;
  request.set_name_space(facts.name_space());
  request.set_keys(IdToProto(Key(1)) + IdToProto(Key(2)) + IdToProto(Key(3)));

  const auto removed = Catalogs<v1::CatalogRemoveResponse>(
      "Remove", Token(Role::kTenant, tenant), request);

  ASSERT_OK(removed);
  EXPECT_EQ(removed->outcomes(), OutcomesToProto({Outcome::kHit, Outcome::kHit,
                                                  Outcome::kCongested}));
}

// Rule A9.
TEST_F(CatalogTest, ARestoredCatalogIsRefusedUntilItIsAccepted) {
  const TenantId tenant = DefaultTenant();
  v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  const auto backup = Admins<v1::BackupResponse>("Backup", v1::BackupRequest());
  ASSERT_OK(backup);
  Restart();
  ASSERT_OK(Clear("granite"));
  const v1::Incarnation seen = CatalogStatus().incarnation();
  Stop();
  store_.Wipe();
  Start();
  v1::RestoreRequest restore;
  restore.set_state(backup->state());
  ASSERT_OK((Admins<v1::RestoreResponse>("Restore", restore)));

  v1::RegisterRequest request = RegisterRequestOf(1, 100);
  *request.mutable_seen() = seen;
  EXPECT_THAT(
      (Catalogs<v1::RegisterResponse>("Register", Token(Role::kNode), request)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("accept-restore")));
  ASSERT_OK((Admins<v1::AcceptRestoreResponse>("AcceptRestore",
                                               v1::AcceptRestoreRequest())));

  EXPECT_OK((
      Catalogs<v1::RegisterResponse>("Register", Token(Role::kNode), request)));
  EXPECT_GT(CatalogStatus().incarnation().incarnation(), seen.incarnation());
  // A token of before is refused.
  EXPECT_THAT(Open(tenant, "granite"),
              StatusIs(absl::StatusCode::kUnauthenticated));
  v1::ShowNamespaceRequest show;
  show.set_tenant_name("default");
  show.set_name("granite");
  const auto now = Admins<v1::NamespaceResponse>("ShowNamespace", show);
  ASSERT_OK(now);
  EXPECT_EQ(now->name_space().facts().name_space(), facts.name_space());
  EXPECT_GT(now->name_space().facts().clear_epoch(), 2u);
  v1::MintTokenRequest mint;
  mint.set_role(static_cast<std::uint32_t>(Role::kTenant));
  mint.set_tenant_name("default");
  const auto minted =
      Catalogs<v1::MintTokenResponse>("MintToken", Token(Role::kAdmin), mint);
  ASSERT_OK(minted);
  v1::DescribeNamespacesRequest describe;
  describe.set_name_spaces(facts.name_space());
  EXPECT_OK((Catalogs<v1::DescribeNamespacesResponse>(
      "DescribeNamespaces", minted->token(), describe)));
}

// Rule A9: the restored directory knows the registration, and its incarnation
// is above all that the node has seen.
TEST_F(CatalogTest, ARestoredCatalogIsRefusedAtTheNextHeartbeat) {
  Member node = Join(1, 100);
  const SimStore::Families backup = store_.Snapshot();
  Restart();
  ASSERT_OK(KeepAlive(&node));
  store_.Load(backup);
  for (int start = 0; start < 3; ++start) Restart();
  ASSERT_GT(CatalogStatus().incarnation().incarnation(),
            node.seen.incarnation());

  EXPECT_THAT(KeepAlive(&node), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("accept-restore")));
  ASSERT_OK((Admins<v1::AcceptRestoreResponse>("AcceptRestore",
                                               v1::AcceptRestoreRequest())));

  EXPECT_OK(KeepAlive(&node));
}

// Rule A9.
TEST_F(CatalogTest, ThatANodeWasToldOfAStartIsWrittenOnceBeforehand) {
  Member node = Join(1, 100);
  Restart();
  const std::uint64_t before = store_.writes();

  ASSERT_OK(KeepAlive(&node));
  ASSERT_OK(KeepAlive(&node));

  EXPECT_EQ(store_.writes(), before + 1);
}

TEST_F(CatalogTest, ANodeOfAnotherClusterIsRefused) {
  v1::RegisterRequest request = RegisterRequestOf(1, 100);
  request.mutable_handshake()->set_cluster(std::string(16, 'x'));

  EXPECT_THAT(
      (Catalogs<v1::RegisterResponse>("Register", Token(Role::kNode), request)),
      StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(CatalogTest, ExplainTellsOfEveryCopyAndItsNode) {
  const v1::NamespaceFacts facts = Open(DefaultTenant(), "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1});
  v1::ExplainKeyRequest request;
  request.set_tenant_name("default");
  request.set_name("granite");
  request.set_key(IdToProto(Key(1)));

  const auto explained = Admins<v1::ExplainKeyResponse>("ExplainKey", request);

  ASSERT_OK(explained);
  EXPECT_TRUE(explained->known());
  EXPECT_GT(explained->sequence(), 0u);
  EXPECT_THAT(explained->node_states(), ElementsAre("alive"));
  EXPECT_EQ(explained->nodes(0).control_address(), "host-1:7410");
  request.set_key(IdToProto(Key(2)));
  EXPECT_FALSE(Admins<v1::ExplainKeyResponse>("ExplainKey", request)->known());
}

TEST_F(CatalogTest, BadMessagesGetAClearStatus) {
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  Member node = Join(1, 100);

  v1::LocateRequest locate;
  locate.set_name_space(facts.name_space());
  locate.set_keys("short");
  EXPECT_THAT((Catalogs<v1::LocateResponse>(
                  "Locate", Token(Role::kTenant, tenant), locate)),
              invalid);
  locate.set_keys(std::string(32 * (kMaxBatchKeys + 1), 'k'));
  EXPECT_THAT((Catalogs<v1::LocateResponse>(
                  "Locate", Token(Role::kTenant, tenant), locate)),
              invalid);
  v1::AnnounceRequest batch =
      BatchOf(node, v1::AnnounceRequest::EVENTS, facts, {1});
  batch.set_tiers("");
  EXPECT_THAT(
      (Catalogs<v1::AnnounceResponse>("Announce", Token(Role::kNode), batch)),
      invalid);
  batch = BatchOf(node, v1::AnnounceRequest::EVENTS, facts, {1});
  batch.set_operations(std::string(1, 9));
  EXPECT_THAT(
      (Catalogs<v1::AnnounceResponse>("Announce", Token(Role::kNode), batch)),
      invalid);
  // Nothing was lost by it.
  Publish(&node, facts, {1});
  EXPECT_THAT((Catalogs<v1::LocateResponse>("Nonsense", "", locate)),
              StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(CatalogTest, AStoreThatFailsStopsTheServing) {
  const TenantId tenant = DefaultTenant();
  const v1::NamespaceFacts facts = Open(tenant, "granite")->facts();
  store_.CrashAtWrite(1);

  EXPECT_THAT(Open(tenant, "another"),
              StatusIs(absl::StatusCode::kUnavailable));

  EXPECT_FALSE(catalog_->health().ok());
  EXPECT_THAT(Locate(Token(Role::kTenant, tenant), facts, {1}),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CatalogTest, CallsThatWaitAreAnsweredWhenTheCatalogStops) {
  absl::Status status;
  v1::OpenNamespaceRequest request;
  RequestHeader header;
  header.remaining = absl::Seconds(5);
  header.token = Token(Role::kTenant, DefaultTenant());
  ToProto(header, request.mutable_header());
  catalog_->services()[0]->Handle(
      "OpenNamespace", {}, request.SerializeAsString(),
      [&](absl::StatusOr<std::string> answer) { status = answer.status(); });
  EXPECT_OK(status);

  catalog_->Stop();

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CatalogTest, EveryMetricHasAHelp) {
  MetricList list;
  catalog_->Describe(&list);

  EXPECT_GT(list.metrics().size(), 50u);
  for (const Metric& metric : list.metrics()) {
    EXPECT_EQ(metric.name.rfind("firnkv_catalog_", 0), 0u) << metric.name;
    EXPECT_FALSE(metric.help.empty()) << metric.name;
    EXPECT_EQ(metric.name.ends_with("_total"),
              std::holds_alternative<const Counter*>(metric.read))
        << metric.name;
  }
}

}  // namespace
}  // namespace firnkv
