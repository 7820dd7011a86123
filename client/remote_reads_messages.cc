#include "client/remote_reads_messages.h"

#include <map>
#include <utility>

#include "proto/convert.h"
#include "proto/node.pb.h"

namespace firnkv {

std::string EncodeRemoteReads(const RequestHeader& header,
                              NamespaceId name_space,
                              absl::Span<const RemoteBlock> blocks) {
  v1::NoteRemoteReadsRequest request;
  ToProto(header, request.mutable_header());
  request.set_name_space(IdToProto(name_space));
  std::map<std::pair<NodeId, NodeEpoch>, std::uint32_t> nodes;
  std::vector<BlockRow> rows;
  rows.reserve(blocks.size());
  for (const RemoteBlock& block : blocks) {
    const auto [it, is_new] =
        nodes.try_emplace({block.source, block.source_epoch},
                          static_cast<std::uint32_t>(nodes.size()));
    if (is_new) {
      ToProto(NodeAddress{.node = block.source,
                          .epoch = block.source_epoch,
                          .stream_address = {},
                          .control_address = {},
                          .labels = {}},
              request.add_nodes());
    }
    request.add_node_indexes(it->second);
    request.add_clear_epochs(static_cast<std::uint64_t>(block.clear_epoch));
    rows.push_back({block.key, block.place, block.length});
  }
  ToProto(rows, request.mutable_blocks());
  return request.SerializeAsString();
}

absl::StatusOr<std::vector<std::size_t>> DecodeRemoteReads(
    std::string_view bytes, std::size_t most) {
  v1::NoteRemoteReadsResponse response;
  if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InternalError("the node answered no message");
  }
  std::vector<std::size_t> here;
  for (const std::uint32_t index : response.here()) {
    if (index >= most) {
      return absl::InternalError("the node answered of other blocks");
    }
    here.push_back(index);
  }
  return here;
}

}  // namespace firnkv
