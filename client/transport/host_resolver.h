// Host names to addresses. Looking one up blocks for as long as the machine's
// resolver likes, so it has a thread of its own, started by the first name;
// numbers never come here.
//
// Threading. Any thread; `done` runs on the resolver's thread, or inside
// Resolve where it is refused, under no lock.

#ifndef FIRNKV_CLIENT_TRANSPORT_HOST_RESOLVER_H_
#define FIRNKV_CLIENT_TRANSPORT_HOST_RESOLVER_H_

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "client/transport/named_thread.h"
#include "client/transport/socket_address.h"
#include "proto/base/mutex.h"

namespace firnkv {

class HostResolver {
 public:
  using Done =
      absl::AnyInvocable<void(absl::StatusOr<std::vector<SocketAddress>>) &&>;

  HostResolver() = default;
  // What waits ends with CANCELLED. A look-up that runs is waited for: at worst
  // the timeout of /etc/resolv.conf.
  ~HostResolver();

  // UNAVAILABLE where the name is not known; RESOURCE_EXHAUSTED where too many
  // wait already.
  void Resolve(HostPort host_port, Done done) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Connects to names are rare: nodes are known by their numbers.
  static constexpr std::size_t kMaxWaiting = 256;

  struct Request {
    HostPort host_port;
    Done done;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Status of the start of the thread, which happens once.
  absl::Status StartOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Request> waiting_ ABSL_GUARDED_BY(mutex_);
  NamedThread thread_;
};

// As Resolve, here and now. For Listen, which is called while starting.
absl::StatusOr<std::vector<SocketAddress>> ResolveNow(
    const HostPort& host_port);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_HOST_RESOLVER_H_
