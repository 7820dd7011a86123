#include "tools/bench/sdk_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tools/bench/bench_blocks.h"
#include "tools/replay/block_content.h"

namespace firnkv {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(20);
// Of one write of `fill`.
constexpr std::uint64_t kFillBytes = 16 * kMiB;
// Longer than any suite: what is read is warm.
constexpr absl::Duration kLocationLife = absl::Hours(1);

absl::Status WriteAll(Client* client, WriteRequest request) {
  request.deadline = kDeadline;
  const WriteReport report = client->Write(request);
  RETURN_IF_ERROR(report.status);
  for (const WriteBlock& block : request.blocks) {
    if (block.outcome != Outcome::kStored &&
        block.outcome != Outcome::kAlreadyThere) {
      return absl::UnavailableError(
          StrCat("a write ended ", OutcomeName(block.outcome)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Client*> SdkWorker::ClientOf(const Command& command) const {
  const std::string name = command.Text("client", "a");
  const auto found = clients_.find(name);
  if (found == clients_.end()) {
    return absl::NotFoundError(StrCat("no client '", name, "'"));
  }
  return found->second.get();
}

absl::StatusOr<SdkWorker::BlockSet*> SdkWorker::SetOf(
    const Command& command) const {
  const std::string name = command.Text("name");
  const auto found = sets_.find(name);
  if (found == sets_.end()) {
    return absl::NotFoundError(StrCat("no namespace '", name, "'"));
  }
  return found->second.get();
}

absl::StatusOr<Counts> SdkWorker::Connect(const Command& command) {
  ClientOptions options;
  options.call_frames = command.Number("frames", 1) == 1;
  options.socket_path = command.Text("socket");
  options.catalog_address = command.Text("catalog");
  // As the CLI prints it.
  options.token = absl::HexStringToBytes(command.Text("token"));
  options.client_name = "bench";
  options.location_life = kLocationLife;
  options.map_local_blocks = command.Number("map", 1) == 1;
  options.threads = static_cast<int>(command.Number("threads", 2));
  options.streams_per_node = static_cast<int>(command.Number("streams", 4));
  if (!options.socket_path.empty()) {
    options.server_uid = static_cast<std::uint32_t>(command.Number("uid"));
  }
  ASSIGN_OR_RETURN(clients_[command.Text("client", "a")],
                   Client::Connect(options));
  return Counts();
}

absl::StatusOr<Counts> SdkWorker::Close(const Command& command) {
  clients_.erase(command.Text("client", "a"));
  return Counts();
}

absl::StatusOr<Counts> SdkWorker::Open(const Command& command) {
  ASSIGN_OR_RETURN(Client* const client, ClientOf(command));
  const std::string name = command.Text("name");
  const std::uint64_t bytes = command.Number("bytes");
  auto& set = sets_[name];
  if (set == nullptr) set = std::make_unique<BlockSet>();
  set->bytes = bytes;
  ASSIGN_OR_RETURN(set->name_space,
                   client->OpenNamespace(BenchNamespace(name, bytes)));
  return Counts();
}

absl::StatusOr<Counts> SdkWorker::Keys(const Command& command) {
  ASSIGN_OR_RETURN(BlockSet* const set, SetOf(command));
  const std::uint64_t blocks = command.Number("blocks");
  const std::uint64_t of = std::max(command.Number("of", blocks), blocks);
  set->blocks.clear();
  for (std::uint64_t i = 0; i < blocks; ++i) {
    set->blocks.push_back(BenchBlock(command.Text("name"), i * (of / blocks)));
  }
  return Counts();
}

absl::StatusOr<Counts> SdkWorker::Fill(const Command& command) {
  ASSIGN_OR_RETURN(Client* const client, ClientOf(command));
  ASSIGN_OR_RETURN(BlockSet* const set, SetOf(command));
  RETURN_IF_ERROR(Keys(command).status());
  const std::uint64_t batch = std::max<std::uint64_t>(
      1, std::min<std::uint64_t>(kFillBytes / set->bytes, kMaxBatchKeys));
  ASSIGN_OR_RETURN(const absl::Span<std::byte> memory,
                   client->AllocateShared(batch * set->bytes));
  absl::Status status;
  for (std::size_t first = 0; first < set->blocks.size() && status.ok();
       first += batch) {
    std::vector<WriteBlock> blocks;
    std::vector<ConstBuffer> sources(batch);
    for (std::size_t i = first;
         i < std::min<std::size_t>(first + batch, set->blocks.size()); ++i) {
      const Chain::Block& block = set->blocks[i];
      const auto bytes = memory.subspan((i - first) * set->bytes, set->bytes);
      BlockContent({set->name_space.id, block.key}).Fill(bytes);
      sources[i - first] = {.address = bytes.data(), .length = bytes.size()};
      blocks.push_back({.key = block.key,
                        .place = block.place,
                        .source = {&sources[i - first], 1}});
    }
    WriteRequest request{.name_space = set->name_space,
                         .blocks = absl::MakeSpan(blocks)};
    if (command.Number("published") == 1) {
      request.wait_for = WriteWait::kPublished;
    }
    status = WriteAll(client, request);
  }
  client->FreeShared(memory.data());
  if (!status.ok()) return status;
  return Counts{{"blocks", set->blocks.size()}};
}

absl::StatusOr<Counts> SdkWorker::Stats(const Command& command) {
  ASSIGN_OR_RETURN(Client* const client, ClientOf(command));
  const ClientStats stats = client->Stats();
  Counts counts{{"stream_reads", stats.stream_reads},
                {"stream_connects", stats.stream_connects},
                {"bytes_mapped", stats.bytes_mapped},
                {"bytes_remote", stats.bytes_remote},
                {"calls", 0}};
  for (const auto& [method, count] : stats.calls) {
    // What is told later, of many reads at once, no read waits for.
    if (method != "NodeService/Release" &&
        method != "NodeService/NoteRemoteReads") {
      counts["calls"] += count;
    }
  }
  return counts;
}

}  // namespace firnkv
