// Ordered bytes between two processes: what the stream transport's frames
// (proto/base/frame.h) travel on. A seam: TCP in production (tcp_network.h),
// the simulated network in tests, which delays, cuts and resets.
//
// Threading. All methods may be called from any thread. Every `done` runs
// exactly once, on a thread of the network, under no lock; it must not block
// and may start the next send or receive. It may run inside Start.
//
// Ownership. Memory given to StartSend and StartReceive stays untouched by its
// owner until the matching `done`: this is what a hold on a slot waits for
// (rule P8).

#ifndef FIRNKV_CLIENT_TRANSPORT_BYTE_STREAM_H_
#define FIRNKV_CLIENT_TRANSPORT_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace firnkv {

using ByteStreamDone = absl::AnyInvocable<void(absl::Status) &&>;

// The arrivals of one stream in the hands of a thread that waits for them:
// until its end no thread of the network looks for them. One thread's.
class LentStream {
 public:
  // Gives them back.
  virtual ~LentStream() = default;
  // Readable when something has arrived or the stream has ended.
  virtual int descriptor() const = 0;

  enum class Received : std::uint8_t {
    kAll,          // What there was; `done`s ran in here.
    kOtherThread,  // One that had begun before is not at its end yet.
    kEnded,        // Nothing more will come.
  };
  // Does not wait.
  virtual Received Receive() = 0;
};

class ByteStream {
 public:
  // Closes; every `done` has run on return (unless called from inside one, that
  // one excepted).
  virtual ~ByteStream() = default;

  // Sends `pieces` in order. OK: the transport no longer needs the memory (not:
  // the peer has it). At most one send outstanding.
  virtual void StartSend(std::vector<absl::Span<const std::byte>> pieces,
                         ByteStreamDone done) = 0;

  // Fills all of `pieces`, in order, or fails; OUT_OF_RANGE is an orderly end
  // before the first byte. At most one receive outstanding.
  virtual void StartReceive(std::vector<absl::Span<std::byte>> pieces,
                            ByteStreamDone done) = 0;

  // Ends the connection now, as an abort; outstanding sends and receives end
  // with CANCELLED, and once their `done` has run their memory is the caller's.
  // Idempotent.
  virtual void Close() = 0;

  // For logs and caps.
  virtual std::string peer() const = 0;

  // A thread that waits for what comes may receive it itself, which saves the
  // waking of another one. Null: not this kind of stream (the simulator's),
  // lent already, closed, or this is a thread of the network. May outlive the
  // stream.
  virtual std::unique_ptr<LentStream> Lend() { return nullptr; }
};

// Accepts until destroyed.
class ByteStreamListener {
 public:
  virtual ~ByteStreamListener() = default;
  // Where it listens really: "127.0.0.1:7411", also if asked for port 0.
  virtual std::string address() const = 0;
};

class Network {
 public:
  virtual ~Network() = default;

  // "host:port". UNAVAILABLE or DEADLINE_EXCEEDED where there is no connection
  // within `timeout`.
  virtual void StartConnect(
      std::string_view address, absl::Duration timeout,
      absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>) &&>
          done) = 0;

  // `on_accept` runs for each connection, on a thread of the network, and must
  // not block.
  virtual absl::StatusOr<std::unique_ptr<ByteStreamListener>> Listen(
      std::string_view address,
      absl::AnyInvocable<void(std::unique_ptr<ByteStream>)> on_accept) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_BYTE_STREAM_H_
