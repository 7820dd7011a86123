// The serving end of the stream transport, scripted: what a node would send,
// and everything that it should not.
//
// Threading. One thread only. Ownership: outlives nothing of its world.

#ifndef FIRNKV_TESTS_CLIENT_FAKE_STREAM_H_
#define FIRNKV_TESTS_CLIENT_FAKE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/transport/byte_stream.h"
#include "proto/base/frame.h"
#include "proto/base/id.h"
#include "proto/base/slot_header.h"
#include "tests/support/sim_world.h"

namespace firnkv {

class FakeStream {
 public:
  struct Identity {
    NodeId node;
    NodeEpoch epoch = NodeEpoch::kNone;
    ClusterId cluster;
  };
  // What is stored under a key; nullopt: a miss.
  struct Copy {
    SlotHeader header;
    std::vector<std::byte> bytes;
  };
  using Find = std::function<std::optional<Copy>(const BlockId&)>;

  FakeStream(SimMachine* machine, const std::string& address,
             const Identity& identity, Find find);
  ~FakeStream();

  // --- What it does from now on.
  // The answer to one read, as raw bytes; the default serves from Find.
  std::function<std::string(std::uint64_t request, const ReadBody& body)>
      on_read;
  // Its hello; the default says who it is.
  std::function<std::string()> on_hello;
  // Bytes after which a connection's sending is cut.
  std::optional<std::size_t> cut_after;
  // Requests are heard and never answered.
  bool silent = false;
  // Answers to a cancelled request end with kReadEnd.
  bool ends_cancelled = true;

  // --- What happened.
  int connections = 0;
  int reads = 0;
  int cancels = 0;
  std::vector<std::string> tokens;

  // Frames for scripts.
  static std::string Frame(FrameType type, std::uint64_t request,
                           const std::string& body, const std::string& payload);
  static std::string Block(std::uint64_t request, std::uint32_t index,
                           const Copy& copy);
  static std::string NoBlock(std::uint64_t request, std::uint32_t index,
                             Outcome outcome);
  std::string Serve(std::uint64_t request, const ReadBody& body) const;
  std::string Hello() const;

  // Every connection ends now.
  void CutAll();

 private:
  class Connection;
  void Accept(std::unique_ptr<ByteStream> stream);

  const Identity identity_;
  const Find find_;
  std::unique_ptr<ByteStreamListener> listener_;
  std::vector<std::unique_ptr<Connection>> connected_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_FAKE_STREAM_H_
