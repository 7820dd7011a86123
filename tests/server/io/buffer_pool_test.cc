#include "server/io/buffer_pool.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/io/block_device.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kPage = kDeviceAlignment;

class BufferPoolTest : public testing::Test {
 protected:
  void Take(std::uint64_t pages) {
    pool_.Take(pages * kPage, [this](BufferPool::Buffer buffer) {
      got_.push_back(std::move(buffer));
    });
  }
  BufferPool pool_{8 * kPage};
  std::vector<BufferPool::Buffer> got_;
};

TEST_F(BufferPoolTest, BuffersAreApartAndAligned) {
  Take(3);
  Take(5);

  ASSERT_EQ(got_.size(), 2u);
  EXPECT_EQ(got_[0].bytes().size(), 3 * kPage);
  EXPECT_EQ(got_[0].bytes().data() + 3 * kPage, got_[1].bytes().data());
  EXPECT_EQ(pool_.free_bytes(), 0u);
}

TEST_F(BufferPoolTest, WhoFindsNoneIsServedInTurn) {
  Take(8);
  Take(6);
  Take(1);
  ASSERT_EQ(got_.size(), 1u);

  got_[0].GiveBack();

  ASSERT_EQ(got_.size(), 3u);
  EXPECT_EQ(got_[1].bytes().size(), 6 * kPage);
  EXPECT_EQ(got_[2].bytes().size(), kPage);
}

TEST_F(BufferPoolTest, WhatComesBackIsWholeAgain) {
  for (int i = 0; i < 8; ++i) Take(1);
  for (const int i : {3, 1, 0, 2, 7, 5, 4, 6}) got_[i].GiveBack();

  Take(8);

  ASSERT_EQ(got_.size(), 9u);
  EXPECT_EQ(got_[8].bytes().size(), 8 * kPage);
}

TEST_F(BufferPoolTest, WhoNoLongerWaitsGetsNothing) {
  Take(8);
  Take(1);

  pool_.DropWaiting();
  got_[0].GiveBack();

  EXPECT_EQ(got_.size(), 1u);
}

}  // namespace
}  // namespace firnkv
