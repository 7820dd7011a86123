#include "tests/support/sim_control.h"

#include <algorithm>
#include <utility>

#include "proto/base/text.h"

namespace firnkv {

// One call. `done` is null once it has run.
struct SimCall {
  SimProcess* caller = nullptr;
  std::string method;
  ControlPeer peer;
  ControlReply done;
  TimerId timer = TimerId::kNone;

  void End(absl::StatusOr<std::string> response) {
    if (!done) return;
    caller->Cancel(timer);
    std::exchange(done, nullptr)(std::move(response));
  }
};

namespace {

// Shared by the caller's end and everything on the way.
using Call = std::shared_ptr<SimCall>;

class SimChannel : public ControlChannel {
 public:
  SimChannel(SimConnector* connector, std::string address)
      : connector_(connector), address_(std::move(address)) {}

  ~SimChannel() override {
    std::vector<Call> calls = std::move(calls_);
    calls_.clear();
    for (const Call& call : calls) {
      call->End(absl::CancelledError("the channel was closed"));
    }
  }

  void StartCall(std::string_view method, std::string request,
                 absl::Duration timeout, ControlReply done) override {
    Call call = std::make_shared<SimCall>();
    call->caller = connector_->process();
    call->method = std::string(method);
    call->peer.local = address_.rfind("unix:", 0) == 0;
    call->peer.address = call->caller->name();
    call->done = std::move(done);
    Remember(call);
    call->timer =
        call->caller->PostAt(call->caller->clock()->Now() + timeout, [call] {
          call->End(absl::DeadlineExceededError("no answer in time"));
        });
    connector_->Send(call, address_, std::move(request));
  }

 private:
  void Remember(const Call& call) {
    if (calls_.size() >= 2 * live_ + 16) {
      calls_.erase(std::remove_if(calls_.begin(), calls_.end(),
                                  [](const Call& old) { return !old->done; }),
                   calls_.end());
      live_ = calls_.size();
    }
    calls_.push_back(call);
  }

  SimConnector* const connector_;
  const std::string address_;
  std::vector<Call> calls_;
  std::size_t live_ = 0;
};

// Runs at the caller after the way back.
void SendBack(SimLinks* links, const std::string& from, const Call& call,
              absl::StatusOr<std::string> response) {
  call->caller->PostAfter(
      links->Delay(from, call->caller->host()),
      [call, response = std::move(response)]() mutable {
        call->caller->world()->Mix(response.ok() ? response->size() : 7);
        call->End(std::move(response));
      });
}

}  // namespace

std::unique_ptr<SimControl::Serving> SimControl::Serve(
    std::string_view address, SimProcess* process,
    std::vector<ControlService*> handlers) {
  auto serving = std::make_unique<Serving>();
  serving->control_ = this;
  serving->address_ = std::string(address);
  serving->process_ = process;
  serving->handlers_ = std::move(handlers);
  // Requests on their way share it to see whether anybody is there.
  serving->self_ = std::make_shared<Serving*>(serving.get());
  servings_[serving->address_] = serving.get();
  process->WatchDeath([self = serving->self_] {
    if (*self == nullptr) return;
    Serving* serving = *self;
    for (const std::weak_ptr<SimCall>& weak : serving->calls_) {
      if (Call call = weak.lock(); call != nullptr && call->done) {
        SendBack(serving->control_->links(), serving->process_->host(), call,
                 absl::UnavailableError("the server died"));
      }
    }
    serving->calls_.clear();
  });
  return serving;
}

SimControl::Serving::~Serving() {
  *self_ = nullptr;
  auto it = control_->servings_.find(address_);
  if (it != control_->servings_.end() && it->second == this) {
    control_->servings_.erase(it);
  }
  if (!process_->alive()) return;
  for (const std::weak_ptr<SimCall>& weak : calls_) {
    if (Call call = weak.lock(); call != nullptr && call->done) {
      SendBack(control_->links(), process_->host(), call,
               absl::UnavailableError("the server stopped"));
    }
  }
}

std::unique_ptr<ControlChannel> SimConnector::Connect(
    std::string_view address) {
  return std::make_unique<SimChannel>(this, std::string(address));
}

void SimConnector::Send(const Call& call, const std::string& address,
                        std::string request) {
  SimLinks* links = control_->links();
  SimExecutor* world = links->world();
  auto it = control_->servings_.find(address);
  if (it == control_->servings_.end() || !it->second->process_->alive()) {
    process_->PostAfter(absl::Microseconds(50), [call] {
      call->End(absl::UnavailableError("nobody serves there"));
    });
    return;
  }
  SimControl::Serving* serving = it->second;
  const SimLinks::Quality& quality = links->quality();
  const bool local = call->peer.local;
  const bool reaches =
      links->Reaches(process_->host(), serving->process_->host());
  if (!local && (!reaches || world->Chance(quality.drop_request_chance))) {
    world->Note(StrCat("request lost: ", call->method));
    return;  // The caller's deadline ends it.
  }
  std::erase_if(serving->calls_, [](const std::weak_ptr<SimCall>& weak) {
    const Call old = weak.lock();
    return old == nullptr || !old->done;
  });
  serving->calls_.push_back(call);
  const bool twice = !local && world->Chance(quality.duplicate_chance);
  for (int i = 0; i < (twice ? 2 : 1); ++i) {
    serving->process_->PostAfter(
        links->Delay(process_->host(), serving->process_->host()),
        [control = control_, call, self = serving->self_, request] {
          control->Deliver(call, self, request);
        });
  }
}

void SimControl::Deliver(const Call& call,
                         const std::shared_ptr<Serving*>& serving,
                         const std::string& request) {
  SimLinks* links = links_;
  SimExecutor* world = links->world();
  if (*serving == nullptr) return;  // Its end has answered for it.
  SimProcess* server = (*serving)->process_;
  const std::size_t slash = call->method.rfind('/');
  const std::string_view service =
      slash == std::string::npos || slash == 0
          ? std::string_view()
          : std::string_view(call->method).substr(1, slash - 1);
  ++calls_served_;
  world->Mix(call->method);
  world->Mix(request.size());
  if (world->tracing()) {
    world->Note(StrCat("serves ", call->method, " of ", call->peer.address,
                       ", ", request.size(), " bytes"));
  }
  ShowCall({call->caller, server, call->method, request});
  for (ControlService* handler : (*serving)->handlers_) {
    if (handler->service() != service) continue;
    handler->Handle(
        call->method, call->peer, request,
        [this, server, call,
         watched = answer_watchers_.empty() ? std::string() : request](
            absl::StatusOr<std::string> response) {
          OnAnswer(call, server, watched, std::move(response));
        });
    return;
  }
  SendBack(links, server->host(), call,
           absl::UnimplementedError(StrCat("no such service: ", call->method)));
}

void SimControl::OnAnswer(const Call& call, SimProcess* server,
                          const std::string& request, Answer answer) {
  if (!server->alive()) return;
  ShowAnswer({call->caller, server, call->method, request}, answer);
  if (!call->done) return;
  if (!call->peer.local &&
      (!links_->Reaches(server->host(), call->caller->host()) ||
       links_->world()->Chance(links_->quality().drop_reply_chance))) {
    links_->world()->Note(StrCat("reply lost: ", call->method));
    return;
  }
  SendBack(links_, server->host(), call, std::move(answer));
}

}  // namespace firnkv
