// Control calls without gRPC: encoded messages between simulated processes,
// with delay and reordering (calls are independent), lost requests, lost
// replies, requests that arrive twice, cuts (sim_links.h), and servers that die
// with calls in their hands. Over a unix socket ("unix:...") nothing is lost or
// doubled; the server may still die.
//
// SimControl is the world's address book; SimConnector is what one process
// sees.
//
// Threading. One thread only: everything runs as tasks of the processes.
//
// Ownership. A call's state is shared by its two ends. SimControl outlives
// servings and connectors, a connector its channels.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_CONTROL_H_
#define FIRNKV_TESTS_SUPPORT_SIM_CONTROL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/transport/control_channel.h"
#include "tests/support/sim_executor.h"
#include "tests/support/sim_links.h"

namespace firnkv {

struct SimCall;

class SimControl {
 public:
  explicit SimControl(SimLinks* links) : links_(links) {}

  // `handlers` answer at `address`, as tasks of `process`, until the Serving is
  // destroyed or the process dies. They outlive the Serving.
  class Serving {
   public:
    ~Serving();

   private:
    friend class SimControl;
    friend class SimConnector;
    SimControl* control_ = nullptr;
    std::string address_;
    SimProcess* process_ = nullptr;
    std::vector<ControlService*> handlers_;
    // Calls not yet answered; the ends own them.
    std::vector<std::weak_ptr<SimCall>> calls_;
    // Shared with requests on their way, which then find nobody.
    std::shared_ptr<Serving*> self_;
  };
  std::unique_ptr<Serving> Serve(std::string_view address, SimProcess* process,
                                 std::vector<ControlService*> handlers);

  // Whoever watches sees each call before its server does.
  struct Seen {
    SimProcess* caller = nullptr;
    SimProcess* server = nullptr;
    // "/firnkv.v1.NodeService/Commit".
    std::string_view method;
    std::string_view request;
  };
  void Watch(std::function<void(const Seen&)> watcher) {
    watchers_.push_back(std::move(watcher));
  }
  // And each answer as its server gives it, also one that reaches nobody.
  using Answer = absl::StatusOr<std::string>;
  void WatchAnswers(std::function<void(const Seen&, const Answer&)> watcher) {
    answer_watchers_.push_back(std::move(watcher));
  }

  // What came another way (frames over a session's socket), as whoever watches
  // calls wants it.
  void ShowCall(const Seen& seen) const {
    for (const auto& watcher : watchers_) watcher(seen);
  }
  void ShowAnswer(const Seen& seen, const Answer& answer) const {
    for (const auto& watcher : answer_watchers_) watcher(seen, answer);
  }

  SimLinks* links() const { return links_; }
  // Calls that have arrived at a handler, doubled ones twice.
  std::uint64_t calls_served() const { return calls_served_; }

 private:
  friend class SimConnector;
  void Deliver(const std::shared_ptr<SimCall>& call,
               const std::shared_ptr<Serving*>& serving,
               const std::string& request);
  void OnAnswer(const std::shared_ptr<SimCall>& call, SimProcess* server,
                const std::string& request, Answer answer);

  SimLinks* const links_;
  std::map<std::string, Serving*, std::less<>> servings_;
  std::uint64_t calls_served_ = 0;
  std::vector<std::function<void(const Seen&)>> watchers_;
  std::vector<std::function<void(const Seen&, const Answer&)>> answer_watchers_;
};

class SimConnector : public ControlConnector {
 public:
  SimConnector(SimControl* control, SimProcess* process)
      : control_(control), process_(process) {}

  std::unique_ptr<ControlChannel> Connect(std::string_view address) override;

  // One call of one channel; for the channels. `call` is shared by both ends.
  void Send(const std::shared_ptr<SimCall>& call, const std::string& address,
            std::string request);

  SimProcess* process() const { return process_; }

 private:
  SimControl* const control_;
  SimProcess* const process_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_CONTROL_H_
