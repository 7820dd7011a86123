#include "tests/support/sim_stream_pair.h"

#include <algorithm>
#include <cstring>

namespace firnkv {
namespace {

// What one step of a send reads.
constexpr std::size_t kChunkBytes = 32 * 1024;

}  // namespace

void SimStreamPair::StartSend(int at,
                              std::vector<absl::Span<const std::byte>> pieces,
                              ByteStreamDone done) {
  SimStreamEnd& end = ends[at];
  end.send_pieces = std::move(pieces);
  end.send_piece = 0;
  end.send_offset = 0;
  end.send_done = std::move(done);
  end.send_whole = world()->Chance(500);
  if (fabric->watcher_) {
    std::size_t bytes = 0;
    for (const auto& piece : end.send_pieces) bytes += piece.size();
    fabric->watcher_(end.process, bytes);
  }
  PostSendStep(at);
}

void SimStreamPair::PostSendStep(int at) {
  absl::Duration wait =
      world()->Between(absl::Nanoseconds(200), absl::Microseconds(5));
  const SimLinks::Quality& quality = links->quality();
  if (remote() && world()->Chance(quality.stall_chance)) {
    wait += world()->Between(absl::ZeroDuration(), quality.stall);
  }
  if (!ends[at].send_whole && world()->Chance(quality.slow_send_chance)) {
    wait += world()->Between(absl::ZeroDuration(), quality.slow_send);
  }
  ends[at].process->PostAfter(
      wait, [self = shared_from_this(), at] { self->SendStep(at); });
}

std::string SimStreamPair::TakeChunk(SimStreamEnd* end) {
  const std::size_t most = end->send_whole
                               ? kChunkBytes
                               : 512 + world()->random()->Below(kChunkBytes);
  std::string chunk;
  while (chunk.size() < most && end->send_piece < end->send_pieces.size()) {
    const absl::Span<const std::byte> piece = end->send_pieces[end->send_piece];
    const std::size_t take =
        std::min(most - chunk.size(), piece.size() - end->send_offset);
    chunk.append(reinterpret_cast<const char*>(piece.data()) + end->send_offset,
                 take);
    end->send_offset += take;
    if (end->send_offset == piece.size()) {
      ++end->send_piece;
      end->send_offset = 0;
    }
  }
  return chunk;
}

void SimStreamPair::SendStep(int at) {
  SimStreamEnd& end = ends[at];
  if (!end.send_done) return;
  if (!end.over.ok()) {
    std::exchange(end.send_done, nullptr)(end.over);
    return;
  }
  if (remote() && world()->Chance(links->quality().reset_chance)) {
    world()->Note("a connection is reset");
    Break(0, absl::UnavailableError("connection reset"));
    Break(1, absl::UnavailableError("connection reset"));
    return;
  }
  do {
    // A full window: the receiver kicks when it has taken something.
    if (ends[1 - at].unreceived >= SimNetwork::kWindowBytes) return;
    std::string chunk = TakeChunk(&end);
    ends[1 - at].unreceived += chunk.size();
    if (!chunk.empty()) Ship(1 - at, std::move(chunk), absl::OkStatus());
  } while (end.send_whole && end.send_piece < end.send_pieces.size());
  if (end.send_piece < end.send_pieces.size()) {
    PostSendStep(at);
    return;
  }
  end.send_pieces.clear();
  end.send_piece = 0;
  std::exchange(end.send_done, nullptr)(absl::OkStatus());
}

void SimStreamPair::Ship(int to, std::string chunk, absl::Status over) {
  SimStreamEnd& end = ends[to];
  const absl::Duration delay =
      links->Delay(ends[1 - to].process->host(), end.process->host());
  const std::int64_t arrives =
      std::max(world()->true_nanos() + absl::ToInt64Nanoseconds(delay),
               end.wire.empty() ? 0 : end.wire.back().arrives);
  end.wire.push_back(SimWire{arrives, std::move(chunk), std::move(over)});
  if (end.wire.size() == 1) PostArrival(to, delay);
}

void SimStreamPair::PostArrival(int to, absl::Duration delay) {
  // The world's task, not the receiver's: a stopped process's kernel receives.
  world()->root()->PostAfter(
      delay, [self = shared_from_this(), to] { self->Arrive(to); });
}

void SimStreamPair::Arrive(int to) {
  SimStreamEnd& end = ends[to];
  if (end.wire.empty() || !end.over.ok()) return;
  if (!links->Reaches(ends[1 - to].process->host(), end.process->host())) {
    // Sent again and again, as TCP does.
    PostArrival(
        to, world()->Between(absl::Milliseconds(20), absl::Milliseconds(300)));
    return;
  }
  while (!end.wire.empty() &&
         end.wire.front().arrives <= world()->true_nanos()) {
    SimWire wire = std::move(end.wire.front());
    end.wire.pop_front();
    world()->Mix(wire.chunk.size());
    if (!wire.over.ok()) {
      end.wire.clear();
      end.over = std::move(wire.over);
    } else {
      end.arrived.push_back(std::move(wire.chunk));
    }
  }
  if (end.receive_done) PostReceiveStep(to);
  if (end.send_done && !end.over.ok()) PostSendStep(to);
  if (!end.wire.empty()) {
    PostArrival(to, absl::Nanoseconds(end.wire.front().arrives -
                                      world()->true_nanos()));
  }
}

void SimStreamPair::StartReceive(int at,
                                 std::vector<absl::Span<std::byte>> pieces,
                                 ByteStreamDone done) {
  SimStreamEnd& end = ends[at];
  end.receive_pieces = std::move(pieces);
  end.receive_piece = 0;
  end.receive_offset = 0;
  end.receive_begun = false;
  end.receive_done = std::move(done);
  // What has arrived may land, and even complete, inside Start.
  if (world()->Chance(200) && end.over.ok()) {
    ReceiveStep(at);
  } else if (!end.arrived.empty() || !end.over.ok()) {
    PostReceiveStep(at);
  }
}

void SimStreamPair::PostReceiveStep(int at) {
  ends[at].process->PostAfter(
      world()->Between(absl::Nanoseconds(200), absl::Microseconds(5)),
      [self = shared_from_this(), at] { self->ReceiveStep(at); });
}

bool SimStreamPair::Fill(SimStreamEnd* end) {
  for (;;) {
    while (end->receive_piece < end->receive_pieces.size() &&
           end->receive_offset ==
               end->receive_pieces[end->receive_piece].size()) {
      ++end->receive_piece;
      end->receive_offset = 0;
    }
    if (end->receive_piece == end->receive_pieces.size()) return true;
    if (end->arrived.empty()) return false;
    const std::string& chunk = end->arrived.front();
    const absl::Span<std::byte> piece = end->receive_pieces[end->receive_piece];
    const std::size_t take = std::min(piece.size() - end->receive_offset,
                                      chunk.size() - end->arrived_offset);
    std::memcpy(piece.data() + end->receive_offset,
                chunk.data() + end->arrived_offset, take);
    end->receive_begun = true;
    end->receive_offset += take;
    end->arrived_offset += take;
    end->unreceived -= take;
    if (end->arrived_offset == chunk.size()) {
      end->arrived.pop_front();
      end->arrived_offset = 0;
    }
  }
}

void SimStreamPair::ReceiveStep(int at) {
  SimStreamEnd& end = ends[at];
  if (!end.receive_done) return;
  const std::shared_ptr<SimStreamPair> self = shared_from_this();
  const bool full = Fill(&end);
  if (ends[1 - at].send_done) PostSendStep(1 - at);
  if (full) {
    std::exchange(end.receive_done, nullptr)(absl::OkStatus());
    return;
  }
  if (end.over.ok()) return;
  // An orderly end in the middle of what was wanted is none.
  const bool torn = absl::IsOutOfRange(end.over) && end.receive_begun;
  std::exchange(end.receive_done, nullptr)(
      torn ? absl::UnavailableError("the peer closed in the middle")
           : end.over);
}

void SimStreamPair::Break(int at, const absl::Status& status) {
  SimStreamEnd& end = ends[at];
  if (end.over.ok()) end.over = status;
  end.wire.clear();
  end.arrived.clear();
  end.arrived_offset = 0;
  EndLater(at, std::exchange(end.send_done, nullptr), status);
  EndLater(at, std::exchange(end.receive_done, nullptr), status);
}

void SimStreamPair::EndLater(int at, ByteStreamDone done,
                             const absl::Status& status) {
  if (!done) return;
  SimStreamEnd& end = ends[at];
  end.ending.emplace_back(std::move(done), status);
  end.process->Post([self = shared_from_this(), at] { self->EndOne(at); });
}

void SimStreamPair::EndOne(int at) {
  SimStreamEnd& end = ends[at];
  if (end.ending.empty()) return;  // The destructor was first.
  auto [done, status] = std::move(end.ending.front());
  end.ending.pop_front();
  std::move(done)(status);
}

void SimStreamPair::EndNow(int at) {
  SimStreamEnd& end = ends[at];
  const absl::Status status = absl::CancelledError("the stream was closed");
  if (end.over.ok()) end.over = status;
  end.wire.clear();
  end.arrived.clear();
  EndLater(at, std::exchange(end.send_done, nullptr), status);
  EndLater(at, std::exchange(end.receive_done, nullptr), status);
  while (!end.ending.empty()) EndOne(at);
}

}  // namespace firnkv
