// NoteRemoteReads: what a Client tells its local node of blocks that it had to
// read elsewhere, to and from the message. Without state.

#ifndef FIRNKV_CLIENT_REMOTE_READS_MESSAGES_H_
#define FIRNKV_CLIENT_REMOTE_READS_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/id.h"
#include "proto/base/node_address.h"
#include "proto/base/request.h"
#include "proto/base/slot_header.h"

namespace firnkv {

// A block that came from another node, as its header said.
struct RemoteBlock {
  BlockKey key;
  ChainPlace place;
  std::uint64_t length = 0;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  NodeId source;
  NodeEpoch source_epoch = NodeEpoch::kNone;
};

std::string EncodeRemoteReads(const RequestHeader& header,
                              NamespaceId name_space,
                              absl::Span<const RemoteBlock> blocks);
// Indexes of the blocks, of which there were `most`, that are at the local node
// now. INTERNAL: another's.
absl::StatusOr<std::vector<std::size_t>> DecodeRemoteReads(
    std::string_view bytes, std::size_t most);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_REMOTE_READS_MESSAGES_H_
