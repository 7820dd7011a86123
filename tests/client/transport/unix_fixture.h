// Two ends of a local session's socket over a real kernel, or one and a plain
// socket that faces it.

#ifndef FIRNKV_TESTS_CLIENT_TRANSPORT_UNIX_FIXTURE_H_
#define FIRNKV_TESTS_CLIENT_TRANSPORT_UNIX_FIXTURE_H_

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "client/transport/memfd.h"
#include "client/transport/unix_socket.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "tests/client/transport/inbox.h"
#include "tests/client/transport/raw_socket.h"

namespace firnkv {

// A folder of its own for each test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = "/tmp/firnkv-unix-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// One end, started, with what came to it.
struct End {
  struct Message {
    std::string bytes;
    std::shared_ptr<SharedMemory> memory;
  };

  explicit End(std::unique_ptr<LocalSocket> s) : socket(std::move(s)) {
    socket->Start(
        {.on_message =
             [this](std::string bytes, std::shared_ptr<SharedMemory> memory) {
               messages.Put({std::move(bytes), std::move(memory)});
             },
         .on_closed =
             [this](absl::Status status) { closed.Put(std::move(status)); }});
  }

  Inbox<Message> messages;
  Inbox<absl::Status> closed;
  // Last, so that it ends before what its callbacks write to.
  std::unique_ptr<LocalSocket> socket;
};

class UnixSocketTest : public testing::Test {
 protected:
  UnixSocketTest() {
    sockets_ = *UnixSockets::Make({}, &clock_);
    listener_ = *Listen(path_);
  }
  ~UnixSocketTest() override {
    listener_.reset();
    while (!accepted_.empty()) accepted_.Take();
  }

  absl::StatusOr<std::unique_ptr<LocalListener>> Listen(
      const std::string& path) {
    return sockets_->Listen(path, [this](std::unique_ptr<LocalSocket> socket) {
      accepted_.Put(std::move(socket));
    });
  }
  // A plain socket, and the end that faces it.
  std::unique_ptr<End> MeetRawPeer() {
    raw_ = RawUnixConnect(path_);
    EXPECT_TRUE(raw_.valid());
    return std::make_unique<End>(accepted_.Take());
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.File("node.sock");
  SystemClock clock_;
  MemfdMaker memory_;
  std::unique_ptr<UnixSockets> sockets_;
  Inbox<std::unique_ptr<LocalSocket>> accepted_;
  std::unique_ptr<LocalListener> listener_;
  Descriptor raw_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_TRANSPORT_UNIX_FIXTURE_H_
