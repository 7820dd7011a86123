// The stream transport without TCP: connections between simulated processes,
// with delay, chunks, partial delivery, a bounded window, resets, stalls and
// cuts (sim_links.h).
//
// A send's memory is read when the seed says: all of it at once, or piece by
// piece up to the very moment of `done`. So a slot that was given back or
// written again before `done` shows as wrong bytes at the other end (rule P8).
//
// SimFabric is the world's wires (who listens where); SimNetwork is what one
// process sees.
//
// Threading. One thread only: everything runs as tasks of the processes.
//
// Ownership. A connection's state is shared by its two ends and by bytes on the
// way. SimFabric outlives all SimNetworks, a SimNetwork its streams.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_NETWORK_H_
#define FIRNKV_TESTS_SUPPORT_SIM_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/transport/byte_stream.h"
#include "tests/support/sim_executor.h"
#include "tests/support/sim_links.h"

namespace firnkv {

class SimByteStreamListener;
struct SimStreamPair;

class SimFabric {
 public:
  explicit SimFabric(SimLinks* links) : links_(links) {}

  SimLinks* links() const { return links_; }

  // Every connection between the two hosts breaks: both ends fail with
  // UNAVAILABLE, bytes on the way are lost.
  void Reset(std::string_view a, std::string_view b);

  // Learns of each send as it begins, and of its bytes.
  using Watcher = std::function<void(SimProcess* sender, std::size_t bytes)>;
  void Watch(Watcher watcher) { watcher_ = std::move(watcher); }

 private:
  friend class SimNetwork;
  friend class SimByteStreamListener;
  friend struct SimStreamPair;
  SimLinks* const links_;
  Watcher watcher_;
  std::map<std::string, SimByteStreamListener*, std::less<>> listeners_;
  int next_port_ = 40'000;
  // The ends own them.
  std::vector<std::weak_ptr<SimStreamPair>> pairs_;
};

class SimNetwork : public Network {
 public:
  SimNetwork(SimFabric* fabric, SimProcess* process);

  void StartConnect(
      std::string_view address, absl::Duration timeout,
      absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>) &&>
          done) override;

  // The host part is taken as it stands: in a world of several hosts it is
  // "<process's host>:<port>".
  absl::StatusOr<std::unique_ptr<ByteStreamListener>> Listen(
      std::string_view address,
      absl::AnyInvocable<void(std::unique_ptr<ByteStream>)> on_accept) override;

  // Unreceived bytes of one direction beyond which the sender waits.
  static constexpr std::uint64_t kWindowBytes = 256 * 1024;

 private:
  void Connect(
      const std::string& address,
      absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>) &&>
          done);
  void EndAll();

  SimFabric* const fabric_;
  SimProcess* const process_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_NETWORK_H_
