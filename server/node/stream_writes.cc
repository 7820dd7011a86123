#include "server/node/stream_writes.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"
#include "server/node/scoped_answer.h"

namespace firnkv {
namespace {

absl::Status Broken(std::string_view what) {
  return absl::InvalidArgumentError(StrCat("protocol: ", what));
}

EvictionPolicy::ConversationState StateFrom(std::uint32_t number) {
  using State = EvictionPolicy::ConversationState;
  // DecodeReserve has bounded it.
  return number == 1   ? State::kWillReturn
         : number == 2 ? State::kEnded
                       : State::kUnknown;
}

// Of a write whose reservation has `left` until its end: the answer that there
// is no room has to be with the writer before that.
absl::Duration RoomWait(absl::Duration left) { return left * 7 / 8; }

}  // namespace

StreamWrites::StreamWrites(const Options& options, const Parts& parts,
                           absl::AnyInvocable<void()> on_change)
    : options_(options), parts_(parts), on_change_(std::move(on_change)) {
  CHECK(options.step_bytes % kPieceBytes == 0 && options.step_bytes > 0);
}

StreamWrites::~StreamWrites() {
  scope_.Close();
  EndSession();
  Abandon();
}

bool StreamWrites::BeginSession(TenantId tenant) {
  MutexLock lock(&mutex_);
  if (!ended_ && session_.id.IsZero()) {
    session_.tenant = tenant;
    parts_.random->Fill(absl::MakeSpan(session_.id.bytes));
    parts_.registry->Add(session_);
  }
  return !ended_;
}

void StreamWrites::EndSession() {
  SessionId session;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(ended_, true)) return;
    session = session_.id;
  }
  if (session.IsZero()) return;
  // Rule S3: nobody's first, then what it had.
  parts_.registry->Remove(session);
  parts_.pool->EndSession(session);
  parts_.reservations->EndSession(session);
}

// --- Reserve.

absl::Status StreamWrites::Reserve(TenantId tenant, std::uint64_t request,
                                   ReserveBody body) {
  const BootTime now = parts_.executor->clock()->Now();
  const absl::Duration left = std::min(body.header.remaining, options_.longest);
  if (!BeginSession(tenant)) return absl::OkStatus();
  WritePath::ReserveCall call;
  bool refused = false;
  {
    MutexLock lock(&mutex_);
    if (request <= highest_request_) return Broken("a request id of before");
    highest_request_ = request;
    ForgetOld(now);
    if (body.wait_for == 2) {
      refused = true;
      RefuseAll(request,
                absl::InvalidArgumentError(
                    "wait_for is flash, and this node has no flash tier"),
                Outcome::kUnset, 0);
    } else if (live_ >= options_.max_writes ||
               blocks_ + body.blocks.size() > options_.max_blocks) {
      refused = true;
      RefuseAll(request, absl::OkStatus(), Outcome::kCongested,
                body.blocks.size());
    } else {
      Write write;
      write.traffic = body.header.traffic;
      write.wait = static_cast<CommitWait>(body.wait_for);
      write.deadline = now + left;
      for (const ReserveBody::Block& block : body.blocks) {
        write.blocks.push_back({.key = block.key, .length = block.length});
        call.blocks.push_back({block.key, block.place, block.length});
      }
      blocks_ += write.blocks.size();
      ++live_;
      call.session = session_;
      writes_.emplace(request, std::move(write));
    }
  }
  if (refused) {
    on_change_();
    return absl::OkStatus();
  }
  call.name_space = body.name_space;
  call.seen = body.clear_epoch;
  call.deadline = now + RoomWait(left);
  call.reserve_for = std::min(body.reserve_for, left);
  call.wait = static_cast<CommitWait>(body.wait_for);
  call.conversation = StateFrom(body.session_state);
  parts_.writes->StartReserve(
      std::move(call),
      ScopedAnswer<Reservations::ReserveAnswer>(
          &scope_, [this, request](Reservations::ReserveAnswer answer) {
            OnReserved(request, std::move(answer));
          }));
  return absl::OkStatus();
}

void StreamWrites::RefuseAll(std::uint64_t request, const absl::Status& status,
                             Outcome outcome, std::size_t blocks) {
  Write write;
  write.pending = false;
  write.ended = true;
  write.reserved.emplace();
  write.reserved->status = status;
  write.reserved->outcomes.assign(blocks, outcome);
  write.reserved->retry_after = parts_.reservations->retry_after();
  writes_.emplace(request, std::move(write));
}

void StreamWrites::ForgetOld(BootTime now) {
  for (auto& [request, write] : writes_) {
    if (write.pending || write.ended || now < write.deadline) continue;
    // What lands or is awaited still has its answer to come.
    const bool idle = std::none_of(
        write.blocks.begin(), write.blocks.end(),
        [](const Block& one) { return one.state == Block::State::kLanding; });
    if (idle) End(&write);
  }
}

void StreamWrites::End(Write* write) {
  CHECK(!write->ended);
  write->ended = true;
  blocks_ -= write->blocks.size();
  --live_;
}

void StreamWrites::OnReserved(std::uint64_t request,
                              Reservations::ReserveAnswer answer) {
  ReservationId unwanted = ReservationId::kNone;
  LiveSession session;
  {
    MutexLock lock(&mutex_);
    Write& write = writes_.at(request);
    session = session_;
    write.pending = false;
    if (write.cancelled) {
      unwanted = answer.reservation;
      End(&write);
    } else {
      write.reservation = answer.reservation;
      for (std::size_t i = 0; i < answer.outcomes.size(); ++i) {
        if (answer.outcomes[i] != Outcome::kStored) continue;
        write.blocks[i].state = Block::State::kReserved;
        ++write.open;
      }
      if (write.open == 0) End(&write);
      write.reserved.emplace();
      write.reserved->status = std::move(answer.status);
      write.reserved->valid_for = answer.valid_for;
      write.reserved->retry_after = answer.retry_after;
      write.reserved->clear_epoch = answer.clear_epoch;
      write.reserved->outcomes = std::move(answer.outcomes);
    }
  }
  if (unwanted != ReservationId::kNone) parts_.writes->Abort(session, unwanted);
  on_change_();
}

void StreamWrites::Cancel(std::uint64_t request) {
  ReservationId reservation = ReservationId::kNone;
  LiveSession session;
  {
    MutexLock lock(&mutex_);
    const auto it = writes_.find(request);
    if (it == writes_.end() || it->second.ended) return;
    it->second.cancelled = true;
    // Else its answer ends it.
    if (!it->second.pending) {
      End(&it->second);
      reservation = it->second.reservation;
      session = session_;
    }
  }
  if (reservation != ReservationId::kNone) {
    parts_.writes->Abort(session, reservation);
  }
  on_change_();
}

// --- One block.

absl::Status StreamWrites::BeginBlock(std::uint64_t request, WriteBody body,
                                      std::uint64_t payload_bytes) {
  CHECK(!landing_.active);
  const BootTime now = parts_.executor->clock()->Now();
  MutexLock lock(&mutex_);
  if (request == 0 || request > highest_request_) {
    return Broken("bytes that nothing was reserved for");
  }
  landing_ = Landing{};
  landing_.active = true;
  landing_.request = request;
  landing_.index = body.index;
  landing_.pieces = std::move(body.pieces);
  landing_.length = payload_bytes;
  landing_.deadline = now + options_.longest;
  const auto it = writes_.find(request);
  if (it == writes_.end()) return absl::OkStatus();
  const Write& write = it->second;
  landing_.deadline = write.deadline;
  // Of a refused request nothing is known.
  if (write.blocks.empty()) return absl::OkStatus();
  if (body.index >= write.blocks.size()) {
    return Broken(StrCat("block ", body.index, " of ", write.blocks.size()));
  }
  const Block& block = write.blocks[body.index];
  if (block.key != body.key) return Broken("bytes under another key");
  if (block.length != payload_bytes) {
    return Broken(StrCat("a payload of ", payload_bytes,
                         " bytes for a block of ", block.length));
  }
  return absl::OkStatus();
}

absl::Span<std::byte> StreamWrites::NextPiece() {
  CHECK(landing_.active);
  if (!landing_.opened && !Open()) return {};
  const std::uint64_t left = landing_.length - landing_.landed;
  if (!landing_.done) {
    landing_.step = std::min<std::uint64_t>(left, options_.scratch_bytes);
    scratch_.resize(landing_.step);
    return absl::MakeSpan(scratch_);
  }
  if (PutOff()) return {};
  landing_.step = std::min(left, options_.step_bytes);
  return landing_.target.bytes.subspan(landing_.landed, landing_.step);
}

bool StreamWrites::Open() {
  WritePath::LandingCall call;
  {
    MutexLock lock(&mutex_);
    const auto it = writes_.find(landing_.request);
    if (it != writes_.end() && it->second.pending) return false;
    landing_.opened = true;
    if (it == writes_.end() || it->second.ended || ended_) return true;
    Write& write = it->second;
    Block& block = write.blocks[landing_.index];
    if (block.state != Block::State::kReserved) return true;
    block.state = Block::State::kLanding;
    call = {.session = session_,
            .reservation = write.reservation,
            .index = landing_.index,
            .traffic = write.traffic,
            .deadline = write.deadline,
            .wait = write.wait};
  }
  parts_.writes->StartLanding(
      call,
      [this](std::vector<Reservations::Landing> landings) {
        OnLandable(std::move(landings.front()));
      },
      ScopedAnswer<WritePath::CommitAnswer>(
          &scope_, [this, request = landing_.request,
                    index = landing_.index](WritePath::CommitAnswer answer) {
            OnWritten(request, index,
                      answer.outcomes.empty() ? Outcome::kReservationOver
                                              : answer.outcomes.front());
          }));
  return true;
}

// Inside StartLanding: the slot is ours to fill, if it still is one.
void StreamWrites::OnLandable(Reservations::Landing landing) {
  auto begun = parts_.pool->BeginCopy(landing.slot);
  if (const auto* const result = std::get_if<CommitResult>(&begun)) {
    return std::move(landing.done)(*result);
  }
  landing_.target = std::get<CopyTarget>(std::move(begun));
  CHECK(landing_.target.bytes.size() == landing_.length);
  landing_.slot = landing.slot;
  landing_.done = std::move(landing.done);
}

bool StreamWrites::PutOff() {
  if (parts_.busy->load(std::memory_order_relaxed) == 0) return false;
  const BootTime now = parts_.executor->clock()->Now();
  if (landing_.put_off_since == BootTime()) landing_.put_off_since = now;
  if (now >= landing_.put_off_since + options_.max_put_off) return false;
  parts_.executor->PostAt(now + options_.put_off,
                          scope_.Wrap([this] { on_change_(); }));
  return true;
}

bool StreamWrites::Landed() {
  const std::uint64_t begin = landing_.landed;
  landing_.landed += landing_.step;
  landing_.put_off_since = BootTime();
  if (landing_.done) CheckLanded(begin, landing_.landed);
  parts_.metrics->stream_received_bytes.Add(landing_.step);
  if (landing_.landed < landing_.length) return false;
  Finish();
  return true;
}

// Rule P1: what landed is what the writer says it sent.
void StreamWrites::CheckLanded(std::uint64_t begin, std::uint64_t end) {
  const std::vector<std::uint32_t> pieces =
      PieceChecksums(landing_.target.bytes.subspan(begin, end - begin));
  const auto wanted = landing_.pieces.begin() +
                      static_cast<std::ptrdiff_t>(begin / kPieceBytes);
  if (!std::equal(pieces.begin(), pieces.end(), wanted)) {
    landing_.sound = false;
  }
}

void StreamWrites::Finish() {
  Landing landing = std::exchange(landing_, Landing{});
  scratch_ = std::vector<std::byte>();
  if (!landing.done) return;
  CommitResult result{.outcome = Outcome::kCorrupt};
  if (landing.sound) {
    result = parts_.pool->Commit(std::move(landing.target),
                                 std::move(landing.pieces));
  } else {
    parts_.pool->EndReservation(absl::MakeConstSpan(&landing.slot, 1));
  }
  landing.target = CopyTarget{};
  std::move(landing.done)(result);
}

void StreamWrites::Abandon() {
  Landing landing = std::exchange(landing_, Landing{});
  if (!landing.done) return;
  // Rule S7: dead, and free once the hold has ended.
  parts_.pool->EndReservation(absl::MakeConstSpan(&landing.slot, 1));
  landing.target = CopyTarget{};
  std::move(landing.done)(CommitResult{});
}

void StreamWrites::OnWritten(std::uint64_t request, std::uint32_t index,
                             Outcome outcome) {
  {
    MutexLock lock(&mutex_);
    const auto it = writes_.find(request);
    // Cancelled meanwhile.
    if (it == writes_.end() || it->second.ended) return;
    Write& write = it->second;
    write.blocks[index].state = Block::State::kOver;
    if (outcome == Outcome::kCongested) {
      write.written.retry_after = parts_.reservations->retry_after();
    }
    write.written.blocks.push_back({index, outcome});
    if (--write.open == 0) End(&write);
  }
  on_change_();
}

// --- Answers.

bool StreamWrites::TakesMore() const {
  MutexLock lock(&mutex_);
  return writes_.size() < 2 * options_.max_writes;
}

bool StreamWrites::TakeAnswers(OutgoingFrames* frames) {
  bool any = false;
  const auto say = [&](FrameType type, std::uint64_t request,
                       const std::string& body) {
    frames->Append(MakeFrame(type, request, body), {}, {});
    any = true;
  };
  MutexLock lock(&mutex_);
  for (auto it = writes_.begin(); it != writes_.end();) {
    Write& write = it->second;
    if (write.reserved) {
      say(FrameType::kReserved, it->first, EncodeReserved(*write.reserved));
      write.reserved.reset();
    }
    if (!write.written.blocks.empty()) {
      say(FrameType::kWritten, it->first, EncodeWritten(write.written));
      write.written = WrittenBody{};
    }
    if (!write.ended) {
      ++it;
      continue;
    }
    say(FrameType::kWriteEnd, it->first, {});
    it = writes_.erase(it);
  }
  return any;
}

}  // namespace firnkv
