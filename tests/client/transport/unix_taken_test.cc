// When a peer has received what was sent to it, and what is left in a socket
// whose peer does not read.

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "client/transport/memfd.h"
#include "client/transport/unix_socket.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "tests/client/transport/process_state.h"
#include "tests/client/transport/unix_fixture.h"

namespace firnkv {
namespace {

class UnixTakenTest : public UnixSocketTest {
 protected:
  // What happened to one socket, in order.
  enum class Told { kTaken, kGone };

  UnixTakenTest()
      : region_(*memory_.Make(MemoryKindWanted::kRegion, "region", kMiB)) {}
  // A socket tells of its end also after it was destroyed.
  ~UnixTakenTest() override {
    listener_.reset();
    sockets_.reset();
  }

  // The node's end, which faces raw_.
  std::unique_ptr<LocalSocket> Meet() {
    raw_ = RawUnixConnect(path_);
    std::unique_ptr<LocalSocket> socket = accepted_.Take();
    socket->Start(
        {.on_message =
             [this](std::string bytes, std::shared_ptr<SharedMemory>) {
               messages_.Put(std::move(bytes));
             },
         .on_closed = [](const absl::Status&) {},
         .on_gone = [this] { told_.Put(Told::kGone); }});
    return socket;
  }
  absl::Status SendWatched(LocalSocket* socket) {
    return socket->SendWatched("region", region_,
                               [this] { told_.Put(Told::kTaken); });
  }
  // The socket has looked, after everything that its peer has done before.
  void LookFor(LocalSocket*) {
    ASSERT_TRUE(RawSend(raw_.get(), "look", {}));
    ASSERT_EQ(messages_.Take(), "look");
  }
  void ReceiveOne() {
    std::array<char, 64> bytes;
    ASSERT_GT(recv(raw_.get(), bytes.data(), bytes.size(), 0), 0);
  }

  const std::shared_ptr<SharedMemory> region_;
  Inbox<std::string> messages_;
  Inbox<Told> told_;
};

// Rule S4: whatever the peer says, and whatever is sent after it.
TEST_F(UnixTakenTest, ADescriptorIsTakenOnceItsPeerHasReceivedIt) {
  const auto socket = Meet();
  ASSERT_EQ(socket->Send("before", nullptr), absl::OkStatus());
  ASSERT_EQ(SendWatched(socket.get()), absl::OkStatus());
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(
        socket->Send(std::string(static_cast<std::size_t>(1 + i * i), 'x'),
                     nullptr),
        absl::OkStatus());
  }
  LookFor(socket.get());
  ASSERT_TRUE(told_.empty());

  ReceiveOne();
  LookFor(socket.get());
  ASSERT_TRUE(told_.empty()) << "only what was before it has been received";
  ReceiveOne();

  // Although twenty messages are there still.
  EXPECT_EQ(told_.Take(), Told::kTaken);
}

// Rule S4.
TEST_F(UnixTakenTest, OneDescriptorIsWatchedAtATime) {
  const auto socket = Meet();
  ASSERT_EQ(SendWatched(socket.get()), absl::OkStatus());

  EXPECT_EQ(SendWatched(socket.get()).code(),
            absl::StatusCode::kResourceExhausted);

  ReceiveOne();
  EXPECT_EQ(told_.Take(), Told::kTaken);
  EXPECT_EQ(SendWatched(socket.get()), absl::OkStatus());
}

// Rule S4: the kernel keeps the queue for as long as the peer keeps its end.
TEST_F(UnixTakenTest, ADescriptorOutlivesTheSocketThatSentIt) {
  auto socket = Meet();
  ASSERT_EQ(SendWatched(socket.get()), absl::OkStatus());
  ASSERT_EQ(socket->Send("behind it", nullptr), absl::OkStatus());

  socket.reset();
  // At once, or when the loop is through with it.
  pollfd hung_up = {.fd = raw_.get(), .events = POLLRDHUP, .revents = 0};
  ASSERT_EQ(poll(&hung_up, 1, -1), 1);
  EXPECT_FALSE(RawSend(raw_.get(), "to nobody", {}));
  ASSERT_TRUE(told_.empty());
  ReceiveOne();

  EXPECT_EQ(told_.Take(), Told::kTaken);
  ReceiveOne();
  EXPECT_EQ(told_.Take(), Told::kGone);
}

// Rule S4.
TEST_F(UnixTakenTest, WhatAPeerNeverReadsIsGoneWithThePeer) {
  auto socket = Meet();
  ASSERT_EQ(SendWatched(socket.get()), absl::OkStatus());
  socket->Close();
  socket.reset();
  ASSERT_TRUE(told_.empty());

  raw_.Reset();

  EXPECT_EQ(told_.Take(), Told::kTaken);
  EXPECT_EQ(told_.Take(), Told::kGone);
}

TEST_F(UnixTakenTest, ASocketThatHasNothingToTellOfIsGoneAtItsEnd) {
  auto socket = Meet();

  socket.reset();

  EXPECT_EQ(told_.Take(), Told::kGone);
  std::array<char, 64> bytes;
  EXPECT_EQ(recv(raw_.get(), bytes.data(), bytes.size(), 0), 0);
}

TEST_F(UnixTakenTest, NothingIsLeftOfSocketsWhosePeersNeverRead) {
  const std::size_t descriptors = DescriptorsOfThisProcess();
  const long shares = region_.use_count();
  {
    auto sockets = *UnixSockets::Make({}, &clock_);
    const std::string path = folder_.File("other.sock");
    Inbox<std::unique_ptr<LocalSocket>> accepted;
    const auto listener =
        *sockets->Listen(path, [&](std::unique_ptr<LocalSocket> socket) {
          accepted.Put(std::move(socket));
        });
    const Descriptor peer = RawUnixConnect(path);
    auto socket = accepted.Take();
    socket->Start({.on_message = [](const std::string&,
                                    const std::shared_ptr<SharedMemory>&) {},
                   .on_closed = [](const absl::Status&) {},
                   .on_gone = [share = region_] {}});
    ASSERT_EQ(socket->SendWatched("region", region_, [share = region_] {}),
              absl::OkStatus());
    socket.reset();
  }

  EXPECT_EQ(region_.use_count(), shares);
  EXPECT_EQ(DescriptorsOfThisProcess(), descriptors);
}

}  // namespace
}  // namespace firnkv
