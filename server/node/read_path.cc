#include "server/node/read_path.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace firnkv {
namespace {

NamespaceCaller CallerOf(const LiveSession& session) {
  return {.tenant = session.tenant, .is_node = false};
}

}  // namespace

ReadPath::ReadPath(const Options& options, const Parts& parts)
    : options_(options), parts_(parts) {}

ReadPath::~ReadPath() { Close(); }

void ReadPath::StartOpen(SessionCall call, ReadSpan span, LeaseUse use,
                         absl::Duration lease,
                         absl::AnyInvocable<void(OpenAnswer) &&> done) {
  const BootTime started = parts_.executor->clock()->Now();
  const NamespaceCaller caller = CallerOf(call.session);
  const NamespaceId id = call.name_space;
  const ClearEpoch seen = call.seen;
  const BootTime deadline = call.deadline;
  if (lease <= absl::ZeroDuration()) lease = options_.default_lease;
  parts_.namespaces->Find(
      caller, id, seen, deadline,
      [this, started, call = std::move(call), span, use, lease,
       done = std::move(done)](NamespaceCache::Answer found) mutable {
        OpenAnswer answer;
        if (const auto* outcome = std::get_if<Outcome>(&found)) {
          answer.blocks.resize(call.keys.size());
          for (Opened& one : answer.blocks) one.outcome = *outcome;
        } else {
          const PoolNamespace& facts = std::get<PoolNamespace>(found);
          firnkv::OpenAnswer opened =
              parts_.pool->Open({.name_space = &facts,
                                 .session = call.session.id,
                                 .keys = call.keys,
                                 .span = span,
                                 .use = use,
                                 .lease = lease});
          answer.blocks = std::move(opened.blocks);
          answer.lease = opened.lease;
          answer.clear_epoch = opened.clear_epoch;
          // Rule S3: the session may have ended between its look-up and the
          // grant. Its end takes it out of the registry before it ends its
          // leases, so one of the two finds this one.
          if (!parts_.registry->IsLive(call.session.id)) {
            parts_.pool->EndSession(call.session.id);
          }
        }
        for (const Opened& one : answer.blocks) {
          parts_.metrics->CountOutcome(&parts_.metrics->local_reads,
                                       one.outcome);
          if (one.outcome == Outcome::kCongested) {
            answer.retry_after = options_.retry_after;
          }
        }
        parts_.metrics->open_read.Add(parts_.executor->clock()->Now() -
                                      started);
        std::move(done)(std::move(answer));
      });
}

void ReadPath::Release(const LiveSession& session,
                       absl::Span<const LeaseId> leases) {
  parts_.pool->Release(session.id, leases);
}

std::vector<LeaseTable::RenewOutcome> ReadPath::Renew(
    const LiveSession& session, absl::Span<const LeaseId> leases,
    absl::Duration lease) {
  if (lease <= absl::ZeroDuration()) lease = options_.default_lease;
  return parts_.pool->Renew(session.id, leases, lease);
}

void ReadPath::StartExists(
    SessionCall call, ReadSpan span,
    absl::AnyInvocable<void(std::vector<Found>) &&> done) {
  const NamespaceId id = call.name_space;
  parts_.namespaces->Find(
      CallerOf(call.session), id, call.seen, call.deadline,
      [this, keys = std::move(call.keys), span,
       done = std::move(done)](NamespaceCache::Answer found) mutable {
        std::vector<Found> answer(keys.size());
        if (const auto* outcome = std::get_if<Outcome>(&found)) {
          for (Found& one : answer) one.outcome = *outcome;
        } else {
          answer =
              parts_.pool->Contains(std::get<PoolNamespace>(found), keys, span);
        }
        std::move(done)(std::move(answer));
      });
}

void ReadPath::StartRemove(SessionCall call, OutcomesDone done) {
  const NamespaceId id = call.name_space;
  parts_.namespaces->Find(
      CallerOf(call.session), id, call.seen, call.deadline,
      [this, id, keys = std::move(call.keys),
       done = std::move(done)](NamespaceCache::Answer found) mutable {
        if (const auto* outcome = std::get_if<Outcome>(&found)) {
          return std::move(done)(std::vector<Outcome>(keys.size(), *outcome));
        }
        std::move(done)(parts_.pool->Remove(id, keys));
      });
}

// --- Reports of corrupt copies.

void ReadPath::StartReport(SessionCall call,
                           std::vector<Generation> generations,
                           OutcomesDone done) {
  auto report = std::make_unique<Report>();
  report->name_space = call.name_space;
  report->generations = std::move(generations);
  report->done = std::move(done);
  const NamespaceCaller caller = CallerOf(call.session);
  report->keys = std::move(call.keys);
  parts_.namespaces->Find(
      caller, call.name_space, call.seen, call.deadline,
      [this, report = std::move(report)](NamespaceCache::Answer found) mutable {
        const std::size_t count = report->keys.size();
        Outcome refusal = Outcome::kUnset;
        if (const auto* outcome = std::get_if<Outcome>(&found)) {
          refusal = *outcome;
        } else {
          MutexLock lock(&mutex_);
          if (closed_) {
            refusal = Outcome::kCancelled;
          } else if (waiting_checks_ + count > options_.max_checks) {
            refusal = Outcome::kCongested;
          } else {
            waiting_checks_ += count;
            reports_.push_back(std::move(report));
            if (!checking_) PostCheck();
          }
        }
        if (refusal != Outcome::kUnset) {
          std::move(report->done)(std::vector<Outcome>(count, refusal));
        }
      });
}

void ReadPath::PostCheck() {
  checking_ = true;
  parts_.executor->Post(scope_.Wrap([this] { CheckNext(); }));
}

// One block a task: a report of many must not keep others waiting.
void ReadPath::CheckNext() {
  std::unique_ptr<Report> report;
  {
    MutexLock lock(&mutex_);
    if (reports_.empty()) {
      checking_ = false;
      return;
    }
    report = std::move(reports_.front());
    reports_.pop_front();
  }
  const std::size_t at = report->outcomes.size();
  if (at < report->keys.size()) {
    report->outcomes.push_back(parts_.pool->Verify(
        {report->name_space, report->keys[at]}, report->generations[at]));
  }
  const bool finished = report->outcomes.size() == report->keys.size();
  if (finished) {
    std::move(report->done)(std::move(report->outcomes));
  }
  Outcome refusal = Outcome::kUnset;
  {
    MutexLock lock(&mutex_);
    if (at < report->keys.size() && !closed_) --waiting_checks_;
    if (!finished && closed_) {
      refusal = Outcome::kCancelled;
    } else if (!finished) {
      // Behind the others: reports take turns.
      reports_.push_back(std::move(report));
    }
    if (refusal == Outcome::kUnset) PostCheck();
  }
  if (refusal != Outcome::kUnset) {
    report->outcomes.resize(report->keys.size(), refusal);
    std::move(report->done)(std::move(report->outcomes));
  }
}

void ReadPath::Close() {
  std::deque<std::unique_ptr<Report>> reports;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    reports.swap(reports_);
    waiting_checks_ = 0;
  }
  scope_.Close();
  for (const auto& report : reports) {
    report->outcomes.resize(report->keys.size(), Outcome::kCancelled);
    std::move(report->done)(std::move(report->outcomes));
  }
}

}  // namespace firnkv
