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

}  // namespace

ServedConnection::ServedConnection(const Options& options, const Parts& parts,
                                   std::unique_ptr<ByteStream> stream,
                                   Callbacks callbacks)
    : options_(options),
      parts_(parts),
      callbacks_(std::move(callbacks)),
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
  return !closed_ && !refusing_ && receiving_ == Step::kNone &&
         answers_.size() < options_.max_requests && keys_ < options_.max_keys;
}

void ServedConnection::ReceiveFrames() {
  for (;;) {
    absl::Span<std::byte> into;
    {
      MutexLock lock(&mutex_);
      if (!MayReceive()) return;
      receiving_ = Step::kStarting;
      into =
          in_body_
              ? absl::MakeSpan(reinterpret_cast<std::byte*>(body_bytes_.data()),
                               body_bytes_.size())
              : absl::MakeSpan(reinterpret_cast<std::byte*>(lead_bytes_.data()),
                               lead_bytes_.size());
    }
    stream_->StartReceive(
        {into}, [this](absl::Status status) { OnReceived(std::move(status)); });
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
  {
    MutexLock lock(&mutex_);
    if (!in_body_) {
      ASSIGN_OR_RETURN(lead_,
                       DecodeLead({lead_bytes_.data(), lead_bytes_.size()}));
      if (lead_.payload_bytes != 0) return Broken("a payload from a reader");
      // DecodeLead has bounded it.
      body_bytes_.resize(lead_.body_bytes);
      if (lead_.body_bytes > 0) {
        in_body_ = true;
        if (identified_) {
          receive_timer_ =
              CloseAt(parts_.executor->clock()->Now() + options_.frame_timeout,
                      "a frame did not end");
        }
        return absl::OkStatus();
      }
    }
    in_body_ = false;
    if (identified_) parts_.executor->Cancel(receive_timer_);
    lead = lead_;
  }
  return OnFrame(lead);
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
    case FrameType::kWrite:
      return Broken("no writes are taken here");
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
  SendFrames();
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

// --- Sending.

void ServedConnection::SendFrames() {
  for (;;) {
    Outgoing next;
    if (!TakeOutgoing(&next)) return;
    std::vector<absl::Span<const std::byte>> pieces;
    {
      MutexLock lock(&mutex_);
      outgoing_ = std::move(next);
      pieces = outgoing_.frames.Pieces();
      // Rule T3.
      send_timer_ = CloseAt(outgoing_.deadline, "a response was not read");
    }
    stream_->StartSend(std::move(pieces), [this](absl::Status status) {
      OnSent(std::move(status));
    });
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      if (sending_ == Step::kStarting) {
        sending_ = Step::kOutside;
        return;
      }
      CHECK(sending_ == Step::kDoneInside);
      sending_ = Step::kHandling;
      status = sent_;
    }
    if (!HandleSent(status)) return;
  }
}

bool ServedConnection::TakeOutgoing(Outgoing* outgoing) {
  const BootTime now = parts_.executor->clock()->Now();
  StreamAnswer* answer = nullptr;
  bool cancelled = false;
  {
    MutexLock lock(&mutex_);
    if (closed_ || sending_ != Step::kNone) return false;
    if (!first_.empty()) {
      outgoing->frames.Append(first_.front(), {}, {});
      first_.pop_front();
      outgoing->deadline = now + options_.frame_timeout;
      outgoing->closes = refusing_ && first_.empty();
      sending_ = Step::kStarting;
      return true;
    }
    if (refusing_) return false;
    const auto ready =
        std::find_if(answers_.begin(), answers_.end(),
                     [](const auto& one) { return one->ready(); });
    if (ready == answers_.end()) return false;
    answer = ready->get();
    cancelled = answer->cancelled();
    sending_ = Step::kStarting;
  }
  // Without the lock: an answer ends by whoever is sending, and that is us.
  outgoing->deadline = std::max(now, answer->deadline()) + options_.grace;
  if (answer->Fill(now, cancelled, &outgoing->frames)) {
    outgoing->finishes = answer;
  }
  return true;
}

void ServedConnection::OnSent(absl::Status status) {
  {
    MutexLock lock(&mutex_);
    if (sending_ == Step::kStarting) {
      sending_ = Step::kDoneInside;
      sent_ = std::move(status);
      return;
    }
    CHECK(sending_ == Step::kOutside);
    sending_ = Step::kHandling;
  }
  if (HandleSent(status)) SendFrames();
}

bool ServedConnection::HandleSent(const absl::Status& status) {
  Outgoing sent;
  {
    MutexLock lock(&mutex_);
    sent = std::move(outgoing_);
    outgoing_ = Outgoing{};
    parts_.executor->Cancel(send_timer_);
    if (sent.finishes == nullptr) sending_ = Step::kNone;
  }
  // Rule P8: the transport needs the memory no longer.
  sent.frames.EndHolds();
  if (!status.ok()) {
    Close(status);
    return false;
  }
  if (sent.closes) {
    // Closing is an abort, and would overtake the reason on its way.
    MutexLock lock(&mutex_);
    send_timer_ = CloseAt(
        parts_.executor->clock()->Now() + options_.refusal_linger, "refused");
    return false;
  }
  if (sent.finishes != nullptr) FinishAnswer(sent.finishes);
  return true;
}

void ServedConnection::FinishAnswer(const StreamAnswer* answer) {
  std::unique_ptr<StreamAnswer> finished;
  {
    MutexLock lock(&mutex_);
    const auto it =
        std::find_if(answers_.begin(), answers_.end(),
                     [answer](const auto& one) { return one.get() == answer; });
    CHECK(it != answers_.end());
    finished = std::move(*it);
    answers_.erase(it);
    keys_ -= finished->keys();
    sending_ = Step::kNone;
  }
  parts_.metrics->stream_read.Add(parts_.executor->clock()->Now() -
                                  finished->started());
  // There is room again. As a task: receiving starts sends, and this is one.
  parts_.executor->Post(scope_.Wrap([this] { ReceiveFrames(); }));
}

}  // namespace firnkv
