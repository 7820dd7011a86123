// What a node remembers: on disk, whole or not at all.

#include "server/node/node_state.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

NodeMemory AMemory() {
  SeededRandom random(8);
  NodeMemory memory;
  memory.node = NodeId::Make(&random);
  memory.cluster = ClusterId::Make(&random);
  memory.registered_epoch = NodeEpoch{0xfedcba9876543210};
  memory.attempted_epoch = NodeEpoch{7};
  memory.seen.incarnation = 3;
  memory.seen.random_id.bytes[0] = 9;
  memory.seen.sequence = 1234567;
  return memory;
}

class FileNodeStateTest : public testing::Test {
 protected:
  FileNodeStateTest() { std::remove(path_.c_str()); }
  ~FileNodeStateTest() override { std::remove(path_.c_str()); }

  std::string Text() const {
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void Overwrite(const std::string& text) const {
    std::ofstream(path_, std::ios::trunc) << text;
  }

  SeededRandom random_{1};
  const std::string path_ =
      StrCat(testing::TempDir(), "/node_state_",
             testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST(NodeMemoryTest, WhatIsEncodedIsDecoded) {
  EXPECT_THAT(DecodeNodeMemory(EncodeNodeMemory(AMemory())),
              IsOkAndHolds(testing::Eq(AMemory())));
}

TEST(NodeMemoryTest, AnyChangedByteIsRefused) {
  const std::string good = EncodeNodeMemory(AMemory());
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(DecodeNodeMemory(bad).ok()) << i;
  }
}

TEST(NodeMemoryTest, AnyPrefixIsRefused) {
  const std::string good = EncodeNodeMemory(AMemory());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DecodeNodeMemory(good.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeNodeMemory(good + "x").ok());
}

TEST_F(FileNodeStateTest, ANewDirectoryGetsANewNode) {
  auto state = FileNodeState::Open(path_, &random_);

  ASSERT_OK(state);
  EXPECT_FALSE((*state)->memory().node.IsZero());
  EXPECT_EQ((*state)->memory().registered_epoch, NodeEpoch::kNone);
}

TEST_F(FileNodeStateTest, TheNextRunRemembersWhatThisOneSaved) {
  {
    auto state = FileNodeState::Open(path_, &random_);
    ASSERT_OK(state);
    ASSERT_OK((*state)->Save(AMemory()));
  }

  auto state = FileNodeState::Open(path_, &random_);

  ASSERT_OK(state);
  EXPECT_EQ((*state)->memory(), AMemory());
}

TEST_F(FileNodeStateTest, ATornFileIsRefusedAndNotReplaced) {
  ASSERT_OK(FileNodeState::Open(path_, &random_));
  const std::string text = Text();
  Overwrite(text.substr(0, text.size() / 2));

  EXPECT_THAT(FileNodeState::Open(path_, &random_),
              StatusIs(absl::StatusCode::kDataLoss,
                       testing::HasSubstr("restore the file from a copy")));

  EXPECT_EQ(Text(), text.substr(0, text.size() / 2));
}

TEST_F(FileNodeStateTest, AFolderThatIsNotThereIsAFailure) {
  EXPECT_FALSE(FileNodeState::Open("/nonexistent/firnkv/state", &random_).ok());
}

// Rule A9.
TEST(CheckIncarnationTest, OnlyTheSameOrALaterStateOfTheSameCatalogFollows) {
  const Incarnation seen = AMemory().seen;
  Incarnation now = seen;
  EXPECT_OK(CheckIncarnation(seen, now));
  now.sequence += 1;
  EXPECT_OK(CheckIncarnation(seen, now));
  now.sequence = seen.sequence - 1;
  EXPECT_FALSE(CheckIncarnation(seen, now).ok());

  now = seen;
  now.random_id.bytes[0] ^= 1;
  EXPECT_FALSE(CheckIncarnation(seen, now).ok());
  now.incarnation += 1;
  now.sequence = 0;
  EXPECT_OK(CheckIncarnation(seen, now));
  now.incarnation = seen.incarnation - 1;
  EXPECT_FALSE(CheckIncarnation(seen, now).ok());

  EXPECT_OK(CheckIncarnation(Incarnation{}, seen));
}

}  // namespace
}  // namespace firnkv
