#include "client/catalog_client.h"

#include <algorithm>
#include <utility>

#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"

namespace firnkv {
namespace {

// The handshake belongs to no call: its time is its own.
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(2);

absl::Status Nonsense(std::string_view what) {
  return absl::InternalError(StrCat("the catalog answered ", what));
}

template <typename Message>
absl::StatusOr<Message> Parse(const absl::StatusOr<std::string>& response) {
  if (!response.ok()) return response.status();
  Message message;
  if (!message.ParseFromString(*response)) return Nonsense("no message");
  return message;
}

// A call that had less time than this and got no answer says nothing about the
// catalog.
constexpr absl::Duration kPatience = absl::Milliseconds(50);

absl::StatusOr<CatalogClient::Opened> DecodeOpened(
    const absl::StatusOr<std::string>& bytes) {
  ASSIGN_OR_RETURN(const auto response,
                   Parse<v1::OpenNamespaceResponse>(bytes));
  CatalogClient::Opened opened;
  ASSIGN_OR_RETURN(opened.facts, FromProto(response.facts()));
  if (opened.facts.name_space.IsZero()) return Nonsense("no namespace id");
  opened.created = response.created();
  return opened;
}

absl::StatusOr<CatalogClient::LocateAnswer> DecodeLocate(
    const absl::StatusOr<std::string>& bytes, std::size_t keys) {
  ASSIGN_OR_RETURN(const auto response, Parse<v1::LocateResponse>(bytes));
  ASSIGN_OR_RETURN(const std::vector<Outcome> outcomes,
                   OutcomesFromProto(response.outcomes(), keys));
  const auto hits = static_cast<int>(
      std::count(outcomes.begin(), outcomes.end(), Outcome::kHit));
  if (response.location_counts_size() != hits) {
    return Nonsense("columns of different lengths");
  }
  CatalogClient::LocateAnswer answer;
  answer.clear_epoch = ClearEpoch{response.clear_epoch()};
  for (const v1::NodeAddress& node : response.nodes()) {
    ASSIGN_OR_RETURN(NodeAddress address, FromProto(node));
    answer.nodes.push_back(std::move(address));
  }
  ASSIGN_OR_RETURN(
      const std::vector<LocationRow> rows,
      FromProto(response.locations(), answer.nodes.size(),
                static_cast<std::size_t>(response.locations().tiers_size())));
  answer.found.resize(keys);
  std::size_t next = 0;
  int hit = 0;
  for (std::size_t i = 0; i < keys; ++i) {
    answer.found[i].outcome = outcomes[i];
    if (outcomes[i] != Outcome::kHit) continue;
    const std::uint32_t count = response.location_counts(hit++);
    if (count == 0 || count > rows.size() - next) {
      return Nonsense("locations that do not add up");
    }
    for (std::uint32_t j = 0; j < count; ++j, ++next) {
      const NodeAddress& node = answer.nodes[rows[next].node];
      answer.found[i].locations.push_back(
          KnownLocation{.node = node.node,
                        .epoch = node.epoch,
                        .generation = rows[next].generation,
                        .length = rows[next].length});
    }
  }
  if (next != rows.size()) return Nonsense("locations of nothing");
  return answer;
}

absl::StatusOr<CatalogClient::PlaceAnswer> DecodePlace(
    const absl::StatusOr<std::string>& bytes, std::size_t blocks) {
  ASSIGN_OR_RETURN(const auto response, Parse<v1::PlaceResponse>(bytes));
  CatalogClient::PlaceAnswer answer;
  answer.clear_epoch = ClearEpoch{response.clear_epoch()};
  for (const v1::NodeAddress& node : response.nodes()) {
    ASSIGN_OR_RETURN(NodeAddress address, FromProto(node));
    answer.nodes.push_back(std::move(address));
  }
  answer.places.assign(response.node_indexes().begin(),
                       response.node_indexes().end());
  if (answer.places.size() != blocks) {
    return Nonsense("places that are not one a block");
  }
  for (const std::uint32_t place : answer.places) {
    if (place >= answer.nodes.size()) return Nonsense("a place at no node");
  }
  return answer;
}

absl::StatusOr<CatalogClient::Removed> DecodeRemoved(
    const absl::StatusOr<std::string>& bytes, std::size_t keys) {
  ASSIGN_OR_RETURN(const auto response,
                   Parse<v1::CatalogRemoveResponse>(bytes));
  CatalogClient::Removed removed;
  ASSIGN_OR_RETURN(removed.outcomes,
                   OutcomesFromProto(response.outcomes(), keys));
  removed.pending = response.pending();
  return removed;
}

}  // namespace

CatalogClient::CatalogClient(const Seams* seams, ClientCounters* counters,
                             std::function<std::string()> token)
    : seams_(seams),
      token_(std::move(token)),
      link_(seams, counters),
      breaker_({.first = absl::Milliseconds(100), .most = absl::Seconds(2)}) {}

CatalogClient::~CatalogClient() { Close(); }

void CatalogClient::Close() { link_.Close(); }

void CatalogClient::SetAddress(const std::string& address, ClusterId cluster) {
  std::vector<Ready> waiting;
  {
    MutexLock lock(&mutex_);
    if (!cluster.IsZero()) cluster_ = cluster;
    if (address == address_) return;
    address_ = address;
    state_ = State::kNew;
    ++attempt_;
    waiting.swap(waiting_);
    breaker_ =
        Breaker({.first = absl::Milliseconds(100), .most = absl::Seconds(2)});
  }
  link_.SetAddress(address);
  for (Ready& ready : waiting) {
    std::move(ready)(absl::UnavailableError("the catalog has moved"));
  }
}

ClusterId CatalogClient::cluster() const {
  MutexLock lock(&mutex_);
  return cluster_;
}

std::string CatalogClient::address() const {
  MutexLock lock(&mutex_);
  return address_;
}

RequestHeader CatalogClient::HeaderFor(const CallContext& context) const {
  RequestHeader header;
  header.remaining =
      std::min(context.deadline - seams_->clock->Now(), kLongestDeadline);
  header.traffic = context.traffic;
  header.trace = context.trace;
  header.token = token_();
  return header;
}

// --- The handshake.

void CatalogClient::WhenMet(const CallContext& context, Ready ready) {
  Handshake ours{.cluster = {}, .test_vector = HandshakeTestVector()};
  absl::Status now;
  bool wait = false;
  std::uint64_t begin = 0;
  {
    MutexLock lock(&mutex_);
    if (address_.empty()) {
      now = absl::UnavailableError("no catalog is known");
    } else if (state_ == State::kConnecting) {
      wait = true;
    } else if (!breaker_.MayAsk(seams_->clock->Now())) {
      now = absl::UnavailableError("the catalog is away");
    } else if (state_ == State::kNew) {
      wait = true;
      state_ = State::kConnecting;
      begin = ++attempt_;
      ours.cluster = cluster_;
    }
    if (wait) waiting_.push_back(std::move(ready));
  }
  if (!wait) return std::move(ready)(now);
  if (begin == 0) return;

  v1::ConnectRequest request;
  const CallContext own{.deadline = seams_->clock->Now() + kHandshakeTimeout,
                        .traffic = context.traffic,
                        .trace = context.trace};
  ToProto(HeaderFor(own), request.mutable_header());
  ToProto(ours, request.mutable_handshake());
  link_.Call(ControlCall::kCatalogConnect, request.SerializeAsString(),
             own.deadline, [this, begin](absl::StatusOr<std::string> response) {
               OnConnected(begin, std::move(response));
             });
}

absl::Status CatalogClient::Meet(std::string_view response,
                                 const Handshake& ours,
                                 ClusterId* cluster) const {
  v1::ConnectResponse message;
  if (!message.ParseFromArray(response.data(),
                              static_cast<int>(response.size()))) {
    return Nonsense("no message");
  }
  ASSIGN_OR_RETURN(const Handshake theirs, FromProto(message.handshake()));
  RETURN_IF_ERROR(Agree(ours, theirs).status());
  *cluster = theirs.cluster;
  return absl::OkStatus();
}

void CatalogClient::OnConnected(std::uint64_t attempt,
                                absl::StatusOr<std::string> response) {
  std::vector<Ready> waiting;
  absl::Status status = response.status();
  {
    MutexLock lock(&mutex_);
    if (attempt != attempt_) return;
    if (status.ok()) {
      const Handshake ours{.cluster = cluster_,
                           .test_vector = HandshakeTestVector()};
      status = Meet(*response, ours, &cluster_);
    }
    state_ = status.ok() ? State::kMet : State::kNew;
    waiting.swap(waiting_);
  }
  NoteReply(status, kHandshakeTimeout);
  for (Ready& ready : waiting) std::move(ready)(status);
}

void CatalogClient::NoteReply(const absl::Status& status,
                              absl::Duration waited) {
  const bool late = status.code() == absl::StatusCode::kDeadlineExceeded;
  const bool away = status.code() == absl::StatusCode::kUnavailable ||
                    (late && waited >= kPatience);
  const BootTime now = seams_->clock->Now();
  MutexLock lock(&mutex_);
  if (away) {
    breaker_.Failed(now, seams_->random);
  } else if (late || status.code() == absl::StatusCode::kCancelled) {
    breaker_.NoVerdict();
  } else {
    breaker_.Succeeded();
  }
}

void CatalogClient::Call(ControlCall call, const CallContext& context,
                         absl::AnyInvocable<std::string() &&> encode,
                         ControlReply done) {
  WhenMet(context, [this, call, context, encode = std::move(encode),
                    done = std::move(done)](const absl::Status& met) mutable {
    if (!met.ok()) return std::move(done)(met);
    const BootTime sent = seams_->clock->Now();
    link_.Call(call, std::move(encode)(), context.deadline,
               [this, sent, done = std::move(done)](
                   absl::StatusOr<std::string> response) mutable {
                 NoteReply(response.status(), seams_->clock->Now() - sent);
                 std::move(done)(std::move(response));
               });
  });
}

// --- The calls.

void CatalogClient::StartOpenNamespace(
    const CallContext& context, const OpenNamespaceRequest& request,
    absl::AnyInvocable<void(absl::StatusOr<Opened>) &&> done) {
  Call(
      ControlCall::kOpenNamespace, context,
      [this, context, request] {
        v1::OpenNamespaceRequest message;
        ToProto(HeaderFor(context), message.mutable_header());
        message.set_name(request.name);
        ToProto(request.contract, message.mutable_contract());
        message.set_create(request.create);
        message.set_block_bytes(request.block_bytes);
        message.set_chained(request.chained);
        message.set_retention_seconds(
            static_cast<std::uint64_t>(std::max<std::int64_t>(
                absl::ToInt64Seconds(request.retention), 0)));
        message.set_strict_clear(request.strict_clear);
        return message.SerializeAsString();
      },
      [done = std::move(done)](absl::StatusOr<std::string> response) mutable {
        std::move(done)(DecodeOpened(response));
      });
}

void CatalogClient::StartLocate(
    const CallContext& context, const LocateCall& call,
    absl::AnyInvocable<void(absl::StatusOr<LocateAnswer>) &&> done) {
  const std::size_t keys = call.keys.size();
  Call(
      ControlCall::kLocate, context,
      [this, context, call] {
        v1::LocateRequest message;
        ToProto(HeaderFor(context), message.mutable_header());
        message.set_name_space(IdToProto(call.name_space));
        message.set_clear_epoch(static_cast<std::uint64_t>(call.clear_epoch));
        message.set_keys(KeysToProto(call.keys));
        message.set_anchors(KeysToProto(call.anchors));
        message.set_leading_run(call.leading_run);
        return message.SerializeAsString();
      },
      [keys,
       done = std::move(done)](absl::StatusOr<std::string> response) mutable {
        std::move(done)(DecodeLocate(response, keys));
      });
}

void CatalogClient::StartPlace(
    const CallContext& context, const PlaceCall& call,
    absl::AnyInvocable<void(absl::StatusOr<PlaceAnswer>) &&> done) {
  const std::size_t blocks = call.blocks.size();
  Call(
      ControlCall::kPlace, context,
      [this, context, call] {
        v1::PlaceRequest message;
        ToProto(HeaderFor(context), message.mutable_header());
        message.set_name_space(IdToProto(call.name_space));
        message.set_clear_epoch(static_cast<std::uint64_t>(call.clear_epoch));
        for (const PlaceCall::Block& block : call.blocks) {
          message.mutable_keys()->append(block.key.view());
          message.mutable_parents()->append(block.parent.view());
          message.mutable_anchors()->append(block.anchor.view());
          message.add_lengths(block.length);
        }
        message.set_excluded_nodes(
            IdsToProto(absl::MakeConstSpan(call.excluded)));
        return message.SerializeAsString();
      },
      [blocks,
       done = std::move(done)](absl::StatusOr<std::string> response) mutable {
        std::move(done)(DecodePlace(response, blocks));
      });
}

void CatalogClient::StartRemove(
    const CallContext& context, NamespaceId name_space,
    const std::vector<BlockKey>& keys,
    absl::AnyInvocable<void(absl::StatusOr<Removed>) &&> done) {
  Call(
      ControlCall::kCatalogRemove, context,
      [this, context, name_space, keys] {
        v1::CatalogRemoveRequest message;
        ToProto(HeaderFor(context), message.mutable_header());
        message.set_name_space(IdToProto(name_space));
        message.set_keys(KeysToProto(keys));
        return message.SerializeAsString();
      },
      [count = keys.size(),
       done = std::move(done)](absl::StatusOr<std::string> response) mutable {
        std::move(done)(DecodeRemoved(response, count));
      });
}

}  // namespace firnkv
