// The yardstick is itself measured: against a cache that is so plain that it
// must be right, and against published figures.

#include "tools/replay/cache_simulator.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/support/matchers.h"
#include "tools/replay/trace_generator.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kTokens = 512;

TraceRequest Request(std::vector<std::uint64_t> ids) {
  TraceRequest request;
  request.input_tokens = static_cast<std::uint32_t>(ids.size()) * kTokens;
  request.ids = std::move(ids);
  return request;
}

// A leaf-first LRU by its definition, with a search over everything for each
// victim.
class PlainCache {
 public:
  explicit PlainCache(std::size_t capacity) : capacity_(capacity) {}

  std::size_t Play(const TraceRequest& request) {
    std::size_t hits = 0;
    while (hits < request.ids.size() && touched_.count(request.ids[hits])) {
      ++hits;
    }
    std::size_t there = 0;
    for (; there < request.ids.size(); ++there) {
      const std::uint64_t id = request.ids[there];
      parent_[id] = there == 0 ? id : request.ids[there - 1];
      if (touched_.count(id)) continue;
      if (touched_.size() >= capacity_ && !Evict(request)) break;
      touched_[id] = now_;
    }
    for (std::size_t i = there; i > 0; --i) {
      touched_[request.ids[i - 1]] = now_++;
    }
    return hits;
  }

 private:
  bool Evict(const TraceRequest& request) {
    std::set<std::uint64_t> kept(request.ids.begin(), request.ids.end());
    for (const auto& [id, touched] : touched_) {
      if (parent_[id] != id) kept.insert(parent_[id]);
    }
    const auto coldest = std::min_element(
        touched_.begin(), touched_.end(), [&](const auto& a, const auto& b) {
          return std::pair(kept.count(a.first), a.second) <
                 std::pair(kept.count(b.first), b.second);
        });
    if (coldest == touched_.end() || kept.count(coldest->first)) return false;
    touched_.erase(coldest);
    return true;
  }

  const std::size_t capacity_;
  std::uint64_t now_ = 1;
  std::map<std::uint64_t, std::uint64_t> touched_;
  std::map<std::uint64_t, std::uint64_t> parent_;
};

Trace Generated(std::uint64_t seed) {
  TraceGeneratorOptions options;
  options.seed = seed;
  options.duration = absl::Minutes(2);
  options.conversations_a_minute = 40;
  options.thinking = absl::Seconds(15);
  return *GenerateTrace(options);
}

TEST(CacheSimulatorTest, AHitCountsOnlyInTheLeadingRun) {
  CacheSimulator cache(CacheSimulator::kEndless);
  cache.Play(Request({1, 2, 3}));

  EXPECT_EQ(cache.Play(Request({1, 2, 9})), 2u);
}

TEST(CacheSimulatorTest, TheTailOfAChainLeavesBeforeItsHead) {
  CacheSimulator cache(4);
  cache.Play(Request({1, 2, 3}));
  cache.Play(Request({7, 8, 9}));

  EXPECT_EQ(cache.Play(Request({1, 2, 3})), 1u);
}

TEST(CacheSimulatorTest, ARequestLargerThanTheCacheKeepsItsHead) {
  CacheSimulator cache(2);
  cache.Play(Request({1, 2, 3, 4}));

  EXPECT_EQ(cache.Play(Request({1, 2, 3, 4})), 2u);
  EXPECT_EQ(cache.resident(), 2u);
}

TEST(CacheSimulatorTest, ACacheOfNothingHasNothing) {
  CacheSimulator cache(0);
  cache.Play(Request({1}));

  EXPECT_EQ(cache.Play(Request({1})), 0u);
}

TEST(CacheSimulatorTest, ItNeverHoldsMoreThanItsCapacity) {
  const Trace trace = Generated(1);
  CacheSimulator cache(100);

  for (const TraceRequest& request : trace.requests) {
    cache.Play(request);
    ASSERT_LE(cache.resident(), 100u);
  }
  EXPECT_GT(cache.evictions(), 0u);
}

TEST(CacheSimulatorTest, ItFindsWhatThePlainCacheFindsRequestByRequest) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Trace trace = Generated(seed);
    for (const std::size_t capacity : {3, 40, 150, 400}) {
      CacheSimulator cache(capacity);
      PlainCache plain(capacity);
      for (std::size_t i = 0; i < trace.requests.size(); ++i) {
        ASSERT_EQ(cache.Play(trace.requests[i]), plain.Play(trace.requests[i]))
            << "seed " << seed << " capacity " << capacity << " request " << i;
      }
    }
  }
}

TEST(CacheSimulatorTest, WorkIsThatOfThePrompts) {
  Trace trace;
  trace.requests = {Request({1, 2}), Request({1, 2})};

  const HitCounts counts =
      SimulateCache(trace, CacheSimulator::kEndless, kTokens);

  EXPECT_DOUBLE_EQ(counts.work, 2 * 1024 * (1 + 512.0 / 32768));
  EXPECT_DOUBLE_EQ(counts.saved_rate(), 50);
  EXPECT_DOUBLE_EQ(counts.request_rate(), 50);
}

// The conversation trace published with Mooncake (FAST '25), where it lies
// beside the checkout.
class ConversationTraceTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = "../shared/traces/conversation_trace.jsonl";
    if (!std::ifstream(path)) {
      GTEST_SKIP() << "there is no " << path << ": nothing to compare with";
    }
    ASSERT_OK_AND_ASSIGN(trace_, ReadTraceFile(path, {}));
  }
  double Saved(double share) {
    const auto capacity =
        static_cast<std::size_t>(static_cast<double>(trace_.distinct) * share);
    return SimulateCache(trace_, capacity, kTokens).saved_rate();
  }
  Trace trace_;
};

TEST_F(ConversationTraceTest, IsTheOneThatTheFiguresAreAbout) {
  EXPECT_EQ(trace_.requests.size(), 12'031u);
  EXPECT_EQ(trace_.references, 276'491u);
  EXPECT_EQ(trace_.distinct, 170'899u);
}

TEST_F(ConversationTraceTest, AnEndlessCacheFindsWhatIsKnown) {
  const HitCounts counts =
      SimulateCache(trace_, CacheSimulator::kEndless, kTokens);

  EXPECT_NEAR(counts.block_rate(), 38.2, 0.05);
  EXPECT_NEAR(counts.token_rate(), 37.3, 0.05);
  EXPECT_NEAR(counts.saved_rate(), 35.6, 0.05);
}

TEST_F(ConversationTraceTest, ALeafFirstLruSavesWhatIsKnown) {
  EXPECT_NEAR(Saved(0.01), 3.9, 0.1);
  EXPECT_NEAR(Saved(0.02), 6.1, 0.1);
  EXPECT_NEAR(Saved(0.05), 17.9, 0.1);
  EXPECT_NEAR(Saved(0.10), 26.0, 0.1);
  EXPECT_NEAR(Saved(0.20), 33.1, 0.1);
  EXPECT_NEAR(Saved(0.50), 35.3, 0.1);
}

}  // namespace
}  // namespace firnkv
