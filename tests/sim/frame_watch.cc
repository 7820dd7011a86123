#include "tests/sim/frame_watch.h"

#include <string_view>
#include <utility>

#include "proto/base/text.h"
#include "proto/convert.h"
#include "proto/node.pb.h"

namespace firnkv {
namespace {

constexpr std::string_view kService = "/firnkv.v1.NodeService/";

// --- Answers; INTERNAL where a node would not say that.

template <typename Message>
SimControl::Answer Bytes(const Message& message) {
  return message.SerializeAsString();
}

SimControl::Answer OpenedOf(const CallOpenedBody& body) {
  v1::OpenReadResponse response;
  response.set_lease(body.lease);
  response.set_clear_epoch(static_cast<std::uint64_t>(body.clear_epoch));
  for (const CallOpenedBody::Block& block : body.blocks) {
    response.mutable_outcomes()->push_back(static_cast<char>(block.outcome));
    if (block.outcome != Outcome::kHit) continue;
    response.add_generations(static_cast<std::uint64_t>(block.generation));
  }
  return Bytes(response);
}

SimControl::Answer AnswerOf(const CallFrame& frame) {
  switch (frame.type) {
    case FrameType::kCallOpened: {
      const auto body = DecodeCallOpened(frame.body);
      return body.ok() ? OpenedOf(*body) : SimControl::Answer(body.status());
    }
    case FrameType::kCallReserved: {
      const auto body = DecodeCallReserved(frame.body);
      if (!body.ok()) return body.status();
      v1::ReserveResponse response;
      response.set_outcomes(OutcomesToProto(body->outcomes));
      response.set_reservation(body->reservation);
      response.set_clear_epoch(static_cast<std::uint64_t>(body->clear_epoch));
      return Bytes(response);
    }
    case FrameType::kCallCommitted: {
      const auto body = DecodeCallCommitted(frame.body);
      if (!body.ok()) return body.status();
      v1::CommitResponse response;
      response.set_outcomes(OutcomesToProto(body->outcomes));
      return Bytes(response);
    }
    case FrameType::kCallFailed: {
      const auto body = DecodeRefused(frame.body);
      return body.ok() ? body->reason : body.status();
    }
    default:
      return absl::InternalError("a frame that only a client sends");
  }
}

}  // namespace

FrameWatch::FrameWatch(SimWorld* world) : control_(world->control()) {
  world->packets()->Watch(
      [this](const SimPackets::Seen& seen) { OnPacket(seen); });
}

void FrameWatch::OnPacket(const SimPackets::Seen& seen) {
  if (!BeginsFrame(seen.message)) return;
  const absl::StatusOr<CallFrame> frame = DecodeCallPacket(seen.message);
  if (!frame.ok() || frame->request == 0) return;
  if (seen.from_client) {
    OnCall(seen, *frame);
  } else {
    OnAnswer(seen, *frame);
  }
}

void FrameWatch::OnCall(const SimPackets::Seen& seen, const CallFrame& frame) {
  CallMessage call = CallOf(frame);
  if (call.method.empty()) return;
  call.method = StrCat(kService, call.method);
  ++calls_;
  control_->ShowCall({seen.client, seen.server, call.method, call.request});
  if (frame.type == FrameType::kCallRelease) return;  // Not answered.
  Pending& pending = pending_[{seen.number, frame.request}];
  pending.call = std::move(call);
  ++pending.times;
}

void FrameWatch::OnAnswer(const SimPackets::Seen& seen,
                          const CallFrame& frame) {
  const auto it = pending_.find({seen.number, frame.request});
  if (it == pending_.end()) return;
  const CallMessage call = it->second.call;
  if (--it->second.times == 0) pending_.erase(it);
  control_->ShowAnswer({seen.client, seen.server, call.method, call.request},
                       AnswerOf(frame));
}

}  // namespace firnkv
