// Calls that go as frames over the sockets of local sessions, shown to whoever
// watches control calls (sim_control.h): both ways are one call.
//
// A call is shown as it is sent, its answer as the node gives it. Calls of
// number 0 are not shown: no client counts from there, so they are forged
// (frame_intruder.h).
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SIM_FRAME_WATCH_H_
#define FIRNKV_TESTS_SIM_FRAME_WATCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "proto/base/session_frame.h"
#include "tests/support/framed_calls.h"
#include "tests/support/sim_world.h"

namespace firnkv {

class FrameWatch {
 public:
  // Outlives it, and it outlives all calls.
  explicit FrameWatch(SimWorld* world);

  std::uint64_t calls() const { return calls_; }

 private:
  struct Pending {
    CallMessage call;
    // Sent and not answered: it may be sent again under its number.
    int times = 0;
  };

  void OnPacket(const SimPackets::Seen& seen);
  void OnCall(const SimPackets::Seen& seen, const CallFrame& frame);
  void OnAnswer(const SimPackets::Seen& seen, const CallFrame& frame);

  SimControl* const control_;
  std::uint64_t calls_ = 0;
  // By line and number.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Pending> pending_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_FRAME_WATCH_H_
