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
        absl::Duration valid_for = lease;
        if (const auto* facts = std::get_if<PoolNamespace>(&found)) {
          valid_for = std::min(lease, parts_.namespaces->LongestLease(*facts));
          if (valid_for <= absl::ZeroDuration()) found = Outcome::kUnavailable;
        }
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
                                 .lease = valid_for});
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

void ReadPath::StartReport(SessionCall call,
                           std::vector<Generation> generations,
                           OutcomesDone done) {
  const NamespaceCaller caller = CallerOf(call.session);
  const TenantId tenant = call.session.tenant;
  const NamespaceId id = call.name_space;
  const ClearEpoch seen = call.seen;
  const BootTime deadline = call.deadline;
  std::vector<CopyChecks::Copy> copies;
  copies.reserve(call.keys.size());
  for (std::size_t i = 0; i < call.keys.size(); ++i) {
    copies.push_back({{id, call.keys[i]}, generations[i]});
  }
  parts_.namespaces->Find(
      caller, id, seen, deadline,
      [this, tenant, copies = std::move(copies),
       done = std::move(done)](NamespaceCache::Answer found) mutable {
        if (const auto* outcome = std::get_if<Outcome>(&found)) {
          return std::move(done)(std::vector<Outcome>(copies.size(), *outcome));
        }
        parts_.checks->Start(tenant, std::move(copies), std::move(done));
      });
}

}  // namespace firnkv
