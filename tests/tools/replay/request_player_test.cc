// What one worker does with one request, and that it finds every wrong byte.

#include "tools/replay/request_player.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"
#include "tests/support/matchers.h"
#include "tests/tools/replay/memory_pool.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kBlockBytes = 5000;

std::size_t Of(Outcome outcome) { return static_cast<std::size_t>(outcome); }

TraceRequest Request(std::vector<std::uint64_t> ids) {
  TraceRequest request;
  request.input_tokens = static_cast<std::uint32_t>(ids.size()) * 512;
  request.ids = std::move(ids);
  return request;
}

class RequestPlayerTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(player_.Prepare()); }

  static RequestPlayer::Options MakeOptions() {
    RequestPlayer::Options options;
    options.name_space.id.bytes[0] = 9;
    options.block_bytes = kBlockBytes;
    // Two blocks a call: each takes two pages.
    options.buffer_bytes = 16 * kKiB;
    return options;
  }

  ReplayTally& tally() { return player_.tally(); }

  SharedBlocks shared_;
  MemoryPool pool_{&shared_};
  ManualClock clock_;
  RequestPlayer player_{MakeOptions(), &pool_, &clock_};
};

TEST_F(RequestPlayerTest, AMissIsWrittenBackAndFoundTheNextTime) {
  player_.Play({.number = 0}, Request({1, 2, 3}));
  player_.Play({.number = 1}, Request({1, 2, 3, 4}));

  EXPECT_EQ(tally().hits.blocks, 7u);
  EXPECT_EQ(tally().hits.blocks_hit, 3u);
  EXPECT_EQ(tally().read_outcomes[Of(Outcome::kHit)], 3u);
  EXPECT_EQ(tally().write_outcomes[Of(Outcome::kStored)], 4u);
  EXPECT_EQ(tally().bytes_mapped, 3 * kBlockBytes);
  EXPECT_EQ(tally().bytes_recomputed, 4 * kBlockBytes);
  EXPECT_EQ(tally().bytes_stored, 4 * kBlockBytes);
  EXPECT_EQ(tally().wrong_blocks, 0u);
}

TEST_F(RequestPlayerTest, EveryBlockOfARequestHasAReadOutcome) {
  player_.Play({.number = 0}, Request({1, 2, 3, 4, 5}));

  EXPECT_EQ(tally().read_outcomes[Of(Outcome::kMiss)], 1u);
  EXPECT_EQ(tally().read_outcomes[Of(Outcome::kSkipped)], 4u);
}

TEST_F(RequestPlayerTest, LongChainsGoInBatchesThatFitTheBuffer) {
  player_.Play({.number = 0}, Request({1, 2, 3, 4, 5}));
  player_.Play({.number = 1}, Request({1, 2, 3, 4, 5}));

  EXPECT_EQ(pool_.largest_batch, 2u);
  EXPECT_EQ(pool_.allocated, 16 * kKiB);
  EXPECT_EQ(tally().hits.blocks_hit, 5u);
  EXPECT_EQ(pool_.writes, 3u);
}

TEST_F(RequestPlayerTest, ABatchBehindTheEndOfTheRunIsNotRead) {
  player_.Play({.number = 0}, Request({1, 2, 3, 4, 5}));

  EXPECT_EQ(pool_.reads, 1u);
}

TEST_F(RequestPlayerTest, AChainHasParentsPositionsAndTokens) {
  const TraceRequest request = Request({1, 2});
  const Chain chain = MakeTraceChain(request, 512);

  player_.Play({.number = 0}, request);

  MutexLock lock(&shared_.mutex);
  const ChainPlace& second = shared_.places[chain.block(1).key];
  EXPECT_EQ(second.parent, chain.block(0).key);
  EXPECT_EQ(second.position, 1u);
  EXPECT_EQ(second.first_token, 512u);
  EXPECT_EQ(second.tokens, 512u);
}

TEST_F(RequestPlayerTest, TheHashOfABlockIsItsIdInEightBytes) {
  const Chain chain = MakeTraceChain(Request({0x0807060504030201}), 512);

  EXPECT_EQ(chain.block(0).key,
            MakeBlockKey("\x01\x02\x03\x04\x05\x06\x07\x08", Shard()));
}

TEST_F(RequestPlayerTest, OneFlippedByteIsFoundAndNamed) {
  player_.Play({.number = 0}, Request({1, 2}));
  pool_.flip_one_byte = true;

  player_.Play({.number = 7}, Request({1}));

  ASSERT_EQ(tally().wrong_blocks, 1u);
  EXPECT_EQ(tally().wrong_bytes, 1u);
  const WrongBlock& wrong = tally().listed[0];
  EXPECT_EQ(wrong.block.key, MakeTraceChain(Request({1}), 512).block(0).key);
  EXPECT_EQ(wrong.request, 7u);
  EXPECT_EQ(wrong.position, 0u);
  EXPECT_EQ(wrong.first_wrong_byte, kBlockBytes / 2);
}

TEST_F(RequestPlayerTest, AHitWhoseBytesNeverLandedIsFound) {
  player_.Play({.number = 0}, Request({1}));
  player_.Play({.number = 1},
               Request({1}));  // Leaves the right bytes in the buffer.
  pool_.forget_to_copy = true;

  player_.Play({.number = 2}, Request({1}));

  EXPECT_EQ(tally().wrong_blocks, 1u);
}

TEST_F(RequestPlayerTest, AnotherBlocksBytesAreFound) {
  player_.Play({.number = 0}, Request({1, 2}));
  pool_.serve_another_block = true;

  player_.Play({.number = 1}, Request({1, 2}));

  EXPECT_EQ(tally().wrong_blocks, 1u);
  EXPECT_GT(tally().wrong_bytes, kBlockBytes * 9 / 10);
}

TEST_F(RequestPlayerTest, AFailedReadIsCountedAndTheBlocksAreComputed) {
  pool_.read_status = absl::InvalidArgumentError("no such thing");

  player_.Play({.number = 0}, Request({1, 2}));

  EXPECT_EQ(tally().failed_calls, 1u);
  EXPECT_THAT(tally().first_failure, testing::HasSubstr("no such thing"));
  EXPECT_EQ(tally().write_outcomes[Of(Outcome::kStored)], 2u);
}

TEST_F(RequestPlayerTest, AFailedWriteIsCounted) {
  pool_.write_status = absl::InvalidArgumentError("no");

  player_.Play({.number = 0}, Request({1}));

  EXPECT_EQ(tally().failed_calls, 1u);
  EXPECT_EQ(tally().bytes_stored, 0u);
}

TEST_F(RequestPlayerTest, ARefusedWriteIsAnOutcomeAndNoFailure) {
  pool_.write_outcome = Outcome::kCongested;

  player_.Play({.number = 0}, Request({1, 2}));

  EXPECT_EQ(tally().write_outcomes[Of(Outcome::kCongested)], 2u);
  EXPECT_EQ(tally().failed_calls, 0u);
}

TEST_F(RequestPlayerTest, ARequestWithoutABlockAsksNothing) {
  player_.Play({.number = 0}, Request({}));

  EXPECT_EQ(pool_.reads, 0u);
  EXPECT_EQ(pool_.writes, 0u);
  EXPECT_EQ(tally().hits.requests, 1u);
}

}  // namespace
}  // namespace firnkv
