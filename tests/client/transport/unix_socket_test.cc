// Messages, memory and life of a local session's socket.

#include "client/transport/unix_socket.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/memfd.h"
#include "client/transport/thread_executor.h"
#include "client/transport/unix_connection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"
#include "tests/client/transport/process_state.h"
#include "tests/client/transport/unix_fixture.h"

namespace firnkv {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST_F(UnixSocketTest, MessagesKeepTheirBoundsAndTheirOrder) {
  End client(*sockets_->Connect(path_));
  End server(accepted_.Take());

  ASSERT_EQ(client.socket->Send("one", nullptr), absl::OkStatus());
  ASSERT_EQ(client.socket->Send("two", nullptr), absl::OkStatus());
  ASSERT_EQ(server.socket->Send("three", nullptr), absl::OkStatus());

  EXPECT_EQ(server.messages.Take().bytes, "one");
  EXPECT_EQ(server.messages.Take().bytes, "two");
  EXPECT_EQ(client.messages.Take().bytes, "three");
}

TEST_F(UnixSocketTest, MemoryGoesWithItsMessageBothWays) {
  End client(*sockets_->Connect(path_));
  End server(accepted_.Take());
  const auto staging =
      *memory_.Make(MemoryKindWanted::kStaging, "staging", kMiB);
  (*staging->Map(MapAccess::kReadWrite))->bytes()[5] = std::byte{55};
  const auto region = *memory_.Make(MemoryKindWanted::kRegion, "region", kMiB);
  (*region->Map(MapAccess::kReadWrite))->bytes()[6] = std::byte{66};

  ASSERT_EQ(client.socket->Send("staging", staging), absl::OkStatus());
  ASSERT_EQ(server.socket->Send("region", *region->ReopenReadOnly()),
            absl::OkStatus());

  const auto to_server = server.messages.Take();
  const auto to_client = client.messages.Take();
  ASSERT_NE(to_server.memory, nullptr);
  ASSERT_NE(to_client.memory, nullptr);
  EXPECT_EQ(to_server.memory->bytes(), kMiB);
  EXPECT_EQ(to_server.memory->CheckStagingSeals(), absl::OkStatus());
  EXPECT_EQ((*to_server.memory->Map(MapAccess::kRead))->bytes()[5],
            std::byte{55});
  EXPECT_EQ((*to_client.memory->Map(MapAccess::kRead))->bytes()[6],
            std::byte{66});
  EXPECT_FALSE(to_client.memory->Map(MapAccess::kReadWrite).ok());
}

TEST_F(UnixSocketTest, ReceivedDescriptorsAreNotInherited) {
  const auto server = MeetRawPeer();
  const auto staging =
      *memory_.Make(MemoryKindWanted::kStaging, "staging", kMiB);
  const int sent = dynamic_cast<MemfdMemory&>(*staging).descriptor();

  ASSERT_TRUE(RawSend(raw_.get(), "staging", {sent}));

  const auto message = server->messages.Take();
  const int got = dynamic_cast<MemfdMemory&>(*message.memory).descriptor();
  EXPECT_NE(fcntl(got, F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(UnixSocketTest, WhatCameBeforeTheStartIsDelivered) {
  raw_ = RawUnixConnect(path_);
  auto socket = accepted_.Take();
  ASSERT_TRUE(RawSend(raw_.get(), "early", {}));

  End server(std::move(socket));

  EXPECT_EQ(server.messages.Take().bytes, "early");
}

TEST_F(UnixSocketTest, TheLongestMessagePasses) {
  End client(*sockets_->Connect(path_));
  End server(accepted_.Take());
  const std::string longest(kMaxSessionMessageBytes, 'x');

  ASSERT_EQ(client.socket->Send(longest, nullptr), absl::OkStatus());

  EXPECT_TRUE(server.messages.Take().bytes == longest);
}

TEST_F(UnixSocketTest, ALongerOrAnEmptyMessageIsNotSent) {
  End client(*sockets_->Connect(path_));

  EXPECT_EQ(client.socket
                ->Send(std::string(kMaxSessionMessageBytes + 1, 'x'), nullptr)
                .code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(client.socket->Send("", nullptr).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(UnixSocketTest, APeersTooLongMessageClosesTheSocket) {
  const auto server = MeetRawPeer();

  ASSERT_TRUE(
      RawSend(raw_.get(), std::string(kMaxSessionMessageBytes + 1, 'x'), {}));

  EXPECT_EQ(server->closed.Take().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(server->messages.empty());
}

// Rule S4.
TEST_F(UnixSocketTest, TwoDescriptorsAtOnceAreClosedAndCloseTheSocket) {
  const auto server = MeetRawPeer();
  const auto staging =
      *memory_.Make(MemoryKindWanted::kStaging, "staging", kMiB);
  const int sent = dynamic_cast<MemfdMemory&>(*staging).descriptor();
  const std::size_t before = DescriptorsOfThisProcess();

  ASSERT_TRUE(RawSend(raw_.get(), "two", {sent, sent}));

  EXPECT_EQ(server->closed.Take().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(server->messages.empty());
  // One less: the socket itself.
  EXPECT_EQ(DescriptorsOfThisProcess(), before - 1);
}

// Rule S4: as many as the kernel carries.
TEST_F(UnixSocketTest, AFloodOfDescriptorsIsClosedToTheLast) {
  const auto server = MeetRawPeer();
  const std::size_t before = DescriptorsOfThisProcess();

  ASSERT_TRUE(RawSend(raw_.get(), "many", std::vector<int>(253, raw_.get())));

  EXPECT_FALSE(server->closed.Take().ok());
  EXPECT_EQ(DescriptorsOfThisProcess(), before - 1);
}

// Rule S4. That the pipe's other end hears of it shows that it was closed.
TEST_F(UnixSocketTest, ADescriptorThatIsNoMemoryIsClosedAndClosesTheSocket) {
  const auto server = MeetRawPeer();
  std::array<int, 2> ends;
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const Descriptor reader(ends[0]);
  Descriptor writer(ends[1]);

  ASSERT_TRUE(RawSend(raw_.get(), "pipe", {writer.get()}));
  writer.Reset();

  EXPECT_EQ(server->closed.Take().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(server->messages.empty());
  char byte = 0;
  EXPECT_EQ(read(reader.get(), &byte, 1), 0);
}

// Rule S4: descriptors that hide in an empty message are found too.
TEST_F(UnixSocketTest, ADescriptorWithoutAMessageIsClosed) {
  const auto server = MeetRawPeer();
  const std::size_t before = DescriptorsOfThisProcess();

  ASSERT_TRUE(RawSend(raw_.get(), "", {raw_.get()}));

  EXPECT_FALSE(server->closed.Take().ok());
  EXPECT_EQ(DescriptorsOfThisProcess(), before - 1);
}

// Rule S4: whatever a peer passes on, who closes it does not wait. Nothing is
// asserted of time: with the fault the loop tells nobody anything any more.
TEST_F(UnixSocketTest, ASocketThatLingersStopsNobody) {
  const auto server = MeetRawPeer();
  RawLingering lingering;

  ASSERT_TRUE(RawSend(raw_.get(), "linger", {lingering.end.get()}));
  lingering.end.Reset();

  EXPECT_EQ(server->closed.Take().code(), StatusCode::kInvalidArgument);
}

// Rule S4.
TEST_F(UnixSocketTest, WhatLingersUnreadInTheQueueStopsNobody) {
  raw_ = RawUnixConnect(path_);
  auto socket = accepted_.Take();
  RawLingering lingering;
  ASSERT_TRUE(
      RawSend(raw_.get(), std::string(kMaxSessionMessageBytes + 1, 'x'), {}));
  ASSERT_TRUE(RawSend(raw_.get(), "", {}));
  ASSERT_TRUE(RawSend(raw_.get(), "linger", {lingering.end.get()}));
  lingering.end.Reset();

  End server(std::move(socket));

  EXPECT_EQ(server.closed.Take().code(), StatusCode::kInvalidArgument);
  End other(*sockets_->Connect(path_));
  EXPECT_NE(accepted_.Take(), nullptr);
}

// Rule S4.
TEST_F(UnixSocketTest, WhatLingersInTheQueueOfAnotherStopsNobody) {
  const auto server = MeetRawPeer();
  RawLingering lingering;
  std::array<int, 2> ends;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()),
            0);
  const Descriptor outer(ends[0]);
  Descriptor inner(ends[1]);
  ASSERT_TRUE(RawSend(outer.get(), "linger", {lingering.end.get()}));
  lingering.end.Reset();

  ASSERT_TRUE(RawSend(raw_.get(), "queue", {inner.get()}));
  inner.Reset();

  EXPECT_EQ(server->closed.Take().code(), StatusCode::kInvalidArgument);
}

TEST_F(UnixSocketTest, WithoutDescriptorsAReceivedOneClosesTheSocket) {
  if (!kCanRunOutOfDescriptors) GTEST_SKIP();
  const auto server = MeetRawPeer();
  const auto staging =
      *memory_.Make(MemoryKindWanted::kStaging, "staging", kMiB);
  const int sent = dynamic_cast<MemfdMemory&>(*staging).descriptor();

  const OutOfDescriptors out;
  ASSERT_TRUE(RawSend(raw_.get(), "staging", {sent}));

  EXPECT_EQ(server->closed.Take().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(server->messages.empty());
}

TEST_F(UnixSocketTest, ThePeersEndClosesTheSocketAfterItsLastMessage) {
  const auto server = MeetRawPeer();
  ASSERT_TRUE(RawSend(raw_.get(), "last", {}));

  raw_.Reset();

  EXPECT_EQ(server->messages.Take().bytes, "last");
  EXPECT_EQ(server->closed.Take().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(server->socket->Send("too late", nullptr).ok());
}

TEST_F(UnixSocketTest, ClosingTellsBothEndsOnce) {
  End client(*sockets_->Connect(path_));
  End server(accepted_.Take());

  client.socket->Close();
  client.socket->Close();

  EXPECT_EQ(client.closed.Take().code(), StatusCode::kCancelled);
  EXPECT_EQ(server.closed.Take().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(client.closed.empty());
}

TEST_F(UnixSocketTest, ASocketClosedBeforeItsStartSaysSoAfterIt) {
  auto socket = *sockets_->Connect(path_);
  socket->Close();

  End client(std::move(socket));

  EXPECT_EQ(client.closed.Take().code(), StatusCode::kCancelled);
}

TEST_F(UnixSocketTest, ASocketMayBeDestroyedInItsOwnCallback) {
  raw_ = RawUnixConnect(path_);
  std::unique_ptr<LocalSocket> socket = accepted_.Take();
  Inbox<std::string> got;
  socket->Start({.on_message =
                     [&](std::string bytes, std::shared_ptr<SharedMemory>) {
                       socket.reset();
                       got.Put(std::move(bytes));
                     },
                 .on_closed = [&](absl::Status) { got.Put("closed"); }});

  ASSERT_TRUE(RawSend(raw_.get(), "one", {}));
  // Whether it still can be sent is a race; that it is not delivered is not.
  RawSend(raw_.get(), "two", {});

  EXPECT_EQ(got.Take(), "one");
  EXPECT_TRUE(got.empty());
}

TEST_F(UnixSocketTest, ADestroyedSocketCallsNobodyAndIsGoneForItsPeer) {
  End client(*sockets_->Connect(path_));
  End server(accepted_.Take());

  server.socket.reset();

  EXPECT_FALSE(client.closed.Take().ok());
  EXPECT_TRUE(server.closed.empty());
}

// What was accepted arrives; the rest is refused, and memory stays bounded.
TEST_F(UnixSocketTest, APeerThatDoesNotReadExhaustsTheQueueAndLosesNothing) {
  const auto server = MeetRawPeer();
  int accepted = 0;
  absl::Status status;
  for (; status.ok() && accepted < 100000; ++accepted) {
    status = server->socket->Send(StrCat("message ", accepted), nullptr);
  }
  --accepted;
  ASSERT_EQ(status.code(), StatusCode::kResourceExhausted);
  ASSERT_GE(accepted, static_cast<int>(UnixConnection::kMaxQueuedMessages));

  for (int i = 0; i < accepted; ++i) {
    std::array<char, 64> text = {};
    const ssize_t size = read(raw_.get(), text.data(), text.size());
    ASSERT_EQ(std::string(text.data(), static_cast<std::size_t>(size)),
              StrCat("message ", i));
  }
  EXPECT_TRUE(server->closed.empty());
}

TEST_F(UnixSocketTest, MessagesOfTwoThreadsArriveInTheOrderOfEach) {
  End client(*sockets_->Connect(path_));
  End server(accepted_.Take());
  const auto threads = *ThreadExecutor::Make({.threads = 2}, &clock_);
  constexpr int kEach = 30;
  for (const char sender : {'a', 'b'}) {
    threads->Post([&client, sender] {
      for (int i = 0; i < kEach; ++i) {
        EXPECT_EQ(
            client.socket->Send(StrCat(std::string(1, sender), i), nullptr),
            absl::OkStatus());
      }
    });
  }

  int next_of_a = 0, next_of_b = 0;
  for (int i = 0; i < 2 * kEach; ++i) {
    const std::string got = server.messages.Take().bytes;
    int& next = got[0] == 'a' ? next_of_a : next_of_b;
    EXPECT_EQ(got.substr(1), StrCat(next++));
  }
}

TEST_F(UnixSocketTest, NobodyListeningIsUnavailableByName) {
  const std::string path = folder_.File("nobody.sock");

  const absl::Status status = sockets_->Connect(path).status();

  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST_F(UnixSocketTest, ALiveSocketIsNotReplaced) {
  const absl::Status status = Listen(path_).status();

  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_EQ(sockets_->Connect(path_).status(), absl::OkStatus());
}

TEST_F(UnixSocketTest, ALiveSocketOfAnotherTypeIsNotReplaced) {
  const std::string path = folder_.File("stream.sock");
  const Descriptor other = RawUnixListen(path, SOCK_STREAM);
  ASSERT_TRUE(other.valid());

  EXPECT_EQ(Listen(path).status().code(), StatusCode::kAlreadyExists);
}

TEST_F(UnixSocketTest, ADeadSocketIsReplaced) {
  const std::string path = folder_.File("dead.sock");
  RawUnixListen(path, SOCK_SEQPACKET).Reset();
  ASSERT_TRUE(std::filesystem::exists(path));

  const auto listener = Listen(path);

  ASSERT_EQ(listener.status(), absl::OkStatus());
  EXPECT_EQ(sockets_->Connect(path).status(), absl::OkStatus());
}

TEST_F(UnixSocketTest, AFileThatIsNoSocketIsNotReplaced) {
  const std::string path = folder_.File("precious");
  std::ofstream(path) << "data";

  EXPECT_EQ(Listen(path).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::filesystem::file_size(path), 4u);
}

TEST_F(UnixSocketTest, APathTheSystemCannotHoldIsRefusedByName) {
  const std::string path = folder_.File(std::string(120, 'x'));

  const absl::Status status = Listen(path).status();

  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(sockets_->Connect(path).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(UnixSocketTest, AFolderThatIsNotThereIsRefusedByName) {
  const std::string path = folder_.File("none/node.sock");

  EXPECT_THAT(std::string(Listen(path).status().message()), HasSubstr(path));
}

TEST_F(UnixSocketTest, EveryUidMayConnectWhateverTheUmask) {
  const mode_t before = umask(0077);
  const std::string path = folder_.File("umask.sock");

  const auto listener = Listen(path);

  umask(before);
  struct stat stat = {};
  ASSERT_EQ(lstat(path.c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 07777, 0666u);
}

TEST_F(UnixSocketTest, AListenerTakesItsFileAway) {
  listener_.reset();

  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, AListenerLeavesItsSuccessorsFile) {
  std::filesystem::remove(path_);
  const auto successor = *Listen(path_);

  listener_.reset();

  EXPECT_EQ(sockets_->Connect(path_).status(), absl::OkStatus());
}

TEST_F(UnixSocketTest, NothingIsLeftOfTheSockets) {
  const std::size_t threads = ThreadsOfThisProcess();
  const std::size_t descriptors = DescriptorsOfThisProcess();

  {
    auto sockets = *UnixSockets::Make({}, &clock_);
    End client(*sockets->Connect(path_));
    End server(accepted_.Take());
    ASSERT_EQ(client.socket->Send("x", nullptr), absl::OkStatus());
  }

  EXPECT_EQ(ThreadsOfThisProcess(), threads);
  EXPECT_EQ(DescriptorsOfThisProcess(), descriptors);
}

}  // namespace
}  // namespace firnkv
