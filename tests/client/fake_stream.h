// The serving end of the stream transport, scripted: what a node would send,
// and everything that it should not.
//
// Threading. One thread only. Ownership: outlives nothing of its world.

#ifndef FIRNKV_TESTS_CLIENT_FAKE_STREAM_H_
#define FIRNKV_TESTS_CLIENT_FAKE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/transport/byte_stream.h"
#include "proto/base/frame.h"
#include "proto/base/id.h"
#include "proto/base/slot_header.h"
#include "proto/base/write_frame.h"
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
  // The answer to one reservation, and to one block's bytes; the defaults take
  // everything.
  std::function<std::string(std::uint64_t request, const ReserveBody& body)>
      on_reserve;
  std::function<std::string(std::uint64_t request, const WriteBody& body)>
      on_write;
  // Payloads are not received from now on: their connections stand still.
  bool takes_no_payload = false;
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
  int reserves = 0;
  std::vector<ReserveBody> reserved;
  // Payloads that came, by key, those whose checksums were right.
  std::map<BlockKey, std::string> written;
  std::vector<std::string> tokens;

  // Frames for scripts.
  static std::string Frame(FrameType type, std::uint64_t request,
                           const std::string& body, const std::string& payload);
  static std::string Block(std::uint64_t request, std::uint32_t index,
                           const Copy& copy);
  static std::string NoBlock(std::uint64_t request, std::uint32_t index,
                             Outcome outcome);
  std::string Serve(std::uint64_t request, const ReadBody& body) const;
  static std::string Reserved(std::uint64_t request,
                              const std::vector<Outcome>& outcomes);
  static std::string Written(std::uint64_t request, std::uint32_t index,
                             Outcome outcome);
  static std::string WriteEnd(std::uint64_t request);
  // kStored, and the end of the write with the last block.
  std::string Take(std::uint64_t request, const WriteBody& body);
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
  // Of each block that has not come, how many of its reservation have not.
  // Shared by them.
  std::map<BlockKey, std::shared_ptr<std::size_t>> awaited_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_FAKE_STREAM_H_
