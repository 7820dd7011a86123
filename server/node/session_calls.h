// Calls of one local session that come as frames over its socket
// (proto/base/session_frame.h): decodes, calls one method of a path, answers.
// The same paths that NodeService calls; nothing is done here that it would not
// do.
//
// Who calls is the session of the socket (rule S3). A frame that is none, or of
// a body that does not decode, ends the session; a call that is wrong in itself
// is refused and changes nothing. Beyond kMaxCallsInFlight a call is refused
// with RESOURCE_EXHAUSTED, so that a session that asks and asks costs its node
// no more memory than its socket's queue.
//
// A read is answered by the thread that brought it, before it reads on; writes
// when their path says so.
//
// Does not know: sockets, gRPC, how anything is done.
//
// Threading. Thread-safe: no state but a count. OnFrame is called by one thread
// at a time.
//
// Ownership. Owned by SessionSocket; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_SESSION_CALLS_H_
#define FIRNKV_SERVER_NODE_SESSION_CALLS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/request.h"
#include "proto/base/session_frame.h"
#include "server/node/node_metrics.h"
#include "server/node/read_path.h"
#include "server/node/session_registry.h"
#include "server/node/write_path.h"

namespace firnkv {

class SessionCalls {
 public:
  struct Parts {
    const Clock* clock = nullptr;
    ReadPath* reads = nullptr;
    WritePath* writes = nullptr;
    NodeMetrics* metrics = nullptr;
  };
  // `send` may be called by any thread, until `scope` is closed; answers that
  // come later are dropped. Both outlive this.
  SessionCalls(const Parts& parts, const LiveSession& session, TaskScope* scope,
               absl::AnyInvocable<void(std::string packet)> send)
      : parts_(parts),
        session_(session),
        scope_(scope),
        send_(std::move(send)) {}

  // One packet. A status: the peer breaks the protocol.
  absl::Status OnFrame(std::string_view packet);

 private:
  absl::Status OpenRead(const CallFrame& frame);
  void AnswerOpenRead(std::uint64_t request,
                      const ReadPath::OpenAnswer& answer);
  absl::Status Release(const CallFrame& frame);
  absl::Status Reserve(const CallFrame& frame);
  absl::Status Commit(const CallFrame& frame);
  void AnswerCommit(std::uint64_t request,
                    const WritePath::CommitAnswer& answer);

  // False: the call has been refused.
  bool Begin(std::uint64_t request, const RequestHeader& header);
  void Answer(FrameType type, std::uint64_t request, const std::string& body);
  // Answers instead.
  void Fail(std::uint64_t request, const absl::Status& why);
  void Refuse(std::uint64_t request, const absl::Status& why);

  const Parts parts_;
  const LiveSession session_;
  TaskScope* const scope_;
  absl::AnyInvocable<void(std::string packet)> send_;
  // Calls begun and not answered. Relaxed: it orders nothing, and one more or
  // less does not matter to the bound.
  std::atomic<std::size_t> in_flight_{0};
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_SESSION_CALLS_H_
