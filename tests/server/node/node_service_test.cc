// NodeService: who may call, what is refused with which field, and that each
// key has its answer.

#include "server/node/node_service.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/text.h"
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

class NodeServiceTest : public WholeNodeTest {
 protected:
  NodeServiceTest() {
    StartNode();
    alice_session_ = Connect(kAliceUid);
    session_ = alice_session_->id();
  }
  ~NodeServiceTest() override {
    alice_session_.reset();
    StopNode();
  }
  Outcome WriteOne(std::uint64_t n) {
    return Write(alice_session_.get(), granite_, n);
  }

  std::unique_ptr<SessionPeer> alice_session_;
  SessionId session_;
};

// --- Who may call.

// Rule S3.
TEST_F(NodeServiceTest, ASessionSpeaksOnlyOverTheNodesOwnSocket) {
  EXPECT_THAT(Call<v1::OpenReadResponse>(
                  "OpenRead", OpenOf(session_, granite_, 1), kTcpGrpc),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

// Rule S3.
TEST_F(NodeServiceTest, AGuessedSessionIsNobody) {
  SessionId guess = session_;
  guess.bytes[15] ^= 1;

  EXPECT_THAT(
      Call<v1::OpenReadResponse>("OpenRead", OpenOf(guess, granite_, 1)),
      StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Call<v1::OpenReadResponse>("OpenRead", OpenOf({}, granite_, 1)),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST_F(NodeServiceTest, ATokenIsNoSession) {
  v1::OpenReadRequest request = OpenOf({}, granite_, 1);
  request.mutable_header()->set_token(TokenOf(Role::kTenant, alice_));

  EXPECT_THAT(Call<v1::OpenReadResponse>("OpenRead", request),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST_F(NodeServiceTest, AnotherTenantIsDeniedForEveryKeyOfEveryCall) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  const auto bob = Connect(kBobUid);

  EXPECT_EQ(Read(bob.get(), granite_, 1), Outcome::kDenied);
  EXPECT_EQ(Write(bob.get(), granite_, 2), Outcome::kDenied);
  v1::ExistsRequest exists;
  *exists.mutable_header() = HeaderOf(bob->id());
  exists.set_name_space(IdToProto(granite_.name_space));
  exists.set_keys(IdToProto(KeyOf(1)));
  EXPECT_EQ(OutcomesOf(Call<v1::ExistsResponse>("Exists", exists)->outcomes()),
            std::vector<Outcome>{Outcome::kDenied});
  v1::NodeRemoveRequest remove;
  *remove.mutable_header() = HeaderOf(bob->id());
  remove.set_name_space(IdToProto(granite_.name_space));
  remove.set_keys(IdToProto(KeyOf(1)));
  EXPECT_EQ(
      OutcomesOf(Call<v1::NodeRemoveResponse>("Remove", remove)->outcomes()),
      std::vector<Outcome>{Outcome::kDenied});

  EXPECT_EQ(Read(alice_session_.get(), granite_, 1), Outcome::kHit);
}

// Rule C1: two tenants with equal keys.
TEST_F(NodeServiceTest, EqualKeysOfTwoTenantsAreTwoBlocks) {
  const NamespaceFacts bobs = catalog_.AddNamespace("bob");
  const auto bob = Connect(kBobUid);
  ASSERT_EQ(WriteOne(1), Outcome::kStored);

  EXPECT_EQ(Read(bob.get(), bobs, 1), Outcome::kMiss);
  EXPECT_EQ(Write(bob.get(), bobs, 1), Outcome::kStored);
  EXPECT_EQ(node_->pool().blocks, 2u);
}

// Rule S3.
TEST_F(NodeServiceTest, ALeaseIsNotReleasedByAnotherSession) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  const auto opened =
      Call<v1::OpenReadResponse>("OpenRead", OpenOf(session_, granite_, 1));
  const auto other = Connect(kAliceUid);
  v1::ReleaseRequest release;
  *release.mutable_header() = HeaderOf(other->id());
  release.add_leases(opened->lease());

  ASSERT_OK(Call<v1::ReleaseResponse>("Release", release));

  EXPECT_EQ(node_->pool().leases, 1u);
}

// Rule S3.
TEST_F(NodeServiceTest, AReservationIsNeitherCommittedNorAbortedByAnother) {
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session_, granite_, 1, 4096));
  const auto other = Connect(kAliceUid);
  LendStaging(other.get(), ++next_staging_, 1, 4096);
  v1::AbortRequest abort;
  *abort.mutable_header() = HeaderOf(other->id());
  abort.set_reservation(reserved->reservation());

  const auto committed = Call<v1::CommitResponse>(
      "Commit", CommitOf(other->id(), reserved->reservation(), 1, 4096));
  ASSERT_OK(Call<v1::AbortResponse>("Abort", abort));

  EXPECT_EQ(OutcomesOf(committed->outcomes()),
            std::vector<Outcome>{Outcome::kReservationOver});
  EXPECT_EQ(node_->pool().reserved_slots, 1u);
}

// Rule S1.
TEST_F(NodeServiceTest, StagingOfAnotherSessionIsNoSource) {
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session_, granite_, 1, 4096));
  const auto other = Connect(kAliceUid);
  LendStaging(other.get(), ++next_staging_, 1, 4096);

  EXPECT_THAT(
      Call<v1::CommitResponse>(
          "Commit", CommitOf(session_, reserved->reservation(), 1, 4096)),
      StatusIs(kInvalidArgument, HasSubstr("index 0")));
}

TEST_F(NodeServiceTest, OnlyAdministratorsDrain) {
  v1::DrainRequest drain;
  *drain.mutable_header() = HeaderOf(session_);
  EXPECT_THAT(Call<v1::DrainResponse>("Drain", drain),
              StatusIs(absl::StatusCode::kUnauthenticated));
  for (const Role role : {Role::kTenant, Role::kNode}) {
    drain.mutable_header()->set_token(TokenOf(role, alice_));
    EXPECT_THAT(Call<v1::DrainResponse>("Drain", drain, kTcpGrpc),
                StatusIs(absl::StatusCode::kPermissionDenied));
  }
  EXPECT_EQ(drains_asked_, 0);

  drain.mutable_header()->set_token(TokenOf(Role::kAdmin));
  EXPECT_OK(Call<v1::DrainResponse>("Drain", drain, kTcpGrpc));
  RunFor(absl::Milliseconds(10));

  EXPECT_EQ(drains_asked_, 1);
}

// Rule P11, at run time.
TEST_F(NodeServiceTest, OnlyAdministratorsSetTheDramTarget) {
  v1::SetDramRequest request;
  request.set_dram_bytes(8 * kMiB);
  *request.mutable_header() = HeaderOf(session_);
  EXPECT_THAT(Call<v1::SetDramResponse>("SetDram", request),
              StatusIs(absl::StatusCode::kUnauthenticated));
  for (const Role role : {Role::kTenant, Role::kNode}) {
    request.mutable_header()->set_token(TokenOf(role, alice_));
    EXPECT_THAT(Call<v1::SetDramResponse>("SetDram", request, kTcpGrpc),
                StatusIs(absl::StatusCode::kPermissionDenied));
  }
  EXPECT_EQ(Status().dram_target_bytes(), 16 * kMiB);

  request.mutable_header()->set_token(TokenOf(Role::kAdmin));
  const auto set = Call<v1::SetDramResponse>("SetDram", request, kTcpGrpc);

  ASSERT_OK(set);
  EXPECT_EQ(set->dram_target_bytes(), 8 * kMiB);
  EXPECT_EQ(Status().dram_target_bytes(), 8 * kMiB);
}

// Rule P11: down, while a session maps a region and reads from it.
TEST_F(NodeServiceTest, ALowerTargetIsReachedOnceLeasesAndMappingsEnd) {
  for (std::uint64_t n = 1; n <= 16; ++n) {
    ASSERT_EQ(Write(alice_session_.get(), granite_, n, kMiB), Outcome::kStored);
  }
  ASSERT_EQ(Status().dram_mapped_bytes(), 16 * kMiB);
  const auto opened =
      Call<v1::OpenReadResponse>("OpenRead", OpenOf(session_, granite_, 1));
  const std::uint64_t region = opened->extent_regions(0);
  alice_session_->WantDescriptor(region, 0);
  RunFor(absl::Milliseconds(10));
  v1::SetDramRequest request;
  *request.mutable_header() = HeaderOf({});
  request.mutable_header()->set_token(TokenOf(Role::kAdmin));
  request.set_dram_bytes(4 * kMiB);
  ASSERT_OK(Call<v1::SetDramResponse>("SetDram", request, kTcpGrpc));

  // The leased region is the last that is given up, so it is the one that
  // stays.
  RunFor(absl::Milliseconds(100));
  EXPECT_EQ(Status().dram_mapped_bytes(), 4 * kMiB);
  EXPECT_EQ(Read(alice_session_.get(), granite_, 1), Outcome::kHit);
  request.set_dram_bytes(4 * kMiB - 1);
  EXPECT_THAT(Call<v1::SetDramResponse>("SetDram", request, kTcpGrpc),
              StatusIs(kInvalidArgument, HasSubstr("one has 4MiB")));
  EXPECT_EQ(Status().dram_target_bytes(), 4 * kMiB);

  request.set_dram_bytes(16 * kMiB);
  ASSERT_OK(Call<v1::SetDramResponse>("SetDram", request, kTcpGrpc));
  for (std::uint64_t n = 100; n < 116; ++n) {
    ASSERT_EQ(Write(alice_session_.get(), granite_, n, kMiB), Outcome::kStored);
  }
  EXPECT_EQ(Status().dram_mapped_bytes(), 16 * kMiB);
}

// Rules P9 and P11.
TEST_F(NodeServiceTest, ASessionThatKeepsWhatIsWantedBackIsClosed) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  const auto opened =
      Call<v1::OpenReadResponse>("OpenRead", OpenOf(session_, granite_, 1));
  const std::uint64_t region = opened->extent_regions(0);
  alice_session_->WantDescriptor(region, 0);
  RunFor(absl::Milliseconds(10));
  alice_session_->Taken(region, 0);

  node_->SetDramTarget(0);
  RunFor(absl::Seconds(69));
  EXPECT_FALSE(alice_session_->closed());
  EXPECT_EQ(node_->pool().region_bytes, 4 * kMiB) << "at nominal size";
  RunFor(absl::Seconds(2));

  EXPECT_TRUE(alice_session_->closed());
  EXPECT_EQ(node_->pool().region_bytes, 0u);
}

TEST_F(NodeServiceTest, StatusIsForSessionsAndAdministrators) {
  v1::NodeStatusRequest request;
  *request.mutable_header() = HeaderOf({});
  EXPECT_THAT(Call<v1::NodeStatusResponse>("Status", request, kTcpGrpc),
              StatusIs(absl::StatusCode::kPermissionDenied));
  request.mutable_header()->set_token(TokenOf(Role::kTenant, alice_));
  EXPECT_THAT(Call<v1::NodeStatusResponse>("Status", request, kTcpGrpc),
              StatusIs(absl::StatusCode::kPermissionDenied));
  *request.mutable_header() = HeaderOf(session_);
  EXPECT_OK(Call<v1::NodeStatusResponse>("Status", request));
  ASSERT_EQ(WriteOne(1), Outcome::kStored);

  const v1::NodeStatusResponse status = Status();

  EXPECT_EQ(status.blocks(), 1u);
  EXPECT_EQ(status.sessions(), 1u);
  EXPECT_EQ(status.catalog_link(), "registered");
  EXPECT_EQ(status.stream_address(), kStream);
  ASSERT_EQ(status.region_tenants_size(), 1);
  EXPECT_EQ(status.region_tenants(0), "alice");
  EXPECT_EQ(status.outcomes(static_cast<int>(Outcome::kStored)), 2u);
}

TEST_F(NodeServiceTest, AHandshakeOfAnotherClusterIsRefused) {
  SeededRandom random(2);
  v1::ConnectRequest request;
  ToProto(Handshake{.cluster = catalog_.cluster,
                    .test_vector = HandshakeTestVector()},
          request.mutable_handshake());
  EXPECT_OK(Call<v1::ConnectResponse>("Connect", request));
  request.mutable_handshake()->set_cluster(IdToProto(ClusterId::Make(&random)));

  EXPECT_FALSE(Call<v1::ConnectResponse>("Connect", request).ok());
}

TEST_F(NodeServiceTest, AMethodThatThereIsNotIsUnimplemented) {
  EXPECT_THAT(CallRaw(kSessionGrpc, "Format", "").status(),
              StatusIs(absl::StatusCode::kUnimplemented));
}

// --- What calls do.

TEST_F(NodeServiceTest, AnEmptyBatchHasAnEmptyAnswer) {
  v1::OpenReadRequest request = OpenOf(session_, granite_, 1);
  request.clear_keys();

  const auto opened = Call<v1::OpenReadResponse>("OpenRead", request);

  ASSERT_OK(opened);
  EXPECT_EQ(opened->outcomes(), "");
  EXPECT_EQ(opened->lease(), 0u);
}

TEST_F(NodeServiceTest, ABatchHasOneLeaseAndColumnsOfItsHits) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  ASSERT_EQ(WriteOne(3), Outcome::kStored);
  v1::OpenReadRequest request = OpenOf(session_, granite_, 1);
  const std::vector<BlockKey> keys = {KeyOf(1), KeyOf(2), KeyOf(3)};
  request.set_keys(KeysToProto(keys));

  const auto opened = Call<v1::OpenReadResponse>("OpenRead", request);

  ASSERT_OK(opened);
  EXPECT_EQ(
      OutcomesOf(opened->outcomes()),
      (std::vector<Outcome>{Outcome::kHit, Outcome::kMiss, Outcome::kHit}));
  EXPECT_NE(opened->lease(), 0u);
  EXPECT_EQ(opened->lease_millis(), 5000u);
  EXPECT_EQ(opened->lengths_size(), 2);
  EXPECT_EQ(opened->extent_counts_size(), 2);
  EXPECT_EQ(opened->extent_lengths(1), 4096u);
  EXPECT_NE(opened->generations(0), opened->generations(1));
  EXPECT_EQ(opened->clear_epoch(), 1u);
}

TEST_F(NodeServiceTest, ALeaseIsRenewedUntilItHasEnded) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  const auto opened =
      Call<v1::OpenReadResponse>("OpenRead", OpenOf(session_, granite_, 1));
  v1::RenewRequest renew;
  *renew.mutable_header() = HeaderOf(session_);
  renew.add_leases(opened->lease());
  renew.add_leases(12345);
  renew.set_lease_millis(5000);
  RunFor(absl::Seconds(4));
  EXPECT_EQ(Call<v1::RenewResponse>("Renew", renew)->results(),
            std::string("\1\2"));

  RunFor(absl::Seconds(10));

  EXPECT_EQ(Call<v1::RenewResponse>("Renew", renew)->results(),
            std::string("\2\2"));
}

TEST_F(NodeServiceTest, ExistsSaysWhatIsThereAndLeasesNothing) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  v1::ExistsRequest request;
  *request.mutable_header() = HeaderOf(session_);
  request.set_name_space(IdToProto(granite_.name_space));
  const std::vector<BlockKey> keys = {KeyOf(1), KeyOf(2)};
  request.set_keys(KeysToProto(keys));

  const auto answer = Call<v1::ExistsResponse>("Exists", request);

  EXPECT_EQ(OutcomesOf(answer->outcomes()),
            (std::vector<Outcome>{Outcome::kHit, Outcome::kMiss}));
  ASSERT_EQ(answer->lengths_size(), 1);
  EXPECT_EQ(answer->lengths(0), 4096u);
  EXPECT_EQ(node_->pool().leases, 0u);
}

TEST_F(NodeServiceTest, AnAbortedReservationLeavesNothing) {
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session_, granite_, 1, 4096));
  EXPECT_EQ(Read(alice_session_.get(), granite_, 1), Outcome::kBeingWritten);
  v1::AbortRequest abort;
  *abort.mutable_header() = HeaderOf(session_);
  abort.set_reservation(reserved->reservation());

  ASSERT_OK(Call<v1::AbortResponse>("Abort", abort));

  EXPECT_EQ(Read(alice_session_.get(), granite_, 1), Outcome::kMiss);
  EXPECT_EQ(node_->pool().reserved_slots, 0u);
}

// Rule S5.
TEST_F(NodeServiceTest, ACommitThatIsRepeatedRepeatsItsAnswer) {
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session_, granite_, 1, 4096));
  LendStaging(alice_session_.get(), ++next_staging_, 1, 4096);
  const v1::CommitRequest commit =
      CommitOf(session_, reserved->reservation(), 1, 4096);
  ASSERT_OK(Call<v1::CommitResponse>("Commit", commit));

  const auto again = Call<v1::CommitResponse>("Commit", commit);

  EXPECT_EQ(OutcomesOf(again->outcomes()),
            std::vector<Outcome>{Outcome::kStored});
  EXPECT_EQ(node_->pool().commits, 1u);
}

// Rule P1: what the node copied is not what the writer said.
TEST_F(NodeServiceTest, BytesThatChangedBeforeTheCommitAreCorrupt) {
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session_, granite_, 1, 4096));
  const auto staging =
      LendStaging(alice_session_.get(), ++next_staging_, 1, 4096);
  (*staging->Map(MapAccess::kReadWrite))->bytes()[17] ^= std::byte{1};

  const auto committed = Call<v1::CommitResponse>(
      "Commit", CommitOf(session_, reserved->reservation(), 1, 4096));

  EXPECT_EQ(OutcomesOf(committed->outcomes()),
            std::vector<Outcome>{Outcome::kCorrupt});
  EXPECT_EQ(Read(alice_session_.get(), granite_, 1), Outcome::kMiss);
}

// Rule P12.
TEST_F(NodeServiceTest, AReportAboutASoundCopyEvictsNothing) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  const auto opened =
      Call<v1::OpenReadResponse>("OpenRead", OpenOf(session_, granite_, 1));
  v1::ReportCorruptRequest report;
  *report.mutable_header() = HeaderOf(session_);
  report.set_name_space(IdToProto(granite_.name_space));
  const std::vector<BlockKey> keys = {KeyOf(1), KeyOf(2)};
  report.set_keys(KeysToProto(keys));
  report.add_generations(opened->generations(0));
  report.add_generations(4711);

  const auto answer = Call<v1::ReportCorruptResponse>("ReportCorrupt", report);

  EXPECT_EQ(OutcomesOf(answer->outcomes()),
            (std::vector<Outcome>{Outcome::kHit, Outcome::kMiss}));
  EXPECT_EQ(Read(alice_session_.get(), granite_, 1), Outcome::kHit);
}

// Rule P12.
TEST_F(NodeServiceTest, AReportAboutACorruptCopyIsolatesItEverywhere) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  const auto opened =
      Call<v1::OpenReadResponse>("OpenRead", OpenOf(session_, granite_, 1));
  // The fake's read-only mappings are writable: this is a flipped bit of DRAM.
  alice_session_->WantDescriptor(opened->extent_regions(0), 0);
  RunFor(absl::Milliseconds(10));
  const auto region = alice_session_->got.back().memory->Map(MapAccess::kRead);
  ASSERT_OK(region);
  (*region)->bytes()[opened->extent_offsets(0) + 100] ^= std::byte{1};
  v1::ReportCorruptRequest report;
  *report.mutable_header() = HeaderOf(session_);
  report.set_name_space(IdToProto(granite_.name_space));
  report.set_keys(IdToProto(KeyOf(1)));
  report.add_generations(opened->generations(0));

  const auto answer = Call<v1::ReportCorruptResponse>("ReportCorrupt", report);
  RunFor(absl::Milliseconds(100));

  EXPECT_EQ(OutcomesOf(answer->outcomes()),
            std::vector<Outcome>{Outcome::kCorrupt});
  EXPECT_EQ(Read(alice_session_.get(), granite_, 1), Outcome::kMiss);
  EXPECT_TRUE(catalog_.published.empty());
  EXPECT_EQ(Status().corrupt_copies(), 1u);
  EXPECT_EQ(WriteOne(1), Outcome::kStored);
}

TEST_F(NodeServiceTest, ReportsBeyondWhatTheNodeChecksAreCongested) {
  v1::ReportCorruptRequest report;
  *report.mutable_header() = HeaderOf(session_);
  report.set_name_space(IdToProto(granite_.name_space));
  for (std::uint64_t n = 0; n < 300; ++n) {
    report.mutable_keys()->append(KeyOf(n).view());
    report.add_generations(n + 1);
  }

  const auto answer = Call<v1::ReportCorruptResponse>("ReportCorrupt", report);

  EXPECT_EQ(OutcomesOf(answer->outcomes()),
            std::vector<Outcome>(300, Outcome::kCongested));
}

// Rule C2.
TEST_F(NodeServiceTest, AReaderThatHasSeenAClearDoesNotGetWhatWasCleared) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  catalog_.Clear(granite_.name_space);
  v1::OpenReadRequest request = OpenOf(session_, granite_, 1);
  request.set_clear_epoch(2);

  const auto opened = Call<v1::OpenReadResponse>("OpenRead", request);

  EXPECT_EQ(OutcomesOf(opened->outcomes()),
            std::vector<Outcome>{Outcome::kMiss});
  EXPECT_EQ(opened->clear_epoch(), 2u);
}

// Rule C2.
TEST_F(NodeServiceTest, ACommitAcrossAClearIsCleared) {
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session_, granite_, 1, 4096));
  LendStaging(alice_session_.get(), ++next_staging_, 1, 4096);
  catalog_.Clear(granite_.name_space);
  RunFor(absl::Seconds(3));

  const auto committed = Call<v1::CommitResponse>(
      "Commit", CommitOf(session_, reserved->reservation(), 1, 4096));

  EXPECT_EQ(OutcomesOf(committed->outcomes()),
            std::vector<Outcome>{Outcome::kCleared});
}

TEST_F(NodeServiceTest, ACommitThatWaitsForPublishedReturnsWhenItIs) {
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session_, granite_, 1, 4096));
  LendStaging(alice_session_.get(), ++next_staging_, 1, 4096);
  v1::CommitRequest commit =
      CommitOf(session_, reserved->reservation(), 1, 4096);
  commit.set_wait_for(1);

  const auto committed = Call<v1::CommitResponse>("Commit", commit);

  EXPECT_EQ(OutcomesOf(committed->outcomes()),
            std::vector<Outcome>{Outcome::kStored});
  EXPECT_EQ(catalog_.published.count({granite_.name_space, KeyOf(1)}), 1u);
}

// Rule S9.
TEST_F(NodeServiceTest, WhatIsAlreadyThereIsAnsweredOnceItIsPublished) {
  ASSERT_EQ(WriteOne(9), Outcome::kStored);
  RunFor(absl::Milliseconds(100));
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  ASSERT_EQ(catalog_.published.count({granite_.name_space, KeyOf(1)}), 0u);
  v1::ReserveRequest reserve = ReserveOf(session_, granite_, 1, 4096);
  reserve.set_wait_for(1);

  const auto reserved = Call<v1::ReserveResponse>("Reserve", reserve);

  EXPECT_EQ(OutcomesOf(reserved->outcomes()),
            std::vector<Outcome>{Outcome::kAlreadyThere});
  EXPECT_EQ(catalog_.published.count({granite_.name_space, KeyOf(1)}), 1u);
}

// Rule S9: the wait for one block leaves time for the commit of another.
TEST_F(NodeServiceTest, WaitingForWhatIsThereLeavesTimeForWhatIsReserved) {
  ASSERT_EQ(WriteOne(1), Outcome::kStored);
  RunFor(absl::Milliseconds(100));
  catalog_.silent = true;
  ASSERT_EQ(WriteOne(2), Outcome::kStored);
  v1::ReserveRequest reserve = ReserveOf(session_, granite_, 2, 4096);
  reserve.set_wait_for(1);
  const BootTime began = caller_->process()->clock()->Now();
  const auto alone = Call<v1::ReserveResponse>("Reserve", reserve);
  const absl::Duration whole = caller_->process()->clock()->Now() - began;
  const std::vector<BlockRow> rows = {
      *(*FromProto(reserve.blocks())).begin(),
      *(*FromProto(ReserveOf(session_, granite_, 3, 4096).blocks())).begin()};
  ToProto(rows, reserve.mutable_blocks());
  const BootTime again = caller_->process()->clock()->Now();

  const auto both = Call<v1::ReserveResponse>("Reserve", reserve);

  EXPECT_EQ(OutcomesOf(alone->outcomes()),
            std::vector<Outcome>{Outcome::kTimedOut});
  EXPECT_EQ(OutcomesOf(both->outcomes()),
            (std::vector<Outcome>{Outcome::kTimedOut, Outcome::kStored}));
  EXPECT_LT(caller_->process()->clock()->Now() - again, whole * 0.6);
  LendStaging(alice_session_.get(), ++next_staging_, 3, 4096);
  v1::CommitRequest commit = CommitOf(session_, both->reservation(), 3, 4096);
  commit.set_indexes(0, 1);
  EXPECT_EQ(OutcomesOf(Call<v1::CommitResponse>("Commit", commit)->outcomes()),
            std::vector<Outcome>{Outcome::kStored});
}

TEST_F(NodeServiceTest, WithTheCatalogAwayPublishedTimesOutAndLocalDoesNot) {
  ASSERT_EQ(WriteOne(9), Outcome::kStored);
  catalog_.silent = true;
  const auto reserved = Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session_, granite_, 1, 4096));
  LendStaging(alice_session_.get(), ++next_staging_, 1, 4096);
  v1::CommitRequest commit =
      CommitOf(session_, reserved->reservation(), 1, 4096);
  commit.set_wait_for(1);

  const auto committed = Call<v1::CommitResponse>("Commit", commit);

  EXPECT_EQ(OutcomesOf(committed->outcomes()),
            std::vector<Outcome>{Outcome::kTimedOut});
  EXPECT_EQ(WriteOne(2), Outcome::kStored);
  EXPECT_EQ(Read(alice_session_.get(), granite_, 1), Outcome::kHit);
}

}  // namespace
}  // namespace firnkv
