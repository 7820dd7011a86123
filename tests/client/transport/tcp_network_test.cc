// Connecting and listening, and how either fails.

#include "client/transport/tcp_network.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/transport/process_state.h"
#include "tests/client/transport/raw_socket.h"
#include "tests/client/transport/tcp_fixture.h"

namespace firnkv {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class TcpNetworkTest : public TcpFixture {
 protected:
  static std::string AddressOf(const Descriptor& listening) {
    return SocketAddress::LocalOf(listening.get()).ToString();
  }
  // A loopback port that nobody listens on, kept from all others by `holder`.
  static std::string DeadAddress(Descriptor* holder) {
    *holder = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress any = Numeric("127.0.0.1:0");
    EXPECT_EQ(bind(holder->get(), any.get(), any.length), 0);
    return AddressOf(*holder);
  }
  // A listener whose queue is full: connects to it are never answered.
  static std::string BlackHole(std::vector<Descriptor>* holders) {
    holders->push_back(RawTcpListen(0));
    const std::string address = AddressOf(holders->front());
    const SocketAddress to = Numeric(address);
    for (int i = 0; i < 4; ++i) {
      holders->push_back(Descriptor(
          socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
      connect(holders->back().get(), to.get(), to.length);
    }
    return address;
  }
};

TEST_F(TcpNetworkTest, TheListenerSaysWhichPortItGot) {
  EXPECT_THAT(listener_->address(), HasSubstr("127.0.0.1:"));
  EXPECT_NE(listener_->address(), "127.0.0.1:0");
}

TEST_F(TcpNetworkTest, EachEndNamesTheOther) {
  const Pair pair = ConnectedPair();

  EXPECT_EQ(pair.client->peer(), listener_->address());
  EXPECT_THAT(pair.server->peer(), HasSubstr("127.0.0.1:"));
}

TEST_F(TcpNetworkTest, AHostMayBeAName) {
  const std::string address = listener_->address();
  const std::string port = address.substr(address.rfind(':'));

  EXPECT_EQ(Connect("localhost" + port).status(), absl::OkStatus());
}

TEST_F(TcpNetworkTest, VersionSixAddressesStandInBrackets) {
  auto listener = network_->Listen(
      "[::1]:0", [this](auto stream) { accepted_.Put(std::move(stream)); });
  if (!listener.ok()) GTEST_SKIP() << "this machine has no IPv6";

  EXPECT_THAT((*listener)->address(), HasSubstr("[::1]:"));
  EXPECT_EQ(Connect((*listener)->address()).status(), absl::OkStatus());
}

TEST_F(TcpNetworkTest, AnAddressThatIsNoneIsRefusedByName) {
  for (const std::string address :
       {"", "7411", ":7411", "localhost", "localhost:", "localhost:x",
        "localhost:65536", "localhost:-1", "::1:7411", "[::1:7411", "[]:1"}) {
    const absl::Status connect = Connect(address).status();
    EXPECT_EQ(connect.code(), StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(connect.message()), HasSubstr("'" + address + "'"));
    EXPECT_EQ(network_->Listen(address, [](auto) {}).status().code(),
              StatusCode::kInvalidArgument)
        << address;
  }
}

TEST_F(TcpNetworkTest, AConnectThatIsRefusedIsUnavailable) {
  Descriptor holder;
  const std::string address = DeadAddress(&holder);

  const absl::Status status = Connect(address).status();

  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

TEST_F(TcpNetworkTest, AConnectThatNobodyAnswersEndsAtItsTimeout) {
  std::vector<Descriptor> holders;
  const std::string address = BlackHole(&holders);

  const absl::Status status = Connect(address, absl::Milliseconds(30)).status();

  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

TEST_F(TcpNetworkTest, AConnectStillOutstandingAtTheNetworksEndIsCancelled) {
  std::vector<Descriptor> holders;
  const std::string address = BlackHole(&holders);
  Inbox<absl::Status> connected;
  auto network = *TcpNetwork::Make({}, &clock_);
  network->StartConnect(address, absl::Seconds(60),
                        [&](auto stream) { connected.Put(stream.status()); });

  network.reset();

  ASSERT_FALSE(connected.empty());
  EXPECT_EQ(connected.Take().code(), StatusCode::kCancelled);
}

TEST_F(TcpNetworkTest, ConnectionsAreDealtOutAmongItsThreads) {
  constexpr int kConnections = 4;
  const auto network = *TcpNetwork::Make({.threads = 2}, &clock_);
  Inbox<std::unique_ptr<ByteStream>> accepted;
  const auto listener =
      *network->Listen("127.0.0.1:0", [&](std::unique_ptr<ByteStream> stream) {
        accepted.Put(std::move(stream));
      });
  std::map<std::thread::id, int> receivers;
  std::vector<std::unique_ptr<ByteStream>> streams;
  for (int i = 0; i < kConnections; ++i) {
    // Of another network, which takes no turns in this one.
    streams.push_back(*Connect(listener->address()));
    streams.push_back(accepted.Take());
    std::string arrived(1, ' ');
    Inbox<std::thread::id> received;
    streams.back()->StartReceive({ToFill(&arrived)}, [&](absl::Status) {
      received.Put(std::this_thread::get_id());
    });
    const std::string sent = "a";
    ASSERT_EQ(Send(streams[streams.size() - 2].get(), {ToSend(sent)}),
              absl::OkStatus());
    ++receivers[received.Take()];
  }

  EXPECT_THAT(receivers, testing::SizeIs(2));
  for (const auto& [thread, count] : receivers) {
    EXPECT_EQ(count, kConnections / 2);
  }
}

TEST_F(TcpNetworkTest, AConnectWithoutDescriptorsFails) {
  if (!kCanRunOutOfDescriptors) GTEST_SKIP();
  Inbox<absl::StatusCode> connected;
  {
    const OutOfDescriptors out;
    network_->StartConnect(
        listener_->address(), absl::Seconds(20),
        [&](auto stream) { connected.Put(stream.status().code()); });
    EXPECT_EQ(connected.Take(), StatusCode::kResourceExhausted);
  }

  EXPECT_EQ(Connect(listener_->address()).status(), absl::OkStatus());
}

TEST_F(TcpNetworkTest, AnAddressInUseIsRefusedByName) {
  const absl::Status status =
      network_->Listen(listener_->address(), [](auto) {}).status();

  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(listener_->address()));
}

TEST_F(TcpNetworkTest, AnAddressOfAnotherHostIsRefusedByName) {
  const absl::Status status =
      network_->Listen("192.0.2.1:7411", [](auto) {}).status();

  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("192.0.2.1:7411"));
}

TEST_F(TcpNetworkTest, ADestroyedListenerAcceptsNoMore) {
  const std::string address = listener_->address();

  listener_.reset();

  EXPECT_EQ(Connect(address).status().code(), StatusCode::kUnavailable);
}

TEST_F(TcpNetworkTest, AListenerMayBeDestroyedInItsOwnCallback) {
  Inbox<bool> destroyed;
  std::unique_ptr<ByteStreamListener> listener;
  listener = *network_->Listen("127.0.0.1:0", [&](auto) {
    listener.reset();
    destroyed.Put(true);
  });

  const Descriptor raw = RawTcpConnect(listener->address());

  EXPECT_TRUE(destroyed.Take());
}

// Rule S4: no spinning, no hanging peer.
TEST_F(TcpNetworkTest, WithoutDescriptorsAConnectionIsTurnedAwayAtOnce) {
  if (!kCanRunOutOfDescriptors) GTEST_SKIP();
  Descriptor raw(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress to = Numeric(listener_->address());
  {
    const OutOfDescriptors out;
    ASSERT_EQ(connect(raw.get(), to.get(), to.length), 0);
    int error = 0;
    EXPECT_EQ(RawReadAll(raw.get(), &error), "");
  }
  EXPECT_TRUE(accepted_.empty());

  const Descriptor next = RawTcpConnect(listener_->address());
  EXPECT_NE(accepted_.Take(), nullptr);
}

TEST_F(TcpNetworkTest, NothingIsLeftOfANetwork) {
  const std::size_t threads = ThreadsOfThisProcess();
  const std::size_t descriptors = DescriptorsOfThisProcess();

  {
    auto network = *TcpNetwork::Make({}, &clock_);
    Inbox<std::unique_ptr<ByteStream>> accepted;
    auto listener = *network->Listen(
        "127.0.0.1:0", [&](auto stream) { accepted.Put(std::move(stream)); });
    Inbox<absl::StatusOr<std::unique_ptr<ByteStream>>> connected;
    network->StartConnect(listener->address(), absl::Seconds(20),
                          [&](auto s) { connected.Put(std::move(s)); });
    const auto client = *connected.Take();
    const auto server = accepted.Take();
  }

  EXPECT_EQ(ThreadsOfThisProcess(), threads);
  EXPECT_EQ(DescriptorsOfThisProcess(), descriptors);
}

}  // namespace
}  // namespace firnkv
