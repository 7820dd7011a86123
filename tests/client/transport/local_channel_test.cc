// Calls to a service of the same process end exactly once, whatever happens.

#include "client/transport/local_channel.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_executor.h"

namespace firnkv {
namespace {

// Answers when it is told to.
class SlowService : public ControlService {
 public:
  std::string_view service() const override { return "firnkv.v1.Slow"; }
  void Handle(std::string_view method, const ControlPeer& peer,
              std::string_view request, ControlReply reply) override {
    method_ = std::string(method);
    local_ = peer.local;
    request_ = std::string(request);
    replies_.push_back(std::move(reply));
  }
  void Answer(std::string answer) {
    ControlReply reply = std::move(replies_.front());
    replies_.erase(replies_.begin());
    std::move(reply)(std::move(answer));
  }

  std::string method_;
  std::string request_;
  bool local_ = false;
  std::vector<ControlReply> replies_;
};

class LocalChannelTest : public testing::Test {
 protected:
  void Call(std::string_view method) {
    channel_->StartCall(method, "question", absl::Seconds(1),
                        [this](absl::StatusOr<std::string> response) {
                          ++answers_;
                          answer_ = std::move(response);
                        });
  }

  SimExecutor world_;
  SlowService service_;
  std::unique_ptr<LocalChannel> channel_ = std::make_unique<LocalChannel>(
      &world_, std::vector<ControlService*>{&service_});
  int answers_ = 0;
  std::optional<absl::StatusOr<std::string>> answer_;
};

TEST_F(LocalChannelTest, ACallReachesItsServiceAndComesBack) {
  Call("/firnkv.v1.Slow/Ask");
  EXPECT_TRUE(service_.replies_.empty());  // Never inside StartCall.
  world_.RunReady();
  ASSERT_EQ(service_.replies_.size(), 1u);
  EXPECT_EQ(service_.method_, "/firnkv.v1.Slow/Ask");
  EXPECT_EQ(service_.request_, "question");
  EXPECT_TRUE(service_.local_);

  service_.Answer("answer");
  world_.RunUntilIdle();

  EXPECT_EQ(answers_, 1);
  EXPECT_THAT(*answer_, IsOkAndHolds(std::string("answer")));
}

TEST_F(LocalChannelTest, AServiceThatIsNotThereIsUnimplemented) {
  Call("/firnkv.v1.Other/Ask");
  world_.RunUntilIdle();

  EXPECT_THAT(*answer_, StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(LocalChannelTest, NoAnswerInTimeIsTheEndAndALateOneIsDropped) {
  Call("/firnkv.v1.Slow/Ask");
  world_.RunFor(absl::Seconds(2));
  EXPECT_THAT(*answer_, StatusIs(absl::StatusCode::kDeadlineExceeded));

  service_.Answer("late");
  world_.RunUntilIdle();

  EXPECT_EQ(answers_, 1);
}

TEST_F(LocalChannelTest, ItsEndCancelsWhatIsOutstanding) {
  Call("/firnkv.v1.Slow/Ask");
  world_.RunReady();

  channel_.reset();

  EXPECT_EQ(answers_, 1);
  EXPECT_THAT(*answer_, StatusIs(absl::StatusCode::kCancelled));
  service_.Answer("late");
  world_.RunUntilIdle();
  EXPECT_EQ(answers_, 1);
}

}  // namespace
}  // namespace firnkv
