#include "client/node_client.h"

#include <algorithm>
#include <utility>

#include "client/node_frames.h"
#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "proto/node.pb.h"

namespace firnkv {
namespace {

// Calls that nobody waits for.
constexpr absl::Duration kAsideTimeout = absl::Seconds(5);
// Longer than a node takes for the copies that it fetches.
constexpr absl::Duration kNoteTimeout = absl::Seconds(10);
// The node answers by its own count of the deadline, which may be after ours.
// What a late answer has taken is given back at once: a reservation that nobody
// knows would block its slots for half a minute.
constexpr absl::Duration kLateAnswer = absl::Seconds(1);

absl::Status Nonsense(std::string_view what) {
  return absl::InternalError(StrCat("the node answered ", what));
}

absl::Duration Millis(std::uint32_t millis) {
  return absl::Milliseconds(static_cast<std::int64_t>(millis));
}

std::uint32_t ToMillis(absl::Duration duration) {
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(absl::ToInt64Milliseconds(duration), 1,
                               absl::ToInt64Milliseconds(absl::Hours(1))));
}

template <typename Message>
absl::StatusOr<Message> Parse(absl::StatusOr<std::string> response) {
  if (!response.ok()) return response.status();
  Message message;
  if (!message.ParseFromString(*response)) return Nonsense("no message");
  return message;
}

// Outcomes as a read may have them.
absl::StatusOr<std::vector<Outcome>> ReadOutcomes(std::string_view bytes,
                                                  std::size_t wanted) {
  ASSIGN_OR_RETURN(std::vector<Outcome> outcomes,
                   OutcomesFromProto(bytes, wanted));
  for (const Outcome outcome : outcomes) {
    if (outcome > Outcome::kStaleLocation) {
      return Nonsense("a write's outcome to a read");
    }
  }
  return outcomes;
}

// The extents of one granted block, which must lie in pages and add up.
absl::Status TakeExtents(const v1::OpenReadResponse& response,
                         std::size_t count, int* next,
                         NodeClient::Grant* grant) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i, ++*next) {
    const Extent extent{.memory = response.extent_regions(*next),
                        .offset = response.extent_offsets(*next),
                        .length = response.extent_lengths(*next)};
    if (extent.length == 0 || extent.length > grant->length ||
        extent.offset % kPageBytes != 0) {
      return Nonsense("an extent that cannot be");
    }
    sum += extent.length;
    grant->extents.push_back(extent);
  }
  if (sum != grant->length) return Nonsense("extents that do not add up");
  return absl::OkStatus();
}

absl::StatusOr<NodeClient::OpenReadAnswer> DecodeOpenRead(
    absl::StatusOr<std::string> bytes, std::size_t keys) {
  ASSIGN_OR_RETURN(const auto response,
                   Parse<v1::OpenReadResponse>(std::move(bytes)));
  ASSIGN_OR_RETURN(const std::vector<Outcome> outcomes,
                   ReadOutcomes(response.outcomes(), keys));
  const auto hits = static_cast<int>(
      std::count(outcomes.begin(), outcomes.end(), Outcome::kHit));
  if (response.generations_size() != hits || response.lengths_size() != hits) {
    return Nonsense("columns of different lengths");
  }
  RETURN_IF_ERROR(
      CheckExtents(static_cast<std::size_t>(hits), response.extent_counts(),
                   static_cast<std::size_t>(response.extent_regions_size()),
                   static_cast<std::size_t>(response.extent_offsets_size()),
                   static_cast<std::size_t>(response.extent_lengths_size())));
  if (hits > 0 && response.lease() == 0) return Nonsense("hits without lease");

  NodeClient::OpenReadAnswer answer;
  answer.retry_after = Millis(response.retry_after_millis());
  answer.lease = response.lease();
  answer.lease_time = Millis(response.lease_millis());
  answer.clear_epoch = ClearEpoch{response.clear_epoch()};
  answer.grants.resize(keys);
  int hit = 0;
  int extent = 0;
  for (std::size_t i = 0; i < keys; ++i) {
    NodeClient::Grant& grant = answer.grants[i];
    grant.outcome = outcomes[i];
    if (grant.outcome != Outcome::kHit) continue;
    grant.generation = Generation{response.generations(hit)};
    grant.length = response.lengths(hit);
    if (grant.generation == Generation::kNone || grant.length == 0 ||
        grant.length > kLargestBlockBytes) {
      return Nonsense("a block that cannot be");
    }
    RETURN_IF_ERROR(
        TakeExtents(response, response.extent_counts(hit), &extent, &grant));
    ++hit;
  }
  return answer;
}

absl::StatusOr<NodeClient::ReserveAnswer> DecodeReserve(
    absl::StatusOr<std::string> bytes, std::size_t blocks) {
  ASSIGN_OR_RETURN(const auto response,
                   Parse<v1::ReserveResponse>(std::move(bytes)));
  NodeClient::ReserveAnswer answer;
  ASSIGN_OR_RETURN(answer.outcomes,
                   OutcomesFromProto(response.outcomes(), blocks));
  const bool reserved =
      std::find(answer.outcomes.begin(), answer.outcomes.end(),
                Outcome::kStored) != answer.outcomes.end();
  if (reserved && response.reservation() == 0) {
    return Nonsense("a reservation without a number");
  }
  answer.retry_after = Millis(response.retry_after_millis());
  answer.reservation = response.reservation();
  answer.reservation_time = Millis(response.reservation_millis());
  answer.clear_epoch = ClearEpoch{response.clear_epoch()};
  return answer;
}

absl::StatusOr<NodeClient::CommitAnswer> DecodeCommit(
    absl::StatusOr<std::string> bytes, std::size_t blocks) {
  ASSIGN_OR_RETURN(const auto response,
                   Parse<v1::CommitResponse>(std::move(bytes)));
  NodeClient::CommitAnswer answer;
  ASSIGN_OR_RETURN(answer.outcomes,
                   OutcomesFromProto(response.outcomes(), blocks));
  answer.retry_after = Millis(response.retry_after_millis());
  return answer;
}

std::string EncodeOpenRead(const RequestHeader& header,
                           const NodeClient::OpenReadCall& call) {
  v1::OpenReadRequest request;
  ToProto(header, request.mutable_header());
  request.set_name_space(IdToProto(call.name_space));
  request.set_clear_epoch(static_cast<std::uint64_t>(call.clear_epoch));
  request.set_keys(KeysToProto(call.keys));
  request.set_leading_run(call.leading_run);
  request.set_for_view(call.for_view);
  request.set_lease_millis(ToMillis(call.lease));
  return request.SerializeAsString();
}

std::string EncodeReserve(const RequestHeader& header,
                          const NodeClient::ReserveCall& call) {
  v1::ReserveRequest request;
  ToProto(header, request.mutable_header());
  request.set_name_space(IdToProto(call.name_space));
  request.set_clear_epoch(static_cast<std::uint64_t>(call.clear_epoch));
  std::vector<BlockRow> rows;
  rows.reserve(call.blocks.size());
  for (const NodeClient::ReserveCall::Block& block : call.blocks) {
    rows.push_back(BlockRow{block.key, block.place, block.length});
  }
  ToProto(rows, request.mutable_blocks());
  request.set_reservation_millis(ToMillis(call.reservation));
  request.set_wait_for(static_cast<std::uint32_t>(call.wait_for));
  request.mutable_hint()->set_conversation(call.hint.conversation);
  request.mutable_hint()->set_session_state(
      static_cast<std::uint32_t>(call.hint.session));
  return request.SerializeAsString();
}

std::string EncodeCommit(const RequestHeader& header,
                         const NodeClient::CommitCall& call) {
  v1::CommitRequest request;
  ToProto(header, request.mutable_header());
  request.set_reservation(call.reservation);
  request.set_wait_for(static_cast<std::uint32_t>(call.wait_for));
  for (const NodeClient::CommitCall::Block& block : call.blocks) {
    request.add_indexes(block.index);
    request.add_extent_counts(static_cast<std::uint32_t>(block.extents.size()));
    for (const Extent& extent : block.extents) {
      request.add_extent_stagings(extent.memory);
      request.add_extent_offsets(extent.offset);
      request.add_extent_lengths(extent.length);
    }
    for (const std::uint32_t piece : block.pieces) request.add_pieces(piece);
  }
  return request.SerializeAsString();
}

}  // namespace

NodeClient::NodeClient(const Seams* seams, ClientCounters* counters)
    : seams_(seams),
      counters_(counters),
      link_(seams, counters),
      frames_(seams->executor) {}

NodeClient::~NodeClient() { Close(); }

void NodeClient::Attach(SessionId session, std::string address, CallLine* line,
                        std::uint64_t serial) {
  {
    MutexLock lock(&mutex_);
    session_ = session;
    releases_.clear();
  }
  link_.SetAddress(std::move(address));
  if (line != nullptr) frames_.Open(session, line, serial);
}

void NodeClient::Detach() {
  {
    MutexLock lock(&mutex_);
    session_ = SessionId{};
    releases_.clear();
  }
  frames_.End(absl::UnavailableError("the local session ended"));
  link_.SetAddress("");
}

void NodeClient::Close() {
  scope_.Close();
  frames_.Close();
  link_.Close();
}

SessionId NodeClient::session() const {
  MutexLock lock(&mutex_);
  return session_;
}

RequestHeader NodeClient::HeaderFor(const CallContext& context,
                                    SessionId session) const {
  RequestHeader header;
  header.remaining =
      std::min(context.deadline - seams_->clock->Now(), kLongestDeadline);
  header.traffic = context.traffic;
  header.trace = context.trace;
  header.session = session;
  return header;
}

void NodeClient::Call(ControlCall call, SessionId session,
                      const Encoders& encoders, BootTime until,
                      FrameCalls::Done done) {
  if (encoders.fits && frames_.MayStart(session) &&
      seams_->clock->Now() < until &&
      frames_.Start(session, encoders.type, encoders.frame(), until, &done)) {
    counters_->calls[static_cast<std::size_t>(call)].Add();
    counters_->frame_calls.Add();
    return;
  }
  link_.Call(
      call, encoders.message(), until,
      [done = std::move(done)](absl::StatusOr<std::string> bytes) mutable {
        std::move(done)(std::move(bytes), FrameCalls::Way::kGrpc);
      });
}

void NodeClient::StartOpenRead(
    const CallContext& context, const OpenReadCall& call,
    absl::AnyInvocable<void(absl::StatusOr<OpenReadAnswer>) &&> done) {
  const SessionId session = this->session();
  const RequestHeader header = HeaderFor(context, session);
  Call(ControlCall::kOpenRead, session,
       {.type = FrameType::kCallOpenRead,
        .frame = [&] { return EncodeFrame(header, call); },
        .message = [&] { return EncodeOpenRead(header, call); },
        .fits = call.keys.size() <= kMaxCallKeys},
       context.deadline + kLateAnswer,
       [session, keys = call.keys.size(), done = std::move(done)](
           absl::StatusOr<std::string> bytes, FrameCalls::Way way) mutable {
         auto answer = way == FrameCalls::Way::kFrame
                           ? OpenedFromFrame(std::move(bytes), keys)
                           : DecodeOpenRead(std::move(bytes), keys);
         if (answer.ok()) answer->session = session;
         std::move(done)(std::move(answer));
       });
}

void NodeClient::ReleaseLater(SessionId session, std::uint64_t lease) {
  bool full = false;
  {
    MutexLock lock(&mutex_);
    // Ended with its session.
    if (session != session_ || session.IsZero()) return;
    releases_.push_back(lease);
    full = releases_.size() == kReleaseBatch;
    if (!full && releases_.size() > 1) return;
  }
  seams_->executor->PostAt(
      seams_->clock->Now() + (full ? absl::ZeroDuration() : kReleaseDelay),
      scope_.Wrap([this] { SendReleases(); }));
}

void NodeClient::SendReleases() {
  std::vector<std::uint64_t> leases;
  SessionId session;
  {
    MutexLock lock(&mutex_);
    leases.swap(releases_);
    session = session_;
  }
  if (leases.empty()) return;
  if (leases.size() <= kMaxCallReleases &&
      frames_.Send(session, FrameType::kCallRelease,
                   EncodeCallRelease({.session = session, .leases = leases}))) {
    counters_->calls[static_cast<std::size_t>(ControlCall::kRelease)].Add();
    counters_->frame_calls.Add();
    return;
  }
  const CallContext context{.deadline = seams_->clock->Now() + kAsideTimeout,
                            .traffic = TrafficClass::kForeground,
                            .trace = {}};
  v1::ReleaseRequest request;
  ToProto(HeaderFor(context, session), request.mutable_header());
  for (const std::uint64_t lease : leases) request.add_leases(lease);
  // Where it fails, the leases end by themselves.
  link_.Call(ControlCall::kRelease, request.SerializeAsString(),
             context.deadline, [](absl::StatusOr<std::string>) {});
}

void NodeClient::ReportCorrupt(SessionId session, NamespaceId name_space,
                               BlockKey key, Generation generation) {
  seams_->executor->Post(scope_.Wrap([this, session, name_space, key,
                                      generation] {
    const CallContext context{.deadline = seams_->clock->Now() + kAsideTimeout,
                              .traffic = TrafficClass::kForeground,
                              .trace = {}};
    v1::ReportCorruptRequest request;
    ToProto(HeaderFor(context, session), request.mutable_header());
    request.set_name_space(IdToProto(name_space));
    request.set_keys(IdToProto(key));
    request.add_generations(static_cast<std::uint64_t>(generation));
    link_.Call(ControlCall::kReportCorrupt, request.SerializeAsString(),
               context.deadline, [](absl::StatusOr<std::string>) {});
  }));
}

void NodeClient::StartNoteRemoteReads(
    NamespaceId name_space, absl::Span<const RemoteBlock> blocks,
    absl::AnyInvocable<void(absl::StatusOr<std::vector<std::size_t>>) &&>
        done) {
  const CallContext context{.deadline = seams_->clock->Now() + kNoteTimeout,
                            .traffic = TrafficClass::kWarmUp,
                            .trace = {}};
  link_.Call(
      ControlCall::kNoteRemoteReads,
      EncodeRemoteReads(HeaderFor(context, session()), name_space, blocks),
      context.deadline,
      [most = blocks.size(),
       done = std::move(done)](absl::StatusOr<std::string> bytes) mutable {
        if (!bytes.ok()) return std::move(done)(bytes.status());
        std::move(done)(DecodeRemoteReads(*bytes, most));
      });
}

void NodeClient::StartReserve(
    const CallContext& context, const ReserveCall& call,
    absl::AnyInvocable<void(absl::StatusOr<ReserveAnswer>) &&> done) {
  const SessionId session = this->session();
  const RequestHeader header = HeaderFor(context, session);
  // A late answer is still heard, so that what it took can be given back.
  Call(ControlCall::kReserve, session,
       {.type = FrameType::kCallReserve,
        .frame = [&] { return EncodeFrame(header, call); },
        .message = [&] { return EncodeReserve(header, call); },
        .fits = call.blocks.size() <= kMaxCallKeys},
       context.deadline + kLateAnswer,
       [session, blocks = call.blocks.size(), done = std::move(done)](
           absl::StatusOr<std::string> bytes, FrameCalls::Way way) mutable {
         auto answer = way == FrameCalls::Way::kFrame
                           ? ReservedFromFrame(std::move(bytes), blocks)
                           : DecodeReserve(std::move(bytes), blocks);
         if (answer.ok()) answer->session = session;
         std::move(done)(std::move(answer));
       });
}

void NodeClient::StartCommit(
    const CallContext& context, const CommitCall& call,
    absl::AnyInvocable<void(absl::StatusOr<CommitAnswer>) &&> done) {
  const RequestHeader header = HeaderFor(context, call.session);
  Call(ControlCall::kCommit, call.session,
       {.type = FrameType::kCallCommit,
        .frame = [&] { return EncodeFrame(header, call); },
        .message = [&] { return EncodeCommit(header, call); },
        .fits = call.blocks.size() <= kMaxCallKeys},
       context.deadline + call.grace,
       [blocks = call.blocks.size(), done = std::move(done)](
           absl::StatusOr<std::string> bytes, FrameCalls::Way way) mutable {
         std::move(done)(way == FrameCalls::Way::kFrame
                             ? CommittedFromFrame(std::move(bytes), blocks)
                             : DecodeCommit(std::move(bytes), blocks));
       });
}

void NodeClient::StartAbort(const CallContext& context, SessionId session,
                            std::uint64_t reservation,
                            absl::AnyInvocable<void(absl::Status) &&> done) {
  v1::AbortRequest request;
  ToProto(HeaderFor(context, session), request.mutable_header());
  request.set_reservation(reservation);
  link_.Call(
      ControlCall::kAbort, request.SerializeAsString(), context.deadline,
      [done = std::move(done)](absl::StatusOr<std::string> response) mutable {
        std::move(done)(response.status());
      });
}

void NodeClient::StartExists(
    const CallContext& context, const ExistsCall& call,
    absl::AnyInvocable<void(absl::StatusOr<ExistsAnswer>) &&> done) {
  v1::ExistsRequest request;
  ToProto(HeaderFor(context, session()), request.mutable_header());
  request.set_name_space(IdToProto(call.name_space));
  request.set_clear_epoch(static_cast<std::uint64_t>(call.clear_epoch));
  request.set_keys(KeysToProto(call.keys));
  request.set_leading_run(call.leading_run);
  link_.Call(
      ControlCall::kExists, request.SerializeAsString(), context.deadline,
      [keys = call.keys.size(),
       done = std::move(done)](absl::StatusOr<std::string> bytes) mutable {
        std::move(done)([&]() -> absl::StatusOr<ExistsAnswer> {
          ASSIGN_OR_RETURN(const auto response,
                           Parse<v1::ExistsResponse>(std::move(bytes)));
          ASSIGN_OR_RETURN(const std::vector<Outcome> outcomes,
                           ReadOutcomes(response.outcomes(), keys));
          const auto hits =
              std::count(outcomes.begin(), outcomes.end(), Outcome::kHit);
          if (response.lengths_size() != hits) {
            return Nonsense("columns of different lengths");
          }
          ExistsAnswer answer;
          int hit = 0;
          for (const Outcome outcome : outcomes) {
            answer.found.push_back({});
            answer.found.back().outcome = outcome;
            if (outcome != Outcome::kHit) continue;
            answer.found.back().length = response.lengths(hit++);
          }
          return answer;
        }());
      });
}

void NodeClient::StartRemove(
    const CallContext& context, NamespaceId name_space,
    const std::vector<BlockKey>& keys,
    absl::AnyInvocable<void(absl::StatusOr<std::vector<Outcome>>) &&> done) {
  v1::NodeRemoveRequest request;
  ToProto(HeaderFor(context, session()), request.mutable_header());
  request.set_name_space(IdToProto(name_space));
  request.set_keys(KeysToProto(keys));
  link_.Call(
      ControlCall::kNodeRemove, request.SerializeAsString(), context.deadline,
      [keys = keys.size(),
       done = std::move(done)](absl::StatusOr<std::string> bytes) mutable {
        std::move(done)([&]() -> absl::StatusOr<std::vector<Outcome>> {
          ASSIGN_OR_RETURN(const auto response,
                           Parse<v1::NodeRemoveResponse>(std::move(bytes)));
          return ReadOutcomes(response.outcomes(), keys);
        }());
      });
}

}  // namespace firnkv
