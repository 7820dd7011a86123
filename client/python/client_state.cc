#include "client/python/client_state.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "client/python/without_gil.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv::python {
namespace {

constexpr std::string_view kForked =
    "this process is a fork of the one that made the Client; start such "
    "processes by spawn, and make a Client in each";
constexpr std::string_view kClosed = "the Client was closed";

absl::Status Forked() { return absl::UnavailableError(ToAbsl(kForked)); }

// gRPC does not live on in a fork: its calls would end by their deadlines only,
// and its end might never come. So the process of the first Client is the only
// one that gets any.
absl::Status CheckProcess() {
  static std::atomic<pid_t> first{0};
  pid_t process = 0;
  if (first.compare_exchange_strong(process, ::getpid()) ||
      process == ::getpid()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "this process is a fork of one that had a Client, and gRPC does not "
      "survive a fork: start it by spawn "
      "(multiprocessing.get_context('spawn')), or make the first Client after "
      "the fork");
}

}  // namespace

std::string TokenBox::Get() {
  MutexLock lock(&mutex_);
  return token_;
}

void TokenBox::Set(std::string token) {
  MutexLock lock(&mutex_);
  token_ = std::move(token);
}

// --- Made and ended.

ClientState::ClientState(std::shared_ptr<TokenBox> token)
    : pid_(::getpid()), token_(std::move(token)) {}

absl::StatusOr<std::shared_ptr<ClientState>> ClientState::Connect(
    ClientOptions options) {
  RETURN_IF_ERROR(CheckProcess());
  // Shared: see the member.
  const auto token = std::make_shared<TokenBox>(options.token);
  // Without any token the options are refused, as they should be.
  if (options.socket_path.empty() && !options.token.empty()) {
    options.token_source = [token] { return token->Get(); };
  }
  // Shared: see the header. In a forked child what the parent has is left
  // alone: locks of it may be held for ever there (rule S6).
  std::shared_ptr<ClientState> state(new ClientState(token),
                                     [](ClientState* one) {
                                       if (!one->forked()) delete one;
                                     });
  ASSIGN_OR_RETURN(state->client_, Client::Connect(std::move(options)));
  return state;
}

ClientState::~ClientState() {
  if (PyGILState_Check() == 0) {
    End();
    return;
  }
  const WithoutGil released;
  End();
}

void ClientState::End() {
  Close();
  client_.reset();
}

bool ClientState::forked() const { return ::getpid() != pid_; }

void ClientState::SetToken(std::string token) {
  if (!forked()) token_->Set(std::move(token));
}

void ClientState::Close() {
  if (client_ == nullptr || forked() || closing_.exchange(true)) return;
  ThreadExecutor* starter = nullptr;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    starter = starter_.get();
  }
  // From here on nothing is begun.
  if (starter != nullptr) starter->Stop();
  client_->Close();
  std::deque<Waiting> left;
  {
    MutexLock lock(&mutex_);
    left.swap(waiting_);
  }
  for (Waiting& one : left) {
    one.call->Refuse(Outcome::kCancelled, kClosed);
    Finish(std::move(one.call));
  }
}

// --- Calls.

void ClientState::Run(Call* call, NamespaceSlot* slot) {
  if (forked()) return call->Refuse(Outcome::kUnavailable, kForked);
  const std::optional<NamespaceHandle> handle = slot->Get(client(), &clock_);
  if (!handle) return call->Refuse(Outcome::kUnavailable, slot->Why());
  call->Run(client(), *handle);
}

absl::Status ClientState::EnsureStarter() {
  if (starter_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      starter_,
      ThreadExecutor::Make({.threads = 1, .name = "firnkv-submit"}, &clock_));
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> ClientState::Submit(
    std::unique_ptr<Call>* call, std::shared_ptr<NamespaceSlot> slot) {
  if (forked()) return Forked();
  MutexLock lock(&mutex_);
  if (undrained_ >= kMaxUndrained) {
    return absl::ResourceExhaustedError(
        StrCat(undrained_, " submitted calls have not been drained"));
  }
  if (closed_) return absl::CancelledError(ToAbsl(kClosed));
  RETURN_IF_ERROR(EnsureStarter());
  ++undrained_;
  const std::uint64_t id = ++last_id_;
  (*call)->id = id;
  waiting_.push_back({std::move(*call), std::move(slot)});
  // Its threads are joined before this ends; what Stop drops is in waiting_.
  starter_->Post([this] { BeginNext(); });
  return id;
}

void ClientState::BeginNext() {
  Waiting next;
  {
    MutexLock lock(&mutex_);
    if (waiting_.empty()) return;  // Close was first.
    next = std::move(waiting_.front());
    waiting_.pop_front();
  }
  const std::optional<NamespaceHandle> handle =
      next.slot->Get(client(), &clock_);
  if (!handle) {
    next.call->Refuse(Outcome::kUnavailable, next.slot->Why());
    return Finish(std::move(next.call));
  }
  Call* const call = next.call.get();
  call->Start(client(), *handle,
              [this, owned = std::move(next.call)]() mutable {
                Finish(std::move(owned));
              });
}

void ClientState::Finish(std::unique_ptr<Call> call) {
  MutexLock lock(&mutex_);
  done_.push_back(std::move(call));
  // The first one wakes the drainer, for all that come before it drains.
  if (done_.size() == 1 && signal_) signal_->Set();
}

std::vector<std::unique_ptr<Call>> ClientState::Drain(std::size_t most) {
  std::vector<std::unique_ptr<Call>> drained;
  // A child that drained would clear its parent's signal.
  if (forked()) return drained;
  MutexLock lock(&mutex_);
  const std::size_t count = std::min(most, done_.size());
  for (std::size_t i = 0; i < count; ++i) {
    drained.push_back(std::move(done_.front()));
    done_.pop_front();
  }
  undrained_ -= count;
  if (done_.empty() && signal_) signal_->Clear();
  return drained;
}

absl::StatusOr<int> ClientState::CompletionFd() {
  if (forked()) return Forked();
  MutexLock lock(&mutex_);
  if (!signal_) {
    ASSIGN_OR_RETURN(signal_, EventSignal::Make());
    if (!done_.empty()) signal_->Set();
  }
  return signal_->fd();
}

}  // namespace firnkv::python
