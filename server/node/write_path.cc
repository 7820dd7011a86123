#include "server/node/write_path.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

void WritePath::StartReserve(ReserveCall call, Reservations::ReserveDone done) {
  const BootTime started = parts_.executor->clock()->Now();
  const NamespaceCaller caller{.tenant = call.session.tenant, .is_node = false};
  const SessionId session = call.session.id;
  const NamespaceId id = call.name_space;
  const ClearEpoch seen = call.seen;
  const BootTime deadline = call.deadline;
  Reservations::ReserveDone finish =
      [this, started,
       done = std::move(done)](Reservations::ReserveAnswer answer) mutable {
        FinishReserve(started, answer);
        std::move(done)(std::move(answer));
      };
  if (stopped_.load(std::memory_order_relaxed)) {
    Reservations::ReserveAnswer answer;
    answer.outcomes.assign(call.blocks.size(), Outcome::kUnavailable);
    return std::move(finish)(std::move(answer));
  }
  parts_.namespaces->Find(
      caller, id, seen, deadline,
      [this, call = std::move(call), session, id, deadline,
       finish = std::move(finish)](NamespaceCache::Answer found) mutable {
        if (const auto* outcome = std::get_if<Outcome>(&found)) {
          Reservations::ReserveAnswer answer;
          answer.outcomes.assign(call.blocks.size(), *outcome);
          return std::move(finish)(std::move(answer));
        }
        std::vector<BlockId> blocks;
        if (call.wait == CommitWait::kPublished) {
          for (const ReserveBlock& block : call.blocks) {
            blocks.push_back({id, block.key});
          }
        }
        parts_.reservations->StartReserve(
            {.session = session,
             .name_space = std::get<PoolNamespace>(found),
             .blocks = std::move(call.blocks),
             .deadline = deadline,
             .reserve_for = call.reserve_for,
             .conversation = call.conversation},
            [this, session, deadline, blocks = std::move(blocks),
             finish = std::move(finish)](
                Reservations::ReserveAnswer answer) mutable {
              // Rule S3, as in ReadPath::StartOpen.
              if (!parts_.registry->IsLive(session)) {
                parts_.reservations->EndSession(session);
              }
              if (blocks.empty() || !answer.status.ok()) {
                return std::move(finish)(std::move(answer));
              }
              AwaitPresent(blocks, deadline, std::move(answer),
                           std::move(finish));
            });
      });
}

// Rule S9.
void WritePath::AwaitPresent(const std::vector<BlockId>& blocks,
                             BootTime deadline,
                             Reservations::ReserveAnswer answer,
                             Reservations::ReserveDone done) {
  std::vector<BlockId> present;
  std::vector<std::size_t> indexes;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (answer.outcomes[i] != Outcome::kAlreadyThere) continue;
    present.push_back(blocks[i]);
    indexes.push_back(i);
  }
  if (present.empty()) return std::move(done)(std::move(answer));
  const BootTime now = parts_.executor->clock()->Now();
  BootTime until = deadline;
  if (answer.reservation != ReservationId::kNone && now < deadline) {
    until = now + (deadline - now) / 2;
  }
  parts_.link->WaitPublished(
      std::move(present), until,
      [this, answer = std::move(answer), indexes = std::move(indexes), now,
       done = std::move(done)](std::vector<Outcome> published) mutable {
        for (std::size_t i = 0; i < indexes.size(); ++i) {
          if (published[i] == Outcome::kStored) continue;
          answer.outcomes[indexes[i]] = published[i];
          if (published[i] == Outcome::kCongested) {
            answer.retry_after = parts_.reservations->retry_after();
          }
        }
        // The reservation has grown older meanwhile.
        answer.valid_for = std::max(
            absl::ZeroDuration(),
            answer.valid_for - (parts_.executor->clock()->Now() - now));
        std::move(done)(std::move(answer));
      });
}

void WritePath::FinishReserve(BootTime started,
                              const Reservations::ReserveAnswer& answer) {
  for (const Outcome outcome : answer.outcomes) {
    parts_.metrics->CountOutcome(&parts_.metrics->reserves, outcome);
  }
  parts_.metrics->reserve.Add(parts_.executor->clock()->Now() - started);
}

void WritePath::StartCommit(CommitCall call,
                            absl::AnyInvocable<void(CommitAnswer) &&> done) {
  const BootTime started = parts_.executor->clock()->Now();
  Reservations::CommitRequest request;
  request.session = call.session.id;
  request.reservation = call.reservation;
  request.traffic = call.traffic;
  request.deadline = call.deadline;
  for (CommitCall::Block& block : call.blocks) {
    Reservations::CommitRequest::Block wanted;
    wanted.index = block.index;
    wanted.pieces = std::move(block.pieces);
    for (const CommitCall::Extent& extent : block.extents) {
      absl::StatusOr<StagingRange> range = parts_.staging->Resolve(
          call.session.id, extent.staging, extent.offset, extent.length);
      if (!range.ok()) {
        return std::move(done)(
            {Annotate(range.status(), StrCat("index ", block.index)), {}});
      }
      wanted.source.push_back(*std::move(range));
    }
    request.blocks.push_back(std::move(wanted));
  }
  Commit(std::move(request), call.wait, started, std::move(done));
}

void WritePath::StartLanding(
    const LandingCall& call,
    absl::AnyInvocable<void(std::vector<Reservations::Landing>) &&> land,
    absl::AnyInvocable<void(CommitAnswer) &&> done) {
  Reservations::CommitRequest request;
  request.session = call.session.id;
  request.reservation = call.reservation;
  request.traffic = call.traffic;
  request.deadline = call.deadline;
  request.blocks.emplace_back().index = call.index;
  request.land = std::move(land);
  Commit(std::move(request), call.wait, parts_.executor->clock()->Now(),
         std::move(done));
}

void WritePath::Commit(Reservations::CommitRequest request, CommitWait wait,
                       BootTime started,
                       absl::AnyInvocable<void(CommitAnswer) &&> done) {
  const BootTime deadline = request.deadline;
  absl::AnyInvocable<void(CommitAnswer)&&> finish =
      [this, started, done = std::move(done)](CommitAnswer answer) mutable {
        FinishCommit(started, answer);
        std::move(done)(std::move(answer));
      };
  parts_.reservations->StartCommit(
      std::move(request), [this, deadline, wait, finish = std::move(finish)](
                              Reservations::CommitAnswer committed) mutable {
        if (committed.status.ok() && wait == CommitWait::kPublished) {
          return AwaitPublished(std::move(committed), deadline,
                                std::move(finish));
        }
        CommitAnswer answer{committed.status, {}};
        for (const auto& block : committed.blocks) {
          answer.outcomes.push_back(block.outcome);
        }
        std::move(finish)(std::move(answer));
      });
}

// Rule S9: a copy that is gone before the catalog knew it is kCongested.
void WritePath::AwaitPublished(Reservations::CommitAnswer committed,
                               BootTime deadline,
                               absl::AnyInvocable<void(CommitAnswer) &&> done) {
  CommitAnswer answer;
  std::vector<BlockId> resident;
  std::vector<std::size_t> indexes;
  for (std::size_t i = 0; i < committed.blocks.size(); ++i) {
    const auto& block = committed.blocks[i];
    answer.outcomes.push_back(block.outcome);
    if (block.outcome == Outcome::kStored ||
        block.outcome == Outcome::kAlreadyThere) {
      resident.push_back(block.block);
      indexes.push_back(i);
    }
  }
  if (resident.empty()) return std::move(done)(std::move(answer));
  parts_.link->WaitPublished(
      std::move(resident), deadline,
      [answer = std::move(answer), indexes = std::move(indexes),
       done = std::move(done)](std::vector<Outcome> published) mutable {
        for (std::size_t i = 0; i < indexes.size(); ++i) {
          if (published[i] == Outcome::kStored) continue;
          answer.outcomes[indexes[i]] = published[i];
        }
        std::move(done)(std::move(answer));
      });
}

void WritePath::FinishCommit(BootTime started, const CommitAnswer& answer) {
  for (const Outcome outcome : answer.outcomes) {
    parts_.metrics->CountOutcome(&parts_.metrics->commits, outcome);
  }
  parts_.metrics->commit.Add(parts_.executor->clock()->Now() - started);
}

void WritePath::Abort(const LiveSession& session, ReservationId reservation) {
  parts_.reservations->Abort(session.id, reservation);
}

}  // namespace firnkv
