// Calls as frames that no well-behaved client makes, over the sockets of those
// that are, made of frames that pass by (intruder.h does the same with calls by
// gRPC):
//
//   - a frame comes once more, at once or long after its call is over (rules S5
//     and S3; answer_check.h judges what is answered);
//   - what one tenant asks is asked by another, under its own session: nothing
//     of it may be told (rule C1);
//   - a session's frame comes over another session's socket: it is refused
//     (rule S3).
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SIM_FRAME_INTRUDER_H_
#define FIRNKV_TESTS_SIM_FRAME_INTRUDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/base/session_frame.h"
#include "tests/sim/oracle.h"
#include "tests/support/cluster.h"

namespace firnkv {

class FrameIntruder {
 public:
  // All outlive it; it outlives all calls.
  FrameIntruder(SimCluster* cluster, Oracle* oracle);

  void Start() { stopped_ = false; }
  // Nothing new; what was begun may come up to a minute later.
  void Stop() { stopped_ = true; }

  std::uint64_t calls() const { return calls_; }

 private:
  // The socket over which a process last called, and as whom.
  struct Known {
    SimPackets::Line line;
    SessionId session;
  };

  void OnPacket(const SimPackets::Seen& seen);
  void OnForgedAnswer(const SimPackets::Seen& seen, const CallFrame& frame);
  void Echo(const SimPackets::Seen& seen, const CallFrame& frame);
  void AskAsAnother(const SimPackets::Seen& seen, const CallFrame& frame);
  void Send(const SimPackets::Line& line, std::string packet,
            absl::Duration delay);
  bool Now(std::uint32_t per_mille) {
    return !stopped_ && cluster_->executor()->Chance(per_mille);
  }

  SimCluster* const cluster_;
  Oracle* const oracle_;
  bool stopped_ = true;
  std::uint64_t calls_ = 0;
  // By the process's number, so that a seeded run is the same each time.
  std::map<std::uint32_t, Known> known_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_FRAME_INTRUDER_H_
