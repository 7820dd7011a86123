// One inference worker: a process with a Client in it, on some node's host. It
// can crash, be paused and come back; while it lives it goes on trying to have
// a Client with its namespaces open.
//
// Threading. One thread only.
//
// Ownership. Owns the Client of its present life. Clients of crashed lives are
// destroyed at once, after their process is dead: nothing of theirs reaches
// anybody.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_WORKER_H_
#define FIRNKV_TESTS_SUPPORT_SIM_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/namespace.h"
#include "client/options.h"
#include "tests/support/sim_world.h"

namespace firnkv {

class SimWorker {
 public:
  struct Options {
    std::string name;
    std::string host;
    std::uint32_t uid = 1000;
    ClientOptions client;
    // Opened before the worker is ready.
    std::vector<OpenNamespaceRequest> name_spaces;
  };

  // `world` outlives it.
  SimWorker(SimWorld* world, Options options);
  ~SimWorker();

  // A new process; ready() some time later.
  void Start();
  // SIGKILL.
  void Crash();
  // Closes the Client in order, then the process ends.
  void Stop();
  void Pause() {
    ++pauses_;
    machine_->process()->Pause();
  }
  // In the middle of something (SimProcess::PauseAfter).
  void PauseAfter(std::uint64_t tasks) {
    ++pauses_;
    machine_->process()->PauseAfter(tasks);
  }
  void Resume() {
    // Also for what began before a pause that had been planned before it.
    ++pauses_;
    machine_->process()->Resume();
  }

  bool running() const { return machine_ != nullptr; }
  bool paused() const { return running() && machine_->process()->paused(); }
  // There is a Client and its namespaces are open.
  bool ready() const { return ready_; }
  // Counts lives, so that a callback can tell whether its life is over.
  std::uint64_t life() const { return life_; }

  // Counts pauses: a deadline that passed in one is late, and may be.
  std::uint64_t pauses() const { return pauses_; }

  Client* client() const { return client_.get(); }
  // In the order of the options; only while ready().
  const NamespaceHandle& name_space(std::size_t index) const {
    return handles_[index];
  }
  // Opens the namespace again: the client learns its clear epoch. `done` gets
  // whether that worked; it does not run if the worker dies before.
  void Reopen(std::size_t index, std::function<void(bool)> done);
  // Runs when the worker has become ready, in each life.
  void set_on_ready(std::function<void()> on_ready) {
    on_ready_ = std::move(on_ready);
  }

  SimMachine* machine() const { return machine_; }
  SimProcess* process() const { return machine_->process(); }
  const Options& options() const { return options_; }

 private:
  void Create();
  void OpenNext();
  void TryAgain(void (SimWorker::*step)());

  SimWorld* const world_;
  const Options options_;
  // Of this life; the world owns it.
  SimMachine* machine_ = nullptr;
  std::unique_ptr<Client> client_;
  std::vector<NamespaceHandle> handles_;
  bool ready_ = false;
  std::uint64_t life_ = 0;
  std::uint64_t pauses_ = 0;
  std::function<void()> on_ready_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_WORKER_H_
