// A unix socket that takes connections for a server which keeps them to itself
// (gRPC), and bounds how many each uid has of them and all together, so that no
// uid uses up this process's descriptors (rule S4). One beyond a cap is closed.
//
// When the server has closed one shows by its descriptor alone: it names no
// socket any more, or another one. That is looked at where a cap is reached.
//
// Threading. The callback runs on a thread of this class's own.
//
// Ownership. The callback's: it owns the descriptors it is given and closes
// each itself, under the number that it was given.

#ifndef FIRNKV_SERVER_BASE_CAPPED_LISTENER_H_
#define FIRNKV_SERVER_BASE_CAPPED_LISTENER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "client/transport/descriptor.h"
#include "client/transport/event_loop.h"
#include "client/transport/local_socket.h"
#include "proto/base/clock.h"
#include "proto/base/counter.h"
#include "server/base/capped_counts.h"

namespace firnkv {

class CappedListener {
 public:
  struct Options {
    std::size_t most = 4096;
    std::size_t most_a_uid = 1024;
    // Of those closed for want of a place; outlives the listener. Null: nobody
    // counts them.
    Counter* turned_away = nullptr;
  };

  // As UnixSockets::Listen (client/transport/unix_socket.h).
  static absl::StatusOr<std::unique_ptr<CappedListener>> Start(
      std::string_view path, const Options& options,
      absl::AnyInvocable<void(Descriptor)> on_socket);

  // The callback does not run any more once this has returned. What it was
  // given lives on.
  ~CappedListener();

 private:
  // The file that a descriptor names.
  struct File {
    dev_t device = 0;
    ino_t inode = 0;
    friend bool operator==(const File&, const File&) = default;
  };
  struct Connection {
    int fd = -1;
    File file;
    CappedCounts<std::uint32_t>::Receipt place;
  };

  CappedListener(const Options& options,
                 absl::AnyInvocable<void(Descriptor)> on_socket);

  static File FileOf(int fd);
  void OnSocket(Descriptor socket);
  void ForgetClosed();

  SystemClock clock_;
  absl::AnyInvocable<void(Descriptor)> on_socket_;
  Counter* const turned_away_;
  CappedCounts<std::uint32_t> places_;
  // Touched on the loop's thread only. As many as there are places.
  std::vector<Connection> connections_;

  // Last: they use all of the above until they have ended.
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<LocalListener> listener_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_CAPPED_LISTENER_H_
