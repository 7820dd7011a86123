// Exists, Remove and OpenNamespace: what the local node and the catalog say,
// put together.

#include <optional>
#include <utility>
#include <vector>

#include "proto/catalog.pb.h"
#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LookupTest : public ClientFixture {
 protected:
  void SetUp() override { Connect(); }

  ExistsReport Exists(const std::vector<int>& numbers,
                      ReadWant want = ReadWant::kLeadingRun) {
    exists_.clear();
    for (const int number : numbers) {
      exists_.push_back({.key = KeyOf(number), .anchor = KeyOf(number)});
    }
    std::optional<ExistsReport> result;
    client_->StartExists({.name_space = handle_,
                          .blocks = absl::MakeSpan(exists_),
                          .deadline = absl::Seconds(1),
                          .want = want},
                         [&](const ExistsReport& report) { result = report; });
    EXPECT_TRUE(Run([&] { return result.has_value(); }));
    return *result;
  }
  std::vector<Outcome> Found() const {
    std::vector<Outcome> outcomes;
    for (const ExistsTarget& one : exists_) outcomes.push_back(one.outcome);
    return outcomes;
  }

  RemoveReport Remove(const std::vector<int>& numbers) {
    removed_.clear();
    for (const int number : numbers) removed_.push_back({.key = KeyOf(number)});
    std::optional<RemoveReport> result;
    client_->StartRemove({.name_space = handle_,
                          .blocks = absl::MakeSpan(removed_),
                          .deadline = absl::Seconds(1)},
                         [&](const RemoveReport& report) { result = report; });
    EXPECT_TRUE(Run([&] { return result.has_value(); }));
    return *result;
  }
  std::vector<Outcome> Removed() const {
    std::vector<Outcome> outcomes;
    for (const RemoveTarget& one : removed_) outcomes.push_back(one.outcome);
    return outcomes;
  }

  absl::StatusOr<NamespaceHandle> Open(const OpenNamespaceRequest& request) {
    std::optional<absl::StatusOr<NamespaceHandle>> result;
    client_->StartOpenNamespace(request,
                                [&](absl::StatusOr<NamespaceHandle> handle) {
                                  result = std::move(handle);
                                });
    EXPECT_TRUE(Run([&] { return result.has_value(); }));
    return *result;
  }
  static StateContract Contract() {
    StateContract contract;
    contract.model = contract.weights_revision = contract.tokenizer = "m";
    contract.preprocessing = contract.positional = contract.kv_dtype = "m";
    contract.layer_order = contract.kv_order = contract.head_grouping = "m";
    contract.page_order = "m";
    contract.block_tokens = contract.tensor_parallel = 1;
    contract.pipeline_parallel = contract.context_parallel = 1;
    contract.layout_version = 1;
    return contract;
  }

  std::vector<ExistsTarget> exists_;
  std::vector<RemoveTarget> removed_;
};

TEST_F(LookupTest, ABlockExistsHereOrElsewhere) {
  node_->Put(Id(1), BytesFor(1, 64));
  catalog_->Locate(Id(2), remote_->address(), 65);

  const ExistsReport report = Exists({1, 2, 3, 4}, ReadWant::kEveryBlock);

  EXPECT_THAT(Found(), ElementsAre(Outcome::kHit, Outcome::kHit, Outcome::kMiss,
                                   Outcome::kMiss));
  EXPECT_EQ(exists_[0].length, 64u);
  EXPECT_EQ(exists_[1].length, 65u);
  EXPECT_EQ(report.leading_hits, 2u);
}

TEST_F(LookupTest, ALeadingRunOfThemEndsAtTheFirstMiss) {
  node_->Put(Id(1), BytesFor(1, 64));
  node_->Put(Id(3), BytesFor(3, 64));

  Exists({1, 2, 3});

  EXPECT_THAT(Found(),
              ElementsAre(Outcome::kHit, Outcome::kMiss, Outcome::kSkipped));
}

TEST_F(LookupTest, WhatExistsElsewhereIsReadWithoutAskingAgain) {
  remote_->Put(Id(1), BytesFor(1, 64));
  catalog_->Locate(Id(1), remote_->address(), 64);
  Exists({1});
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(catalog_->calls["Locate"], 1);
}

TEST_F(LookupTest, ANodeThatNeverAnswersTimesOut) {
  node_->silent.insert("Exists");

  Exists({1});

  EXPECT_THAT(Found(), ElementsAre(Outcome::kTimedOut));
}

TEST_F(LookupTest, ARemovedBlockIsGoneHereAndPendingElsewhere) {
  node_->Put(Id(1), BytesFor(1, 64));
  catalog_->Locate(Id(2), remote_->address(), 64);

  const RemoveReport report = Remove({1, 2, 3});

  EXPECT_THAT(Removed(),
              ElementsAre(Outcome::kHit, Outcome::kHit, Outcome::kMiss));
  EXPECT_EQ(report.removed, 2u);
  EXPECT_EQ(report.pending, 1u);
  EXPECT_FALSE(node_->Has(Id(1)));
}

TEST_F(LookupTest, WithTheCatalogAwayARemoveCannotSayMiss) {
  node_->Put(Id(1), BytesFor(1, 64));
  catalog_->instead["Remove"] = [](const std::string&) {
    return absl::UnavailableError("away");
  };

  Remove({1, 2});

  EXPECT_THAT(Removed(), ElementsAre(Outcome::kHit, Outcome::kUnavailable));
}

TEST_F(LookupTest, ANamespaceIsOpenedByItsContract) {
  const auto handle = Open({.name = "chat", .contract = Contract()});

  ASSERT_OK(handle);
  EXPECT_EQ(handle->id, catalog_->name_space);
  EXPECT_EQ(handle->digest, MakeIdentityDigest(Contract()));
  EXPECT_TRUE(handle->created);
}

TEST_F(LookupTest, AContractThatLacksAFieldIsRefusedByItsName) {
  StateContract contract = Contract();
  contract.kv_dtype.clear();

  EXPECT_THAT(
      Open({.name = "chat", .contract = contract}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("kv_dtype")));
}

TEST_F(LookupTest, AVersionOfAnotherContractIsNotTaken) {
  catalog_->tamper["OpenNamespace"] = [](std::string* answer) {
    v1::OpenNamespaceResponse response;
    ASSERT_TRUE(response.ParseFromString(*answer));
    response.mutable_facts()->set_digest(std::string(32, 'q'));
    *answer = response.SerializeAsString();
  };

  EXPECT_THAT(Open({.name = "chat", .contract = Contract()}),
              StatusIs(absl::StatusCode::kInternal));
}

TEST_F(LookupTest, ASilentCatalogCostsNoMoreThanTheDeadline) {
  catalog_->silent.insert("Connect");
  const BootTime begin = Now();

  EXPECT_THAT(Open({.name = "chat",
                    .contract = Contract(),
                    .deadline = absl::Milliseconds(30)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Now() - begin, absl::Milliseconds(30));
}

TEST_F(LookupTest, ClosingEndsLookupsWithKCancelled) {
  node_->silent.insert("Exists");
  exists_ = {{.key = KeyOf(1), .anchor = KeyOf(1)}};
  std::optional<ExistsReport> result;
  client_->StartExists({.name_space = handle_,
                        .blocks = absl::MakeSpan(exists_),
                        .deadline = absl::Seconds(1)},
                       [&](const ExistsReport& report) { result = report; });

  client_->Close();

  EXPECT_TRUE(result.has_value());
  EXPECT_THAT(Found(), ElementsAre(Outcome::kCancelled));
}

}  // namespace
}  // namespace firnkv
