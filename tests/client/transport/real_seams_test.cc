// The seams of production as one thing.

#include "client/transport/real_seams.h"

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/client/transport/inbox.h"
#include "tests/client/transport/process_state.h"

namespace firnkv {
namespace {

class NoControl : public ControlConnector {
 public:
  std::unique_ptr<ControlChannel> Connect(std::string_view) override {
    return nullptr;
  }
};

TEST(RealSeamsTest, EverySeamIsThere) {
  auto control = std::make_unique<NoControl>();
  const ControlConnector* const given = control.get();

  const auto real = *RealSeams::Make({}, std::move(control));

  const Seams& seams = real->seams();
  EXPECT_NE(seams.clock, nullptr);
  EXPECT_NE(seams.executor, nullptr);
  EXPECT_NE(seams.random, nullptr);
  EXPECT_NE(seams.network, nullptr);
  EXPECT_NE(seams.sockets, nullptr);
  EXPECT_NE(seams.memory, nullptr);
  EXPECT_EQ(seams.control, given);
  EXPECT_EQ(seams.executor->clock(), seams.clock);
}

TEST(RealSeamsTest, NothingIsLeftOfThem) {
  const std::size_t threads = ThreadsOfThisProcess();
  const std::size_t descriptors = DescriptorsOfThisProcess();

  {
    const auto real = *RealSeams::Make({}, nullptr);
    Inbox<int> ran;
    real->seams().executor->Post([&ran] { ran.Put(1); });
    ran.Take();
  }

  EXPECT_EQ(ThreadsOfThisProcess(), threads);
  EXPECT_EQ(DescriptorsOfThisProcess(), descriptors);
}

TEST(RealSeamsTest, WithoutDescriptorsTheyAreNotMadeAndNothingIsLeft) {
  if (!kCanRunOutOfDescriptors) GTEST_SKIP();
  const std::size_t threads = ThreadsOfThisProcess();
  {
    const OutOfDescriptors out;

    EXPECT_EQ(RealSeams::Make({}, nullptr).status().code(),
              absl::StatusCode::kResourceExhausted);
  }

  EXPECT_EQ(ThreadsOfThisProcess(), threads);
}

}  // namespace
}  // namespace firnkv
