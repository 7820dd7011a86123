#include "server/node/session_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "server/node/node_messages.h"
#include "server/node/scoped_answer.h"

namespace firnkv {
namespace {

absl::StatusOr<WritePath::ReserveCall> CallFrom(CallReserveBody body) {
  WritePath::ReserveCall call;
  ASSIGN_OR_RETURN(call.wait, WaitFromWire(body.wait_for));
  ASSIGN_OR_RETURN(call.conversation, ConversationFromWire(body.session_state));
  call.name_space = body.name_space;
  call.seen = body.clear_epoch;
  call.reserve_for = body.reservation;
  call.blocks.reserve(body.blocks.size());
  for (const CallReserveBody::Block& block : body.blocks) {
    call.blocks.push_back({block.key, block.place, block.length});
  }
  return call;
}

absl::StatusOr<WritePath::CommitCall> CallFrom(CallCommitBody body) {
  WritePath::CommitCall call;
  ASSIGN_OR_RETURN(call.wait, WaitFromWire(body.wait_for));
  call.reservation = ReservationId{body.reservation};
  if (call.reservation == ReservationId::kNone) {
    return absl::InvalidArgumentError("reservation is zero");
  }
  call.blocks.reserve(body.blocks.size());
  for (CallCommitBody::Block& one : body.blocks) {
    WritePath::CommitCall::Block block;
    block.index = one.index;
    for (const CallExtent& extent : one.extents) {
      block.extents.push_back({.staging = extent.memory,
                               .offset = extent.offset,
                               .length = extent.length});
    }
    block.pieces = std::move(one.pieces);
    call.blocks.push_back(std::move(block));
  }
  return call;
}

}  // namespace

absl::Status SessionCalls::OnFrame(std::string_view packet) {
  ASSIGN_OR_RETURN(const CallFrame frame, DecodeCallPacket(packet));
  parts_.metrics->frame_calls.Add();
  switch (frame.type) {
    case FrameType::kCallOpenRead:
      return OpenRead(frame);
    case FrameType::kCallRelease:
      return Release(frame);
    case FrameType::kCallReserve:
      return Reserve(frame);
    case FrameType::kCallCommit:
      return Commit(frame);
    default:
      return absl::InvalidArgumentError("a frame that only a node sends");
  }
}

bool SessionCalls::Begin(std::uint64_t request, const RequestHeader& header) {
  if (in_flight_.load(std::memory_order_relaxed) >= kMaxCallsInFlight) {
    Fail(request, absl::ResourceExhaustedError(
                      "too many calls of this session are in flight"));
    return false;
  }
  absl::Status status = Validate(header);
  if (status.ok() && header.session != session_.id) {
    status = absl::UnauthenticatedError("this socket is another session's");
  }
  if (!status.ok()) {
    Refuse(request, status);
    return false;
  }
  return true;
}

void SessionCalls::Answer(FrameType type, std::uint64_t request,
                          const std::string& body) {
  send_(EncodeCallPacket(type, request, body));
}

void SessionCalls::Fail(std::uint64_t request, const absl::Status& why) {
  Answer(FrameType::kCallFailed, request, EncodeRefused({.reason = why}));
}

void SessionCalls::Refuse(std::uint64_t request, const absl::Status& why) {
  if (absl::IsInvalidArgument(why)) parts_.metrics->bad_requests.Add();
  Fail(request, why);
}

// --- Reads.

absl::Status SessionCalls::OpenRead(const CallFrame& frame) {
  ASSIGN_OR_RETURN(CallOpenReadBody body, DecodeCallOpenRead(frame.body));
  const std::uint64_t request = frame.request;
  if (!Begin(request, body.header)) return absl::OkStatus();
  if (body.name_space.IsZero()) {
    Refuse(request, absl::InvalidArgumentError("name_space is zero"));
    return absl::OkStatus();
  }
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  SessionCall call;
  call.session = session_;
  call.name_space = body.name_space;
  call.seen = body.clear_epoch;
  call.deadline = parts_.clock->Now() + body.header.remaining;
  call.keys = std::move(body.keys);
  parts_.reads->StartOpen(
      std::move(call),
      body.leading_run ? ReadSpan::kLeadingRun : ReadSpan::kEveryBlock,
      body.for_view ? LeaseUse::kView : LeaseUse::kCopy, body.lease,
      ScopedAnswer<ReadPath::OpenAnswer>(
          scope_, [this, request](const ReadPath::OpenAnswer& answer) {
            in_flight_.fetch_sub(1, std::memory_order_relaxed);
            AnswerOpenRead(request, answer);
          }));
  return absl::OkStatus();
}

void SessionCalls::AnswerOpenRead(std::uint64_t request,
                                  const ReadPath::OpenAnswer& answer) {
  CallOpenedBody body;
  body.lease = static_cast<std::uint64_t>(answer.lease.id);
  body.lease_time = answer.lease.valid_for;
  body.clear_epoch = answer.clear_epoch;
  body.retry_after = answer.retry_after;
  body.blocks.reserve(answer.blocks.size());
  for (const Opened& opened : answer.blocks) {
    CallOpenedBody::Block block;
    block.outcome = opened.outcome;
    if (opened.outcome == Outcome::kHit) {
      block.generation = opened.copy.generation;
      block.extents.push_back({.memory = opened.copy.slot.region,
                               .offset = opened.copy.slot.offset(),
                               .length = opened.length});
    }
    body.blocks.push_back(std::move(block));
  }
  const std::string bytes = EncodeCallOpened(body);
  // A pool's block is one extent (session_frame.h has the arithmetic).
  CHECK(kFrameLeadBytes + bytes.size() <= kMaxSessionMessageBytes);
  Answer(FrameType::kCallOpened, request, bytes);
}

absl::Status SessionCalls::Release(const CallFrame& frame) {
  ASSIGN_OR_RETURN(const CallReleaseBody body, DecodeCallRelease(frame.body));
  if (body.session != session_.id) {
    return absl::InvalidArgumentError("a release of another session");
  }
  std::vector<LeaseId> leases;
  leases.reserve(body.leases.size());
  for (const std::uint64_t lease : body.leases) {
    leases.push_back(LeaseId{lease});
  }
  parts_.reads->Release(session_, leases);
  return absl::OkStatus();
}

// --- Writes.

absl::Status SessionCalls::Reserve(const CallFrame& frame) {
  ASSIGN_OR_RETURN(CallReserveBody body, DecodeCallReserve(frame.body));
  const std::uint64_t request = frame.request;
  const RequestHeader header = body.header;
  if (!Begin(request, header)) return absl::OkStatus();
  absl::StatusOr<WritePath::ReserveCall> call = CallFrom(std::move(body));
  if (call.ok() && call->name_space.IsZero()) {
    call = absl::InvalidArgumentError("name_space is zero");
  }
  if (!call.ok()) {
    Refuse(request, call.status());
    return absl::OkStatus();
  }
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  call->session = session_;
  call->deadline = parts_.clock->Now() + header.remaining;
  parts_.writes->StartReserve(
      *std::move(call),
      ScopedAnswer<Reservations::ReserveAnswer>(
          scope_, [this, request](Reservations::ReserveAnswer answer) {
            in_flight_.fetch_sub(1, std::memory_order_relaxed);
            if (!answer.status.ok()) return Refuse(request, answer.status);
            Answer(
                FrameType::kCallReserved, request,
                EncodeCallReserved({.reservation = static_cast<std::uint64_t>(
                                        answer.reservation),
                                    .reservation_time = answer.valid_for,
                                    .clear_epoch = answer.clear_epoch,
                                    .retry_after = answer.retry_after,
                                    .outcomes = std::move(answer.outcomes)}));
          }));
  return absl::OkStatus();
}

absl::Status SessionCalls::Commit(const CallFrame& frame) {
  ASSIGN_OR_RETURN(CallCommitBody body, DecodeCallCommit(frame.body));
  const std::uint64_t request = frame.request;
  const RequestHeader header = body.header;
  if (!Begin(request, header)) return absl::OkStatus();
  absl::StatusOr<WritePath::CommitCall> call = CallFrom(std::move(body));
  if (!call.ok()) {
    Refuse(request, call.status());
    return absl::OkStatus();
  }
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  call->session = session_;
  call->traffic = header.traffic;
  call->deadline = parts_.clock->Now() + header.remaining;
  parts_.writes->StartCommit(
      *std::move(call),
      ScopedAnswer<WritePath::CommitAnswer>(
          scope_, [this, request](const WritePath::CommitAnswer& answer) {
            in_flight_.fetch_sub(1, std::memory_order_relaxed);
            AnswerCommit(request, answer);
          }));
  return absl::OkStatus();
}

void SessionCalls::AnswerCommit(std::uint64_t request,
                                const WritePath::CommitAnswer& answer) {
  if (!answer.status.ok()) return Refuse(request, answer.status);
  CallCommittedBody body;
  body.outcomes = answer.outcomes;
  if (std::find(body.outcomes.begin(), body.outcomes.end(),
                Outcome::kCongested) != body.outcomes.end()) {
    body.retry_after = parts_.reads->retry_after();
  }
  Answer(FrameType::kCallCommitted, request, EncodeCallCommitted(body));
}

}  // namespace firnkv
