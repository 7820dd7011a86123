#include "client/control_link.h"

#include <memory>
#include <utility>

namespace firnkv {

ControlLink::ControlLink(const Seams* seams, ClientCounters* counters)
    : seams_(seams), counters_(counters), channel_(seams->executor) {}

ControlLink::~ControlLink() { Close(); }

void ControlLink::SetAddress(std::string address) {
  {
    MutexLock lock(&mutex_);
    if (closed_ || address == address_) return;
    address_ = address;
  }
  channel_.Replace(address.empty() ? nullptr
                                   : seams_->control->Connect(address));
}

void ControlLink::Call(ControlCall call, std::string request, BootTime deadline,
                       ControlReply done) {
  const absl::Duration left = deadline - seams_->clock->Now();
  if (left <= absl::ZeroDuration()) {
    return std::move(done)(absl::DeadlineExceededError("no time left to ask"));
  }
  const Replaceable<ControlChannel>::Use channel = channel_.Get();
  if (!channel) {
    return std::move(done)(absl::UnavailableError("not connected"));
  }
  counters_->calls[static_cast<std::size_t>(call)].Add();
  channel->StartCall(MethodOf(call), std::move(request), left, std::move(done));
}

void ControlLink::Close() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  channel_.Close();
}

}  // namespace firnkv
