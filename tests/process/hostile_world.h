// What all attacks of hostile_client stand on: where the node is, a namespace
// of its own tenant, and blocks in it.
//
// Threading. One thread.

#ifndef FIRNKV_TESTS_PROCESS_HOSTILE_WORLD_H_
#define FIRNKV_TESTS_PROCESS_HOSTILE_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/client.h"
#include "client/transport/grpc_channel.h"
#include "proto/base/bytes.h"
#include "proto/base/id.h"
#include "tests/process/hostile_session.h"

namespace firnkv {

inline constexpr std::uint64_t kHostileBlockBytes = 16 * kKiB;

// What an attack says: "ok NAME=NUMBER...".
using Tally = std::map<std::string, std::int64_t>;

struct HostileWorld {
  // By the SDK, as any client would.
  absl::Status Connect(const std::string& path);

  std::string socket;
  GrpcConnector connector;
  std::unique_ptr<Client> client;
  // Of blocks of kHostileBlockBytes, and of any size.
  NamespaceHandle name_space;
  NamespaceHandle other_sizes;
  // To the node's gRPC for its sessions.
  std::unique_ptr<ControlChannel> channel;
};

// Blocks from here on are of other sizes.
inline constexpr std::uint64_t kFirstOtherSize = 200'000;

BlockKey HostileKey(std::uint64_t number);
// Of that block, as many as there is room for.
void FillBlock(const HostileWorld& world, std::uint64_t number,
               absl::Span<std::byte> bytes);
bool IsBlock(const HostileWorld& world, std::uint64_t number,
             absl::Span<const std::byte> bytes);

// Writes blocks [from, from + count) by the SDK; how many are stored now.
int WriteBlocks(HostileWorld* world, std::uint64_t from, std::uint64_t count);

// Reserve of one block, and Commit of it from a staging.
absl::StatusOr<v1::ReserveResponse> ReserveBlock(HostileWorld* world,
                                                 const HostileSession& session,
                                                 std::uint64_t number,
                                                 std::uint64_t bytes);
v1::CommitRequest CommitOf(std::uint64_t reservation, std::uint64_t staging,
                           absl::Span<const std::byte> bytes);
absl::StatusOr<v1::OpenReadResponse> OpenBlocks(HostileWorld* world,
                                                const HostileSession& session,
                                                std::uint64_t from,
                                                std::uint64_t count);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_HOSTILE_WORLD_H_
