#include "server/node/reservations.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"
#include "server/tier/slot_space.h"

namespace firnkv {

struct Reservations::Reservation {
  enum class State : std::uint8_t {
    // A slot is kept for it.
    kReserved,
    kCopying,
    // Its answer is known and repeated.
    kDone,
  };
  struct Block {
    State state = State::kDone;
    std::uint64_t length = 0;
    // Against the caps; 0 once it is not.
    std::uint64_t slot_bytes = 0;
    SlotCopy slot;
    BlockId id;
    CommitResult result;
    // Commits that wait for it, with the place of the answer in each.
    std::vector<std::pair<std::shared_ptr<Waiting>, std::size_t>> waiting;
  };

  ReservationId id = ReservationId::kNone;
  SessionId session;
  TenantId tenant;
  BootTime until;
  TimerId timer = TimerId::kNone;
  // Once it is finished.
  BootTime forget_at;
  std::vector<Block> blocks;
  // Blocks that are not done.
  std::size_t open = 0;
  bool ended = false;
  // Its session is gone: nobody will ask for answers.
  bool orphan = false;
};

struct Reservations::SessionState {
  Charge charge;
  std::size_t live = 0;
  std::size_t pending = 0;
  bool ended = false;
  // Shared with the copies of their blocks, which may outlive the session.
  absl::flat_hash_map<ReservationId, std::shared_ptr<Reservation>> all;
  // Of those in `all`, the finished ones by age, and the blocks in them.
  std::deque<ReservationId> finished;
  std::size_t finished_blocks = 0;
};

struct Reservations::Pending {
  ReserveRequest request;
  std::size_t admitted = 0;
  BootTime until;
  firnkv::ReserveAnswer got;
  ReserveDone done;
  bool answered = false;
};

struct Reservations::Waiting {
  CommitAnswer answer;
  std::size_t missing = 0;
  CommitDone done;
};

Reservations::Reservations(const Options& options, const Parts& parts)
    : options_(options), parts_(parts) {}

Reservations::~Reservations() {
  scope_.Close();
  std::vector<SlotCopy> slots;
  {
    MutexLock lock(&mutex_);
    for (auto& [session, state] : sessions_) {
      for (auto& [id, reservation] : state->all) {
        for (const Reservation::Block& block : reservation->blocks) {
          CHECK(block.state != Reservation::State::kCopying);
        }
        parts_.executor->Cancel(reservation->timer);
        if (!reservation->ended) End(reservation.get(), &slots);
      }
    }
  }
  parts_.pool->EndReservation(slots);
}

Reservations::SessionState& Reservations::StateOf(SessionId session) {
  std::unique_ptr<SessionState>& state = sessions_[session];
  if (state == nullptr) state = std::make_unique<SessionState>();
  return *state;
}

void Reservations::ForgetIfGone(SessionId session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  const SessionState& state = *it->second;
  if (state.pending == 0 && state.charge.blocks == 0 && state.all.empty()) {
    sessions_.erase(it);
  }
}

Reservations::Reservation* Reservations::Find(SessionId session,
                                              ReservationId id) const {
  const auto state = sessions_.find(session);
  if (state == sessions_.end()) return nullptr;
  const auto it = state->second->all.find(id);
  return it == state->second->all.end() ? nullptr : it->second.get();
}

std::size_t Reservations::Admit(const ReserveRequest& request) {
  SessionState& state = StateOf(request.session);
  Charge& own = state.charge;
  Charge& all = tenants_[request.name_space.tenant];
  std::size_t admitted = 0;
  if (state.live + state.pending < options_.max_reservations_a_session) {
    for (const ReserveBlock& block : request.blocks) {
      const std::uint64_t bytes =
          SlotSpace::SlotBytesFor(block.length, request.name_space.block_bytes);
      if (bytes > options_.max_bytes_a_session - own.bytes ||
          bytes > options_.max_bytes_a_tenant - all.bytes ||
          own.blocks == options_.max_blocks_a_session ||
          all.blocks == options_.max_blocks_a_tenant) {
        break;
      }
      for (Charge* const charge : {&own, &all}) {
        charge->bytes += bytes;
        ++charge->blocks;
      }
      reserved_bytes_ += bytes;
      ++admitted;
    }
  }
  if (all.blocks == 0) tenants_.erase(request.name_space.tenant);
  return admitted;
}

void Reservations::Refund(SessionId session, TenantId tenant,
                          const Charge& charge) {
  const auto all = tenants_.find(tenant);
  if (all == tenants_.end()) {
    CHECK(charge.bytes == 0 && charge.blocks == 0);
    return;
  }
  for (Charge* const one : {&StateOf(session).charge, &all->second}) {
    CHECK(one->bytes >= charge.bytes && one->blocks >= charge.blocks);
    one->bytes -= charge.bytes;
    one->blocks -= charge.blocks;
  }
  if (all->second.blocks == 0) tenants_.erase(all);
  reserved_bytes_ -= charge.bytes;
}

Outcome Reservations::OverCap(const PoolNamespace& name_space,
                              const ReserveBlock& block) const {
  const std::uint64_t most =
      std::min(options_.max_bytes_a_session, options_.max_bytes_a_tenant);
  return SlotSpace::SlotBytesFor(block.length, name_space.block_bytes) > most
             ? Outcome::kOverQuota
             : Outcome::kCongested;
}

// --- Reserve.

void Reservations::StartReserve(ReserveRequest request, ReserveDone done) {
  // Shared: by the pool's completion and the task that runs in it.
  auto pending = std::make_shared<Pending>();
  pending->request = std::move(request);
  pending->done = std::move(done);
  const ReserveRequest& wanted = pending->request;
  const bool full = parts_.copier->Full(wanted.name_space.tenant);
  {
    MutexLock lock(&mutex_);
    ForgetOld();
    pending->admitted = full ? 0 : Admit(wanted);
    if (pending->admitted > 0) ++StateOf(wanted.session).pending;
    ForgetIfGone(wanted.session);
  }
  if (pending->admitted == 0) {
    ReserveAnswer answer;
    for (const ReserveBlock& block : wanted.blocks) {
      answer.outcomes.push_back(OverCap(wanted.name_space, block));
    }
    answer.generations.resize(wanted.blocks.size());
    answer.retry_after = options_.retry_after;
    answer.clear_epoch = wanted.name_space.clear_epoch;
    std::move(pending->done)(std::move(answer));
    return;
  }
  pending->until = parts_.executor->clock()->Now() +
                   std::min(wanted.reserve_for, options_.longest);
  firnkv::ReserveRequest ask;
  ask.name_space = wanted.name_space;
  ask.session = wanted.session;
  ask.blocks.assign(
      wanted.blocks.begin(),
      wanted.blocks.begin() + static_cast<std::ptrdiff_t>(pending->admitted));
  ask.deadline = wanted.deadline;
  ask.reserved_until = pending->until;
  ask.conversation = wanted.conversation;
  // The pool may answer when this object is gone: the task does nothing then.
  Task on_reserved =
      scope_.Wrap([this, pending] { OnReserved(pending.get()); });
  parts_.pool->StartReserve(
      std::move(ask), [pending, on_reserved = std::move(on_reserved)](
                          firnkv::ReserveAnswer got) mutable {
        pending->got = std::move(got);
        std::move(on_reserved)();
        if (pending->answered) return;
        ReserveAnswer answer;
        answer.outcomes.assign(pending->request.blocks.size(),
                               Outcome::kCancelled);
        answer.generations.resize(pending->request.blocks.size());
        std::move(pending->done)(std::move(answer));
      });
}

void Reservations::OnReserved(Pending* pending) {
  const ReserveRequest& request = pending->request;
  const firnkv::ReserveAnswer& got = pending->got;
  ReserveAnswer answer;
  answer.status = got.status;
  answer.clear_epoch = got.clear_epoch;
  std::vector<SlotCopy> given_up;
  {
    MutexLock lock(&mutex_);
    SessionState& state = StateOf(request.session);
    --state.pending;
    // Shared: see `all`.
    std::shared_ptr<Reservation> reservation = MakeOf(*pending, &given_up);
    if (reservation->open > 0) {
      answer.reservation = Keep(std::move(reservation));
      answer.valid_for =
          std::max(absl::ZeroDuration(),
                   pending->until - parts_.executor->clock()->Now());
    }
    if (got.status.ok()) {
      for (std::size_t i = 0; i < request.blocks.size(); ++i) {
        Outcome outcome = i < pending->admitted
                              ? got.blocks[i].outcome
                              : OverCap(request.name_space, request.blocks[i]);
        if (state.ended) outcome = Outcome::kCancelled;
        answer.outcomes.push_back(outcome);
        answer.generations.push_back(outcome == Outcome::kAlreadyThere
                                         ? got.blocks[i].copy.generation
                                         : Generation::kNone);
        if (outcome == Outcome::kCongested) {
          answer.retry_after = options_.retry_after;
        }
      }
    }
    ForgetIfGone(request.session);
  }
  if (!given_up.empty()) parts_.pool->EndReservation(given_up);
  pending->answered = true;
  std::move(pending->done)(std::move(answer));
}

// Shared: see `all`.
std::shared_ptr<Reservations::Reservation> Reservations::MakeOf(
    const Pending& pending, std::vector<SlotCopy>* given_up) {
  const ReserveRequest& request = pending.request;
  const firnkv::ReserveAnswer& got = pending.got;
  const bool ended = StateOf(request.session).ended;
  auto reservation = std::make_shared<Reservation>();  // Shared: see `all`.
  reservation->session = request.session;
  reservation->tenant = request.name_space.tenant;
  reservation->until = pending.until;
  Charge not_taken;
  for (std::size_t i = 0; i < pending.admitted; ++i) {
    Reservation::Block block;
    block.length = request.blocks[i].length;
    block.id = {request.name_space.id, request.blocks[i].key};
    const Outcome outcome =
        got.status.ok() ? got.blocks[i].outcome : Outcome::kCongested;
    if (outcome == Outcome::kStored && !ended) {
      block.state = Reservation::State::kReserved;
      block.slot = got.blocks[i].copy;
      ++reservation->open;
      block.slot_bytes =
          SlotSpace::SlotBytesFor(block.length, request.name_space.block_bytes);
    } else {
      not_taken.bytes +=
          SlotSpace::SlotBytesFor(block.length, request.name_space.block_bytes);
    }
    if (outcome == Outcome::kStored && ended) {
      given_up->push_back(got.blocks[i].copy);
    }
    if (outcome == Outcome::kAlreadyThere) {
      // What a commit of it all the same is told.
      block.result = {.outcome = outcome,
                      .generation = got.blocks[i].copy.generation};
    }
    reservation->blocks.push_back(std::move(block));
  }
  // Otherwise it is kept, with all its blocks.
  if (reservation->open == 0) not_taken.blocks = pending.admitted;
  Refund(request.session, request.name_space.tenant, not_taken);
  return reservation;
}

ReservationId Reservations::Keep(std::shared_ptr<Reservation> reservation) {
  const ReservationId id{next_id_++};
  reservation->id = id;
  reservation->timer = parts_.executor->PostAt(
      reservation->until, scope_.Wrap([this, session = reservation->session,
                                       id] { Abort(session, id); }));
  SessionState& state = StateOf(reservation->session);
  ++state.live;
  ++live_;
  state.all.emplace(id, std::move(reservation));
  return id;
}

// --- Commit.

absl::Status Reservations::Check(const CommitRequest& request,
                                 const Reservation& reservation) {
  absl::flat_hash_set<std::uint32_t> indexes;
  for (const CommitRequest::Block& block : request.blocks) {
    if (block.index >= reservation.blocks.size()) {
      return absl::InvalidArgumentError(
          StrCat("index ", block.index, " of ", reservation.blocks.size()));
    }
    if (!indexes.insert(block.index).second) {
      return absl::InvalidArgumentError(
          StrCat("index ", block.index, " is named twice"));
    }
    if (request.land) continue;
    const std::uint64_t length = reservation.blocks[block.index].length;
    std::uint64_t bytes = 0;
    for (const StagingRange& range : block.source) bytes += range.bytes.size();
    if (bytes != length) {
      return absl::InvalidArgumentError(StrCat("index ", block.index, ": ",
                                               bytes, " bytes for a block of ",
                                               length));
    }
    if (block.pieces.size() != DivideUp(length, kPieceBytes)) {
      return absl::InvalidArgumentError(
          StrCat("index ", block.index, ": ", block.pieces.size(),
                 " checksums for a block of ", length));
    }
  }
  return absl::OkStatus();
}

void Reservations::StartCommit(CommitRequest request, CommitDone done) {
  // Shared: by every block that it waits for.
  auto waiting = std::make_shared<Waiting>();
  waiting->answer.blocks.resize(request.blocks.size());
  waiting->done = std::move(done);
  Copier::Job job;
  std::vector<std::uint32_t> begun;
  std::shared_ptr<Reservation> reservation;  // Shared: see `all`.
  bool answered = true;
  {
    MutexLock lock(&mutex_);
    ForgetOld();
    if (Find(request.session, request.reservation) != nullptr) {
      reservation = sessions_.at(request.session)->all.at(request.reservation);
      waiting->answer.status = Check(request, *reservation);
      if (waiting->answer.status.ok()) {
        Join(&request, reservation.get(), waiting, &job, &begun);
      } else {
        waiting->answer.blocks.clear();
      }
      answered = waiting->missing == 0;
    }
  }
  if (answered) std::move(waiting->done)(std::move(waiting->answer));
  if (begun.empty()) return;
  if (request.land) {
    return StartLandings(&request, reservation, job, begun);
  }
  job.tenant = reservation->tenant;
  job.traffic = request.traffic;
  job.deadline = request.deadline;
  job.done = [this, session = request.session, reservation,
              begun = std::move(begun)](std::size_t block,
                                        CommitResult result) {
    OnCopied(session, reservation.get(), begun[block], result);
  };
  parts_.copier->Start(std::move(job));
}

// Shared: see `all`.
void Reservations::StartLandings(
    CommitRequest* request, const std::shared_ptr<Reservation>& reservation,
    const Copier::Job& job, const std::vector<std::uint32_t>& begun) {
  std::vector<Landing> landings;
  for (std::size_t i = 0; i < begun.size(); ++i) {
    Landing landing;
    landing.slot = job.blocks[i].reserved;
    landing.done = [this, session = request->session, reservation,
                    index = begun[i]](CommitResult result) {
      OnCopied(session, reservation.get(), index, result);
    };
    landings.push_back(std::move(landing));
  }
  std::move(request->land)(std::move(landings));
}

void Reservations::Join(CommitRequest* request, Reservation* reservation,
                        const std::shared_ptr<Waiting>& waiting,
                        Copier::Job* job, std::vector<std::uint32_t>* begun) {
  for (std::size_t i = 0; i < request->blocks.size(); ++i) {
    CommitRequest::Block& wanted = request->blocks[i];
    Reservation::Block& block = reservation->blocks[wanted.index];
    CommitAnswer::Block& out = waiting->answer.blocks[i];
    out.block = block.id;
    switch (block.state) {
      case Reservation::State::kDone:
        out.outcome = block.result.outcome;
        out.generation = block.result.generation;
        continue;
      case Reservation::State::kReserved:
        block.state = Reservation::State::kCopying;
        job->blocks.push_back({.reserved = block.slot,
                               .source = std::move(wanted.source),
                               .pieces = std::move(wanted.pieces)});
        begun->push_back(wanted.index);
        break;
      case Reservation::State::kCopying:
        break;
    }
    block.waiting.emplace_back(waiting, i);
    ++waiting->missing;
  }
}

void Reservations::OnCopied(SessionId session, Reservation* reservation,
                            std::uint32_t index, CommitResult result) {
  Answered answered;
  {
    MutexLock lock(&mutex_);
    Reservation::Block& block = reservation->blocks[index];
    CHECK(block.state == Reservation::State::kCopying);
    // Not begun: it may be committed again, unless it is over (rule S8).
    const bool not_begun = result.outcome == Outcome::kTimedOut ||
                           result.outcome == Outcome::kCancelled;
    if (not_begun && reservation->ended) result = CommitResult{};
    for (const auto& [waiting, place] : block.waiting) {
      waiting->answer.blocks[place].outcome = result.outcome;
      waiting->answer.blocks[place].generation = result.generation;
      if (--waiting->missing == 0) answered.push_back(waiting);
    }
    block.waiting.clear();
    if (not_begun && !reservation->ended) {
      block.state = Reservation::State::kReserved;
    } else {
      FinishBlock(reservation, index, result);
    }
    ForgetIfGone(session);
  }
  for (const std::shared_ptr<Waiting>& waiting : answered) {
    std::move(waiting->done)(std::move(waiting->answer));
  }
}

// --- Ends.

void Reservations::FinishBlock(Reservation* reservation, std::uint32_t index,
                               CommitResult result) {
  Reservation::Block& block = reservation->blocks[index];
  CHECK(block.state != Reservation::State::kDone && reservation->open > 0);
  block.state = Reservation::State::kDone;
  block.result = result;
  Charge charge{.bytes = std::exchange(block.slot_bytes, 0)};
  if (--reservation->open == 0) charge.blocks = reservation->blocks.size();
  Refund(reservation->session, reservation->tenant, charge);
  if (reservation->open == 0) Finish(reservation);
}

void Reservations::End(Reservation* reservation, std::vector<SlotCopy>* slots) {
  reservation->ended = true;
  for (std::uint32_t i = 0; i < reservation->blocks.size(); ++i) {
    const Reservation::Block& block = reservation->blocks[i];
    switch (block.state) {
      case Reservation::State::kReserved:
        slots->push_back(block.slot);
        FinishBlock(reservation, i, CommitResult{});
        break;
      case Reservation::State::kCopying:
        // Dead from now on; the pool waits for the copy (rule S7).
        slots->push_back(block.slot);
        break;
      case Reservation::State::kDone:
        break;
    }
  }
}

void Reservations::Finish(Reservation* reservation) {
  parts_.executor->Cancel(reservation->timer);
  reservation->ended = true;
  SessionState& state = StateOf(reservation->session);
  --live_;
  --state.live;
  if (reservation->orphan) return;
  reservation->forget_at =
      parts_.executor->clock()->Now() + options_.repeat_for;
  old_.emplace(std::make_pair(reservation->forget_at, reservation->id),
               reservation->session);
  state.finished.push_back(reservation->id);
  state.finished_blocks += reservation->blocks.size();
  finished_blocks_ += reservation->blocks.size();
  while (state.finished.size() > 1 &&
         (state.finished.size() > options_.max_finished_a_session ||
          state.finished_blocks > options_.max_finished_blocks_a_session)) {
    ForgetFirst(&state);
  }
}

void Reservations::ForgetOld() {
  const BootTime now = parts_.executor->clock()->Now();
  while (!old_.empty() && (old_.begin()->first.first <= now ||
                           finished_blocks_ > options_.max_finished_blocks)) {
    const SessionId session = old_.begin()->second;
    ForgetFirst(sessions_.at(session).get());
    ForgetIfGone(session);
  }
}

void Reservations::ForgetFirst(SessionState* state) {
  const auto it = state->all.find(state->finished.front());
  state->finished_blocks -= it->second->blocks.size();
  finished_blocks_ -= it->second->blocks.size();
  old_.erase({it->second->forget_at, it->first});
  state->all.erase(it);
  state->finished.pop_front();
}

void Reservations::Abort(SessionId session, ReservationId id) {
  std::vector<SlotCopy> slots;
  {
    MutexLock lock(&mutex_);
    ForgetOld();
    Reservation* const reservation = Find(session, id);
    if (reservation == nullptr || reservation->ended) return;
    End(reservation, &slots);
  }
  parts_.pool->EndReservation(slots);
}

void Reservations::EndSession(SessionId session) {
  std::vector<SlotCopy> slots;
  {
    MutexLock lock(&mutex_);
    ForgetOld();
    const auto it = sessions_.find(session);
    if (it == sessions_.end()) return;
    SessionState& state = *it->second;
    state.ended = true;
    while (!state.finished.empty()) ForgetFirst(&state);
    for (auto& [id, reservation] : state.all) {
      reservation->orphan = true;
      if (!reservation->ended) End(reservation.get(), &slots);
    }
    // Those whose copies run are kept by them.
    state.all.clear();
    ForgetIfGone(session);
  }
  parts_.pool->EndReservation(slots);
}

Reservations::Totals Reservations::totals() const {
  MutexLock lock(&mutex_);
  Totals totals;
  totals.live = live_;
  totals.finished = old_.size();
  totals.reserved_bytes = reserved_bytes_;
  return totals;
}

}  // namespace firnkv
