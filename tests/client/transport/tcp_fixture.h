// A TcpNetwork with one listener on loopback, and pairs of streams over it.

#ifndef FIRNKV_TESTS_CLIENT_TRANSPORT_TCP_FIXTURE_H_
#define FIRNKV_TESTS_CLIENT_TRANSPORT_TCP_FIXTURE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/tcp_network.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "tests/client/transport/inbox.h"

namespace firnkv {

// A span as bytes to send, or to receive into.
inline absl::Span<const std::byte> ToSend(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline absl::Span<std::byte> ToFill(std::string* text) {
  return {reinterpret_cast<std::byte*>(text->data()), text->size()};
}

class TcpFixture : public testing::Test {
 protected:
  struct Pair {
    std::unique_ptr<ByteStream> client;
    std::unique_ptr<ByteStream> server;
  };

  TcpFixture() {
    network_ = *TcpNetwork::Make({}, &clock_);
    listener_ = *network_->Listen("127.0.0.1:0",
                                  [this](std::unique_ptr<ByteStream> stream) {
                                    accepted_.Put(std::move(stream));
                                  });
  }
  ~TcpFixture() override {
    listener_.reset();
    while (!accepted_.empty()) accepted_.Take();
  }

  absl::StatusOr<std::unique_ptr<ByteStream>> Connect(
      const std::string& address, absl::Duration timeout = absl::Seconds(20)) {
    Inbox<absl::StatusOr<std::unique_ptr<ByteStream>>> connected;
    network_->StartConnect(address, timeout, [&](auto stream) {
      connected.Put(std::move(stream));
    });
    return connected.Take();
  }
  Pair ConnectedPair() {
    Pair pair;
    pair.client = *Connect(listener_->address());
    pair.server = accepted_.Take();
    return pair;
  }

  static ByteStreamDone Into(Inbox<absl::Status>* inbox) {
    return [inbox](absl::Status status) { inbox->Put(std::move(status)); };
  }
  static absl::Status Send(ByteStream* stream,
                           std::vector<absl::Span<const std::byte>> pieces) {
    Inbox<absl::Status> sent;
    stream->StartSend(std::move(pieces), Into(&sent));
    return sent.Take();
  }
  static absl::Status Receive(ByteStream* stream,
                              std::vector<absl::Span<std::byte>> pieces) {
    Inbox<absl::Status> received;
    stream->StartReceive(std::move(pieces), Into(&received));
    return received.Take();
  }

  SystemClock clock_;
  std::unique_ptr<TcpNetwork> network_;
  Inbox<std::unique_ptr<ByteStream>> accepted_;
  std::unique_ptr<ByteStreamListener> listener_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_TRANSPORT_TCP_FIXTURE_H_
