#include "server/node/node_messages.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/session_frame.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "proto/node.pb.h"

namespace firnkv {
namespace {

absl::Status Wrong(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(field, " ", what));
}

// What all calls about blocks begin with.
template <typename Message>
absl::StatusOr<SessionCall> CallAbout(const Message& message,
                                      std::uint64_t seen) {
  SessionCall call;
  ASSIGN_OR_RETURN(call.name_space, IdFromProto<NamespaceId>(
                                        "name_space", message.name_space()));
  if (call.name_space.IsZero()) return Wrong("name_space", "is zero");
  ASSIGN_OR_RETURN(call.keys, KeysFromProto("keys", message.keys()));
  call.seen = ClearEpoch{seen};
  return call;
}

template <typename Column>
absl::StatusOr<std::vector<LeaseId>> ReadLeases(const Column& column) {
  if (static_cast<std::size_t>(column.size()) > kMaxBatchKeys) {
    return Wrong("leases", StrCat("has ", column.size(), " entries; at most ",
                                  kMaxBatchKeys, " are allowed"));
  }
  std::vector<LeaseId> leases;
  leases.reserve(static_cast<std::size_t>(column.size()));
  for (const std::uint64_t lease : column) leases.push_back(LeaseId{lease});
  return leases;
}

std::uint32_t Millis(absl::Duration duration) {
  return static_cast<std::uint32_t>(absl::ToInt64Milliseconds(
      std::clamp(duration, absl::ZeroDuration(), kLongestDeadline)));
}

// One block's extents off the front of the columns; nullopt-like: a status
// where they are too long together.
absl::Status TakeExtents(const v1::CommitRequest& message, std::uint32_t count,
                         int* next, WritePath::CommitCall::Block* block,
                         std::uint64_t* bytes) {
  for (std::uint32_t i = 0; i < count; ++i, ++*next) {
    const WritePath::CommitCall::Extent extent{
        .staging = message.extent_stagings(*next),
        .offset = message.extent_offsets(*next),
        .length = message.extent_lengths(*next)};
    if (extent.length == 0 || extent.length > kLargestBlockBytes) {
      return Wrong("extent_lengths", StrCat("has a length of ", extent.length));
    }
    *bytes += extent.length;
    block->extents.push_back(extent);
  }
  if (*bytes > kLargestBlockBytes) {
    return Wrong("extent_lengths",
                 StrCat("make a block of ", *bytes, " bytes; at most ",
                        kLargestBlockBytes, " are allowed"));
  }
  return absl::OkStatus();
}

// Blocks of which copies are at another node, with the clear epochs of those.
template <typename Message>
absl::StatusOr<std::vector<CopyOrder::Block>> CopiedBlocks(
    const Message& message) {
  ASSIGN_OR_RETURN(const std::vector<BlockRow> rows,
                   FromProto(message.blocks()));
  const auto epochs = static_cast<std::size_t>(message.clear_epochs_size());
  if (epochs != rows.size()) {
    return Wrong("clear_epochs",
                 StrCat("has ", epochs, " entries, which is not one a block"));
  }
  absl::flat_hash_set<BlockKey> keys;
  std::vector<CopyOrder::Block> blocks;
  blocks.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const BlockRow& row = rows[i];
    if (row.key.IsZero()) return Wrong("blocks.keys", "has a zero");
    if (!keys.insert(row.key).second) {
      return Wrong("blocks.keys", "names one twice");
    }
    if (row.length == 0 || row.length > kLargestBlockBytes) {
      return Wrong("blocks.lengths",
                   StrCat("has ", row.length, "; 1 to ", kLargestBlockBytes,
                          " are allowed"));
    }
    const ClearEpoch epoch{message.clear_epochs(static_cast<int>(i))};
    if (epoch == ClearEpoch::kUnknown) return Wrong("clear_epochs", "has a 0");
    blocks.push_back({row.key, row.place, row.length, epoch});
  }
  return blocks;
}

}  // namespace

absl::StatusOr<CommitWait> WaitFromWire(std::uint32_t wait_for) {
  switch (wait_for) {
    case 0:
      return CommitWait::kLocal;
    case 1:
      return CommitWait::kPublished;
    case 2:
      return Wrong("wait_for", "is flash, and this node has no flash tier");
  }
  return Wrong("wait_for", StrCat(wait_for, " is unknown"));
}

absl::StatusOr<EvictionPolicy::ConversationState> ConversationFromWire(
    std::uint32_t session_state) {
  using State = EvictionPolicy::ConversationState;
  switch (session_state) {
    case 0:
      return State::kUnknown;
    case 1:
      return State::kWillReturn;
    case 2:
      return State::kEnded;
  }
  return Wrong("hint.session_state", StrCat(session_state, " is unknown"));
}

absl::StatusOr<SessionCall> CallFromProto(const v1::OpenReadRequest& message) {
  return CallAbout(message, message.clear_epoch());
}

absl::StatusOr<SessionCall> CallFromProto(const v1::ExistsRequest& message) {
  return CallAbout(message, message.clear_epoch());
}

absl::StatusOr<SessionCall> CallFromProto(
    const v1::NodeRemoveRequest& message) {
  return CallAbout(message, 0);
}

absl::StatusOr<SessionCall> CallFromProto(
    const v1::ReportCorruptRequest& message) {
  return CallAbout(message, 0);
}

absl::StatusOr<std::vector<Generation>> GenerationsFromProto(
    const v1::ReportCorruptRequest& message) {
  const auto count = static_cast<std::size_t>(message.generations_size());
  if (count * BlockKey::kBytes != message.keys().size()) {
    return Wrong("generations",
                 StrCat("has ", count, " entries, which is not one a key"));
  }
  std::vector<Generation> generations;
  for (const std::uint64_t one : message.generations()) {
    if (one == 0) return Wrong("generations", "has a zero");
    generations.push_back(Generation{one});
  }
  return generations;
}

void ToProto(const ReadPath::OpenAnswer& answer, v1::OpenReadResponse* out) {
  for (const Opened& block : answer.blocks) {
    out->mutable_outcomes()->push_back(static_cast<char>(block.outcome));
    if (block.outcome != Outcome::kHit) continue;
    out->add_generations(static_cast<std::uint64_t>(block.copy.generation));
    out->add_lengths(block.length);
    out->add_extent_counts(1);
    out->add_extent_regions(block.copy.slot.region);
    out->add_extent_offsets(block.copy.slot.offset());
    out->add_extent_lengths(block.length);
  }
  out->set_retry_after_millis(Millis(answer.retry_after));
  out->set_lease(static_cast<std::uint64_t>(answer.lease.id));
  out->set_lease_millis(Millis(answer.lease.valid_for));
  out->set_clear_epoch(static_cast<std::uint64_t>(answer.clear_epoch));
}

void ToProto(absl::Span<const Found> found, v1::ExistsResponse* out) {
  for (const Found& block : found) {
    out->mutable_outcomes()->push_back(static_cast<char>(block.outcome));
    if (block.outcome == Outcome::kHit) out->add_lengths(block.length);
  }
}

absl::StatusOr<std::vector<LeaseId>> LeasesFromProto(
    const v1::ReleaseRequest& message) {
  return ReadLeases(message.leases());
}

absl::StatusOr<std::vector<LeaseId>> LeasesFromProto(
    const v1::RenewRequest& message) {
  return ReadLeases(message.leases());
}

absl::StatusOr<WritePath::ReserveCall> CallFromProto(
    const v1::ReserveRequest& message) {
  WritePath::ReserveCall call;
  ASSIGN_OR_RETURN(call.wait, WaitFromWire(message.wait_for()));
  ASSIGN_OR_RETURN(call.name_space, IdFromProto<NamespaceId>(
                                        "name_space", message.name_space()));
  if (call.name_space.IsZero()) return Wrong("name_space", "is zero");
  call.seen = ClearEpoch{message.clear_epoch()};
  ASSIGN_OR_RETURN(const std::vector<BlockRow> rows,
                   FromProto(message.blocks()));
  call.blocks.reserve(rows.size());
  for (const BlockRow& row : rows) {
    if (row.length > kLargestBlockBytes) {
      return Wrong("blocks.lengths",
                   StrCat("has ", row.length, "; at most ", kLargestBlockBytes,
                          " are allowed"));
    }
    call.blocks.push_back({row.key, row.place, row.length});
  }
  call.reserve_for = absl::Milliseconds(message.reservation_millis());
  if (message.hint().conversation().size() > kMaxConversationBytes) {
    return Wrong(
        "hint.conversation",
        StrCat("has ", message.hint().conversation().size(), " bytes; at most ",
               kMaxConversationBytes, " are allowed"));
  }
  ASSIGN_OR_RETURN(call.conversation,
                   ConversationFromWire(message.hint().session_state()));
  return call;
}

void ToProto(const Reservations::ReserveAnswer& answer,
             v1::ReserveResponse* out) {
  out->set_outcomes(OutcomesToProto(answer.outcomes));
  out->set_retry_after_millis(Millis(answer.retry_after));
  out->set_reservation(static_cast<std::uint64_t>(answer.reservation));
  out->set_reservation_millis(Millis(answer.valid_for));
  out->set_clear_epoch(static_cast<std::uint64_t>(answer.clear_epoch));
}

absl::StatusOr<WritePath::CommitCall> CallFromProto(
    const v1::CommitRequest& message) {
  WritePath::CommitCall call;
  call.reservation = ReservationId{message.reservation()};
  if (call.reservation == ReservationId::kNone) {
    return Wrong("reservation", "is zero");
  }
  ASSIGN_OR_RETURN(call.wait, WaitFromWire(message.wait_for()));
  const auto blocks = static_cast<std::size_t>(message.indexes_size());
  if (blocks > kMaxBatchKeys) {
    return Wrong("indexes", StrCat("has ", blocks, " entries; at most ",
                                   kMaxBatchKeys, " are allowed"));
  }
  const absl::Span<const std::uint32_t> counts(
      message.extent_counts().data(),
      static_cast<std::size_t>(message.extent_counts_size()));
  RETURN_IF_ERROR(CheckExtents(
      blocks, counts, static_cast<std::size_t>(message.extent_stagings_size()),
      static_cast<std::size_t>(message.extent_offsets_size()),
      static_cast<std::size_t>(message.extent_lengths_size())));
  int extent = 0;
  int piece = 0;
  for (std::size_t i = 0; i < blocks; ++i) {
    WritePath::CommitCall::Block block;
    block.index = message.indexes(static_cast<int>(i));
    std::uint64_t bytes = 0;
    RETURN_IF_ERROR(TakeExtents(message, counts[i], &extent, &block, &bytes));
    const auto pieces = static_cast<int>(DivideUp(bytes, kPieceBytes));
    if (message.pieces_size() - piece < pieces) {
      return Wrong("pieces", "has fewer entries than the blocks have pieces");
    }
    block.pieces.assign(message.pieces().begin() + piece,
                        message.pieces().begin() + piece + pieces);
    piece += pieces;
    call.blocks.push_back(std::move(block));
  }
  if (piece != message.pieces_size()) {
    return Wrong("pieces", "has more entries than the blocks have pieces");
  }
  return call;
}

absl::StatusOr<Promoter::Note> NoteFromProto(
    const v1::NoteRemoteReadsRequest& message) {
  Promoter::Note note;
  ASSIGN_OR_RETURN(note.name_space, IdFromProto<NamespaceId>(
                                        "name_space", message.name_space()));
  if (note.name_space.IsZero()) return Wrong("name_space", "is zero");
  ASSIGN_OR_RETURN(note.blocks, CopiedBlocks(message));
  const auto blocks = static_cast<int>(note.blocks.size());
  if (message.nodes_size() > blocks) {
    return Wrong("nodes", "has more entries than there are blocks");
  }
  for (const v1::NodeAddress& node : message.nodes()) {
    RETURN_IF_ERROR(FromProto(node).status());
  }
  if (message.node_indexes_size() != blocks) {
    return Wrong("node_indexes", StrCat("has ", message.node_indexes_size(),
                                        " entries, which is not one a block"));
  }
  for (const std::uint32_t index : message.node_indexes()) {
    if (index >= static_cast<std::uint32_t>(message.nodes_size())) {
      return Wrong("node_indexes", StrCat("has ", index));
    }
  }
  return note;
}

void ToProto(absl::Span<const std::size_t> here,
             v1::NoteRemoteReadsResponse* out) {
  for (const std::size_t index : here) {
    out->add_here(static_cast<std::uint32_t>(index));
  }
}

absl::StatusOr<CopyOrder> OrderFromProto(
    const v1::FetchCopiesRequest& message) {
  CopyOrder order;
  ASSIGN_OR_RETURN(order.source, FromProto(message.source()));
  if (order.source.node.IsZero()) return Wrong("source.node", "is zero");
  if (order.source.epoch == NodeEpoch::kNone) {
    return Wrong("source.epoch", "is zero");
  }
  if (order.source.stream_address.empty()) {
    return Wrong("source.stream_address", "is empty");
  }
  ASSIGN_OR_RETURN(order.name_space, IdFromProto<NamespaceId>(
                                         "name_space", message.name_space()));
  if (order.name_space.IsZero()) return Wrong("name_space", "is zero");
  ASSIGN_OR_RETURN(order.blocks, CopiedBlocks(message));
  return order;
}

}  // namespace firnkv
