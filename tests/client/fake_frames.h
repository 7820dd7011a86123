// Calls that came as frames (proto/base/session_frame.h), as the messages that
// gRPC would have carried, and answers back: so that a fake which knows
// messages serves both ways.
//
// Threading. Pure functions.

#ifndef FIRNKV_TESTS_CLIENT_FAKE_FRAMES_H_
#define FIRNKV_TESTS_CLIENT_FAKE_FRAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace firnkv {

struct FramedCall {
  std::string method;  // "OpenRead".
  std::string request;
  std::uint64_t number = 0;
};
// Of a packet that an SDK sends.
FramedCall CallOfPacket(std::string_view packet);

// The packet that answers it. A response that no frame can say (it is no
// message, or its columns do not agree) becomes a body that does not decode.
std::string PacketOfAnswer(const FramedCall& call,
                           const absl::StatusOr<std::string>& response);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_FAKE_FRAMES_H_
