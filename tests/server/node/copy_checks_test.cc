// Reports of corrupt copies: what is checked, in which turn, at what rate.

#include "server/node/copy_checks.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/tier/pool_fixture.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::uint64_t kLength = 256 * kKiB;

class CopyChecksTest : public PoolTest {
 protected:
  CopyChecksTest()
      : checks_(std::make_unique<CopyChecks>(
            CopyChecks::Options{.max_waiting = 6,
                                .max_waiting_a_tenant = 4,
                                .bytes_a_second = kMiB},
            CopyChecks::Parts{.executor = &world_, .pool = pool_.get()})),
        generation_(Write(name_space_, Block(1, kLength)).generation) {}
  void TearDown() override {
    checks_.reset();
    PoolTest::TearDown();
  }

  // Reports block 1 so often, in one call.
  std::vector<Outcome>* Report(std::uint64_t tenant, std::size_t times) {
    answers_.push_back(std::make_unique<std::vector<Outcome>>());
    auto* const answer = answers_.back().get();
    checks_->Start(MakeId<TenantId>(tenant),
                   std::vector<CopyChecks::Copy>(
                       times, {{name_space_.id, Key(1)}, generation_}),
                   [this, tenant, answer](std::vector<Outcome> outcomes) {
                     ASSERT_TRUE(answer->empty());
                     *answer = std::move(outcomes);
                     order_.push_back(tenant);
                   });
    return answer;
  }

  std::unique_ptr<CopyChecks> checks_;
  const Generation generation_;
  std::vector<std::unique_ptr<std::vector<Outcome>>> answers_;
  std::vector<std::uint64_t> order_;
};

// Rule P12: the node looks for itself.
TEST_F(CopyChecksTest, ASoundCopyStaysAndACorruptOneGoes) {
  const auto* const sound = Report(1, 1);
  world_.RunReady();
  EXPECT_THAT(*sound, ElementsAre(Outcome::kHit));

  const HeldBlock held = HoldOne(name_space_, 1);
  const_cast<std::byte&>(held.bytes[5]) ^= std::byte{1};
  const auto* const corrupt = Report(1, 2);
  world_.RunUntil([corrupt] { return !corrupt->empty(); });

  EXPECT_THAT(*corrupt, ElementsAre(Outcome::kCorrupt, Outcome::kMiss));
  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
  EXPECT_EQ(pool_->Snapshot().corrupt_copies, 1u);
}

// Rule P12: whoever reports without end costs the node so many bytes a second.
TEST_F(CopyChecksTest, ChecksReadNoMoreThanTheirRate) {
  for (int i = 0; i < 100; ++i) {
    Report(1, 1);
    world_.RunFor(absl::Milliseconds(100));
  }

  // Ten seconds of a MiB, 256 KiB each, and the first one.
  EXPECT_LE(checks_->counters().checked.value(), 41u);
  EXPECT_GE(checks_->counters().checked.value(), 39u);
  EXPECT_GT(checks_->counters().refused.value(), 0u);
}

// Rule P12: nor does it keep others' reports from being looked at.
TEST_F(CopyChecksTest, TenantsTakeTurnsAndOneCannotFillTheQueue) {
  Report(1, 3);
  Report(1, 1);
  EXPECT_THAT(*Report(1, 1), ElementsAre(Outcome::kCongested));

  const auto* const mine = Report(2, 1);
  world_.RunUntil([mine] { return !mine->empty(); });

  EXPECT_THAT(*mine, ElementsAre(Outcome::kHit));
  EXPECT_EQ(checks_->counters().checked.value(), 2u);
}

TEST_F(CopyChecksTest, ReportsBeyondTheBoundOfAllAreCongestedWhole) {
  Report(1, 4);
  Report(2, 2);

  EXPECT_THAT(*Report(3, 1), Each(Outcome::kCongested));
  world_.RunFor(absl::Seconds(10));
  const auto* const later = Report(3, 1);
  world_.RunUntil([later] { return !later->empty(); });
  EXPECT_THAT(*later, Each(Outcome::kHit));
}

TEST_F(CopyChecksTest, ClosingCancelsWhatWaitsAndWhatComes) {
  const auto* const waiting = Report(1, 2);
  world_.RunReady();

  checks_->Close();

  EXPECT_THAT(*waiting, ElementsAre(Outcome::kHit, Outcome::kCancelled));
  EXPECT_THAT(*Report(1, 1), ElementsAre(Outcome::kCancelled));
  EXPECT_EQ(pool_->Snapshot().holds, 0u);
}

}  // namespace
}  // namespace firnkv
