#include "tests/support/sim_network.h"

#include <algorithm>
#include <utility>

#include "proto/base/text.h"
#include "tests/support/sim_stream_pair.h"

namespace firnkv {
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
    SimStreamEnd& peer = pair_->ends[1 - at_];
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
    links->world()->Note(StrCat("nobody listens at ", std::string(address)));
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
    links->world()->Note(StrCat("no way to ", std::string(address)));
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
  pair->fabric = fabric_;
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