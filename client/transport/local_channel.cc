#include "client/transport/local_channel.h"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "proto/base/text.h"

namespace firnkv {

struct LocalChannel::State {
  explicit State(Executor* e) : executor(e) {}

  struct Call {
    ControlReply done;
    TimerId timeout = TimerId::kNone;
  };

  std::uint64_t Add(ControlReply done) ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    calls[++last_call].done = std::move(done);
    return last_call;
  }

  // False: the call has been answered already.
  bool SetTimeout(std::uint64_t number, TimerId timeout)
      ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    const auto it = calls.find(number);
    if (it == calls.end()) return false;
    it->second.timeout = timeout;
    return true;
  }

  // Answers a call that has not been answered yet.
  void Finish(std::uint64_t number, absl::StatusOr<std::string> response)
      ABSL_LOCKS_EXCLUDED(mutex) {
    Call call;
    {
      MutexLock lock(&mutex);
      const auto it = calls.find(number);
      if (it == calls.end()) return;
      call = std::move(it->second);
      calls.erase(it);
    }
    if (call.timeout != TimerId::kNone) executor->Cancel(call.timeout);
    std::move(call.done)(std::move(response));
  }

  std::map<std::uint64_t, Call> Close() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    open = false;
    return std::move(calls);
  }

  bool IsOpen() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    return open;
  }

  Executor* const executor;
  TaskScope scope;
  Mutex mutex;
  bool open ABSL_GUARDED_BY(mutex) = true;
  std::uint64_t last_call ABSL_GUARDED_BY(mutex) = 0;
  std::map<std::uint64_t, Call> calls ABSL_GUARDED_BY(mutex);
};

LocalChannel::LocalChannel(Executor* executor,
                           std::vector<ControlService*> handlers)
    : executor_(executor),
      handlers_(std::move(handlers)),
      // Shared with the replies that handlers hold.
      state_(std::make_shared<State>(executor)) {}

LocalChannel::~LocalChannel() {
  // No answer is being given after this, and none will be but these.
  state_->scope.Close();
  for (auto& [number, call] : state_->Close()) {
    if (call.timeout != TimerId::kNone) executor_->Cancel(call.timeout);
    std::move(call.done)(absl::CancelledError("the channel was closed"));
  }
}

ControlService* LocalChannel::Find(std::string_view method) const {
  for (ControlService* handler : handlers_) {
    if (StrCat("/", handler->service()) ==
        method.substr(0, method.rfind('/'))) {
      return handler;
    }
  }
  return nullptr;
}

void LocalChannel::StartCall(std::string_view method, std::string request,
                             absl::Duration timeout, ControlReply done) {
  const std::uint64_t number = state_->Add(std::move(done));
  const TimerId timer = executor_->PostAt(
      executor_->clock()->Now() + timeout,
      state_->scope.Wrap([state = state_.get(), number] {
        state->Finish(number, absl::DeadlineExceededError("no answer in time"));
      }));
  if (!state_->SetTimeout(number, timer)) executor_->Cancel(timer);
  executor_->Post(state_->scope.Wrap([this, number,
                                      method = std::string(method),
                                      request = std::move(request)] {
    ControlService* const handler = Find(method);
    if (handler == nullptr) {
      state_->Finish(
          number, absl::UnimplementedError(StrCat("no service for ", method)));
      return;
    }
    // Answers go through the scope, so that none is given while the channel
    // ends; the state lives as long as a handler holds the reply.
    handler->Handle(
        method, ControlPeer{.local = true, .address = "in process"}, request,
        [state = state_, number](absl::StatusOr<std::string> response) {
          // The executor may be gone once the channel is.
          if (!state->IsOpen()) return;
          state->executor->Post(
              state->scope.Wrap([state = state.get(), number,
                                 response = std::move(response)]() mutable {
                state->Finish(number, std::move(response));
              }));
        });
  }));
}

}  // namespace firnkv
