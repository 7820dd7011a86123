#include "client/transport/host_resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

HostResolver::~HostResolver() {
  std::deque<Request> waiting;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    waiting.swap(waiting_);
    changed_.SignalAll();
  }
  for (Request& request : waiting) {
    std::move(request.done)(absl::CancelledError("the network is closed"));
  }
  thread_.Join();
}

void HostResolver::Resolve(HostPort host_port, Done done) {
  absl::Status refused;
  {
    MutexLock lock(&mutex_);
    if (stopping_) {
      refused = absl::CancelledError("the network is closed");
    } else if (waiting_.size() >= kMaxWaiting) {
      refused = absl::ResourceExhaustedError(
          StrCat(kMaxWaiting, " look-ups of host names wait already"));
    } else {
      refused = StartOnce();
    }
    if (refused.ok()) {
      waiting_.push_back(Request{std::move(host_port), std::move(done)});
      changed_.Signal();
      return;
    }
  }
  std::move(done)(refused);
}

absl::Status HostResolver::StartOnce() {
  if (started_) return absl::OkStatus();
  RETURN_IF_ERROR(thread_.Start("firnkv-resolver", [this] { Run(); }));
  started_ = true;
  return absl::OkStatus();
}

void HostResolver::Run() {
  for (;;) {
    Request request;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      request = std::move(waiting_.front());
      waiting_.pop_front();
    }
    std::move(request.done)(ResolveNow(request.host_port));
  }
}

absl::StatusOr<std::vector<SocketAddress>> ResolveNow(
    const HostPort& host_port) {
  const addrinfo hints = {.ai_flags = AI_NUMERICSERV,
                          .ai_family = AF_UNSPEC,
                          .ai_socktype = SOCK_STREAM,
                          .ai_protocol = 0,
                          .ai_addrlen = 0,
                          .ai_addr = nullptr,
                          .ai_canonname = nullptr,
                          .ai_next = nullptr};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host_port.host.c_str(),
                                StrCat(host_port.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(StrCat(
        "host '", host_port.host, "' is not known: ", gai_strerror(error)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace firnkv
