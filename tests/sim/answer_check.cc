#include "tests/sim/answer_check.h"

#include <algorithm>
#include <string_view>

#include "proto/base/text.h"
#include "proto/base/token.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "proto/node.pb.h"
#include "server/catalog/store_schema.h"

namespace firnkv {
namespace {

constexpr std::string_view kNode = "/firnkv.v1.NodeService/";
constexpr std::string_view kCatalog = "/firnkv.v1.CatalogService/";
// Finished reservations repeat their answers for a minute; clocks differ.
constexpr absl::Duration kRepeats = absl::Seconds(55);

bool Is(const SimControl::Seen& seen, std::string_view service,
        std::string_view method) {
  return seen.method.size() == service.size() + method.size() &&
         seen.method.substr(0, service.size()) == service &&
         seen.method.substr(service.size()) == method;
}

template <typename Message>
bool Parse(std::string_view bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// A block that got one of these is answered the same for ever. (kCleared may
// be what its publication met.)
bool IsForGood(Outcome outcome) {
  return outcome == Outcome::kStored || outcome == Outcome::kAlreadyThere ||
         outcome == Outcome::kCorrupt;
}

}  // namespace

AnswerCheck::AnswerCheck(SimCluster* cluster, Oracle* oracle,
                         const Operations* operations)
    : cluster_(cluster), oracle_(oracle), operations_(operations) {
  SimControl* const control = cluster->world()->control();
  control->Watch([this](const SimControl::Seen& seen) { OnCall(seen); });
  control->WatchAnswers(
      [this](const SimControl::Seen& seen, const SimControl::Answer& answer) {
        OnAnswer(seen, answer);
      });
}

void AnswerCheck::OnCall(const SimControl::Seen& seen) {
  if (Is(seen, kCatalog, "Register")) {
    // From here on the one before may be outdated, whatever is answered.
    v1::RegisterRequest request;
    if (!Parse(seen.request, &request)) return;
    const auto address = FromProto(request.node());
    if (address.ok()) granted_.erase(address->node);
  }
  // A catalog that dies of it may have written it.
  if (Is(seen, kCatalog, "Unregister")) OnUnregister(seen);
  if (!Is(seen, kNode, "Commit")) return;
  v1::CommitRequest request;
  if (!Parse(seen.request, &request)) return;
  for (const std::uint32_t index : request.indexes()) {
    ++commits_[{seen.server->number(), request.header().session(),
                request.reservation(), index}]
          .requests;
  }
}

void AnswerCheck::OnAnswer(const SimControl::Seen& seen,
                           const SimControl::Answer& answer) {
  if (Is(seen, kCatalog, "KeepAlive")) return OnKeepAlive(seen, answer);
  if (!answer.ok()) return;
  if (Is(seen, kNode, "OpenRead")) {
    OnOpenRead(seen, *answer);
  } else if (Is(seen, kNode, "Commit")) {
    OnCommit(seen, *answer);
  } else if (Is(seen, kCatalog, "Register")) {
    OnRegistered(seen, *answer);
  }
}

void AnswerCheck::OnOpenRead(const SimControl::Seen& seen,
                             const std::string& answer) {
  v1::OpenReadRequest request;
  v1::OpenReadResponse response;
  if (!Parse(seen.request, &request) || !Parse(answer, &response) ||
      request.clear_epoch() <= response.clear_epoch() ||
      response.generations().empty()) {
    return;
  }
  oracle_->Violation(StrCat("SERVED BY WHO KNOWS LESS: ", seen.server->name(),
                            " is at clear epoch ", response.clear_epoch(),
                            ", its reader at ", request.clear_epoch()));
}

void AnswerCheck::OnCommit(const SimControl::Seen& seen,
                           const std::string& answer) {
  v1::CommitRequest request;
  v1::CommitResponse response;
  if (!Parse(seen.request, &request) || !Parse(answer, &response)) return;
  for (int i = 0; i < request.indexes_size(); ++i) {
    JudgeCommit(seen,
                {seen.server->number(), request.header().session(),
                 request.reservation(), request.indexes(i)},
                static_cast<Outcome>(response.outcomes().at(i)));
  }
}

void AnswerCheck::JudgeCommit(const SimControl::Seen& seen,
                              const Commit& commit, Outcome outcome) {
  Committed& known = commits_[commit];
  const std::string name = StrCat(
      "block ", std::get<3>(commit), " of reservation ", std::get<2>(commit),
      " of ", seen.caller->name(), " at ", seen.server->name());
  // When its staging is in use again (rule S1), a second commit may come, and a
  // first one be copied whose session has ended.
  if (outcome == Outcome::kCorrupt && known.requests == 1 &&
      HasSession(seen.caller, std::get<1>(commit)) &&
      !operations_->WasScribbled(seen.caller->number(), std::get<2>(commit))) {
    oracle_->Violation(StrCat("A SOUND COMMIT IS CORRUPT: ", name));
  }
  const bool forgotten =
      outcome == Outcome::kReservationOver &&
      Now() - known.answered < absl::ToInt64Nanoseconds(kRepeats);
  if (known.outcome != Outcome::kUnset && known.outcome != outcome &&
      (IsForGood(outcome) || forgotten)) {
    oracle_->Violation(StrCat("ANSWERED TWICE: ", name, ": ",
                              OutcomeName(known.outcome), ", then ",
                              OutcomeName(outcome)));
  }
  if (!IsForGood(outcome) || known.outcome != Outcome::kUnset) return;
  known.outcome = outcome;
  known.answered = Now();
}

void AnswerCheck::OnRegistered(const SimControl::Seen& seen,
                               const std::string& answer) {
  v1::RegisterRequest request;
  v1::RegisterResponse response;
  if (!Parse(seen.request, &request) || !Parse(answer, &response)) return;
  const auto address = FromProto(request.node());
  const auto registration =
      IdFromProto<RegistrationId>("registration", response.registration());
  if (!address.ok() || !registration.ok()) return;
  granted_[address->node] =
      Granted{.registration = *registration,
              .lease = absl::Milliseconds(response.lease_millis()),
              .renewed = Now(),
              .catalog_losses = oracle_->catalog_losses()};
}

// Whether the client that runs in `process` is in it now.
bool AnswerCheck::HasSession(const SimProcess* process,
                             const std::string& session) const {
  for (const auto& worker : cluster_->workers()) {
    if (!worker->running() || worker->process() != process) continue;
    if (worker->client() == nullptr) return false;
    const Client::About about = worker->client()->Describe();
    const auto claims =
        CheckToken(about.token, about.cluster, cluster_->secret(),
                   /*credentials=*/0, cluster_->Admin().WallNow());
    return claims.ok() && IdToProto(claims->session) == session;
  }
  return false;
}

// Who has left is no member: a heartbeat that comes late is turned away.
void AnswerCheck::OnUnregister(const SimControl::Seen& seen) {
  v1::UnregisterRequest request;
  if (!Parse(seen.request, &request)) return;
  const auto node = IdFromProto<NodeId>("node", request.node());
  const auto it = node.ok() ? granted_.find(*node) : granted_.end();
  if (it != granted_.end() &&
      IdToProto(it->second.registration) == request.registration()) {
    granted_.erase(it);
  }
}

void AnswerCheck::OnKeepAlive(const SimControl::Seen& seen,
                              const SimControl::Answer& answer) {
  v1::KeepAliveRequest request;
  if (!Parse(seen.request, &request)) return;
  const auto node = IdFromProto<NodeId>("node", request.node());
  const auto it = node.ok() ? granted_.find(*node) : granted_.end();
  if (it == granted_.end() ||
      IdToProto(it->second.registration) != request.registration()) {
    return;
  }
  Granted& granted = it->second;
  if (answer.ok()) {
    granted.renewed = Now();
    return;
  }
  const bool turned_away =
      absl::IsNotFound(answer.status()) || absl::IsAborted(answer.status());
  // The catalog's clock may run faster than true time.
  const absl::Duration age = absl::Nanoseconds(Now() - granted.renewed);
  if (!turned_away || granted.catalog_losses != oracle_->catalog_losses() ||
      age > granted.lease * 0.9) {
    return;
  }
  oracle_->Violation(
      StrCat("A MEMBER IS TURNED AWAY: ", seen.caller->name(), " ",
             absl::FormatDuration(age),
             " after it was last welcome: ", answer.status().ToString()));
}

void AnswerCheck::CheckRegistrationsAreDurable() {
  for (const auto& [node, granted] : granted_) {
    if (granted.catalog_losses != oracle_->catalog_losses()) continue;
    const auto value =
        cluster_->Catalog().store()->Get(Family::kNodes, node.view());
    const auto record = value.ok() && value->has_value()
                            ? DecodeNode(**value)
                            : absl::NotFoundError("no record");
    if (record.ok() && record->registration == granted.registration) continue;
    oracle_->Violation(StrCat("A REGISTRATION IS LOST: of ", ToHex(node)));
  }
}

}  // namespace firnkv
