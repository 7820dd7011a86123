// A caller that receives for itself on a local session's socket.

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "client/transport/named_thread.h"
#include "proto/base/bytes.h"
#include "tests/client/transport/unix_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using Taken = LocalSocket::Taken;

constexpr auto kWaits = [] { return true; };

class UnixReceiveTest : public UnixSocketTest {
 protected:
  UnixReceiveTest()
      : client_(*sockets_->Connect(path_)), server_(accepted_.Take()) {}

  // Another thread receives on return; what it takes stands in taken_.
  void Lend() {
    ASSERT_OK(thread_.Start("lent", [this] {
      while (client_.closed.empty() &&
             !client_.socket->ReceiveHere(
                 [this](std::string_view message) {
                   if (message == "not mine") return Taken::kNotMine;
                   taken_.Put(std::string(message));
                   return message == "last" ? Taken::kLast : Taken::kMine;
                 },
                 kWaits)) {
      }
    }));
    // Until it has begun, the loop gets what comes.
    for (bool lent = false; !lent;) {
      Send("ping");
      while (taken_.empty() && client_.messages.empty()) {
      }
      lent = !taken_.empty();
      if (lent) {
        EXPECT_EQ(taken_.Take(), "ping");
      } else {
        EXPECT_EQ(client_.messages.Take().bytes, "ping");
      }
    }
  }
  void Send(const std::string& message) {
    ASSERT_OK(server_.socket->Send(message, nullptr));
  }

  End client_;
  End server_;
  Inbox<std::string> taken_;
  NamedThread thread_;
};

TEST_F(UnixReceiveTest, WhatItTakesComesToItAndTheRestGoesOn) {
  Lend();

  for (const char* message : {"one", "not mine", "two", "last"}) Send(message);
  thread_.Join();
  Send("after");

  EXPECT_EQ(taken_.Take(), "one");
  EXPECT_EQ(taken_.Take(), "two");
  EXPECT_EQ(taken_.Take(), "last");
  EXPECT_EQ(client_.messages.Take().bytes, "not mine");
  EXPECT_EQ(client_.messages.Take().bytes, "after") << "the loop goes on";
}

TEST_F(UnixReceiveTest, WhatComesLaterIsWaitedForHere) {
  Lend();

  for (int i = 0; i < 1000; ++i) {
    Send(std::to_string(i));
    // Not sent before the last one was taken.
    EXPECT_EQ(taken_.Take(), std::to_string(i));
  }

  EXPECT_TRUE(client_.messages.empty());
  client_.socket->StopReceiving();
  thread_.Join();
}

TEST_F(UnixReceiveTest, MemoryIsAlwaysTheSessionsOwn) {
  const auto memory = *memory_.Make(MemoryKindWanted::kStaging, "s", kMiB);
  Lend();

  ASSERT_OK(server_.socket->Send("with memory", memory));
  Send("last");
  thread_.Join();

  EXPECT_EQ(taken_.Take(), "last");
  EXPECT_NE(client_.messages.Take().memory, nullptr);
}

TEST_F(UnixReceiveTest, ItCanBeStoppedByAnother) {
  Lend();

  client_.socket->StopReceiving();
  thread_.Join();
  Send("after");

  EXPECT_EQ(client_.messages.Take().bytes, "after");
}

TEST_F(UnixReceiveTest, AStopThatComesTooEarlyEndsTheNextAtOnce) {
  client_.socket->StopReceiving();

  while (!client_.socket->ReceiveHere(
      [](std::string_view) { return Taken::kMine; }, kWaits)) {
  }
}

TEST_F(UnixReceiveTest, WhatComesWhileItIsLentWaitsForWhoReceivesHere) {
  Send("first");
  EXPECT_EQ(client_.messages.Take().bytes, "first");
  End other(*sockets_->Connect(path_));
  End other_server(accepted_.Take());

  client_.socket->LendSoon();
  Send("last");
  // The same loop has looked at its sockets since.
  ASSERT_OK(other_server.socket->Send("later", nullptr));
  EXPECT_EQ(other.messages.Take().bytes, "later");

  EXPECT_TRUE(client_.messages.empty());
  EXPECT_TRUE(client_.socket->ReceiveHere(
      [](std::string_view message) {
        EXPECT_EQ(message, "last");
        return Taken::kLast;
      },
      kWaits));
  Send("after");
  EXPECT_EQ(client_.messages.Take().bytes, "after");
}

TEST_F(UnixReceiveTest, WhatIsTakenBackIsTheLoopsAgain) {
  Send("first");
  EXPECT_EQ(client_.messages.Take().bytes, "first");
  client_.socket->LendSoon();
  Send("second");

  client_.socket->TakeBack();

  EXPECT_EQ(client_.messages.Take().bytes, "second");
}

TEST_F(UnixReceiveTest, WhoWaitsForNothingAnyMoreDoesNotSleep) {
  Send("first");
  EXPECT_EQ(client_.messages.Take().bytes, "first");

  while (!client_.socket->ReceiveHere(
      [](std::string_view) { return Taken::kMine; }, [] { return false; })) {
  }
  Send("after");

  EXPECT_EQ(client_.messages.Take().bytes, "after");
}

TEST_F(UnixReceiveTest, ThePeersEndEndsIt) {
  Lend();

  server_.socket->Close();

  thread_.Join();
  EXPECT_EQ(client_.closed.Take().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(client_.socket->ReceiveHere(
      [](std::string_view) { return Taken::kMine; }, kWaits));
}

TEST_F(UnixReceiveTest, ClosingOnThisSideEndsIt) {
  Lend();

  client_.socket->Close();

  thread_.Join();
  EXPECT_EQ(client_.closed.Take().code(), absl::StatusCode::kCancelled);
}

TEST_F(UnixReceiveTest, OnlyOneReceivesAtATime) {
  Lend();

  EXPECT_FALSE(client_.socket->ReceiveHere(
      [](std::string_view) { return Taken::kMine; }, kWaits));

  client_.socket->StopReceiving();
  thread_.Join();
}

TEST_F(UnixReceiveTest, AMessageThatWasBlockedIsSentOnceThereIsRoom) {
  // More than the kernel takes, so that some wait here for room.
  const std::string message(32 * kKiB, 'm');
  std::unique_ptr<End> end = MeetRawPeer();
  constexpr int kMessages = 24;
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_OK(end->socket->Send(message, nullptr));
  }

  std::string buffer(64 * kKiB, '\0');
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_EQ(recv(raw_.get(), buffer.data(), buffer.size(), 0),
              static_cast<ssize_t>(message.size()));
  }
}

}  // namespace
}  // namespace firnkv
