// Bytes over a TCP connection, and its ends: orderly, broken, ours.

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/tcp_network.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "proto/base/random.h"
#include "tests/client/transport/raw_socket.h"
#include "tests/client/transport/tcp_fixture.h"

namespace firnkv {
namespace {

using absl::StatusCode;

// More than the buffers of both ends hold.
constexpr std::size_t kTooMuch = 32 * kMiB;

std::string Noise(std::size_t bytes, std::uint64_t seed) {
  std::string noise(bytes, '\0');
  SeededRandom random(seed);
  random.Fill({reinterpret_cast<std::uint8_t*>(noise.data()), noise.size()});
  return noise;
}

class TcpStreamTest : public TcpFixture {
 protected:
  // A stream whose peer is a plain socket.
  void MeetRawPeer() {
    raw_ = RawTcpConnect(listener_->address());
    ASSERT_TRUE(raw_.valid());
    stream_ = accepted_.Take();
  }

  Descriptor raw_;
  std::unique_ptr<ByteStream> stream_;
  Inbox<absl::Status> sent_;
  Inbox<absl::Status> received_;
};

TEST_F(TcpStreamTest, BytesArriveInOrderHoweverEitherEndCutsThem) {
  Pair pair = ConnectedPair();
  const std::string one = "granite ", two, three = "firn and ", four = "ice";
  std::string a(3, ' '), b(14, ' '), c, d(3, ' ');

  pair.server->StartReceive({ToFill(&a), ToFill(&b), ToFill(&c), ToFill(&d)},
                            Into(&received_));
  ASSERT_EQ(Send(pair.client.get(),
                 {ToSend(one), ToSend(two), ToSend(three), ToSend(four)}),
            absl::OkStatus());

  EXPECT_EQ(received_.Take(), absl::OkStatus());
  EXPECT_EQ(a + b + c + d, "granite firn and ice");
}

TEST_F(TcpStreamTest, AMessageOfMorePiecesThanACallTakesArrivesWhole) {
  Pair pair = ConnectedPair();
  const std::string noise = Noise(5000 * 7, 1);
  std::string arrived(noise.size(), ' ');
  std::vector<absl::Span<const std::byte>> from;
  std::vector<absl::Span<std::byte>> to;
  for (std::size_t i = 0; i < 5000; ++i) {
    from.push_back(ToSend(noise).subspan(i * 7, 7));
    to.push_back(ToFill(&arrived).subspan(i * 7, 7));
  }

  pair.server->StartReceive(to, Into(&received_));
  ASSERT_EQ(Send(pair.client.get(), from), absl::OkStatus());

  EXPECT_EQ(received_.Take(), absl::OkStatus());
  EXPECT_TRUE(arrived == noise);
}

TEST_F(TcpStreamTest, AMessageLargerThanTheSocketsBuffersArrivesWhole) {
  Pair pair = ConnectedPair();
  const std::string noise = Noise(kTooMuch, 2);
  std::string arrived(noise.size(), ' ');

  pair.client->StartSend({ToSend(noise)}, Into(&sent_));
  pair.server->StartReceive({ToFill(&arrived)}, Into(&received_));

  EXPECT_EQ(sent_.Take(), absl::OkStatus());
  EXPECT_EQ(received_.Take(), absl::OkStatus());
  EXPECT_TRUE(arrived == noise);
}

TEST_F(TcpStreamTest, ATransferOfNothingIsDoneAtOnce) {
  Pair pair = ConnectedPair();
  std::string none;

  EXPECT_EQ(Send(pair.client.get(), {}), absl::OkStatus());
  EXPECT_EQ(Receive(pair.client.get(), {ToFill(&none)}), absl::OkStatus());
}

TEST_F(TcpStreamTest, WhatHasArrivedIsReceivedBeforeTheStartReturns) {
  MeetRawPeer();
  std::string first(1, ' '), second(1, ' ');
  ASSERT_TRUE(RawSend(raw_.get(), "ab", {}));
  // Both bytes are there once one of them is.
  ASSERT_EQ(Receive(stream_.get(), {ToFill(&first)}), absl::OkStatus());

  stream_->StartReceive({ToFill(&second)}, Into(&received_));

  EXPECT_FALSE(received_.empty());
}

TEST_F(TcpStreamTest, AnEndBeforeTheFirstByteIsOrderly) {
  MeetRawPeer();
  std::string arrived(4, ' ');
  stream_->StartReceive({ToFill(&arrived)}, Into(&received_));

  shutdown(raw_.get(), SHUT_WR);

  EXPECT_EQ(received_.Take().code(), StatusCode::kOutOfRange);
}

// Rule T1: a message that is not whole is a failure.
TEST_F(TcpStreamTest, AnEndWithinAMessageIsAFailure) {
  MeetRawPeer();
  std::string first(1, ' '), rest(3, ' ');
  stream_->StartReceive({ToFill(&first), ToFill(&rest)}, Into(&received_));

  ASSERT_TRUE(RawSend(raw_.get(), "fi", {}));
  shutdown(raw_.get(), SHUT_WR);

  EXPECT_EQ(received_.Take().code(), StatusCode::kUnavailable);
}

TEST_F(TcpStreamTest, APeerThatResetsFailsBothDirections) {
  MeetRawPeer();
  const std::string noise = Noise(kTooMuch, 3);
  std::string arrived(4, ' ');
  stream_->StartReceive({ToFill(&arrived)}, Into(&received_));
  stream_->StartSend({ToSend(noise)}, Into(&sent_));

  // With bytes unread, closing is a reset.
  raw_.Reset();

  EXPECT_EQ(received_.Take().code(), StatusCode::kUnavailable);
  EXPECT_EQ(sent_.Take().code(), StatusCode::kUnavailable);
}

TEST_F(TcpStreamTest, ClosingEndsBothDirectionsAndAllThatFollows) {
  MeetRawPeer();
  const std::string noise = Noise(kTooMuch, 4);
  std::string arrived(4, ' ');
  stream_->StartReceive({ToFill(&arrived)}, Into(&received_));
  stream_->StartSend({ToSend(noise)}, Into(&sent_));

  stream_->Close();
  stream_->Close();

  EXPECT_EQ(received_.Take().code(), StatusCode::kCancelled);
  EXPECT_EQ(sent_.Take().code(), StatusCode::kCancelled);
  EXPECT_EQ(Send(stream_.get(), {ToSend("x")}).code(), StatusCode::kCancelled);
}

// Rule T2: memory may be reused after a close, so nothing is sent from it.
TEST_F(TcpStreamTest, AfterACloseThePeerGetsOnlyWhatWasSentAndAReset) {
  MeetRawPeer();
  std::string noise(kTooMuch, 'a');
  stream_->StartSend({ToSend(noise)}, Into(&sent_));

  stream_->Close();
  ASSERT_EQ(sent_.Take().code(), StatusCode::kCancelled);
  std::fill(noise.begin(), noise.end(), 'z');
  int error = 0;
  const std::string arrived = RawReadAll(raw_.get(), &error);

  EXPECT_LT(arrived.size(), noise.size());
  EXPECT_EQ(arrived, std::string(arrived.size(), 'a'));
  EXPECT_EQ(error, ECONNRESET);
}

TEST_F(TcpStreamTest, DestroyingAStreamEndsWhatIsOutstandingFirst) {
  MeetRawPeer();
  const std::string noise = Noise(kTooMuch, 5);
  std::string arrived(4, ' ');
  stream_->StartReceive({ToFill(&arrived)}, Into(&received_));
  stream_->StartSend({ToSend(noise)}, Into(&sent_));

  stream_.reset();

  ASSERT_FALSE(received_.empty());
  ASSERT_FALSE(sent_.empty());
  EXPECT_EQ(received_.Take().code(), StatusCode::kCancelled);
  EXPECT_EQ(sent_.Take().code(), StatusCode::kCancelled);
}

TEST_F(TcpStreamTest, AStreamMayBeDestroyedInItsOwnDoneOnTheLoop) {
  MeetRawPeer();
  std::string arrived(1, ' ');
  stream_->StartReceive({ToFill(&arrived)}, [this](absl::Status status) {
    stream_.reset();
    received_.Put(std::move(status));
  });

  ASSERT_TRUE(RawSend(raw_.get(), "x", {}));

  EXPECT_EQ(received_.Take(), absl::OkStatus());
}

TEST_F(TcpStreamTest, AStreamMayBeDestroyedInItsOwnDoneWithinTheStart) {
  MeetRawPeer();

  stream_->StartSend({ToSend("x")}, [this](absl::Status status) {
    stream_.reset();
    sent_.Put(std::move(status));
  });

  EXPECT_EQ(sent_.Take(), absl::OkStatus());
}

TEST_F(TcpStreamTest, AStreamMayBeDestroyedInAnotherStreamsDone) {
  Pair pair = ConnectedPair();
  MeetRawPeer();
  std::string unfilled(1, ' '), arrived(1, ' ');
  pair.server->StartReceive({ToFill(&unfilled)}, Into(&received_));
  stream_->StartReceive({ToFill(&arrived)}, [&](absl::Status status) {
    pair.server.reset();
    sent_.Put(std::move(status));
  });

  ASSERT_TRUE(RawSend(raw_.get(), "x", {}));

  EXPECT_EQ(sent_.Take(), absl::OkStatus());
  EXPECT_EQ(received_.Take().code(), StatusCode::kCancelled);
}

// A hundred thousand frames on one stack would end the process.
TEST_F(TcpStreamTest, TransfersThatAreDoneAtOnceDoNotPileUpOnTheStack) {
  Pair pair = ConnectedPair();
  constexpr int kTransfers = 100000;
  int left = kTransfers;
  std::function<void()> next = [&] {
    pair.client->StartSend({}, [&](absl::Status status) {
      if (--left == 0 || !status.ok()) return sent_.Put(std::move(status));
      next();
    });
  };

  next();

  EXPECT_EQ(sent_.Take(), absl::OkStatus());
  EXPECT_EQ(left, 0);
}

TEST_F(TcpStreamTest, ASecondTransferInOneDirectionIsRefused) {
  MeetRawPeer();
  std::string first(1, ' '), second(1, ' ');
  stream_->StartReceive({ToFill(&first)}, Into(&received_));

  EXPECT_EQ(Receive(stream_.get(), {ToFill(&second)}).code(),
            StatusCode::kFailedPrecondition);

  ASSERT_TRUE(RawSend(raw_.get(), "x", {}));
  EXPECT_EQ(received_.Take(), absl::OkStatus());
  EXPECT_EQ(first, "x");
}

TEST_F(TcpStreamTest, MemoryThatIsNotThereFailsTheTransferOnly) {
  MeetRawPeer();
  const auto* nowhere = reinterpret_cast<const std::byte*>(8);

  EXPECT_EQ(Send(stream_.get(), {{nowhere, 8}}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Send(stream_.get(), {ToSend("x")}), absl::OkStatus());
}

// One end of the exchange below: sends random messages, receives and compares
// the other end's, both made from the same seed.
class Exchange {
 public:
  Exchange(ByteStream* stream, std::uint64_t out, std::uint64_t in,
           Inbox<absl::Status>* ended)
      : stream_(stream), out_(out), in_(in), ended_(ended) {}

  void Run() {
    SendNext();
    ReceiveNext();
  }

 private:
  static constexpr int kMessages = 60;

  static std::string Message(SeededRandom* random) {
    return Noise(random->Below(random->Below(4) == 0 ? kMiB : 2000) + 1,
                 random->Next64());
  }
  // Random cuts, the same memory.
  template <typename Byte>
  static std::vector<absl::Span<Byte>> Cut(absl::Span<Byte> all,
                                           SeededRandom* random) {
    std::vector<absl::Span<Byte>> pieces;
    while (!all.empty()) {
      const std::size_t part = random->Below(all.size()) + 1;
      pieces.push_back(all.subspan(0, part));
      all.remove_prefix(part);
    }
    return pieces;
  }

  void SendNext() {
    if (sent_++ == kMessages) return ended_->Put(absl::OkStatus());
    sending_ = Message(&out_);
    stream_->StartSend(Cut(ToSend(sending_), &out_), [this](absl::Status s) {
      if (!s.ok()) return ended_->Put(std::move(s));
      SendNext();
    });
  }
  void ReceiveNext() {
    if (received_++ == kMessages) return ended_->Put(absl::OkStatus());
    expected_ = Message(&in_);
    // Takes the same draws as the sender did for its cuts.
    Cut(ToSend(expected_), &in_);
    arrived_ = std::string(expected_.size(), '\0');
    stream_->StartReceive(
        Cut(ToFill(&arrived_), &cuts_), [this](absl::Status s) {
          if (!s.ok()) return ended_->Put(std::move(s));
          if (arrived_ != expected_) {
            return ended_->Put(absl::DataLossError("other bytes"));
          }
          ReceiveNext();
        });
  }

  ByteStream* const stream_;
  SeededRandom out_;
  SeededRandom in_;
  SeededRandom cuts_{99};
  Inbox<absl::Status>* const ended_;
  int sent_ = 0;
  int received_ = 0;
  std::string sending_, expected_, arrived_;
};

TEST_F(TcpStreamTest, ManyStreamsExchangeRandomMessagesBothWaysAtOnce) {
  std::vector<Pair> pairs;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  Inbox<absl::Status> ended;
  for (std::uint64_t i = 0; i < 4; ++i) {
    pairs.push_back(ConnectedPair());
    const Pair& pair = pairs.back();
    exchanges.push_back(std::make_unique<Exchange>(pair.client.get(), 2 * i,
                                                   2 * i + 1, &ended));
    exchanges.push_back(std::make_unique<Exchange>(pair.server.get(), 2 * i + 1,
                                                   2 * i, &ended));
  }

  for (const auto& exchange : exchanges) exchange->Run();

  for (std::size_t i = 0; i < 2 * exchanges.size(); ++i) {
    EXPECT_EQ(ended.Take(), absl::OkStatus());
  }
  pairs.clear();
}

// Closing races with bytes that arrive and with bytes that leave: every done
// runs once, whoever wins.
TEST_F(TcpStreamTest, StreamsThatEndInTheMiddleOfTrafficEndCleanly) {
  const std::string noise = Noise(4 * kMiB, 6);
  SeededRandom random(7);
  for (int i = 0; i < 50; ++i) {
    Inbox<absl::Status> sent, received;
    Pair pair = ConnectedPair();
    std::string arrived(noise.size(), ' ');
    std::string some(random.Below(noise.size()) + 1, ' ');
    pair.client->StartSend({ToSend(noise)}, Into(&sent));
    pair.server->StartReceive({ToFill(&some)}, Into(&received));
    const bool wait = random.Below(2) == 0;
    if (wait) {
      ASSERT_EQ(received.Take(), absl::OkStatus());
    }

    if (random.Below(2) == 0) pair.client->Close();
    pair.server.reset();
    pair.client.reset();

    ASSERT_EQ(sent.size(), 1u);
    ASSERT_EQ(received.size(), wait ? 0u : 1u);
  }
}

}  // namespace
}  // namespace firnkv
