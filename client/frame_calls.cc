#include "client/frame_calls.h"

#include <algorithm>
#include <optional>

#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Waits that the thread is in: a callback of one may begin another.
// Aligned as a pointer: a thread's segment of less, that ends within 8 bytes of
// a page's end, is laid out by lld so that the program does not start.
alignas(void*) thread_local int waits_here = 0;

FrameType AnswerTo(FrameType call) {
  switch (call) {
    case FrameType::kCallOpenRead:
      return FrameType::kCallOpened;
    case FrameType::kCallReserve:
      return FrameType::kCallReserved;
    case FrameType::kCallCommit:
      return FrameType::kCallCommitted;
    default:
      return FrameType::kCallFailed;
  }
}

absl::Status Nonsense(std::string_view what) {
  return absl::InternalError(StrCat("the node sent ", what));
}

// Of a call that is answered so; a status that is no answer at all becomes
// INTERNAL, as from any control call.
absl::StatusOr<std::string> BodyOf(const CallFrame& frame) {
  if (frame.type != FrameType::kCallFailed) return std::string(frame.body);
  const absl::StatusOr<RefusedBody> failed = DecodeRefused(frame.body);
  if (!failed.ok()) return Nonsense("a failure without a reason");
  return failed->reason;
}

}  // namespace

FrameCalls::~FrameCalls() { Close(); }

void FrameCalls::Open(SessionId session, CallLine* line, std::uint64_t serial) {
  MutexLock lock(&mutex_);
  if (closed_) return;
  session_ = session;
  line_ = {.line = line, .serial = serial};
}

void FrameCalls::End(const absl::Status& why) {
  std::map<std::uint64_t, Call> ended;
  Line line;
  {
    MutexLock lock(&mutex_);
    session_ = SessionId{};
    line = std::exchange(line_, Line());
    ended.swap(calls_);
    for (const auto& [request, call] : ended) {
      if (call.waiter != nullptr) call.waiter->Ended();
    }
  }
  // Whoever receives has nothing to wait for there.
  if (line.line != nullptr) line.line->StopReceiving(line.serial);
  for (auto& [request, call] : ended) std::move(call.done)(why, Way::kFrame);
}

void FrameCalls::Close() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  scope_.Close();
  End(absl::CancelledError("the Client was closed"));
}

bool FrameCalls::MayStart(SessionId session) {
  MutexLock lock(&mutex_);
  return IsFree(session);
}

bool FrameCalls::Start(SessionId session, FrameType type,
                       const std::string& body, BootTime until, Done* done) {
  if (kFrameLeadBytes + body.size() > kMaxSessionMessageBytes) return false;
  Line line;
  std::uint64_t request = 0;
  bool waits = false;
  {
    MutexLock lock(&mutex_);
    if (!IsFree(session)) return false;
    line = line_;
    request = ++last_request_;
    Call& call = calls_[request];
    call.answer = AnswerTo(type);
    call.until = until;
    call.done = std::move(*done);
    const auto waiter =
        std::find_if(waiters_.begin(), waiters_.end(), [](const auto& one) {
          return pthread_equal(one.first, pthread_self()) != 0;
        });
    if (waiter != waiters_.end()) {
      call.waiter = waiter->second;
      call.waiter->Began();
      waits = true;
    }
    Arm();
  }
  if (waits) line.line->LendSoon(line.serial);
  const absl::Status sent =
      line.line->SendPacket(line.serial, EncodeCallPacket(type, request, body));
  if (sent.ok()) return true;
  // The session may have ended, and the call with it.
  MutexLock lock(&mutex_);
  const auto it = calls_.find(request);
  if (it == calls_.end()) return true;
  *done = std::move(it->second.done);
  if (it->second.waiter != nullptr) it->second.waiter->Ended();
  calls_.erase(it);
  return false;
}

bool FrameCalls::Send(SessionId session, FrameType type,
                      const std::string& body) {
  Line line;
  std::uint64_t request = 0;
  {
    MutexLock lock(&mutex_);
    if (line_.line == nullptr || session != session_) return false;
    line = line_;
    request = ++last_request_;
  }
  return line.line
      ->SendPacket(line.serial, EncodeCallPacket(type, request, body))
      .ok();
}

absl::Status FrameCalls::OnFrame(std::string_view packet) {
  if (GiveToWaiter(packet, nullptr)) return absl::OkStatus();
  const absl::StatusOr<CallFrame> frame = DecodeCallPacket(packet);
  if (!frame.ok()) return Nonsense(ToStd(frame.status().message()));
  Done done;
  {
    MutexLock lock(&mutex_);
    const auto it = calls_.find(frame->request);
    if (it == calls_.end()) {
      // Given up meanwhile: late, and what it took ends by itself.
      if (frame->request <= last_request_) return absl::OkStatus();
      return Nonsense("an answer to nothing");
    }
    if (frame->type != FrameType::kCallFailed &&
        frame->type != it->second.answer) {
      return Nonsense("the answer to another call");
    }
    done = std::move(it->second.done);
    calls_.erase(it);
  }
  std::move(done)(BodyOf(*frame), Way::kFrame);
  return absl::OkStatus();
}

std::optional<bool> FrameCalls::GiveToWaiter(std::string_view packet,
                                             WaitingThread* mine) {
  if (!BeginsFrame(packet)) return std::nullopt;
  const absl::StatusOr<CallFrame> frame = DecodeCallPacket(packet);
  if (!frame.ok()) return std::nullopt;
  bool is_mine = false;
  bool receives = false;
  {
    MutexLock lock(&mutex_);
    const auto it = calls_.find(frame->request);
    if (it == calls_.end() || it->second.waiter == nullptr) return std::nullopt;
    if (frame->type != FrameType::kCallFailed &&
        frame->type != it->second.answer) {
      return std::nullopt;
    }
    is_mine = it->second.waiter == mine;
    receives =
        it->second.waiter->Give(std::move(it->second.done), BodyOf(*frame));
    calls_.erase(it);
  }
  // It was taken up just before its thread began to receive.
  if (receives && !is_mine) StopReceiving();
  return is_mine;
}

// One timer for all: set anew only for a call that ends before it.
void FrameCalls::Arm() {
  BootTime next = BootTime::Infinite();
  for (const auto& [request, call] : calls_) next = std::min(next, call.until);
  if (next >= armed_for_) return;
  armed_for_ = next;
  if (timer_ != TimerId::kNone) executor_->Cancel(timer_);
  timer_ = executor_->PostAt(next, scope_.Wrap([this] { OnTimer(); }));
}

void FrameCalls::OnTimer() {
  const BootTime now = executor_->clock()->Now();
  std::vector<Done> late;
  bool receives = false;
  {
    MutexLock lock(&mutex_);
    armed_for_ = BootTime::Infinite();
    timer_ = TimerId::kNone;
    for (auto it = calls_.begin(); it != calls_.end();) {
      if (it->second.until > now) {
        ++it;
        continue;
      }
      if (it->second.waiter != nullptr && it->second.waiter->Ended()) {
        receives = true;
      }
      late.push_back(std::move(it->second.done));
      it = calls_.erase(it);
    }
    Arm();
  }
  if (receives) StopReceiving();
  for (Done& done : late) {
    std::move(done)(absl::DeadlineExceededError("no answer in time"),
                    Way::kFrame);
  }
}

// --- Waiting threads.

void FrameCalls::Enter(WaitingThread* waiter) {
  MutexLock lock(&mutex_);
  waiters_.emplace_back(pthread_self(), waiter);
}

void FrameCalls::Leave(WaitingThread* waiter) {
  MutexLock lock(&mutex_);
  for (auto& [request, call] : calls_) {
    if (call.waiter == waiter) call.waiter = nullptr;
  }
  waiters_.erase(
      std::find_if(waiters_.begin(), waiters_.end(),
                   [&](const auto& one) { return one.second == waiter; }));
}

bool FrameCalls::ReceiveHere(WaitingThread* waiter) {
  Line line;
  {
    MutexLock lock(&mutex_);
    line = line_;
  }
  if (line.line == nullptr) return false;
  return line.line->ReceiveHere(
      line.serial,
      [this, waiter](std::string_view message) {
        const std::optional<bool> mine = GiveToWaiter(message, waiter);
        if (!mine) return LocalSocket::Taken::kNotMine;
        return *mine ? LocalSocket::Taken::kLast : LocalSocket::Taken::kMine;
      },
      [waiter] { return waiter->Waits(); });
}

void FrameCalls::StopReceiving() {
  Line line;
  {
    MutexLock lock(&mutex_);
    line = line_;
  }
  if (line.line != nullptr) line.line->StopReceiving(line.serial);
}

void FrameCalls::TakeBack() {
  Line line;
  {
    MutexLock lock(&mutex_);
    line = line_;
  }
  if (line.line != nullptr) line.line->TakeBack(line.serial);
}

bool WaitingThread::IsHere() { return waits_here > 0; }

WaitingThread::WaitingThread(FrameCalls* calls) : calls_(calls) {
  ++waits_here;
  if (calls_ != nullptr) calls_->Enter(this);
}

WaitingThread::~WaitingThread() {
  --waits_here;
  if (calls_ != nullptr) calls_->Leave(this);
  bool take_back = false;
  {
    MutexLock lock(&mutex_);
    take_back = TakesBack();
  }
  if (take_back) calls_->TakeBack();
  // Answers that came with the end, or too late for it: what they granted is
  // given back.
  std::deque<Answer> answers;
  {
    MutexLock lock(&mutex_);
    answers.swap(answers_);
  }
  for (Answer& answer : answers) {
    std::move(answer.done)(std::move(answer.body), FrameCalls::Way::kFrame);
  }
}

void WaitingThread::Finish() {
  FrameCalls* const calls = calls_;
  bool receiving = false;
  {
    MutexLock lock(&mutex_);
    finished_ = true;
    receiving = receiving_;
    // Under the lock: the waiter destroys this as soon as it knows.
    Rouse();
  }
  if (receiving) calls->StopReceiving();
}

void WaitingThread::Rouse() {
  changed_.Signal();
  // What it does itself it sees.
  if (receiving_lent_ && pthread_equal(thread_, pthread_self()) == 0) {
    streams_.Wake();
  }
}

bool WaitingThread::ReceiveLent() {
  if (streams_.empty()) return false;
  bool calls = false;
  {
    MutexLock lock(&mutex_);
    if (HasWork()) return false;
    calls = in_flight_ > 0;
    receiving_lent_ = !calls;
  }
  if (calls) {
    // It waits at the session's socket: a thread of the network takes these.
    streams_.GiveBack();
    return false;
  }
  streams_.Receive();
  MutexLock lock(&mutex_);
  receiving_lent_ = false;
  return true;
}

void WaitingThread::Wait() {
  // Whether receiving here is worth trying: not after a refusal, until
  // something changes.
  bool may_receive = true;
  for (;;) {
    if (ReceiveLent()) continue;
    std::optional<Answer> answer;
    bool take_back = false;
    {
      MutexLock lock(&mutex_);
      const bool sleeps = !HasWork() && (in_flight_ == 0 || !may_receive);
      take_back = sleeps && TakesBack();
      while (!take_back && !HasWork() && (in_flight_ == 0 || !may_receive)) {
        changed_.Wait(&mutex_);
        may_receive = true;
      }
      if (finished_) return;
      if (take_back) {
        // Below, and once more.
      } else if (!answers_.empty()) {
        answer = std::move(answers_.front());
        answers_.pop_front();
      } else {
        receiving_ = true;
        lent_ = false;
      }
    }
    if (take_back) {
      calls_->TakeBack();
      continue;
    }
    if (answer) {
      std::move(answer->done)(std::move(answer->body), FrameCalls::Way::kFrame);
      continue;
    }
    may_receive = calls_->ReceiveHere(this);
    MutexLock lock(&mutex_);
    receiving_ = false;
  }
}

bool WaitingThread::Waits() {
  MutexLock lock(&mutex_);
  return !HasWork() && in_flight_ > 0;
}

void WaitingThread::Began() {
  MutexLock lock(&mutex_);
  ++in_flight_;
  lent_ = true;
}

bool WaitingThread::Give(FrameCalls::Done done,
                         absl::StatusOr<std::string> body) {
  MutexLock lock(&mutex_);
  --in_flight_;
  answers_.push_back({std::move(done), std::move(body)});
  Rouse();
  return receiving_;
}

bool WaitingThread::Ended() {
  MutexLock lock(&mutex_);
  --in_flight_;
  Rouse();
  return receiving_;
}

}  // namespace firnkv
