// A whole replay over a pool in this process: several workers, recorded times
// and none, and being stopped.

#include "tools/replay/replayer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"
#include "tests/support/matchers.h"
#include "tests/tools/replay/memory_pool.h"
#include "tools/replay/cache_simulator.h"
#include "tools/replay/trace_generator.h"

namespace firnkv {
namespace {

constexpr std::size_t kWorkers = 3;

class ReplayerTest : public testing::Test {
 protected:
  ReplayerTest() {
    for (std::size_t i = 0; i < kWorkers; ++i) {
      pools_.push_back(std::make_unique<MemoryPool>(&shared_));
    }
    TraceGeneratorOptions options;
    options.duration = absl::Minutes(1);
    options.thinking = absl::Seconds(10);
    trace_ = *GenerateTrace(options);
    options_.player.block_bytes = 512;
    options_.player.buffer_bytes = kMiB;
    options_.speed = 0;
  }

  std::vector<PoolAccess*> Pools() {
    std::vector<PoolAccess*> pools;
    for (const auto& pool : pools_) pools.push_back(pool.get());
    return pools;
  }

  absl::StatusOr<Replayer::Result> Run() {
    return Replayer(options_, &trace_, Pools(), &clock_).Run();
  }

  Trace trace_;
  SharedBlocks shared_;
  std::vector<std::unique_ptr<MemoryPool>> pools_;
  ManualClock clock_;
  Replayer::Options options_;
};

TEST_F(ReplayerTest, EveryRequestIsPlayedOnce) {
  ASSERT_OK_AND_ASSIGN(const Replayer::Result result, Run());

  EXPECT_EQ(result.played, trace_.requests.size());
  EXPECT_EQ(result.tally.hits.requests, trace_.requests.size());
  EXPECT_EQ(result.tally.hits.blocks, trace_.references);
  EXPECT_EQ(result.tally.wrong_blocks, 0u);
}

TEST_F(ReplayerTest, OneWorkerFindsWhatAnEndlessCacheFinds) {
  Replayer replayer(options_, &trace_, {pools_[0].get()}, &clock_);

  ASSERT_OK_AND_ASSIGN(const Replayer::Result result, replayer.Run());

  const HitCounts endless =
      SimulateCache(trace_, CacheSimulator::kEndless, 512);
  EXPECT_EQ(result.tally.hits.blocks_hit, endless.blocks_hit);
  EXPECT_EQ(result.tally.hits.tokens_hit, endless.tokens_hit);
}

TEST_F(ReplayerTest, AllWorkersGetTheirTurn) {
  ASSERT_OK(Run());

  for (const auto& pool : pools_) EXPECT_GT(pool->reads, 0u);
}

TEST_F(ReplayerTest, RequestsBeginAtTheirRecordedTimes) {
  std::vector<absl::Duration> pauses;
  const BootTime began = clock_.Now();
  options_.speed = 2;
  options_.pause = [&](absl::Duration time) {
    clock_.Advance(time);
    pauses.push_back(time);
  };

  ASSERT_OK(Run());

  EXPECT_EQ(clock_.Now() - began, trace_.requests.back().at / 2);
  EXPECT_FALSE(pauses.empty());
}

TEST_F(ReplayerTest, HowLateRequestsBeginIsTold) {
  options_.speed = 1;
  options_.pause = [&](absl::Duration time) { clock_.Advance(time); };

  ASSERT_OK_AND_ASSIGN(const Replayer::Result result, Run());

  EXPECT_EQ(result.tally.late.count(), trace_.requests.size());
}

TEST_F(ReplayerTest, WhatAllShareIsComputedOnce) {
  // Every prompt is the same one.
  trace_.requests.resize(20);
  for (TraceRequest& request : trace_.requests) {
    request.ids = trace_.requests[0].ids;
  }

  ASSERT_OK_AND_ASSIGN(const Replayer::Result result, Run());

  std::size_t writes = 0;
  std::size_t published = 0;
  for (const auto& pool : pools_) writes += pool->writes;
  for (const auto& pool : pools_) published += pool->published_writes;
  EXPECT_EQ(writes, 1u);
  EXPECT_EQ(published, 1u);
  EXPECT_EQ(result.tally.hits.requests_hit, 19u);
}

TEST_F(ReplayerTest, AStoppedReplayPlaysNoFurtherRequest) {
  Replayer* stop = nullptr;
  options_.progress = [&](std::size_t played) {
    if (played >= 5) stop->Stop();
  };
  Replayer replayer(options_, &trace_, Pools(), &clock_);
  stop = &replayer;

  ASSERT_OK_AND_ASSIGN(const Replayer::Result result, replayer.Run());

  EXPECT_GE(result.played, 5u);
  EXPECT_LT(result.played, trace_.requests.size());
  EXPECT_EQ(result.tally.hits.requests, result.played);
}

TEST_F(ReplayerTest, ProgressEndsWithAllOfThem) {
  std::size_t last = 0;
  options_.progress = [&](std::size_t played) { last = played; };

  ASSERT_OK(Run());

  EXPECT_EQ(last, trace_.requests.size());
}

TEST_F(ReplayerTest, WrongBytesOfAnyWorkerAreInTheSum) {
  pools_[1]->flip_one_byte = true;

  ASSERT_OK_AND_ASSIGN(const Replayer::Result result, Run());

  EXPECT_GT(result.tally.wrong_blocks, ReplayTally::kMaxListed);
  EXPECT_EQ(result.tally.wrong_bytes, result.tally.wrong_blocks);
  EXPECT_EQ(result.tally.listed.size(), ReplayTally::kMaxListed);
}

}  // namespace
}  // namespace firnkv
