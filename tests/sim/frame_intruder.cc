#include "tests/sim/frame_intruder.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/text.h"
#include "tests/sim/intruder.h"

namespace firnkv {
namespace {

// Out of a thousand calls.
constexpr std::uint32_t kEchoes = 60;
constexpr std::uint32_t kForeign = 15;
// No client counts from there: its SDK takes the answer for a late one.
constexpr std::uint64_t kForged = 0;

// As who the frame of a call speaks; nobody: it is no call that says so.
std::optional<SessionId> SpeakerOf(const CallFrame& frame) {
  const auto of = [](const auto& body) {
    return body.ok() ? std::optional<SessionId>(body->header.session)
                     : std::nullopt;
  };
  switch (frame.type) {
    case FrameType::kCallOpenRead:
      return of(DecodeCallOpenRead(frame.body));
    case FrameType::kCallReserve:
      return of(DecodeCallReserve(frame.body));
    case FrameType::kCallCommit:
      return of(DecodeCallCommit(frame.body));
    default:
      return std::nullopt;
  }
}

// The packet of the same call under `session`, or as it is where that is null.
template <typename Body>
std::string Speak(absl::StatusOr<Body> body, FrameType type,
                  std::string (*encode)(const Body&),
                  const SessionId* session) {
  if (!body.ok()) return {};
  if (session != nullptr) body->header.session = *session;
  return EncodeCallPacket(type, kForged, encode(*body));
}
std::string SpeakAs(const CallFrame& frame, const SessionId* session) {
  switch (frame.type) {
    case FrameType::kCallOpenRead:
      return Speak<CallOpenReadBody>(DecodeCallOpenRead(frame.body), frame.type,
                                     EncodeCallOpenRead, session);
    case FrameType::kCallReserve:
      return Speak<CallReserveBody>(DecodeCallReserve(frame.body), frame.type,
                                    EncodeCallReserve, session);
    case FrameType::kCallCommit:
      return Speak<CallCommitBody>(DecodeCallCommit(frame.body), frame.type,
                                   EncodeCallCommit, session);
    default:
      return {};
  }
}

// What an answer tells of each block.
std::vector<Outcome> OutcomesIn(const CallFrame& frame) {
  switch (frame.type) {
    case FrameType::kCallOpened: {
      std::vector<Outcome> outcomes;
      const auto body = DecodeCallOpened(frame.body);
      if (!body.ok()) return {};
      for (const CallOpenedBody::Block& block : body->blocks) {
        outcomes.push_back(block.outcome);
      }
      return outcomes;
    }
    case FrameType::kCallReserved: {
      const auto body = DecodeCallReserved(frame.body);
      return body.ok() ? body->outcomes : std::vector<Outcome>();
    }
    case FrameType::kCallCommitted: {
      const auto body = DecodeCallCommitted(frame.body);
      return body.ok() ? body->outcomes : std::vector<Outcome>();
    }
    default:
      return {};
  }
}

}  // namespace

FrameIntruder::FrameIntruder(SimCluster* cluster, Oracle* oracle)
    : cluster_(cluster), oracle_(oracle) {
  cluster->world()->packets()->Watch(
      [this](const SimPackets::Seen& seen) { OnPacket(seen); });
}

void FrameIntruder::OnPacket(const SimPackets::Seen& seen) {
  if (!BeginsFrame(seen.message)) return;
  const absl::StatusOr<CallFrame> frame = DecodeCallPacket(seen.message);
  if (!frame.ok()) return;
  if (frame->request == kForged) {
    if (!seen.from_client) OnForgedAnswer(seen, *frame);
    return;
  }
  if (stopped_ || !seen.from_client) return;
  const bool ends = frame->type == FrameType::kCallCommit ||
                    frame->type == FrameType::kCallRelease;
  if (ends && Now(kEchoes)) Echo(seen, *frame);
  const std::optional<SessionId> speaker = SpeakerOf(*frame);
  if (!speaker.has_value()) return;
  known_[seen.client->number()] = {*seen.line, *speaker};
  if (Now(kForeign)) AskAsAnother(seen, *frame);
}

void FrameIntruder::Send(const SimPackets::Line& line, std::string packet,
                         absl::Duration delay) {
  ++calls_;
  cluster_->executor()->root()->PostAfter(
      delay, [line, packet = std::move(packet)]() mutable {
        SimPackets::SendAsClient(line, std::move(packet));
      });
}

void FrameIntruder::Echo(const SimPackets::Seen& seen, const CallFrame& frame) {
  const absl::Duration delay = EchoDelay(cluster_->executor()->random());
  cluster_->executor()->Note(StrCat("frame ", static_cast<int>(frame.type),
                                    " again, in ", absl::FormatDuration(delay),
                                    ", from ", seen.client->name()));
  Send(*seen.line, std::string(seen.message), delay);
}

void FrameIntruder::AskAsAnother(const SimPackets::Seen& seen,
                                 const CallFrame& frame) {
  const SimWorker* asker = nullptr;
  for (const auto& worker : cluster_->workers()) {
    if (worker->running() && worker->process() == seen.client) {
      asker = worker.get();
    }
  }
  if (asker == nullptr) return;
  for (const auto& other : cluster_->workers()) {
    if (!other->running() || other->options().host != asker->options().host ||
        other->options().uid == asker->options().uid) {
      continue;
    }
    const auto known = known_.find(other->process()->number());
    if (known == known_.end()) continue;
    cluster_->executor()->Note(StrCat(other->options().name, " asks frame ",
                                      static_cast<int>(frame.type), " of ",
                                      asker->options().name));
    const bool as_itself = cluster_->executor()->Chance(500);
    Send(known->second.line,
         SpeakAs(frame, as_itself ? &known->second.session : nullptr),
         absl::ZeroDuration());
  }
}

// Under its own session it is told nothing; under another's it is refused as a
// whole, which tells nothing either.
void FrameIntruder::OnForgedAnswer(const SimPackets::Seen& seen,
                                   const CallFrame& frame) {
  for (const Outcome outcome : OutcomesIn(frame)) {
    if (TellsNothing(outcome)) continue;
    oracle_->Violation(StrCat("TOLD TO ANOTHER TENANT: ", seen.client->name(),
                              ", in frame ", static_cast<int>(frame.type), ": ",
                              OutcomeName(outcome)));
    return;
  }
}

}  // namespace firnkv
