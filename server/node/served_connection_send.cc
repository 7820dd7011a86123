// The sending half of a served connection. What comes in stands in
// served_connection.cc.

#include <algorithm>
#include <utility>

#include "proto/base/check.h"
#include "server/node/served_connection.h"

namespace firnkv {

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
    if (writes_ != nullptr && writes_->TakeAnswers(&outgoing->frames)) {
      outgoing->deadline = now + options_.frame_timeout;
      outgoing->makes_room = true;
      sending_ = Step::kStarting;
      return true;
    }
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
  if (sent.makes_room) ReceiveSoon();
  return true;
}

// There is room again. As a task: receiving starts sends, and this is one.
void ServedConnection::ReceiveSoon() {
  parts_.executor->Post(scope_.Wrap([this] { ReceiveFrames(); }));
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
  ReceiveSoon();
}

}  // namespace firnkv
