// What a clear costs, and who is said to be pending until it is over everywhere
// (rules C2, C4).

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/catalog/service_fixture.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ClearTest : public ServiceFixture {
 protected:
  std::vector<std::string> ReasonsFor(const std::string& name) {
    const auto report = Clear(name, /*report_only=*/true);
    EXPECT_OK(report);
    EXPECT_EQ(report->pending_nodes_size(), report->pending_reasons_size());
    return {report->pending_reasons().begin(), report->pending_reasons().end()};
  }
  // The node has heard of everything, and no read goes on there.
  void Settle(Member* node) {
    ASSERT_OK(KeepAlive(node));
    node->drained = node->cursor;
    ASSERT_OK(KeepAlive(node));
  }

  const TenantId tenant_ = DefaultTenant();
};

// It touches no entry: one write, however many blocks there are.
TEST_F(ClearTest, AClearIsOneWriteWhateverTheNumberOfBlocks) {
  const v1::NamespaceFacts few = Open(tenant_, "few")->facts();
  const v1::NamespaceFacts many = Open(tenant_, "many")->facts();
  Member node = Join(1, 100);
  Publish(&node, few, {1});
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 0; key < 4000; ++key) keys.push_back(key);
  Publish(&node, many, keys);

  for (const char* name : {"few", "many"}) {
    const std::uint64_t before = store_.writes();
    const std::size_t entries = store_.size(Family::kKeys);
    ASSERT_OK(Clear(name));
    EXPECT_EQ(store_.writes(), before + 1) << name;
    EXPECT_EQ(store_.size(Family::kKeys), entries) << name;
  }
  EXPECT_THAT(OutcomesOf(tenant_, many, {7}), ElementsAre(Outcome::kMiss));
}

// Rule C4.
TEST_F(ClearTest, AStrictClearWaitsForTheReadsThatWereGrantedBefore) {
  ASSERT_OK(Open(tenant_, "strict", /*create=*/true, /*strict_clear=*/true));
  Member node = Join(1, 100);
  Settle(&node);
  EXPECT_THAT(ReasonsFor("strict"), IsEmpty());

  const auto cleared = Clear("strict");

  ASSERT_OK(cleared);
  EXPECT_THAT(cleared->pending_nodes(), ElementsAre(ToHex(Node(1))));
  EXPECT_THAT(cleared->pending_reasons(),
              ElementsAre(HasSubstr("has not heard")));
  ASSERT_OK(KeepAlive(&node));
  EXPECT_THAT(ReasonsFor("strict"), ElementsAre(HasSubstr("has not heard")));
  ASSERT_OK(KeepAlive(&node));
  EXPECT_THAT(ReasonsFor("strict"), ElementsAre(HasSubstr("still finishes")));
  node.drained = node.cursor;
  ASSERT_OK(KeepAlive(&node));
  EXPECT_THAT(ReasonsFor("strict"), IsEmpty());
}

// Rule C4 is for those who asked for it.
TEST_F(ClearTest, AnotherClearOnlyWaitsUntilItIsKnown) {
  ASSERT_OK(Open(tenant_, "granite"));
  Member node = Join(1, 100);
  Settle(&node);

  ASSERT_OK(Clear("granite"));
  ASSERT_OK(KeepAlive(&node));
  ASSERT_OK(KeepAlive(&node));

  EXPECT_THAT(ReasonsFor("granite"), IsEmpty());
}

// Rule C4: without a lease it serves nothing of a strict namespace.
TEST_F(ClearTest, ANodeWhoseLeaseIsOverIsPendingOnlyForOtherNamespaces) {
  ASSERT_OK(Open(tenant_, "strict", /*create=*/true, /*strict_clear=*/true));
  ASSERT_OK(Open(tenant_, "granite"));
  Member node = Join(1, 100);
  Settle(&node);
  ASSERT_OK(Clear("strict"));
  ASSERT_OK(Clear("granite"));

  world_.RunFor(absl::Seconds(9));
  EXPECT_THAT(ReasonsFor("strict"), ElementsAre(HasSubstr("has not heard")));
  world_.RunFor(absl::Seconds(2));

  EXPECT_THAT(ReasonsFor("strict"), IsEmpty());
  EXPECT_THAT(ReasonsFor("granite"), ElementsAre(HasSubstr("has not heard")));
}

// Rules C2 and C4: a run that comes back is told what it has missed.
TEST_F(ClearTest, ANodeThatComesBackInItsGraceIsPendingUntilItHasHeard) {
  ASSERT_OK(Open(tenant_, "strict", /*create=*/true, /*strict_clear=*/true));
  Member node = Join(1, 100);
  Settle(&node);
  world_.RunFor(absl::Seconds(20));
  ASSERT_OK(Clear("strict"));
  EXPECT_THAT(ReasonsFor("strict"), IsEmpty());

  node = Register(1, 100);
  EXPECT_TRUE(node.kept);

  EXPECT_THAT(ReasonsFor("strict"), ElementsAre(HasSubstr("has not heard")));
  const auto told = KeepAlive(&node);
  ASSERT_OK(told);
  ASSERT_EQ(told->changed_size(), 1);
  EXPECT_EQ(told->changed(0).clear_epoch(), 2u);
  Settle(&node);
  EXPECT_THAT(ReasonsFor("strict"), IsEmpty());
}

// Rules A7 and C4: a catalog that has just started knows nobody's cursor.
TEST_F(ClearTest, AfterARestartEveryNodeIsPendingUntilItHasBeenHeardOf) {
  ASSERT_OK(Open(tenant_, "strict", /*create=*/true, /*strict_clear=*/true));
  Member node = Join(1, 100);
  Settle(&node);
  ASSERT_OK(Clear("strict"));

  Restart();

  EXPECT_THAT(ReasonsFor("strict"),
              ElementsAre(HasSubstr("may not have registered"),
                          HasSubstr("has not heard")));
  Settle(&node);
  EXPECT_THAT(ReasonsFor("strict"),
              ElementsAre(HasSubstr("may not have registered")));
}

// Rule C4: a node of the catalog that was lost serves while its lease runs, and
// the new one has never heard of it.
TEST_F(ClearTest, WithinALeaseAfterARestoreUnknownNodesArePending) {
  ASSERT_OK(Open(tenant_, "strict", /*create=*/true, /*strict_clear=*/true));
  const auto backup = Admins<v1::BackupResponse>("Backup", v1::BackupRequest());
  ASSERT_OK(backup);
  Stop();
  store_.Wipe();
  Start();
  world_.RunFor(absl::Minutes(1));
  v1::RestoreRequest restore;
  restore.set_state(backup->state());
  ASSERT_OK((Admins<v1::RestoreResponse>("Restore", restore)));

  const auto cleared = Clear("strict");

  ASSERT_OK(cleared);
  EXPECT_THAT(cleared->pending_nodes(), ElementsAre("unknown"));
  EXPECT_THAT(cleared->pending_reasons(),
              ElementsAre(HasSubstr("less than a lease ago")));
  world_.RunFor(absl::Seconds(9));
  EXPECT_THAT(ReasonsFor("strict"), ElementsAre(HasSubstr("lease ago")));
  world_.RunFor(absl::Seconds(2));
  EXPECT_THAT(ReasonsFor("strict"), IsEmpty());
}

// Rule C4: nobody can have heard of it from elsewhere.
TEST_F(ClearTest, ANamespaceMadeSinceTheStartWaitsForNobodyUnknown) {
  ASSERT_OK(Open(tenant_, "old"));
  Restart();
  ASSERT_OK(Open(tenant_, "new"));

  EXPECT_THAT(Clear("new")->pending_nodes(), IsEmpty());
  EXPECT_THAT(Clear("old")->pending_nodes(), ElementsAre("unknown"));
}

TEST_F(ClearTest, AReportOnWhatThereIsNotIsRefused) {
  ASSERT_OK(Open(tenant_, "granite"));

  EXPECT_THAT(Clear("grenite", /*report_only=*/true),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("grenite")));
  EXPECT_THAT(Clear("grenite"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClearTest, AReportClearsNothing) {
  ASSERT_OK(Open(tenant_, "granite"));
  const std::uint64_t before = store_.writes();

  const auto report = Clear("granite", /*report_only=*/true);

  ASSERT_OK(report);
  EXPECT_EQ(report->cleared(0).clear_epoch(), 1u);
  EXPECT_EQ(store_.writes(), before);
}

}  // namespace
}  // namespace firnkv
