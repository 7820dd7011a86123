#include "server/tier/reserve_check.h"

#include <cstddef>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

absl::Status Refuse(std::size_t index, std::string_view what) {
  return absl::InvalidArgumentError(StrCat("block ", index, ": ", what));
}

absl::Status CheckBlock(const PoolNamespace& name_space,
                        const ReserveBlock& block, std::size_t index,
                        std::uint64_t largest) {
  if (block.key.IsZero()) return Refuse(index, "the key is zero");
  if (block.length == 0) return Refuse(index, "the length is zero");
  if (block.length > largest) {
    return Refuse(index, StrCat(block.length,
                                " bytes; the largest block of "
                                "this node has ",
                                largest));
  }
  if (name_space.block_bytes != 0 && block.length != name_space.block_bytes) {
    return Refuse(index, StrCat(block.length, " bytes; the namespace declares ",
                                name_space.block_bytes));
  }
  const ChainPlace& place = block.place;
  if (place.shard.index >= place.shard.count) {
    return Refuse(
        index, StrCat("shard ", place.shard.index, " of ", place.shard.count));
  }
  if (name_space.chained) {
    if (place.parent.IsZero() != (place.position == 0)) {
      return Refuse(index,
                    "the namespace is chained: a parent at every "
                    "position but 0");
    }
  } else if (!place.parent.IsZero() || place.position != 0) {
    return Refuse(index, "the namespace is not chained: no parent, position 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReserve(const ReserveRequest& request,
                          std::uint64_t largest) {
  if (request.name_space.id.IsZero() || request.name_space.tenant.IsZero() ||
      request.name_space.clear_epoch == ClearEpoch::kUnknown) {
    return absl::InvalidArgumentError("the namespace is not known");
  }
  if (request.name_space.block_bytes > largest) {
    return absl::InvalidArgumentError(
        StrCat("the namespace's blocks have ", request.name_space.block_bytes,
               " bytes; the largest block of this node has ", largest));
  }
  absl::flat_hash_set<BlockKey> keys;
  keys.reserve(request.blocks.size());
  for (std::size_t i = 0; i < request.blocks.size(); ++i) {
    const ReserveBlock& block = request.blocks[i];
    const absl::Status status =
        CheckBlock(request.name_space, block, i, largest);
    if (!status.ok()) return status;
    if (!keys.insert(block.key).second) {
      return Refuse(i, "the key is in this batch already");
    }
  }
  return absl::OkStatus();
}

}  // namespace firnkv
