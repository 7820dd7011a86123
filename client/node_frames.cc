#include "client/node_frames.h"

#include <algorithm>
#include <utility>

#include "proto/base/limits.h"
#include "proto/base/session_frame.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

absl::Status Nonsense(std::string_view what) {
  return absl::InternalError(StrCat("the node answered ", what));
}

// A body that does not decode, or is about another number of blocks.
template <typename Body>
absl::StatusOr<Body> Decode(
    absl::StatusOr<std::string> bytes,
    absl::StatusOr<Body> (*decode)(std::string_view bytes)) {
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<Body> body = decode(*bytes);
  if (!body.ok()) return Nonsense(ToStd(body.status().message()));
  return body;
}

}  // namespace

std::string EncodeFrame(const RequestHeader& header,
                        const NodeClient::OpenReadCall& call) {
  return EncodeCallOpenRead({.header = header,
                             .name_space = call.name_space,
                             .clear_epoch = call.clear_epoch,
                             .leading_run = call.leading_run,
                             .for_view = call.for_view,
                             .lease = call.lease,
                             .keys = call.keys});
}

std::string EncodeFrame(const RequestHeader& header,
                        const NodeClient::ReserveCall& call) {
  CallReserveBody body;
  body.header = header;
  body.name_space = call.name_space;
  body.clear_epoch = call.clear_epoch;
  body.reservation = call.reservation;
  body.wait_for = static_cast<std::uint32_t>(call.wait_for);
  body.session_state = static_cast<std::uint32_t>(call.hint.session);
  body.conversation = call.hint.conversation;
  body.blocks.reserve(call.blocks.size());
  for (const NodeClient::ReserveCall::Block& block : call.blocks) {
    body.blocks.push_back({block.key, block.place, block.length});
  }
  return EncodeCallReserve(body);
}

std::string EncodeFrame(const RequestHeader& header,
                        const NodeClient::CommitCall& call) {
  CallCommitBody body;
  body.header = header;
  body.reservation = call.reservation;
  body.wait_for = static_cast<std::uint32_t>(call.wait_for);
  body.blocks.reserve(call.blocks.size());
  for (const NodeClient::CommitCall::Block& block : call.blocks) {
    body.blocks.push_back({block.index, block.extents, block.pieces});
  }
  return EncodeCallCommit(body);
}

absl::StatusOr<NodeClient::OpenReadAnswer> OpenedFromFrame(
    absl::StatusOr<std::string> bytes, std::size_t wanted) {
  ASSIGN_OR_RETURN(CallOpenedBody body,
                   Decode<CallOpenedBody>(std::move(bytes), DecodeCallOpened));
  if (body.blocks.size() != wanted) return Nonsense("about other blocks");
  NodeClient::OpenReadAnswer answer;
  answer.retry_after = body.retry_after;
  answer.lease = body.lease;
  answer.lease_time = body.lease_time;
  answer.clear_epoch = body.clear_epoch;
  answer.grants.resize(wanted);
  for (std::size_t i = 0; i < wanted; ++i) {
    NodeClient::Grant& grant = answer.grants[i];
    grant.outcome = body.blocks[i].outcome;
    grant.generation = body.blocks[i].generation;
    for (const Extent& extent : body.blocks[i].extents) {
      if (extent.offset % kPageBytes != 0) {
        return Nonsense("an extent that cannot be");
      }
      grant.length += extent.length;
    }
    grant.extents = std::move(body.blocks[i].extents);
  }
  return answer;
}

absl::StatusOr<NodeClient::ReserveAnswer> ReservedFromFrame(
    absl::StatusOr<std::string> bytes, std::size_t wanted) {
  ASSIGN_OR_RETURN(
      CallReservedBody body,
      Decode<CallReservedBody>(std::move(bytes), DecodeCallReserved));
  if (body.outcomes.size() != wanted) return Nonsense("about other blocks");
  const bool reserved = std::find(body.outcomes.begin(), body.outcomes.end(),
                                  Outcome::kStored) != body.outcomes.end();
  if (reserved && body.reservation == 0) {
    return Nonsense("a reservation without a number");
  }
  NodeClient::ReserveAnswer answer;
  answer.outcomes = std::move(body.outcomes);
  answer.retry_after = body.retry_after;
  answer.reservation = body.reservation;
  answer.reservation_time = body.reservation_time;
  answer.clear_epoch = body.clear_epoch;
  return answer;
}

absl::StatusOr<NodeClient::CommitAnswer> CommittedFromFrame(
    absl::StatusOr<std::string> bytes, std::size_t wanted) {
  ASSIGN_OR_RETURN(
      CallCommittedBody body,
      Decode<CallCommittedBody>(std::move(bytes), DecodeCallCommitted));
  if (body.outcomes.size() != wanted) return Nonsense("about other blocks");
  return NodeClient::CommitAnswer{.outcomes = std::move(body.outcomes),
                                  .retry_after = body.retry_after};
}

}  // namespace firnkv
