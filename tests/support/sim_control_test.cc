#include "tests/support/sim_control.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

// Answers with the request, or keeps the reply for later.
class Echo : public ControlService {
 public:
  std::string_view service() const override { return "firnkv.v1.Echo"; }
  void Handle(std::string_view method, const ControlPeer& peer,
              std::string_view request, ControlReply reply) override {
    ++calls;
    last_method = std::string(method);
    last_local = peer.local;
    if (keep) {
      kept.push_back(std::move(reply));
    } else {
      std::move(reply)(std::string(request));
    }
  }
  int calls = 0;
  bool keep = false;
  bool last_local = false;
  std::string last_method;
  std::vector<ControlReply> kept;
};

class SimControlTest : public ::testing::Test {
 protected:
  void Call(const std::string& address, const std::string& method) {
    channel_ = connector_.Connect(address);
    channel_->StartCall(method, "ping", absl::Seconds(1),
                        [&](absl::StatusOr<std::string> response) {
                          ++answers_;
                          response_ = std::move(response);
                        });
  }

  SimExecutor world_{3};
  SimLinks links_{&world_};
  SimControl control_{&links_};
  SimProcess* client_ = world_.NewProcess("client", "a");
  SimProcess* server_ = world_.NewProcess("server", "b");
  Echo echo_;
  std::unique_ptr<SimControl::Serving> serving_ =
      control_.Serve("b:7410", server_, {&echo_});
  SimConnector connector_{&control_, client_};
  std::unique_ptr<ControlChannel> channel_;
  absl::StatusOr<std::string> response_ = absl::UnknownError("not yet");
  int answers_ = 0;
};

TEST_F(SimControlTest, ACallComesToTheHandlerOfItsServiceAndBack) {
  Call("b:7410", "/firnkv.v1.Echo/Say");
  world_.RunUntilIdle();

  EXPECT_THAT(response_, IsOkAndHolds("ping"));
  EXPECT_EQ(echo_.last_method, "/firnkv.v1.Echo/Say");
  EXPECT_FALSE(echo_.last_local);
}

TEST_F(SimControlTest, AnUnknownServiceIsUnimplemented) {
  Call("b:7410", "/firnkv.v1.Other/Say");
  world_.RunUntilIdle();

  EXPECT_THAT(response_, StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(SimControlTest, NobodyThereIsUnavailable) {
  Call("c:7410", "/firnkv.v1.Echo/Say");
  world_.RunUntilIdle();

  EXPECT_THAT(response_, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(SimControlTest, ALostRequestEndsAtTheCallersTimeout) {
  links_.quality().drop_request_chance = 1000;
  Call("b:7410", "/firnkv.v1.Echo/Say");
  world_.RunUntilIdle();

  EXPECT_THAT(response_, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(echo_.calls, 0);
}

TEST_F(SimControlTest, ALostReplyEndsAtTheCallersTimeoutThoughItWasServed) {
  links_.quality().drop_reply_chance = 1000;
  Call("b:7410", "/firnkv.v1.Echo/Say");
  world_.RunUntilIdle();

  EXPECT_THAT(response_, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(echo_.calls, 1);
}

TEST_F(SimControlTest, ADoubledRequestIsServedTwiceAndAnsweredOnce) {
  links_.quality().duplicate_chance = 1000;
  Call("b:7410", "/firnkv.v1.Echo/Say");
  world_.RunUntilIdle();

  EXPECT_EQ(echo_.calls, 2);
  EXPECT_EQ(answers_, 1);
}

TEST_F(SimControlTest, AnAnswerIsSeenWithItsRequestThoughItReachesNobody) {
  links_.quality().drop_reply_chance = 1000;
  std::vector<std::string> seen;
  control_.WatchAnswers(
      [&](const SimControl::Seen& call, const SimControl::Answer& answer) {
        seen.push_back(std::string(call.method) + " " +
                       std::string(call.request) + " " + answer.value_or("-"));
      });

  Call("b:7410", "/firnkv.v1.Echo/Say");
  world_.RunUntilIdle();

  EXPECT_THAT(seen, testing::ElementsAre("/firnkv.v1.Echo/Say ping ping"));
}

TEST_F(SimControlTest, OverAUnixSocketNothingIsLostOrDoubled) {
  links_.quality().drop_request_chance = 1000;
  links_.quality().drop_reply_chance = 1000;
  links_.quality().duplicate_chance = 1000;
  SimProcess* node = world_.NewProcess("node", "a");
  auto serving = control_.Serve("unix:/node.sock.control", node, {&echo_});

  Call("unix:/node.sock.control", "/firnkv.v1.Echo/Say");
  world_.RunUntilIdle();

  EXPECT_THAT(response_, IsOkAndHolds("ping"));
  EXPECT_EQ(echo_.calls, 1);
  EXPECT_TRUE(echo_.last_local);
}

TEST_F(SimControlTest, ACallInTheHandsOfAServerThatDiesIsUnavailable) {
  echo_.keep = true;
  Call("b:7410", "/firnkv.v1.Echo/Say");
  world_.RunFor(absl::Milliseconds(10));

  server_->Kill();
  world_.RunFor(absl::Milliseconds(10));
  std::move(echo_.kept[0])(std::string("from the grave"));
  world_.RunUntilIdle();

  EXPECT_THAT(response_, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(answers_, 1);
}

TEST_F(SimControlTest, ClosingAChannelCancelsItsCalls) {
  Call("b:7410", "/firnkv.v1.Echo/Say");

  channel_.reset();

  EXPECT_THAT(response_, StatusIs(absl::StatusCode::kCancelled));
  world_.RunUntilIdle();
  EXPECT_EQ(answers_, 1);
}

TEST_F(SimControlTest, APausedServerAnswersAfterItGoesOn) {
  server_->Pause();
  Call("b:7410", "/firnkv.v1.Echo/Say");
  world_.RunFor(absl::Milliseconds(500));
  EXPECT_EQ(answers_, 0);

  server_->Resume();
  world_.RunUntilIdle();

  EXPECT_THAT(response_, IsOkAndHolds("ping"));
}

}  // namespace
}  // namespace firnkv
