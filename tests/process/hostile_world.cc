#include "tests/process/hostile_world.h"

#include <utility>

#include "proto/base/checksum.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "tests/process/users.h"
#include "tests/proto/samples.h"
#include "tools/replay/block_content.h"

namespace firnkv {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(10);
constexpr std::uint32_t kReservationMillis = 20'000;
constexpr std::uint32_t kLeaseMillis = 10'000;

NamespaceId NamespaceOf(const HostileWorld& world, std::uint64_t number) {
  return number < kFirstOtherSize ? world.name_space.id : world.other_sizes.id;
}

BlockContent ContentOf(const HostileWorld& world, std::uint64_t number) {
  return BlockContent({NamespaceOf(world, number), HostileKey(number)});
}

}  // namespace

absl::Status HostileWorld::Connect(const std::string& path) {
  socket = path;
  ClientOptions options;
  options.socket_path = path;
  options.client_name = "hostile_client";
  options.server_uid = kDaemonUid;
  options.connect_timeout = absl::Seconds(kPatienceSeconds);
  ASSIGN_OR_RETURN(client, Client::Connect(options));
  ASSIGN_OR_RETURN(name_space,
                   client->OpenNamespace({.name = "hostile",
                                          .contract = SampleContract(),
                                          .block_bytes = kHostileBlockBytes,
                                          .chained = false}));
  ASSIGN_OR_RETURN(other_sizes,
                   client->OpenNamespace({.name = "hostile-sizes",
                                          .contract = SampleContract(),
                                          .block_bytes = 0,
                                          .chained = false}));
  channel = connector.Connect(StrCat("unix:", path, ".control"));
  return absl::OkStatus();
}

BlockKey HostileKey(std::uint64_t number) {
  return MakeBlockKey(StrCat("hostile ", number), Shard{});
}

void FillBlock(const HostileWorld& world, std::uint64_t number,
               absl::Span<std::byte> bytes) {
  ContentOf(world, number).Fill(bytes);
}

bool IsBlock(const HostileWorld& world, std::uint64_t number,
             absl::Span<const std::byte> bytes) {
  return ContentOf(world, number).CountWrong(bytes, nullptr) == 0;
}

int WriteBlocks(HostileWorld* world, std::uint64_t from, std::uint64_t count) {
  std::vector<std::byte> content(count * kHostileBlockBytes);
  std::vector<ConstBuffer> buffers(count);
  std::vector<WriteBlock> blocks(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto bytes = absl::MakeSpan(content).subspan(i * kHostileBlockBytes,
                                                       kHostileBlockBytes);
    FillBlock(*world, from + i, bytes);
    buffers[i] = {.address = bytes.data(), .length = bytes.size()};
    blocks[i].key = HostileKey(from + i);
    blocks[i].place.anchor = blocks[i].key;
    blocks[i].source = absl::MakeConstSpan(&buffers[i], 1);
  }
  const WriteReport report =
      world->client->Write({.name_space = world->name_space,
                            .blocks = absl::MakeSpan(blocks),
                            .deadline = kDeadline,
                            .wait_for = WriteWait::kLocal,
                            .hint = {},
                            .trace = {}});
  return static_cast<int>(report.stored + report.already_there);
}

absl::StatusOr<v1::ReserveResponse> ReserveBlock(HostileWorld* world,
                                                 const HostileSession& session,
                                                 std::uint64_t number,
                                                 std::uint64_t bytes) {
  v1::ReserveRequest request;
  request.set_name_space(IdToProto(NamespaceOf(*world, number)));
  const BlockKey key = HostileKey(number);
  const std::vector<BlockRow> rows = {{key, ChainPlace{.anchor = key}, bytes}};
  ToProto(rows, request.mutable_blocks());
  request.set_reservation_millis(kReservationMillis);
  return CallAs<v1::ReserveResponse>(world->channel.get(), session.id(),
                                     "Reserve", request);
}

v1::CommitRequest CommitOf(std::uint64_t reservation, std::uint64_t staging,
                           absl::Span<const std::byte> bytes) {
  v1::CommitRequest request;
  request.set_reservation(reservation);
  request.add_indexes(0);
  request.add_extent_counts(1);
  request.add_extent_stagings(staging);
  request.add_extent_offsets(0);
  request.add_extent_lengths(bytes.size());
  for (const std::uint32_t piece : PieceChecksums(bytes)) {
    request.add_pieces(piece);
  }
  return request;
}

absl::StatusOr<v1::OpenReadResponse> OpenBlocks(HostileWorld* world,
                                                const HostileSession& session,
                                                std::uint64_t from,
                                                std::uint64_t count) {
  v1::OpenReadRequest request;
  request.set_name_space(IdToProto(NamespaceOf(*world, from)));
  for (std::uint64_t i = 0; i < count; ++i) {
    request.mutable_keys()->append(HostileKey(from + i).view());
  }
  request.set_lease_millis(kLeaseMillis);
  return CallAs<v1::OpenReadResponse>(world->channel.get(), session.id(),
                                      "OpenRead", request);
}

}  // namespace firnkv
