// Local sessions' sockets without a kernel: queues between simulated processes
// of one host, with descriptors beside the messages, settable credentials, and
// an end when a process dies.
//
// SimSocketPaths is the host's file system (paths that somebody listens on);
// SimSockets is what one process sees.
//
// Threading. One thread only: everything runs as tasks of the processes.
//
// Ownership. A connection's state is shared by its two ends and by messages on
// the way. SimSockets outlives its sockets and listeners.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_SOCKETS_H_
#define FIRNKV_TESTS_SUPPORT_SIM_SOCKETS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/transport/local_socket.h"
#include "tests/support/sim_executor.h"

namespace firnkv {

class SimLocalListener;
struct SimSocketPair;

// What goes over all sockets of a world: for those who watch, and for who
// forges.
class SimPackets {
 public:
  // A connection. Shared by its ends.
  using Line = std::weak_ptr<SimSocketPair>;
  struct Seen {
    // Who connected, and who listened.
    SimProcess* client = nullptr;
    SimProcess* server = nullptr;
    bool from_client = false;
    std::string_view message;
    const Line* line = nullptr;
    // Of the line: another one has another number, also later.
    std::uint64_t number = 0;
  };
  // Sees each message as it is sent.
  void Watch(std::function<void(const Seen&)> watcher) {
    watchers_.push_back(std::move(watcher));
  }
  // As if the line's client had sent it; nothing where the line has ended.
  static void SendAsClient(const Line& line, std::string message);
  // For the sockets.
  void Show(const Seen& seen) const {
    for (const auto& watcher : watchers_) watcher(seen);
  }

 private:
  friend class SimSockets;
  std::vector<std::function<void(const Seen&)>> watchers_;
  std::uint64_t lines_ = 0;
};

class SimSocketPaths {
 public:
  // `packets` sees what goes over connections made here; null: nobody does.
  explicit SimSocketPaths(SimPackets* packets = nullptr) : packets_(packets) {}

 private:
  friend class SimSockets;
  friend class SimLocalListener;
  SimPackets* const packets_;
  std::map<std::string, SimLocalListener*, std::less<>> listeners_;
};

class SimSockets : public LocalSockets {
 public:
  // Both outlive it. `me` is what the peers of this process are told; its pid
  // is set here.
  SimSockets(SimSocketPaths* paths, SimProcess* process,
             PeerCredentials me = {.uid = 1000, .uid_trusted = true});

  absl::StatusOr<std::unique_ptr<LocalSocket>> Connect(
      std::string_view path) override;
  absl::StatusOr<std::unique_ptr<LocalListener>> Listen(
      std::string_view path,
      absl::AnyInvocable<void(std::unique_ptr<LocalSocket>)> on_accept)
      override;

  // Of connections made from now on.
  void set_credentials(const PeerCredentials& me) {
    me_ = me;
    me_.pid = static_cast<std::int32_t>(process_->number());
  }

  // Messages that a peer has not taken; a Send beyond is RESOURCE_EXHAUSTED.
  static constexpr std::size_t kMostQueued = 256;

  // Every connection of this process breaks, as if the peers had died.
  void BreakAll();

 private:
  // Pairs are shared by their ends; this only remembers them.
  void Remember(const std::shared_ptr<SimSocketPair>& pair);

  SimSocketPaths* const paths_;
  SimProcess* const process_;
  PeerCredentials me_;
  // The ends own it.
  std::vector<std::weak_ptr<SimSocketPair>> pairs_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_SOCKETS_H_
