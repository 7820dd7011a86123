#include "tests/support/sim_worker.h"

#include <utility>

#include "proto/base/text.h"

namespace firnkv {

SimWorker::SimWorker(SimWorld* world, Options options)
    : world_(world), options_(std::move(options)) {}

SimWorker::~SimWorker() { Crash(); }

void SimWorker::Start() {
  if (running()) return;
  ++life_;
  machine_ = world_->NewMachine(
      StrCat(options_.name, ".", life_), options_.host,
      PeerCredentials{.uid = options_.uid, .uid_trusted = true});
  machine_->process()->Post([this] { Create(); });
}

void SimWorker::Create() {
  Client::StartCreate(options_.client, machine_->seams(),
                      [this](absl::StatusOr<std::unique_ptr<Client>> client) {
                        if (!client.ok()) {
                          world_->executor()->Note(StrCat(
                              "no client: ", client.status().ToString()));
                          TryAgain(&SimWorker::Create);
                          return;
                        }
                        client_ = *std::move(client);
                        handles_.clear();
                        // Not from inside the Client's callback.
                        machine_->process()->Post([this] { OpenNext(); });
                      });
}

void SimWorker::OpenNext() {
  if (handles_.size() == options_.name_spaces.size()) {
    ready_ = true;
    world_->executor()->Note("ready");
    if (on_ready_) on_ready_();
    return;
  }
  client_->StartOpenNamespace(
      options_.name_spaces[handles_.size()],
      [this](absl::StatusOr<NamespaceHandle> handle) {
        if (!handle.ok()) {
          world_->executor()->Note(
              StrCat("no namespace: ", handle.status().ToString()));
          TryAgain(&SimWorker::OpenNext);
          return;
        }
        handles_.push_back(*std::move(handle));
        machine_->process()->Post([this] { OpenNext(); });
      });
}

void SimWorker::TryAgain(void (SimWorker::*step)()) {
  machine_->process()->PostAfter(absl::Milliseconds(500),
                                 [this, step] { (this->*step)(); });
}

void SimWorker::Reopen(std::size_t index, std::function<void(bool)> done) {
  client_->StartOpenNamespace(
      options_.name_spaces[index],
      [this, index, done = std::move(done),
       life = life_](absl::StatusOr<NamespaceHandle> handle) {
        if (life != life_) return;
        if (handle.ok() && handle->id == handles_[index].id) {
          handles_[index] = *std::move(handle);
          done(true);
        } else {
          done(false);
        }
      });
}

void SimWorker::Crash() {
  if (!running()) return;
  machine_->process()->Kill();
  ++life_;
  ready_ = false;
  client_.reset();
  machine_ = nullptr;
}

void SimWorker::Stop() {
  if (!running()) return;
  ready_ = false;
  if (client_ != nullptr) client_->Close();
  world_->executor()->RunReady();
  Crash();
}

}  // namespace firnkv
