#include "proto/base/random.h"

#include <array>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::Ne;

TEST(SeededRandom, GivesTheNumbersOfXoshiro256PlusPlus) {
  // Computed with a second implementation, state by splitmix64 from 42.
  SeededRandom random(42);

  EXPECT_EQ(random.Next64(), 0xd0764d4f4476689fu);
  EXPECT_EQ(random.Next64(), 0x519e4174576f3791u);
  EXPECT_EQ(random.Next64(), 0xfbe07cfb0c24ed8cu);
}

TEST(SeededRandom, TheSameSeedGivesTheSameNumbers) {
  SeededRandom one(7);
  SeededRandom other(7);
  SeededRandom another(8);

  const std::uint64_t first = one.Next64();

  EXPECT_EQ(first, other.Next64());
  EXPECT_THAT(another.Next64(), Ne(first));
}

TEST(SeededRandom, FillsAnyNumberOfBytes) {
  for (std::size_t size = 0; size < 40; ++size) {
    std::vector<std::uint8_t> bytes(size + 1, 0xee);

    SeededRandom random(size);
    random.Fill(absl::MakeSpan(bytes).first(size));

    EXPECT_EQ(bytes.back(), 0xee) << size;
  }
}

TEST(Random, BelowStaysBelowAndReachesEveryNumber) {
  SeededRandom random(1);
  std::array<int, 7> seen{};

  for (int i = 0; i < 7'000; ++i) ++seen.at(random.Below(7));

  for (const int count : seen) {
    EXPECT_GT(count, 850);  // Expected 1,000, deviation 29.
    EXPECT_LT(count, 1'150);
  }
}

TEST(Random, BelowOneIsZeroAndBelowTheLargestIsNoLoop) {
  SeededRandom random(1);

  EXPECT_EQ(random.Below(1), 0u);
  EXPECT_LT(random.Below(UINT64_MAX), UINT64_MAX);
  EXPECT_LT(random.Below((UINT64_C(1) << 63) + 1), (UINT64_C(1) << 63) + 1);
}

// Gives what it is told to, then counts up.
class ListedRandom : public Random {
 public:
  explicit ListedRandom(std::vector<std::uint8_t> first_bytes)
      : first_bytes_(std::move(first_bytes)) {}
  void Fill(absl::Span<std::uint8_t> bytes) override {
    const std::uint8_t value =
        next_ < first_bytes_.size() ? first_bytes_[next_] : 0xff;
    ++next_;
    for (std::uint8_t& byte : bytes) byte = value;
  }

 private:
  const std::vector<std::uint8_t> first_bytes_;
  std::size_t next_ = 0;
};

TEST(Random, NonZeroDrawsAgainAfterAZero) {
  ListedRandom random({0, 0, 3});

  EXPECT_EQ(random.NonZero64(), 0x0303030303030303u);
}

TEST(Random, BelowDrawsAgainWhereTheRemainderWouldBeUnfair) {
  // 2^64 mod 10 is 6: draws below 6 are unfair, 0 is one.
  ListedRandom random({0, 1});

  EXPECT_EQ(random.Below(10), 0x0101010101010101u % 10);
}

TEST(SystemRandom, NeverGivesTheSameIdTwice) {
  SystemRandom random;
  std::set<std::uint64_t> seen;

  for (int i = 0; i < 1'000; ++i) seen.insert(random.Next64());

  EXPECT_EQ(seen.size(), 1'000u);
}

TEST(SystemRandom, FillsMoreThanTheKernelGivesAtOnce) {
  std::vector<std::uint8_t> bytes(3'000, 0);

  SystemRandom().Fill(absl::MakeSpan(bytes));

  EXPECT_NE(std::set<std::uint8_t>(bytes.end() - 100, bytes.end()).size(), 1u);
}

}  // namespace
}  // namespace firnkv
