// One connection of the simulated network (sim_network.h): both its ends, what
// is on the way between them, and who is told what about it.
//
// Threading. One thread only: everything runs as tasks of the processes.
//
// Ownership. Shared by its two ends and by bytes on the way.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_STREAM_PAIR_H_
#define FIRNKV_TESTS_SUPPORT_SIM_STREAM_PAIR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/transport/byte_stream.h"
#include "tests/support/sim_executor.h"
#include "tests/support/sim_network.h"

namespace firnkv {

struct SimWire {
  std::int64_t arrives = 0;
  std::string chunk;
  // Not OK: the end of the connection, as the receiver learns it.
  absl::Status over;
};

struct SimStreamEnd {
  SimProcess* process = nullptr;
  std::string address;

  std::vector<absl::Span<const std::byte>> send_pieces;
  std::size_t send_piece = 0;
  std::size_t send_offset = 0;
  bool send_whole = false;
  ByteStreamDone send_done;

  std::vector<absl::Span<std::byte>> receive_pieces;
  std::size_t receive_piece = 0;
  std::size_t receive_offset = 0;
  bool receive_begun = false;
  ByteStreamDone receive_done;

  // On the way to this end, in order.
  std::deque<SimWire> wire;
  // Arrived, not yet received.
  std::deque<std::string> arrived;
  std::size_t arrived_offset = 0;
  // Sent towards this end and not yet received.
  std::uint64_t unreceived = 0;
  // What this end learns after everything that has arrived.
  absl::Status over;
  // Ended, with what they are told; run as tasks, or by the destructor.
  std::deque<std::pair<ByteStreamDone, absl::Status>> ending;
};

// One connection. End 0 connected, end 1 accepted. Tasks on their way share it.
struct SimStreamPair : std::enable_shared_from_this<SimStreamPair> {
  SimFabric* fabric = nullptr;
  SimLinks* links = nullptr;
  SimStreamEnd ends[2];

  SimExecutor* world() { return links->world(); }
  bool remote() const {
    return ends[0].process->host() != ends[1].process->host();
  }

  void StartSend(int at, std::vector<absl::Span<const std::byte>> pieces,
                 ByteStreamDone done);
  void PostSendStep(int at);
  void SendStep(int at);
  std::string TakeChunk(SimStreamEnd* end);
  void Ship(int to, std::string chunk, absl::Status over);
  void PostArrival(int to, absl::Duration delay);
  void Arrive(int to);
  void StartReceive(int at, std::vector<absl::Span<std::byte>> pieces,
                    ByteStreamDone done);
  void PostReceiveStep(int at);
  void ReceiveStep(int at);
  bool Fill(SimStreamEnd* end);
  // This end is over now, with `status` for what is outstanding; both `done`
  // run as tasks.
  void Break(int at, const absl::Status& status);
  // As Break for a stream that is being destroyed: all of them run here.
  void EndNow(int at);
  void EndLater(int at, ByteStreamDone done, const absl::Status& status);
  void EndOne(int at);
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_STREAM_PAIR_H_
