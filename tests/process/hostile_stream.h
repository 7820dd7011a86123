// A stream connection by system calls: frames of any kind and order, payloads
// that are not what was announced. For peers that keep no rule.
//
// Threading. One thread; a receive waits for at most kPatienceSeconds.

#ifndef FIRNKV_TESTS_PROCESS_HOSTILE_STREAM_H_
#define FIRNKV_TESTS_PROCESS_HOSTILE_STREAM_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/transport/descriptor.h"
#include "proto/base/frame.h"
#include "proto/session.pb.h"

namespace firnkv {

// A blocking socket at "host:port"; invalid where nobody accepts.
Descriptor ConnectStream(const std::string& address);

class HostileStream {
 public:
  // Says a hello with that token to the node of the welcome, and hears its
  // answer; a status, as the node says it, where it refuses.
  static absl::StatusOr<HostileStream> Connect(
      const v1::SessionWelcome& welcome, const std::string& token);

  // False: the node has ended it. `payload` goes with it, whatever
  // `payload_bytes` says.
  bool Send(FrameType type, std::uint64_t request, const std::string& body,
            std::uint64_t payload_bytes = 0, const std::string& payload = {});
  bool SendRaw(const std::string& bytes);

  struct Frame {
    FrameLead lead;
    std::string body;
  };
  // The next one, its payload thrown away; nullopt at the end, after
  // kPatienceSeconds, and where no node would send that.
  std::optional<Frame> Receive();
  // Whether the node ends it within kPatienceSeconds.
  bool IsEnded();

 private:
  explicit HostileStream(Descriptor socket) : socket_(std::move(socket)) {}

  bool ReceiveBytes(std::size_t count, std::string* bytes);

  Descriptor socket_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_HOSTILE_STREAM_H_
