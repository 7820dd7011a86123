// The other ends of a node: a local session's socket and a stream connection,
// as a client has them and as a hostile one abuses them. They speak raw
// messages and frames, so a test can say what no SDK would.
//
// Threading. One thread only: they run as tasks of their machine.

#ifndef FIRNKV_TESTS_SERVER_NODE_PEERS_H_
#define FIRNKV_TESTS_SERVER_NODE_PEERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/transport/byte_stream.h"
#include "client/transport/local_socket.h"
#include "proto/base/frame.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/session_frame.h"
#include "proto/base/write_frame.h"
#include "proto/session.pb.h"
#include "tests/support/sim_world.h"

namespace firnkv {

class SessionPeer {
 public:
  // Connects at once; `reads` false: takes no message, ever.
  SessionPeer(SimMachine* machine, std::string_view path, bool reads = true);

  static v1::ClientMessage Hello(ClusterId cluster,
                                 const std::string& token = {});
  void Send(const v1::ClientMessage& message,
            std::shared_ptr<SharedMemory> memory = nullptr);
  void SendRaw(std::string bytes,
               std::shared_ptr<SharedMemory> memory = nullptr);
  void WantDescriptor(std::uint64_t region, std::uint32_t what);
  void Taken(std::uint64_t region, std::uint32_t what);
  void AddStaging(std::uint64_t id, std::shared_ptr<SharedMemory> memory,
                  std::uint64_t bytes);
  // A call as a frame; its number is the answer's.
  std::uint64_t SendCall(FrameType type, const std::string& body);
  void Close() { socket_->Close(); }

  bool connected() const { return socket_ != nullptr; }
  bool closed() const { return closed_; }
  // Null: not come.
  const v1::SessionWelcome* welcome() const;
  const v1::SessionRefused* refused() const;
  SessionId id() const;
  struct Got {
    v1::NodeMessage message;
    std::shared_ptr<SharedMemory> memory;
  };
  std::vector<Got> got;
  // Frames that have come.
  struct GotFrame {
    FrameType type;
    std::uint64_t request;
    std::string body;
  };
  std::vector<GotFrame> frames;

 private:
  bool closed_ = false;
  std::uint64_t last_call_ = 0;
  std::unique_ptr<LocalSocket> socket_;
};

class RawStreamPeer {
 public:
  struct Got {
    FrameLead lead;
    std::string body;
    std::string payload;
  };

  // Connects as a task; wait for connected().
  RawStreamPeer(SimMachine* machine, std::string_view address);

  void SendRaw(std::string bytes);
  void SendFrame(FrameType type, std::uint64_t request, const std::string& body,
                 std::uint64_t payload_bytes = 0);
  void SendHello(ClusterId cluster, const std::string& token);
  void SendRead(std::uint64_t request, NamespaceId name_space,
                const std::vector<BlockKey>& keys, ReadBody body = {});

  // One frame each; `body` as given, with a deadline if it has none.
  void SendReserve(std::uint64_t request, ReserveBody body);
  // The bytes of one block, with their true checksums and key.
  void SendWrite(std::uint64_t request, std::uint32_t index,
                 const BlockKey& key, absl::Span<const std::byte> content);

  // From now on nothing is received, or again.
  void StopReading() { reading_ = false; }
  void ReadOn();
  void Close() { stream_->Close(); }

  bool connected() const { return stream_ != nullptr; }
  bool closed() const { return closed_; }
  // What the other side has not let out yet, in calls of Send.
  std::size_t unsent() const { return to_send_.size(); }
  // Frames that have come.
  std::vector<Got> got;
  // Outcomes of a request's kBlock frames, in order.
  std::vector<Outcome> OutcomesOf(std::uint64_t request) const;
  // By a kReadEnd or kWriteEnd.
  bool Ended(std::uint64_t request) const;
  // Of a request's kReserved frame; empty: none came.
  std::vector<Outcome> ReservedOf(std::uint64_t request) const;
  // Of its kWritten frames, by index.
  std::map<std::uint32_t, Outcome> WrittenOf(std::uint64_t request) const;
  // Of a kRefused frame; OK if none came.
  absl::Status refusal() const;

 private:
  void SendNext();
  void ReceiveLead();
  void ReceiveRest();

  bool reading_ = true;
  bool receiving_ = false;
  // A lead came while nothing was to be read.
  bool has_lead_ = false;
  bool closed_ = false;
  bool sending_ = false;
  std::vector<std::string> to_send_;
  std::string sent_;
  std::string lead_;
  Got next_;
  std::unique_ptr<ByteStream> stream_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_NODE_PEERS_H_
