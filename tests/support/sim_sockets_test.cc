#include "tests/support/sim_sockets.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/limits.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_memory.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;

// A listener that keeps what it accepts and hears.
class SimSocketsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = *server_.Listen("/node.sock", [&](auto socket) {
      accepted_ = std::move(socket);
      accepted_->Start({.on_message =
                            [&](std::string message, auto memory) {
                              heard_.push_back(message);
                              memory_ = std::move(memory);
                            },
                        .on_closed = [&](absl::Status) { closed_ = true; },
                        .on_gone = [&] { gone_ = true; }});
    });
  }

  SimExecutor world_{5};
  SimProcess* server_process_ = world_.NewProcess("server");
  SimProcess* client_process_ = world_.NewProcess("client");
  SimSocketPaths paths_;
  SimSockets server_{&paths_, server_process_};
  SimSockets client_{&paths_, client_process_, {.uid = 42}};
  std::unique_ptr<LocalListener> listener_;
  std::unique_ptr<LocalSocket> accepted_;
  std::vector<std::string> heard_;
  std::shared_ptr<SharedMemory> memory_;
  bool closed_ = false;
  bool gone_ = false;
};

TEST_F(SimSocketsTest, MessagesArriveInOrder) {
  ASSERT_OK_AND_ASSIGN(auto socket, client_.Connect("/node.sock"));

  for (const char* text : {"a", "b", "c", "d"}) {
    ASSERT_OK(socket->Send(text, nullptr));
  }
  world_.RunUntilIdle();

  EXPECT_THAT(heard_, ElementsAre("a", "b", "c", "d"));
}

TEST_F(SimSocketsTest, ADescriptorArrivesAsOneOfTheSameMemory) {
  SimMemory maker;
  ASSERT_OK_AND_ASSIGN(auto memory,
                       maker.Make(MemoryKindWanted::kStaging, "s", 4096));
  ASSERT_OK_AND_ASSIGN(auto mapped, memory->Map(MapAccess::kReadWrite));
  ASSERT_OK_AND_ASSIGN(auto socket, client_.Connect("/node.sock"));

  ASSERT_OK(socket->Send("take", memory));
  memory.reset();
  world_.RunUntilIdle();
  mapped->bytes()[9] = std::byte{9};

  ASSERT_NE(memory_, nullptr);
  ASSERT_OK_AND_ASSIGN(auto theirs, memory_->Map(MapAccess::kRead));
  EXPECT_EQ(theirs->bytes()[9], std::byte{9});
}

// Rule S2.
TEST_F(SimSocketsTest, TheListenerSeesThePeersCredentials) {
  ASSERT_OK_AND_ASSIGN(auto socket, client_.Connect("/node.sock"));
  world_.RunUntilIdle();

  EXPECT_EQ(accepted_->credentials().uid, 42u);
  EXPECT_FALSE(accepted_->credentials().uid_trusted);
}

TEST_F(SimSocketsTest, ThePeerLearnsOfAProcesssDeathAfterItsLastMessage) {
  ASSERT_OK_AND_ASSIGN(auto socket, client_.Connect("/node.sock"));
  ASSERT_OK(socket->Send("last words", nullptr));

  client_process_->Kill();
  world_.RunUntilIdle();

  EXPECT_THAT(heard_, ElementsAre("last words"));
  EXPECT_TRUE(closed_);
}

// As the kernel has it: what waits for a process goes when that dies, also
// where the connection had ended long before.
TEST_F(SimSocketsTest, WhatAStoppedClientLeavesUnreadIsGoneWhenItDies) {
  ASSERT_OK_AND_ASSIGN(auto socket, client_.Connect("/node.sock"));
  socket->Start({.on_message = [](std::string, auto) {},
                 .on_closed = [](absl::Status) {},
                 .on_gone = {}});
  world_.RunUntilIdle();
  client_process_->Pause();
  ASSERT_OK(accepted_->Send("unread", nullptr));
  client_.BreakAll();
  world_.RunUntilIdle();
  ASSERT_TRUE(closed_);
  ASSERT_FALSE(gone_);

  client_process_->Kill();
  world_.RunUntilIdle();

  EXPECT_TRUE(gone_);
}

TEST_F(SimSocketsTest, NothingIsHeardByASocketThatIsDestroyed) {
  ASSERT_OK_AND_ASSIGN(auto socket, client_.Connect("/node.sock"));
  world_.RunUntilIdle();
  ASSERT_OK(socket->Send("too late", nullptr));

  accepted_.reset();
  world_.RunUntilIdle();

  EXPECT_TRUE(heard_.empty());
  EXPECT_THAT(socket->Send("x", nullptr),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(SimSocketsTest, APeerThatDoesNotReadFillsUp) {
  ASSERT_OK_AND_ASSIGN(auto socket, client_.Connect("/node.sock"));
  world_.RunUntilIdle();
  server_process_->Pause();

  absl::Status last;
  for (std::size_t i = 0; i <= SimSockets::kMostQueued && last.ok(); ++i) {
    last = socket->Send("flood", nullptr);
  }

  EXPECT_THAT(last, StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(SimSocketsTest, ALivePathIsNotTakenADeadOneIs) {
  SimProcess* second_process = world_.NewProcess("second");
  SimSockets second(&paths_, second_process);
  EXPECT_THAT(second.Listen("/node.sock", [](auto) {}),
              StatusIs(absl::StatusCode::kAlreadyExists));

  server_process_->Kill();
  ASSERT_OK_AND_ASSIGN(auto listener, second.Listen("/node.sock", [](auto) {}));

  EXPECT_OK(client_.Connect("/node.sock"));
}

TEST_F(SimSocketsTest, NobodyListeningIsUnavailable) {
  EXPECT_THAT(client_.Connect("/other.sock"),
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace firnkv
