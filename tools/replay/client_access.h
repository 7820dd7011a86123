// A worker's way to the pool through the SDK.

#ifndef FIRNKV_TOOLS_REPLAY_CLIENT_ACCESS_H_
#define FIRNKV_TOOLS_REPLAY_CLIENT_ACCESS_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/client.h"
#include "tools/replay/pool_access.h"

namespace firnkv {

class ClientAccess : public PoolAccess {
 public:
  // `client` outlives it.
  explicit ClientAccess(Client* client) : client_(*client) {}

  ReadReport Read(const ReadRequest& request) override {
    return client_.Read(request);
  }
  WriteReport Write(const WriteRequest& request) override {
    return client_.Write(request);
  }
  absl::StatusOr<absl::Span<std::byte>> AllocateShared(
      std::size_t bytes) override {
    return client_.AllocateShared(bytes);
  }
  ClientStats Stats() const override { return client_.Stats(); }

 private:
  Client& client_;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_CLIENT_ACCESS_H_
