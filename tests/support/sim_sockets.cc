#include "tests/support/sim_sockets.h"

#include <deque>
#include <utility>

#include "proto/base/limits.h"
#include "proto/base/text.h"
#include "tests/support/sim_memory.h"

namespace firnkv {

// Both ends of one connection; end 0 connected, end 1 accepted.
struct SimSocketPair {
  struct Message {
    std::string text;
    // A descriptor on its way: whoever has it, has the memory.
    std::shared_ptr<SharedMemory> memory;
    LocalSocket::OnTaken on_taken;
  };
  struct End {
    SimProcess* process = nullptr;
    PeerCredentials credentials;  // Of this end's process.
    // Present between Start and the socket's destruction.
    bool started = false;
    bool told_closed = false;
    bool running = false;
    LocalSocket::Callbacks callbacks;
    LocalSocket::OnTaken on_gone;
    std::deque<Message> inbox;
  };
  End ends[2];
  bool open = true;
  SimPackets* packets = nullptr;
  std::uint64_t number = 0;
};

namespace {

// Shared: tasks on their way refer to the pair.
using Pair = std::shared_ptr<SimSocketPair>;

void Pump(const Pair& pair, int at);

// One delivery or the note of the end, as a task of end `at`'s process.
void PostPump(const Pair& pair, int at) {
  SimProcess* process = pair->ends[at].process;
  process->PostAfter(
      process->world()->Between(absl::Nanoseconds(500), absl::Microseconds(8)),
      [pair, at] { Pump(pair, at); });
}

// Tells end `at`, unless its process is dead; one that is paused learns of it
// afterwards.
void Tell(const Pair& pair, int at, LocalSocket::OnTaken told) {
  SimProcess* const process = pair->ends[at].process;
  if (!told || !process->alive()) return;
  if (process->paused()) return process->Post(std::move(told));
  std::move(told)();
}

// Nobody will receive what is there.
void DropInbox(const Pair& pair, int at) {
  std::deque<SimSocketPair::Message> dropped;
  dropped.swap(pair->ends[at].inbox);
  for (SimSocketPair::Message& message : dropped) {
    Tell(pair, 1 - at, std::move(message.on_taken));
  }
}

// Tells who waits until nothing of its own is left at the other end.
void TellGone(const Pair& pair) {
  if (pair->open) return;
  for (int at = 0; at < 2; ++at) {
    if (!pair->ends[1 - at].process->alive()) DropInbox(pair, 1 - at);
    if (!pair->ends[1 - at].inbox.empty()) continue;
    Tell(pair, at, std::exchange(pair->ends[at].on_gone, nullptr));
  }
}

void Pump(const Pair& pair, int at) {
  SimSocketPair::End& end = pair->ends[at];
  if (!end.started || end.told_closed) return;
  if (end.running) {  // Callbacks of one socket never overlap.
    PostPump(pair, at);
    return;
  }
  // The callbacks must live through a destruction of the socket inside them.
  end.running = true;
  LocalSocket::Callbacks callbacks = std::move(end.callbacks);
  if (!end.inbox.empty()) {
    SimSocketPair::Message message = std::move(end.inbox.front());
    end.inbox.pop_front();
    Tell(pair, 1 - at, std::move(message.on_taken));
    TellGone(pair);
    end.process->world()->Mix(message.text.size());
    callbacks.on_message(std::move(message.text), std::move(message.memory));
  } else if (!pair->open) {
    end.told_closed = true;
    callbacks.on_closed(absl::UnavailableError("the peer is gone"));
  }
  end.running = false;
  if (end.started) end.callbacks = std::move(callbacks);
}

void ClosePair(const Pair& pair) {
  // Whose process has died since then receives nothing any more.
  if (!pair->open) return TellGone(pair);
  pair->open = false;
  for (int at = 0; at < 2; ++at) {
    if (pair->ends[at].process != nullptr) PostPump(pair, at);
  }
  TellGone(pair);
}

class SimLocalSocket : public LocalSocket {
 public:
  SimLocalSocket(Pair pair, int at) : pair_(std::move(pair)), at_(at) {}

  ~SimLocalSocket() override {
    SimSocketPair::End& end = pair_->ends[at_];
    end.started = false;
    end.told_closed = true;
    DropInbox(pair_, at_);
    TellGone(pair_);
    // Dropped last: it may hold what owns this socket.
    const Callbacks dropped = std::move(end.callbacks);
    end.callbacks = Callbacks();
    ClosePair(pair_);
  }

  void Start(Callbacks callbacks) override {
    SimSocketPair::End& end = pair_->ends[at_];
    end.on_gone = std::exchange(callbacks.on_gone, nullptr);
    end.callbacks = std::move(callbacks);
    end.started = true;
    for (std::size_t i = 0; i < end.inbox.size(); ++i) PostPump(pair_, at_);
    if (!pair_->open) PostPump(pair_, at_);
  }

  absl::Status Send(std::string message,
                    std::shared_ptr<SharedMemory> memory) override {
    return SendWatched(std::move(message), std::move(memory), nullptr);
  }

  absl::Status SendWatched(std::string message,
                           std::shared_ptr<SharedMemory> memory,
                           OnTaken on_taken) override {
    if (!pair_->open || !pair_->ends[at_].process->alive()) {
      return absl::UnavailableError("the peer is gone");
    }
    if (message.size() > kMaxSessionMessageBytes) {
      return absl::InvalidArgumentError("message over its bound");
    }
    SimSocketPair::End& peer = pair_->ends[1 - at_];
    if (peer.inbox.size() >= SimSockets::kMostQueued) {
      return absl::ResourceExhaustedError("the peer does not read");
    }
    if (SimPackets* const packets = pair_->packets; packets != nullptr) {
      const SimPackets::Line line = pair_;
      packets->Show({.client = pair_->ends[0].process,
                     .server = pair_->ends[1].process,
                     .from_client = at_ == 0,
                     .message = message,
                     .line = &line,
                     .number = pair_->number});
    }
    peer.inbox.push_back({std::move(message), DuplicateDescriptor(memory.get()),
                          std::move(on_taken)});
    if (peer.started) PostPump(pair_, 1 - at_);
    return absl::OkStatus();
  }

  void Close() override { ClosePair(pair_); }

  const PeerCredentials& credentials() const override {
    return pair_->ends[1 - at_].credentials;
  }

 private:
  const Pair pair_;
  const int at_;
};

}  // namespace

void SimPackets::SendAsClient(const Line& line, std::string message) {
  const Pair pair = line.lock();
  if (pair == nullptr || !pair->open || !pair->ends[0].process->alive()) return;
  SimSocketPair::End& server = pair->ends[1];
  if (server.inbox.size() >= SimSockets::kMostQueued) return;
  pair->packets->Show({.client = pair->ends[0].process,
                       .server = server.process,
                       .from_client = true,
                       .message = message,
                       .line = &line,
                       .number = pair->number});
  server.inbox.push_back({std::move(message), nullptr, {}});
  if (server.started) PostPump(pair, 1);
}

class SimLocalListener : public LocalListener {
 public:
  SimLocalListener(
      SimSockets* sockets, SimSocketPaths* paths, std::string path,
      SimProcess* process,
      absl::AnyInvocable<void(std::unique_ptr<LocalSocket>)> on_accept)
      : sockets(sockets),
        process(process),
        // Shared with accepts on their way, which then do nothing.
        accept(std::make_shared<Accept>()),
        paths_(paths),
        path_(std::move(path)) {
    accept->run = std::move(on_accept);
    accept->open = true;
  }
  ~SimLocalListener() override {
    accept->open = false;
    auto it = paths_->listeners_.find(path_);
    if (it != paths_->listeners_.end() && it->second == this) {
      paths_->listeners_.erase(it);
    }
  }

  struct Accept {
    bool open = false;
    absl::AnyInvocable<void(std::unique_ptr<LocalSocket>)> run;
  };
  SimSockets* const sockets;
  SimProcess* const process;
  const std::shared_ptr<Accept> accept;

 private:
  SimSocketPaths* const paths_;
  const std::string path_;
};

SimSockets::SimSockets(SimSocketPaths* paths, SimProcess* process,
                       PeerCredentials me)
    : paths_(paths), process_(process) {
  set_credentials(me);
  process->WatchDeath([this] { BreakAll(); });
}

void SimSockets::Remember(const std::shared_ptr<SimSocketPair>& pair) {
  if (pairs_.size() % 64 == 63) {
    std::vector<std::weak_ptr<SimSocketPair>> live;
    for (auto& old : pairs_) {
      if (!old.expired()) live.push_back(std::move(old));
    }
    pairs_ = std::move(live);
  }
  pairs_.push_back(pair);
}

void SimSockets::BreakAll() {
  for (const std::weak_ptr<SimSocketPair>& weak : pairs_) {
    if (Pair pair = weak.lock()) ClosePair(pair);
  }
  // Remembered on: what this process has not received by then is dropped only
  // when it dies, and the peer is told.
}

absl::StatusOr<std::unique_ptr<LocalSocket>> SimSockets::Connect(
    std::string_view path) {
  if (!process_->alive()) return absl::UnavailableError("dead");
  auto it = paths_->listeners_.find(path);
  if (it == paths_->listeners_.end() || !it->second->process->alive()) {
    return absl::UnavailableError(
        StrCat(std::string(path), ": nobody listens"));
  }
  SimLocalListener* listener = it->second;
  // Shared by its two ends and by what is on the way between them.
  Pair pair = std::make_shared<SimSocketPair>();
  pair->ends[0].process = process_;
  pair->ends[0].credentials = me_;
  pair->ends[1].process = listener->process;
  pair->ends[1].credentials = listener->sockets->me_;
  pair->packets = paths_->packets_;
  if (pair->packets != nullptr) pair->number = ++pair->packets->lines_;
  Remember(pair);
  listener->sockets->Remember(pair);
  auto accepted = std::make_unique<SimLocalSocket>(pair, 1);
  listener->process->Post(
      [accept = listener->accept, accepted = std::move(accepted)]() mutable {
        if (accept->open) accept->run(std::move(accepted));
      });
  return std::unique_ptr<LocalSocket>(
      std::make_unique<SimLocalSocket>(std::move(pair), 0));
}

absl::StatusOr<std::unique_ptr<LocalListener>> SimSockets::Listen(
    std::string_view path,
    absl::AnyInvocable<void(std::unique_ptr<LocalSocket>)> on_accept) {
  auto it = paths_->listeners_.find(path);
  if (it != paths_->listeners_.end() && it->second->process->alive()) {
    return absl::AlreadyExistsError(
        StrCat(std::string(path), ": somebody listens"));
  }
  auto listener = std::make_unique<SimLocalListener>(
      this, paths_, std::string(path), process_, std::move(on_accept));
  paths_->listeners_[std::string(path)] = listener.get();
  return std::unique_ptr<LocalListener>(std::move(listener));
}

}  // namespace firnkv
