#include "client/lookup_operation.h"

#include <algorithm>
#include <utility>

#include "client/clear_epochs.h"
#include "client/counters.h"
#include "client/router.h"
#include "client/session.h"

namespace firnkv {
namespace {

template <typename Target>
std::vector<BlockKey> KeysOf(absl::Span<Target> targets) {
  std::vector<BlockKey> keys;
  keys.reserve(targets.size());
  for (const Target& target : targets) keys.push_back(target.key);
  return keys;
}

// Why the call may not begin; OK if it may, and is known to the Client.
template <typename Target>
absl::Status Admit(const ClientParts& parts, std::string_view what,
                   absl::Duration deadline, absl::Span<Target> targets,
                   std::shared_ptr<Operation> operation) {
  for (Target& target : targets) target.outcome = Outcome::kSkipped;
  absl::Status status = CheckBatch(parts, what, deadline, KeysOf(targets));
  if (!status.ok()) return status;
  if (parts.operations->Add(std::move(operation))) return absl::OkStatus();
  for (Target& target : targets) target.outcome = Outcome::kCancelled;
  return absl::CancelledError("the Client was closed");
}

}  // namespace

// --- Exists.

void ExistsOperation::Start(const ClientParts& parts,
                            const ExistsRequest& request, ExistsDone done) {
  // Shared: see the class.
  const auto operation =
      std::make_shared<ExistsOperation>(parts, request, std::move(done));
  operation->Begin();
}

ExistsOperation::ExistsOperation(const ClientParts& parts,
                                 const ExistsRequest& request, ExistsDone done)
    : parts_(parts),
      request_(request),
      started_(parts.seams->clock->Now()),
      context_{.deadline = started_ + request.deadline,
               .traffic = TrafficClass::kForeground,
               .trace = request.trace},
      done_(std::move(done)) {}

void ExistsOperation::Begin() {
  absl::Status status = Admit(parts_, "a lookup", request_.deadline,
                              request_.blocks, shared_from_this());
  {
    MutexLock lock(&mutex_);
    if (status.ok()) {
      found_.resize(request_.blocks.size());
      timer_ = parts_.seams->executor->PostAt(
          context_.deadline, parts_.scope->Wrap([self = shared_from_this()] {
            self->End(Outcome::kTimedOut);
          }));
    } else {
      over_ = true;
    }
  }
  if (!status.ok()) {
    ExistsDone done;
    {
      MutexLock lock(&mutex_);
      done = std::move(done_);
    }
    ExistsReport report;
    report.status = std::move(status);
    return std::move(done)(report);
  }
  NodeClient::ExistsCall call;
  call.name_space = request_.name_space.id;
  call.clear_epoch = parts_.epochs->Highest(request_.name_space);
  call.keys = KeysOf(request_.blocks);
  // What follows a gap may still count: somebody else may fill it.
  call.leading_run = request_.want == ReadWant::kLeadingRun &&
                     parts_.catalog->address().empty();
  parts_.node->StartExists(
      context_, call,
      [self = shared_from_this()](
          const absl::StatusOr<NodeClient::ExistsAnswer>& answer) {
        self->OnLocal(answer);
      });
}

void ExistsOperation::OnLocal(
    const absl::StatusOr<NodeClient::ExistsAnswer>& answer) {
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      Found& found = found_[i];
      if (!answer.ok()) {
        found.outcome = OutcomeOf(answer.status());
        found.ended = found.outcome == Outcome::kDenied;
        continue;
      }
      found.outcome = answer->found[i].outcome;
      found.length = answer->found[i].length;
      found.ended = found.outcome != Outcome::kMiss &&
                    found.outcome != Outcome::kBeingWritten &&
                    found.outcome != Outcome::kUnavailable;
    }
  }
  Locate();
}

void ExistsOperation::Locate() {
  const bool leading = request_.want == ReadWant::kLeadingRun;
  std::vector<std::size_t> indexes;
  CatalogClient::LocateCall call;
  call.name_space = request_.name_space.id;
  call.clear_epoch = parts_.epochs->Highest(request_.name_space);
  call.leading_run = leading;
  {
    MutexLock lock(&mutex_);
    indexes.reserve(found_.size());
    call.keys.reserve(found_.size());
    call.anchors.reserve(found_.size());
    for (std::size_t i = 0; i < found_.size(); ++i) {
      if (found_[i].ended) {
        if (leading && found_[i].outcome != Outcome::kHit) break;
        continue;
      }
      indexes.push_back(i);
      call.keys.push_back(request_.blocks[i].key);
      call.anchors.push_back(request_.blocks[i].anchor);
    }
  }
  if (indexes.empty() || parts_.catalog->address().empty()) {
    return OnLocated(indexes, started_,
                     absl::UnavailableError("there is no catalog to ask"));
  }
  parts_.catalog->StartLocate(
      context_, call,
      [self = shared_from_this(), indexes,
       asked_at = parts_.seams->clock->Now()](
          const absl::StatusOr<CatalogClient::LocateAnswer>& answer) {
        self->OnLocated(indexes, asked_at, answer);
      });
}

void ExistsOperation::OnLocated(
    const std::vector<std::size_t>& indexes, BootTime asked_at,
    const absl::StatusOr<CatalogClient::LocateAnswer>& answer) {
  const Session::Welcome welcome = parts_.session->welcome();
  if (answer.ok()) {
    parts_.router->Learn(answer->nodes);
    parts_.epochs->Learn(request_.name_space.id, answer->clear_epoch);
  }
  std::vector<BlockKey> known_keys;
  std::vector<Locations> known_locations;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    known_keys.reserve(indexes.size());
    known_locations.reserve(indexes.size());
    for (std::size_t n = 0; n < indexes.size(); ++n) {
      Found& found = found_[indexes[n]];
      found.ended = true;
      if (!answer.ok()) continue;
      const CatalogClient::LocateAnswer::Found& known = answer->found[n];
      const bool written = found.outcome == Outcome::kBeingWritten;
      if (known.outcome != Outcome::kHit) {
        if (!written) found.outcome = known.outcome;
        continue;
      }
      Locations elsewhere;
      for (const KnownLocation& location : known.locations) {
        // The local node has been asked, and has it no more.
        if (welcome != nullptr && location.node == welcome->node) continue;
        elsewhere.push_back(location);
      }
      if (elsewhere.empty()) continue;
      found.outcome = Outcome::kHit;
      found.length = elsewhere.front().length;
      known_keys.push_back(request_.blocks[indexes[n]].key);
      known_locations.push_back(std::move(elsewhere));
    }
  }
  parts_.locations->LearnAll(request_.name_space.id, known_keys,
                             known_locations, asked_at);
  End(Outcome::kSkipped);
}

void ExistsOperation::Cancel() { End(Outcome::kCancelled); }

void ExistsOperation::End(Outcome rest) {
  ExistsDone done;
  ExistsReport report;
  TimerId timer = TimerId::kNone;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    over_ = true;
    report = Settle(rest);
    done = std::move(done_);
    timer = timer_;
  }
  parts_.seams->executor->Cancel(timer);
  std::move(done)(report);
  parts_.operations->Remove(this);
}

ExistsReport ExistsOperation::Settle(Outcome rest) {
  ExistsReport report;
  bool run = true;
  for (std::size_t i = 0; i < found_.size(); ++i) {
    ExistsTarget& target = request_.blocks[i];
    target.outcome = found_[i].ended ? found_[i].outcome : rest;
    if (!run && request_.want == ReadWant::kLeadingRun &&
        rest != Outcome::kCancelled) {
      target.outcome = Outcome::kSkipped;
    }
    target.length = target.outcome == Outcome::kHit ? found_[i].length : 0;
    run = run && target.outcome == Outcome::kHit;
    if (run) ++report.leading_hits;
    if (target.outcome == Outcome::kHit) ++report.hits;
  }
  report.took = parts_.seams->clock->Now() - started_;
  parts_.counters->exists.Add(report.took);
  return report;
}

// --- Remove.

void RemoveOperation::Start(const ClientParts& parts,
                            const RemoveRequest& request, RemoveDone done) {
  // Shared: see the class.
  const auto operation =
      std::make_shared<RemoveOperation>(parts, request, std::move(done));
  operation->Begin();
}

RemoveOperation::RemoveOperation(const ClientParts& parts,
                                 const RemoveRequest& request, RemoveDone done)
    : parts_(parts),
      request_(request),
      started_(parts.seams->clock->Now()),
      context_{.deadline = started_ + request.deadline,
               .traffic = TrafficClass::kForeground,
               .trace = request.trace},
      done_(std::move(done)) {}

void RemoveOperation::Begin() {
  const bool local = !parts_.options->socket_path.empty();
  absl::Status status = Admit(parts_, "a removal", request_.deadline,
                              request_.blocks, shared_from_this());
  {
    MutexLock lock(&mutex_);
    if (status.ok()) {
      outcomes_.assign(request_.blocks.size(), Outcome::kMiss);
      answers_left_ = local ? 2 : 1;
      timer_ = parts_.seams->executor->PostAt(
          context_.deadline, parts_.scope->Wrap([self = shared_from_this()] {
            self->End(Outcome::kTimedOut);
          }));
    } else {
      over_ = true;
    }
  }
  if (!status.ok()) {
    RemoveDone done;
    {
      MutexLock lock(&mutex_);
      done = std::move(done_);
    }
    RemoveReport report;
    report.status = std::move(status);
    return std::move(done)(report);
  }
  const std::vector<BlockKey> keys = KeysOf(request_.blocks);
  for (const BlockKey& key : keys) {
    parts_.locations->Forget(BlockId{request_.name_space.id, key});
  }
  if (local) {
    parts_.node->StartRemove(
        context_, request_.name_space.id, keys,
        [self = shared_from_this()](
            const absl::StatusOr<std::vector<Outcome>>& answer) {
          self->OnAnswer(answer, 0);
        });
  }
  parts_.catalog->StartRemove(
      context_, request_.name_space.id, keys,
      [self = shared_from_this()](
          const absl::StatusOr<CatalogClient::Removed>& removed) {
        if (!removed.ok()) return self->OnAnswer(removed.status(), 0);
        self->OnAnswer(removed->outcomes, removed->pending);
      });
}

void RemoveOperation::OnAnswer(
    const absl::StatusOr<std::vector<Outcome>>& answer, std::uint64_t pending) {
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    pending_ += pending;
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
      if (outcomes_[i] == Outcome::kHit) continue;
      const Outcome said =
          answer.ok() ? (*answer)[i] : OutcomeOf(answer.status());
      // Nobody's only if both say so.
      if (said != Outcome::kMiss) outcomes_[i] = said;
    }
    --answers_left_;
    if (answers_left_ > 0) return;
  }
  End(Outcome::kSkipped);
}

void RemoveOperation::Cancel() { End(Outcome::kCancelled); }

void RemoveOperation::End(Outcome rest) {
  RemoveDone done;
  RemoveReport report;
  TimerId timer = TimerId::kNone;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    over_ = true;
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
      const bool known = answers_left_ == 0 || outcomes_[i] == Outcome::kHit;
      request_.blocks[i].outcome = known ? outcomes_[i] : rest;
      if (request_.blocks[i].outcome == Outcome::kHit) ++report.removed;
    }
    report.pending = pending_;
    report.took = parts_.seams->clock->Now() - started_;
    parts_.counters->remove.Add(report.took);
    done = std::move(done_);
    timer = timer_;
  }
  parts_.seams->executor->Cancel(timer);
  std::move(done)(report);
  parts_.operations->Remove(this);
}

}  // namespace firnkv
