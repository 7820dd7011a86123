#include "server/node/served_connection.h"

#include <algorithm>
#include <variant>

#include "proto/base/check.h"
#include "proto/base/request.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/node/scoped_answer.h"

namespace firnkv {
namespace {

absl::Status Broken(std::string_view what) {
  return absl::InvalidArgumentError(StrCat("protocol: ", what));
}

std::unique_ptr<StreamWrites> MakeWrites(
    const ServedConnection::Options& options,
    const ServedConnection::Parts& parts,
    absl::AnyInvocable<void()> on_change) {
  if (parts.writes == nullptr) return nullptr;
  StreamWrites::Options of_writes = options.writes;
  of_writes.longest = options.longest_response;
  return std::make_unique<StreamWrites>(
      of_writes,
      StreamWrites::Parts{.executor = parts.executor,
                          .random = parts.random,
                          .writes = parts.writes,
                          .reservations = parts.reservations,
                          .registry = parts.registry,
                          .pool = parts.pool,
                          .metrics = parts.metrics,
                          .busy = parts.busy},
      std::move(on_change));
}

}  // namespace

ServedConnection::ServedConnection(const Options& options, const Parts& parts,
                                   std::unique_ptr<ByteStream> stream,
                                   Callbacks callbacks)
    : options_(options),
      parts_(parts),
      callbacks_(std::move(callbacks)),
      writes_(MakeWrites(options, parts, [this] { OnWritesChanged(); })),
      stream_(std::move(stream)) {}

ServedConnection::~ServedConnection() {
  Close(absl::UnavailableError("the node is closing"));
  scope_.Close();
}

TimerId ServedConnection::CloseAt(BootTime when, const char* why) {
  return parts_.executor->PostAt(when, scope_.Wrap([this, why] {
    Close(absl::DeadlineExceededError(why));
  }));
}

void ServedConnection::Start() {
  {
    MutexLock lock(&mutex_);
    receive_timer_ = CloseAt(
        parts_.executor->clock()->Now() + options_.hello_timeout, "no hello");
  }
  ReceiveFrames();
}

void ServedConnection::Close(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    parts_.executor->Cancel(receive_timer_);
    parts_.executor->Cancel(send_timer_);
  }
  // The completions that this brings about end the holds.
  stream_->Close();
  // Rule S3: at once; what lands just now keeps its slot until it has stopped.
  if (writes_ != nullptr) writes_->EndSession();
  if (!why.ok() && !absl::IsOutOfRange(why)) {
    parts_.log->Write(Severity::kDebug, "stream_closed",
                      {{"peer", stream_->peer()}, {"why", why.ToString()}});
  }
  std::move(callbacks_.on_closed)();
}

void ServedConnection::Refuse(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    if (closed_ || refusing_) return;
    refusing_ = true;
    first_.clear();
    first_.push_back(
        MakeFrame(FrameType::kRefused, 0, EncodeRefused({.reason = why})));
    parts_.executor->Cancel(receive_timer_);
  }
  parts_.metrics->bad_requests.Add();
  parts_.log->Write(Severity::kNotice, "stream_refused",
                    {{"peer", stream_->peer()}, {"why", why.ToString()}});
  SendFrames();
}

// --- Receiving.

bool ServedConnection::MayReceive() const {
  if (closed_ || refusing_ || receiving_ != Step::kNone) return false;
  return phase_ != Phase::kLead ||
         (answers_.size() < options_.max_requests &&
          keys_ < options_.max_keys &&
          (writes_ == nullptr || writes_->TakesMore()));
}

void ServedConnection::ReceiveFrames() {
  while (StartReceive()) {
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      if (receiving_ == Step::kStarting) {
        receiving_ = Step::kOutside;
        return;
      }
      CHECK(receiving_ == Step::kDoneInside);
      receiving_ = Step::kHandling;
      status = received_;
    }
    if (!HandleReceived(status)) return;
  }
}

bool ServedConnection::StartReceive() {
  for (;;) {
    absl::Span<std::byte> into;
    Phase phase = Phase::kLead;
    {
      MutexLock lock(&mutex_);
      if (!MayReceive()) return false;
      receiving_ = Step::kStarting;
      writes_changed_ = false;
      phase = phase_;
      std::byte* const at = reinterpret_cast<std::byte*>(
          phase == Phase::kBody ? body_bytes_.data() : lead_bytes_.data());
      into = {at,
              phase == Phase::kBody ? body_bytes_.size() : lead_bytes_.size()};
    }
    if (phase == Phase::kPayload) into = writes_->NextPiece();
    {
      MutexLock lock(&mutex_);
      if (into.empty()) {
        receiving_ = Step::kNone;
        if (writes_changed_) continue;
        return false;
      }
      if (phase == Phase::kPayload) {
        const BootTime now = parts_.executor->clock()->Now();
        receive_timer_ =
            CloseAt(std::min(now + options_.frame_timeout,
                             std::max(now, writes_->landing_deadline()) +
                                 options_.grace),
                    "a block did not end");
      }
    }
    stream_->StartReceive(
        {into}, [this](absl::Status status) { OnReceived(std::move(status)); });
    return true;
  }
}

void ServedConnection::OnReceived(absl::Status status) {
  {
    MutexLock lock(&mutex_);
    if (receiving_ == Step::kStarting) {
      receiving_ = Step::kDoneInside;
      received_ = std::move(status);
      return;
    }
    CHECK(receiving_ == Step::kOutside);
    receiving_ = Step::kHandling;
  }
  if (HandleReceived(status)) ReceiveFrames();
}

bool ServedConnection::HandleReceived(const absl::Status& status) {
  if (!status.ok()) {
    if (writes_ != nullptr) writes_->Abandon();
    Close(status);
    return false;
  }
  const absl::Status handled = OnBytes();
  {
    MutexLock lock(&mutex_);
    receiving_ = Step::kNone;
  }
  if (!handled.ok()) Refuse(handled);
  return handled.ok();
}

absl::Status ServedConnection::OnBytes() {
  FrameLead lead;
  bool landing = false;
  {
    MutexLock lock(&mutex_);
    if (identified_ && phase_ != Phase::kLead) {
      parts_.executor->Cancel(receive_timer_);
    }
    if (phase_ == Phase::kLead) {
      ASSIGN_OR_RETURN(lead_,
                       DecodeLead({lead_bytes_.data(), lead_bytes_.size()}));
      // DecodeLead has bounded it.
      body_bytes_.resize(lead_.body_bytes);
      if (lead_.body_bytes > 0) {
        phase_ = Phase::kBody;
        if (identified_) {
          receive_timer_ =
              CloseAt(parts_.executor->clock()->Now() + options_.frame_timeout,
                      "a frame did not end");
        }
        return absl::OkStatus();
      }
    }
    lead = lead_;
    landing = phase_ == Phase::kPayload;
    if (!landing) phase_ = Phase::kLead;
  }
  if (!landing) return OnFrame(lead);
  if (writes_->Landed()) {
    MutexLock lock(&mutex_);
    phase_ = Phase::kLead;
  }
  return absl::OkStatus();
}

absl::Status ServedConnection::OnFrame(const FrameLead& lead) {
  {
    MutexLock lock(&mutex_);
    if (identified_ == (lead.type == FrameType::kHello)) {
      return Broken(identified_ ? "a second hello" : "no hello came first");
    }
  }
  switch (lead.type) {
    case FrameType::kHello:
      return OnHello();
    case FrameType::kRead:
      return OnRead(lead.request);
    case FrameType::kCancel:
      OnCancel(lead.request);
      return absl::OkStatus();
    case FrameType::kFoundCorrupt:
      return OnFoundCorrupt();
    case FrameType::kRefused:
    case FrameType::kBlock:
    case FrameType::kReadEnd:
    case FrameType::kReserved:
    case FrameType::kWritten:
    case FrameType::kWriteEnd:
      return Broken("a frame that only a server sends");
    case FrameType::kReserve:
      return OnReserve(lead.request);
    case FrameType::kWrite:
      return OnWrite(lead);
    case FrameType::kCallOpenRead:
    case FrameType::kCallOpened:
    case FrameType::kCallRelease:
    case FrameType::kCallReserve:
    case FrameType::kCallReserved:
    case FrameType::kCallCommit:
    case FrameType::kCallCommitted:
    case FrameType::kCallFailed:
      return Broken("a call of a local session");
  }
  return Broken("a frame of no known type");
}

absl::Status ServedConnection::OnHello() {
  ASSIGN_OR_RETURN(const HelloBody hello, DecodeHello(body_bytes_));
  const Handshake ours = parts_.credentials->handshake();
  const absl::StatusOr<std::uint32_t> protocol = Agree(ours, hello.handshake);
  if (!protocol.ok()) return protocol.status();
  ASSIGN_OR_RETURN(const TokenClaims claims,
                   parts_.credentials->Check(hello.token));
  if (claims.role == Role::kAdmin) {
    return absl::PermissionDeniedError("an administrator reads no blocks");
  }
  RETURN_IF_ERROR(callbacks_.on_identified(claims));
  {
    MutexLock lock(&mutex_);
    parts_.executor->Cancel(receive_timer_);
    identified_ = true;
    claims_ = claims;
    first_.push_back(MakeFrame(FrameType::kHello, 0,
                               EncodeHello({.handshake = ours,
                                            .token = {},
                                            .node = options_.node,
                                            .epoch = options_.epoch})));
  }
  SendFrames();
  return absl::OkStatus();
}

absl::Status ServedConnection::OnRead(std::uint64_t request) {
  ASSIGN_OR_RETURN(ReadBody body, DecodeRead(body_bytes_));
  RETURN_IF_ERROR(Validate(body.header));
  const BootTime now = parts_.executor->clock()->Now();
  const BootTime deadline =
      now + std::min(body.header.remaining, options_.longest_response);
  const NamespaceId name_space = body.name_space;
  const ClearEpoch seen = body.clear_epoch;
  auto answer = std::make_unique<StreamAnswer>(
      options_.answer,
      StreamAnswer::Parts{.pool = parts_.pool,
                          .metrics = parts_.metrics,
                          .link = parts_.link,
                          .busy = parts_.busy},
      request, std::move(body), now, deadline);
  NamespaceCaller caller;
  {
    MutexLock lock(&mutex_);
    if (!parts_.credentials->StillValid(claims_)) {
      return absl::UnauthenticatedError("the token has expired");
    }
    for (const auto& other : answers_) {
      if (other->request() == request) return Broken("a request id twice");
    }
    caller = {claims_.tenant, claims_.role == Role::kNode};
    keys_ += answer->keys();
    answers_.push_back(std::move(answer));
  }
  parts_.namespaces->Find(
      caller, name_space, seen, deadline,
      ScopedAnswer<NamespaceCache::Answer>(
          &scope_, [this, request](NamespaceCache::Answer answer) {
            OnNamespace(request, std::move(answer));
          }));
  return absl::OkStatus();
}

void ServedConnection::OnNamespace(std::uint64_t request,
                                   NamespaceCache::Answer answer) {
  {
    MutexLock lock(&mutex_);
    for (const auto& one : answers_) {
      if (one->request() == request) one->Resolve(std::move(answer));
    }
  }
  SendFrames();
}

void ServedConnection::OnCancel(std::uint64_t request) {
  {
    MutexLock lock(&mutex_);
    for (const auto& one : answers_) {
      if (one->request() == request) one->Cancel();
    }
  }
  if (writes_ != nullptr) writes_->Cancel(request);
  SendFrames();
}

absl::Status ServedConnection::OnReserve(std::uint64_t request) {
  if (writes_ == nullptr) return Broken("no writes are taken here");
  ASSIGN_OR_RETURN(ReserveBody body, DecodeReserve(body_bytes_));
  RETURN_IF_ERROR(Validate(body.header));
  TenantId tenant;
  {
    MutexLock lock(&mutex_);
    if (!parts_.credentials->StillValid(claims_)) {
      return absl::UnauthenticatedError("the token has expired");
    }
    if (claims_.role != Role::kTenant) {
      return absl::PermissionDeniedError("only tenants write");
    }
    tenant = claims_.tenant;
  }
  return writes_->Reserve(tenant, request, std::move(body));
}

absl::Status ServedConnection::OnWrite(const FrameLead& lead) {
  if (writes_ == nullptr) return Broken("no writes are taken here");
  ASSIGN_OR_RETURN(WriteBody body,
                   DecodeWrite(body_bytes_, lead.payload_bytes));
  RETURN_IF_ERROR(
      writes_->BeginBlock(lead.request, std::move(body), lead.payload_bytes));
  MutexLock lock(&mutex_);
  phase_ = Phase::kPayload;
  return absl::OkStatus();
}

void ServedConnection::OnWritesChanged() {
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    writes_changed_ = true;
  }
  // In the scope: what changed may be told when the stream is about to go.
  // Inside a receive the second one does nothing.
  Task go_on = scope_.Wrap([this] {
    SendFrames();
    ReceiveFrames();
  });
  std::move(go_on)();
}

// Rule P12: the copy is checked here, and isolated only if it is corrupt.
absl::Status ServedConnection::OnFoundCorrupt() {
  ASSIGN_OR_RETURN(const FoundCorruptBody body,
                   DecodeFoundCorrupt(body_bytes_));
  NamespaceCaller caller;
  {
    MutexLock lock(&mutex_);
    if (!parts_.credentials->StillValid(claims_)) {
      return absl::UnauthenticatedError("the token has expired");
    }
    if (checks_ == options_.max_checks) return absl::OkStatus();
    ++checks_;
    caller = {claims_.tenant, claims_.role == Role::kNode};
  }
  parts_.namespaces->Find(
      caller, body.block.name_space, ClearEpoch::kUnknown,
      parts_.executor->clock()->Now() + options_.longest_response,
      ScopedAnswer<NamespaceCache::Answer>(
          &scope_,
          [this, body, tenant = caller.tenant](NamespaceCache::Answer answer) {
            if (std::holds_alternative<Outcome>(answer)) return EndCheck();
            parts_.checks->Start(
                tenant, {{body.block, body.generation}},
                ScopedAnswer<std::vector<Outcome>>(
                    &scope_,
                    [this](const std::vector<Outcome>&) { EndCheck(); }));
          }));
  return absl::OkStatus();
}

void ServedConnection::EndCheck() {
  MutexLock lock(&mutex_);
  --checks_;
}

}  // namespace firnkv
