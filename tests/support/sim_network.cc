#include "tests/support/sim_network.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "proto/base/text.h"

namespace firnkv {
namespace {

// What one step of a send reads.
constexpr std::size_t kChunkBytes = 32 * 1024;

struct Wire {
  std::int64_t arrives = 0;
  std::string chunk;
  // Not OK: the end of the connection, as the receiver learns it.
  absl::Status over;
};

struct StreamEnd {
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
  std::deque<Wire> wire;
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

}  // namespace

// One connection. End 0 connected, end 1 accepted. Tasks on their way share it.
struct SimStreamPair : std::enable_shared_from_this<SimStreamPair> {
  SimLinks* links = nullptr;
  StreamEnd ends[2];

  SimExecutor* world() { return links->world(); }
  bool remote() const {
    return ends[0].process->host() != ends[1].process->host();
  }

  void StartSend(int at, std::vector<absl::Span<const std::byte>> pieces,
                 ByteStreamDone done);
  void PostSendStep(int at);
  void SendStep(int at);
  std::string TakeChunk(StreamEnd* end);
  void Ship(int to, std::string chunk, absl::Status over);
  void PostArrival(int to, absl::Duration delay);
  void Arrive(int to);
  void StartReceive(int at, std::vector<absl::Span<std::byte>> pieces,
                    ByteStreamDone done);
  void PostReceiveStep(int at);
  void ReceiveStep(int at);
  bool Fill(StreamEnd* end);
  // This end is over now, with `status` for what is outstanding; both `done`
  // run as tasks.
  void Break(int at, const absl::Status& status);
  // As Break for a stream that is being destroyed: all of them run here.
  void EndNow(int at);
  void EndLater(int at, ByteStreamDone done, const absl::Status& status);
  void EndOne(int at);
};

void SimStreamPair::StartSend(int at,
                              std::vector<absl::Span<const std::byte>> pieces,
                              ByteStreamDone done) {
  StreamEnd& end = ends[at];
  end.send_pieces = std::move(pieces);
  end.send_piece = 0;
  end.send_offset = 0;
  end.send_done = std::move(done);
  end.send_whole = world()->Chance(500);
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

std::string SimStreamPair::TakeChunk(StreamEnd* end) {
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
  StreamEnd& end = ends[at];
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
  StreamEnd& end = ends[to];
  const absl::Duration delay =
      links->Delay(ends[1 - to].process->host(), end.process->host());
  const std::int64_t arrives =
      std::max(world()->true_nanos() + absl::ToInt64Nanoseconds(delay),
               end.wire.empty() ? 0 : end.wire.back().arrives);
  end.wire.push_back(Wire{arrives, std::move(chunk), std::move(over)});
  if (end.wire.size() == 1) PostArrival(to, delay);
}

void SimStreamPair::PostArrival(int to, absl::Duration delay) {
  // The world's task, not the receiver's: a stopped process's kernel receives.
  world()->root()->PostAfter(
      delay, [self = shared_from_this(), to] { self->Arrive(to); });
}

void SimStreamPair::Arrive(int to) {
  StreamEnd& end = ends[to];
  if (end.wire.empty() || !end.over.ok()) return;
  if (!links->Reaches(ends[1 - to].process->host(), end.process->host())) {
    // Sent again and again, as TCP does.
    PostArrival(
        to, world()->Between(absl::Milliseconds(20), absl::Milliseconds(300)));
    return;
  }
  while (!end.wire.empty() &&
         end.wire.front().arrives <= world()->true_nanos()) {
    Wire wire = std::move(end.wire.front());
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
  StreamEnd& end = ends[at];
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

bool SimStreamPair::Fill(StreamEnd* end) {
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
  StreamEnd& end = ends[at];
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
  StreamEnd& end = ends[at];
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
  StreamEnd& end = ends[at];
  end.ending.emplace_back(std::move(done), status);
  end.process->Post([self = shared_from_this(), at] { self->EndOne(at); });
}

void SimStreamPair::EndOne(int at) {
  StreamEnd& end = ends[at];
  if (end.ending.empty()) return;  // The destructor was first.
  auto [done, status] = std::move(end.ending.front());
  end.ending.pop_front();
  std::move(done)(status);
}

void SimStreamPair::EndNow(int at) {
  StreamEnd& end = ends[at];
  const absl::Status status = absl::CancelledError("the stream was closed");
  if (end.over.ok()) end.over = status;
  end.wire.clear();
  end.arrived.clear();
  EndLater(at, std::exchange(end.send_done, nullptr), status);
  EndLater(at, std::exchange(end.receive_done, nullptr), status);
  while (!end.ending.empty()) EndOne(at);
}

namespace {

class SimByteStream : public ByteStream {
 public:
  SimByteStream(std::shared_ptr<SimStreamPair> pair, int at)
      : pair_(std::move(pair)), at_(at) {}

  ~SimByteStream() override {
    TellPeer();
    pair_->EndNow(at_);
  }

  void StartSend(std::vector<absl::Span<const std::byte>> pieces,
                 ByteStreamDone done) override {
    pair_->StartSend(at_, std::move(pieces), std::move(done));
  }

  void StartReceive(std::vector<absl::Span<std::byte>> pieces,
                    ByteStreamDone done) override {
    pair_->StartReceive(at_, std::move(pieces), std::move(done));
  }

  void Close() override {
    TellPeer();
    pair_->Break(at_, absl::CancelledError("the stream was closed"));
  }

  std::string peer() const override { return pair_->ends[1 - at_].address; }

 private:
  void TellPeer() {
    if (std::exchange(closed_, true)) return;
    if (!pair_->ends[at_].process->alive()) return;
    if (!pair_->ends[1 - at_].over.ok()) return;
    // An abort: what is on the way may be lost or not.
    StreamEnd& peer = pair_->ends[1 - at_];
    if (pair_->world()->Chance(500) && !peer.wire.empty()) {
      peer.wire.resize(1);
      peer.wire.front().chunk.clear();
    }
    pair_->Ship(1 - at_, "",
                pair_->world()->Chance(500)
                    ? absl::UnavailableError("connection reset by peer")
                    : absl::OutOfRangeError("the peer closed"));
  }

  const std::shared_ptr<SimStreamPair> pair_;
  const int at_;
  bool closed_ = false;
};

}  // namespace

class SimByteStreamListener : public ByteStreamListener {
 public:
  using OnAccept = absl::AnyInvocable<void(std::unique_ptr<ByteStream>)>;
  SimByteStreamListener(SimFabric* fabric, std::string address,
                        SimProcess* process, OnAccept on_accept)
      : process(process),
        // Shared with accepts on their way, which then do nothing.
        accept(std::make_shared<OnAccept>(std::move(on_accept))),
        fabric_(fabric),
        address_(std::move(address)) {}
  ~SimByteStreamListener() override {
    *accept = nullptr;
    auto it = fabric_->listeners_.find(address_);
    if (it != fabric_->listeners_.end() && it->second == this) {
      fabric_->listeners_.erase(it);
    }
  }
  std::string address() const override { return address_; }

  SimProcess* const process;
  const std::shared_ptr<OnAccept> accept;

 private:
  SimFabric* const fabric_;
  const std::string address_;
};

void SimFabric::Reset(std::string_view a, std::string_view b) {
  for (const std::weak_ptr<SimStreamPair>& weak : pairs_) {
    const std::shared_ptr<SimStreamPair> pair = weak.lock();
    if (pair == nullptr) continue;
    const std::string& one = pair->ends[0].process->host();
    const std::string& two = pair->ends[1].process->host();
    if ((one == a && two == b) || (one == b && two == a)) {
      pair->Break(0, absl::UnavailableError("connection reset"));
      pair->Break(1, absl::UnavailableError("connection reset"));
    }
  }
}

SimNetwork::SimNetwork(SimFabric* fabric, SimProcess* process)
    : fabric_(fabric), process_(process) {
  process->WatchDeath([this] { EndAll(); });
}

void SimNetwork::EndAll() {
  // The kernel of a dead process closes in order: what it took still goes out.
  for (const std::weak_ptr<SimStreamPair>& weak : fabric_->pairs_) {
    const std::shared_ptr<SimStreamPair> pair = weak.lock();
    if (pair == nullptr) continue;
    for (int at = 0; at < 2; ++at) {
      if (pair->ends[at].process == process_ && pair->ends[at].over.ok()) {
        pair->Ship(1 - at, "", absl::OutOfRangeError("the peer closed"));
      }
    }
  }
}

void SimNetwork::StartConnect(
    std::string_view address, absl::Duration timeout,
    absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>) &&>
        done) {
  auto it = fabric_->listeners_.find(address);
  SimLinks* links = fabric_->links();
  if (it == fabric_->listeners_.end() || !it->second->process->alive()) {
    process_->PostAfter(
        absl::Microseconds(50), [done = std::move(done)]() mutable {
          std::move(done)(absl::UnavailableError("connection refused"));
        });
    return;
  }
  const std::string& host = it->second->process->host();
  const bool reaches = links->Reaches(process_->host(), host) &&
                       links->Reaches(host, process_->host());
  const absl::Duration delay = links->Delay(process_->host(), host) * 2;
  if (!reaches || delay > timeout) {
    process_->PostAfter(timeout, [done = std::move(done)]() mutable {
      std::move(done)(absl::DeadlineExceededError("no answer"));
    });
    return;
  }
  process_->PostAfter(delay, [this, address = std::string(address),
                              done = std::move(done)]() mutable {
    Connect(address, std::move(done));
  });
}

void SimNetwork::Connect(
    const std::string& address,
    absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>) &&>
        done) {
  auto it = fabric_->listeners_.find(address);
  if (it == fabric_->listeners_.end() || !it->second->process->alive()) {
    std::move(done)(absl::UnavailableError("connection refused"));
    return;
  }
  SimByteStreamListener* listener = it->second;
  // Shared by its two ends and by bytes on the way.
  auto pair = std::make_shared<SimStreamPair>();
  pair->links = fabric_->links();
  pair->ends[0].process = process_;
  pair->ends[0].address = StrCat(process_->host(), ":0");
  pair->ends[1].process = listener->process;
  pair->ends[1].address = address;
  if (fabric_->pairs_.size() % 64 == 63) {
    std::vector<std::weak_ptr<SimStreamPair>> live;
    for (auto& old : fabric_->pairs_) {
      if (!old.expired()) live.push_back(std::move(old));
    }
    fabric_->pairs_ = std::move(live);
  }
  fabric_->pairs_.push_back(pair);
  auto accepted = std::make_unique<SimByteStream>(pair, 1);
  listener->process->Post(
      [accept = listener->accept, accepted = std::move(accepted)]() mutable {
        if (*accept) (*accept)(std::move(accepted));
      });
  std::move(done)(std::unique_ptr<ByteStream>(
      std::make_unique<SimByteStream>(std::move(pair), 0)));
}

absl::StatusOr<std::unique_ptr<ByteStreamListener>> SimNetwork::Listen(
    std::string_view address,
    absl::AnyInvocable<void(std::unique_ptr<ByteStream>)> on_accept) {
  std::string where(address);
  if (where.size() > 2 && where.substr(where.size() - 2) == ":0") {
    where.pop_back();
    StrAppend(&where, fabric_->next_port_++);
  }
  auto it = fabric_->listeners_.find(where);
  if (it != fabric_->listeners_.end() && it->second->process->alive()) {
    return absl::AlreadyExistsError(StrCat(where, ": the address is in use"));
  }
  auto listener = std::make_unique<SimByteStreamListener>(
      fabric_, where, process_, std::move(on_accept));
  fabric_->listeners_[where] = listener.get();
  return std::unique_ptr<ByteStreamListener>(std::move(listener));
}

}  // namespace firnkv
