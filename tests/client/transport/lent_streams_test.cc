// A thread that waits receives what comes for it, over real sockets: no other
// thread does meanwhile, and every end wakes it.

#include "client/transport/lent_streams.h"

#include <poll.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client/transport/named_thread.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "tests/client/transport/tcp_fixture.h"

namespace firnkv {
namespace {

using absl::StatusCode;

// More than the buffers of both ends hold.
constexpr std::size_t kTooMuch = 32 * kMiB;

class LentStreamsTest : public TcpFixture {
 protected:
  LentStreamsTest() : pair_(ConnectedPair()) {}

  // Of five bytes, to the client's end.
  void StartReceive() {
    pair_.client->StartReceive({ToFill(&arrived_)},
                               [this](absl::Status status) {
                                 receiver_ = std::this_thread::get_id();
                                 received_.Put(std::move(status));
                               });
  }
  void Lend() {
    ASSERT_TRUE(here_.usable());
    std::unique_ptr<LentStream> lent = pair_.client->Lend();
    ASSERT_NE(lent, nullptr);
    descriptor_ = lent->descriptor();
    here_.Add(pair_.client.get(), std::move(lent), [this] { ++returned_; });
  }
  void AwaitArrival() const {
    pollfd event = {.fd = descriptor_, .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&event, 1, 20'000), 1);
  }
  // Until everything has been given back.
  void ReceiveToTheEnd() {
    while (!here_.empty()) here_.Receive();
  }

  Pair pair_;
  LentStreams here_;
  const std::string sent_ = "bytes";
  std::string arrived_ = "-----";
  std::thread::id receiver_;
  Inbox<absl::Status> received_;
  int descriptor_ = -1;
  int returned_ = 0;
};

TEST_F(LentStreamsTest, WhatComesIsReceivedByWhoWaits) {
  StartReceive();
  Lend();
  ASSERT_EQ(Send(pair_.server.get(), {ToSend(sent_)}), absl::OkStatus());

  while (received_.empty()) here_.Receive();

  EXPECT_EQ(received_.Take(), absl::OkStatus());
  EXPECT_EQ(arrived_, sent_);
  EXPECT_EQ(receiver_, std::this_thread::get_id());
  EXPECT_EQ(returned_, 0);
}

TEST_F(LentStreamsTest, NobodyElseReceivesUntilItIsGivenBack) {
  StartReceive();
  Lend();
  ASSERT_EQ(Send(pair_.server.get(), {ToSend(sent_)}), absl::OkStatus());
  AwaitArrival();
  // The network's thread has something to do, and has had its turn then.
  std::string answer(5, ' ');
  Inbox<absl::Status> answered;
  pair_.server->StartReceive({ToFill(&answer)}, Into(&answered));
  ASSERT_EQ(Send(pair_.client.get(), {ToSend(sent_)}), absl::OkStatus());
  ASSERT_EQ(answered.Take(), absl::OkStatus());
  EXPECT_TRUE(received_.empty());

  here_.GiveBack();

  EXPECT_EQ(received_.Take(), absl::OkStatus());
  EXPECT_NE(receiver_, std::this_thread::get_id());
  EXPECT_EQ(returned_, 1);
}

TEST_F(LentStreamsTest, ItIsLentOnceAndNotToTheNetworksThread) {
  Lend();
  EXPECT_EQ(pair_.client->Lend(), nullptr);
  here_.GiveBack();
  Lend();
  here_.GiveBack();

  Inbox<bool> lent;
  pair_.server->StartReceive({ToFill(&arrived_)}, [&](absl::Status) {
    lent.Put(pair_.server->Lend() != nullptr);
  });
  ASSERT_EQ(Send(pair_.client.get(), {ToSend(sent_)}), absl::OkStatus());

  EXPECT_FALSE(lent.Take());
}

TEST_F(LentStreamsTest, AClosedStreamIsNotLent) {
  pair_.client->Close();

  EXPECT_EQ(pair_.client->Lend(), nullptr);
}

TEST_F(LentStreamsTest, ACloseElsewhereWakesWhoWaits) {
  StartReceive();
  Lend();
  NamedThread closer;
  ASSERT_TRUE(closer.Start("closer", [this] { pair_.client->Close(); }).ok());

  ReceiveToTheEnd();

  EXPECT_EQ(received_.Take().code(), StatusCode::kCancelled);
  EXPECT_EQ(returned_, 1);
}

TEST_F(LentStreamsTest, AStreamThatIsDestroyedElsewhereWakesWhoWaits) {
  StartReceive();
  Lend();
  NamedThread closer;
  ASSERT_TRUE(closer.Start("closer", [this] { pair_.client.reset(); }).ok());

  ReceiveToTheEnd();

  EXPECT_EQ(received_.Take().code(), StatusCode::kCancelled);
}

TEST_F(LentStreamsTest, ThePeerSeesNothingButTheEndOfAClosedOne) {
  Lend();
  std::string at_the_server(1, ' ');
  Inbox<absl::Status> end;
  pair_.server->StartReceive({ToFill(&at_the_server)}, Into(&end));

  pair_.client->Close();
  ReceiveToTheEnd();

  // A reset, as ever.
  EXPECT_EQ(end.Take().code(), StatusCode::kUnavailable);
}

TEST_F(LentStreamsTest, ThePeersEndIsReceivedToo) {
  StartReceive();
  Lend();
  pair_.server.reset();

  while (received_.empty()) here_.Receive();

  EXPECT_FALSE(received_.Take().ok());
  EXPECT_EQ(receiver_, std::this_thread::get_id());
}

TEST_F(LentStreamsTest, ALongReceiveGoesOnWhereItIsLent) {
  std::string whole(kTooMuch, 's');
  std::string arrived(kTooMuch, ' ');
  Lend();
  pair_.client->StartReceive({ToFill(&arrived)}, [this](absl::Status status) {
    receiver_ = std::this_thread::get_id();
    received_.Put(std::move(status));
  });
  Inbox<absl::Status> sent;
  pair_.server->StartSend({ToSend(whole)}, Into(&sent));

  while (received_.empty()) here_.Receive();

  EXPECT_EQ(received_.Take(), absl::OkStatus());
  EXPECT_EQ(arrived, whole);
  EXPECT_EQ(receiver_, std::this_thread::get_id());
  EXPECT_EQ(sent.Take(), absl::OkStatus());
}

// The loop is told of room to send only once a send finds none.
TEST_F(LentStreamsTest, ASendThatFindsNoRoomGoesOnWhileItIsLentAndAfter) {
  const std::string much(kTooMuch, 'm');
  std::string arrived(kTooMuch, ' ');
  for (const bool lent : {true, false}) {
    Lend();
    if (!lent) here_.GiveBack();
    Inbox<absl::Status> sent;
    pair_.client->StartSend({ToSend(much)}, Into(&sent));
    ASSERT_EQ(Receive(pair_.server.get(), {ToFill(&arrived)}),
              absl::OkStatus());

    EXPECT_EQ(sent.Take(), absl::OkStatus());
    EXPECT_EQ(arrived, much);
    here_.GiveBack();
  }
}

TEST_F(LentStreamsTest, AWakeEndsTheReceiveAndIsNotLost) {
  Lend();
  here_.Wake();
  here_.Receive();  // Returns at once.

  NamedThread waker;
  ASSERT_TRUE(waker.Start("waker", [this] { here_.Wake(); }).ok());
  here_.Receive();

  EXPECT_EQ(returned_, 0);
}

TEST_F(LentStreamsTest, TheInnermostIsTheThreads) {
  EXPECT_EQ(LentStreams::Here(), &here_);
  {
    LentStreams inner;
    EXPECT_EQ(LentStreams::Here(), &inner);
  }
  EXPECT_EQ(LentStreams::Here(), &here_);
  NamedThread other;
  LentStreams* there = &here_;
  ASSERT_TRUE(other.Start("other", [&] { there = LentStreams::Here(); }).ok());
  other.Join();
  EXPECT_EQ(there, nullptr);
}

}  // namespace
}  // namespace firnkv
