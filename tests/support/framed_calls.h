// Calls that go as frames (proto/base/session_frame.h), as the messages that
// gRPC would have carried: for who knows messages and is to know both ways.
//
// Threading. Pure functions.

#ifndef FIRNKV_TESTS_SUPPORT_FRAMED_CALLS_H_
#define FIRNKV_TESTS_SUPPORT_FRAMED_CALLS_H_

#include <string>

#include "proto/base/session_frame.h"

namespace firnkv {

struct CallMessage {
  std::string method;  // "OpenRead".
  std::string request;
};
// The message that says the same; both empty where the frame is no call, or its
// body does not decode.
CallMessage CallOf(const CallFrame& frame);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_FRAMED_CALLS_H_
