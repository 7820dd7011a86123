// A run that ends its membership by itself, and what the catalog hears of it.

#include <optional>

#include "gtest/gtest.h"
#include "tests/server/node/link_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

class LinkLeavingTest : public LinkFixture {
 protected:
  absl::Status Leave(absl::Duration timeout = absl::Seconds(1)) {
    std::optional<absl::Status> left;
    link_->Leave(timeout, [&left](absl::Status status) { left = status; });
    EXPECT_FALSE(left.has_value());
    EXPECT_TRUE(world_.executor()->RunUntil([&] { return left.has_value(); }));
    return *left;
  }
  int Calls() const {
    int sum = 0;
    for (const auto& [method, count] : catalog_.calls) sum += count;
    return sum;
  }
};

// Rule A3: of its last registration.
TEST_F(LinkLeavingTest, ARunThatLeavesIsUnregisteredAndAsksForNothingMore) {
  Store(granite_, 1);
  Settle();
  RunFor(absl::Milliseconds(100));
  ASSERT_TRUE(Published(1));

  EXPECT_OK(Leave());

  EXPECT_FALSE(Published(1));
  ASSERT_EQ(catalog_.departures.size(), 1u);
  EXPECT_EQ(catalog_.departures[0].epoch(),
            static_cast<std::uint64_t>(address_.epoch));
  EXPECT_EQ(link_->state(), CatalogLink::State::kLeft);
  EXPECT_EQ(link_->believed_until(), BootTime());
  const int calls = Calls();
  Store(granite_, 2);
  RunFor(absl::Minutes(5));
  EXPECT_EQ(Calls(), calls);
}

TEST_F(LinkLeavingTest, ALostAnswerIsAskedForOnceMoreAndIsNoFailure) {
  Settle();
  catalog_.loses_answers = true;
  std::optional<absl::Status> left;
  link_->Leave(absl::Seconds(1),
               [&left](absl::Status status) { left = status; });
  ASSERT_TRUE(world_.executor()->RunUntil(
      [&] { return !catalog_.departures.empty(); }));
  catalog_.loses_answers = false;

  ASSERT_TRUE(world_.executor()->RunUntil([&] { return left.has_value(); }));

  EXPECT_OK(*left);
  EXPECT_EQ(catalog_.departures.size(), 1u);
  EXPECT_EQ(catalog_.calls["Unregister"], 2);
}

TEST_F(LinkLeavingTest, ASilentCatalogIsWaitedForNoLongerThanSaid) {
  Settle();
  catalog_.silent = true;
  const BootTime before = Now();

  EXPECT_THAT(Leave(absl::Seconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));

  EXPECT_LE(Now() - before, absl::Seconds(1) + absl::Milliseconds(20));
}

TEST_F(LinkLeavingTest, AnOlderCatalogHasNoSuchCall) {
  Settle();
  catalog_.FailNext("Unregister", absl::UnimplementedError("no method"));

  EXPECT_THAT(Leave(), StatusIs(absl::StatusCode::kUnimplemented));

  EXPECT_EQ(link_->state(), CatalogLink::State::kLeft);
}

TEST_F(LinkLeavingTest, WhoIsNotRegisteredLeavesAtOnceAndDoesNotRegister) {
  catalog_.silent = true;
  StartLink();
  RunFor(absl::Milliseconds(100));

  EXPECT_THAT(Leave(), StatusIs(absl::StatusCode::kFailedPrecondition));

  catalog_.silent = false;
  RunFor(absl::Minutes(1));
  EXPECT_TRUE(catalog_.registrations.empty());
  EXPECT_EQ(catalog_.calls["Unregister"], 0);
}

}  // namespace
}  // namespace firnkv
