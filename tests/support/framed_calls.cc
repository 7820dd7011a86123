#include "tests/support/framed_calls.h"

#include <string_view>
#include <vector>

#include "proto/convert.h"
#include "proto/node.pb.h"

namespace firnkv {
namespace {

std::uint32_t Millis(absl::Duration time) {
  return static_cast<std::uint32_t>(absl::ToInt64Milliseconds(time));
}

template <typename Message>
CallMessage Named(std::string_view method, const Message& message) {
  return {std::string(method), message.SerializeAsString()};
}

CallMessage OpenReadOf(std::string_view bytes) {
  const auto body = DecodeCallOpenRead(bytes);
  if (!body.ok()) return {};
  v1::OpenReadRequest request;
  ToProto(body->header, request.mutable_header());
  request.set_name_space(IdToProto(body->name_space));
  request.set_clear_epoch(static_cast<std::uint64_t>(body->clear_epoch));
  request.set_keys(KeysToProto(body->keys));
  request.set_leading_run(body->leading_run);
  request.set_for_view(body->for_view);
  request.set_lease_millis(Millis(body->lease));
  return Named("OpenRead", request);
}

CallMessage ReleaseOf(std::string_view bytes) {
  const auto body = DecodeCallRelease(bytes);
  if (!body.ok()) return {};
  v1::ReleaseRequest request;
  ToProto(
      RequestHeader{.remaining = absl::Seconds(1), .session = body->session},
      request.mutable_header());
  for (const std::uint64_t lease : body->leases) request.add_leases(lease);
  return Named("Release", request);
}

CallMessage ReserveOf(std::string_view bytes) {
  const auto body = DecodeCallReserve(bytes);
  if (!body.ok()) return {};
  v1::ReserveRequest request;
  ToProto(body->header, request.mutable_header());
  request.set_name_space(IdToProto(body->name_space));
  request.set_clear_epoch(static_cast<std::uint64_t>(body->clear_epoch));
  std::vector<BlockRow> rows;
  for (const CallReserveBody::Block& block : body->blocks) {
    rows.push_back({block.key, block.place, block.length});
  }
  ToProto(rows, request.mutable_blocks());
  request.set_reservation_millis(Millis(body->reservation));
  request.mutable_hint()->set_conversation(body->conversation);
  request.mutable_hint()->set_session_state(body->session_state);
  request.set_wait_for(body->wait_for);
  return Named("Reserve", request);
}

CallMessage CommitOf(std::string_view bytes) {
  const auto body = DecodeCallCommit(bytes);
  if (!body.ok()) return {};
  v1::CommitRequest request;
  ToProto(body->header, request.mutable_header());
  request.set_reservation(body->reservation);
  request.set_wait_for(body->wait_for);
  for (const CallCommitBody::Block& block : body->blocks) {
    request.add_indexes(block.index);
    request.add_extent_counts(static_cast<std::uint32_t>(block.extents.size()));
    for (const CallExtent& extent : block.extents) {
      request.add_extent_stagings(extent.memory);
      request.add_extent_offsets(extent.offset);
      request.add_extent_lengths(extent.length);
    }
    for (const std::uint32_t piece : block.pieces) request.add_pieces(piece);
  }
  return Named("Commit", request);
}

}  // namespace

CallMessage CallOf(const CallFrame& frame) {
  switch (frame.type) {
    case FrameType::kCallOpenRead:
      return OpenReadOf(frame.body);
    case FrameType::kCallRelease:
      return ReleaseOf(frame.body);
    case FrameType::kCallReserve:
      return ReserveOf(frame.body);
    case FrameType::kCallCommit:
      return CommitOf(frame.body);
    default:
      return {};
  }
}

}  // namespace firnkv
