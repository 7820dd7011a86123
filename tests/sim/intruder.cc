#include "tests/sim/intruder.h"

#include <algorithm>
#include <utility>

#include "proto/base/text.h"
#include "proto/node.pb.h"

namespace firnkv {
namespace {

constexpr std::string_view kService = "/firnkv.v1.NodeService/";
constexpr absl::Duration kTimeout = absl::Seconds(5);
// Out of a thousand calls.
constexpr std::uint32_t kEchoes = 60;
constexpr std::uint32_t kForeign = 15;
constexpr std::uint32_t kReports = 15;

// Every call of the service begins with a header, every answer of those that
// matter here with outcomes; the rest of a message is kept as it is.
using AnyRequest = v1::DrainRequest;
using AnyAnswer = v1::NodeRemoveResponse;

template <typename Message>
bool Parse(std::string_view bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

bool TellsNothing(Outcome outcome) {
  return outcome == Outcome::kDenied || outcome == Outcome::kReservationOver ||
         outcome == Outcome::kUnavailable || outcome == Outcome::kTimedOut ||
         outcome == Outcome::kCongested || outcome == Outcome::kSkipped ||
         outcome == Outcome::kCancelled;
}

absl::Duration EchoDelay(SeededRandom* random) {
  switch (random->Below(3)) {
    case 0:
      return absl::Nanoseconds(random->Below(20'000));
    case 1:
      return absl::Milliseconds(random->Below(30));
    default:
      return absl::Milliseconds(random->Below(50'000));
  }
}

Intruder::Intruder(SimCluster* cluster, Oracle* oracle,
                   const Operations* operations)
    : cluster_(cluster), oracle_(oracle), operations_(operations) {
  SimControl* const control = cluster->world()->control();
  control->Watch([this](const SimControl::Seen& seen) { OnCall(seen); });
  control->WatchAnswers(
      [this](const SimControl::Seen& seen, const SimControl::Answer& answer) {
        OnAnswer(seen, answer);
      });
}

SimWorker* Intruder::WorkerOf(const SimProcess* process) const {
  for (const auto& worker : cluster_->workers()) {
    if (worker->running() && worker->process() == process) return worker.get();
  }
  return nullptr;
}

Intruder::Line& Intruder::LineOf(const SimWorker& worker) {
  Line& line = lines_[&worker];
  if (line.life != worker.life() || line.channel == nullptr) {
    line.life = worker.life();
    line.session.clear();
    line.channel = worker.machine()->seams().control->Connect(
        StrCat("unix:", worker.options().client.socket_path, ".control"));
  }
  return line;
}

void Intruder::OnCall(const SimControl::Seen& seen) {
  if (stopped_ || seen.method.substr(0, kService.size()) != kService) return;
  SimWorker* const worker = WorkerOf(seen.caller);
  AnyRequest request;
  if (foreign_.erase(std::string(seen.request)) > 0) return;
  if (worker == nullptr || !Parse(seen.request, &request) ||
      request.header().session().empty()) {
    return;
  }
  LineOf(*worker).session = request.header().session();
  const std::string_view method = seen.method.substr(kService.size());
  const bool ends = method == "Commit" || method == "Abort";
  if (ends && Now(kEchoes)) Echo(worker, seen);
  const bool asks = method == "OpenRead" || method == "Exists" ||
                    method == "Reserve" || method == "Remove";
  if ((asks || ends) && Now(kForeign)) AskAsAnother(worker, seen);
}

void Intruder::OnAnswer(const SimControl::Seen& seen,
                        const SimControl::Answer& answer) {
  if (stopped_ || !answer.ok() ||
      seen.method.substr(0, kService.size()) != kService ||
      seen.method.substr(kService.size()) != "OpenRead") {
    return;
  }
  SimWorker* const worker = WorkerOf(seen.caller);
  if (worker != nullptr && Now(kReports)) Report(worker, seen, *answer);
}

void Intruder::Send(SimWorker* worker, std::string_view method,
                    std::string request, absl::Duration delay,
                    std::function<void(const std::string&)> done) {
  ++calls_;
  cluster_->executor()->root()->PostAfter(
      delay, [this, worker, life = worker->life(), method = std::string(method),
              request = std::move(request), done = std::move(done)]() mutable {
        if (!worker->running() || worker->life() != life) return;
        LineOf(*worker).channel->StartCall(
            method, std::move(request), kTimeout,
            [done = std::move(done)](absl::StatusOr<std::string> answer) {
              if (answer.ok()) done(*answer);
            });
      });
}

void Intruder::Echo(SimWorker* worker, const SimControl::Seen& seen) {
  const absl::Duration delay = EchoDelay(cluster_->executor()->random());
  cluster_->executor()->Note(
      StrCat("again, in ", absl::FormatDuration(delay), ": ", seen.method));
  Send(worker, seen.method, std::string(seen.request), delay,
       [](const std::string&) {});
}

void Intruder::AskAsAnother(SimWorker* worker, const SimControl::Seen& seen) {
  for (const auto& other : cluster_->workers()) {
    if (!other->running() || other->options().host != worker->options().host ||
        other->options().uid == worker->options().uid) {
      continue;
    }
    const Line& line = LineOf(*other);
    AnyRequest request;
    if (line.session.empty() || !Parse(seen.request, &request)) continue;
    request.mutable_header()->set_session(line.session);
    const std::string who = StrCat(other->options().name, " asks ", seen.method,
                                   " of ", worker->options().name);
    cluster_->executor()->Note(who);
    foreign_.insert(request.SerializeAsString());
    Send(other.get(), seen.method, request.SerializeAsString(),
         absl::ZeroDuration(), [this, who](const std::string& answer) {
           AnyAnswer response;
           if (!Parse(answer, &response)) return;
           for (const char outcome : response.outcomes()) {
             if (TellsNothing(static_cast<Outcome>(outcome))) continue;
             oracle_->Violation(
                 StrCat("TOLD TO ANOTHER TENANT: ", who, ": ",
                        OutcomeName(static_cast<Outcome>(outcome))));
             return;
           }
         });
  }
}

void Intruder::Report(SimWorker* worker, const SimControl::Seen& seen,
                      const std::string& answer) {
  v1::OpenReadRequest request;
  v1::OpenReadResponse response;
  if (!Parse(seen.request, &request) || !Parse(answer, &response)) return;
  v1::ReportCorruptRequest report;
  *report.mutable_header() = request.header();
  report.set_name_space(request.name_space());
  int hit = 0;
  for (std::size_t i = 0; i < response.outcomes().size(); ++i) {
    if (static_cast<Outcome>(response.outcomes()[i]) != Outcome::kHit) continue;
    report.mutable_keys()->append(request.keys(), i * BlockKey::kBytes,
                                  BlockKey::kBytes);
    report.add_generations(response.generations(hit++));
  }
  if (hit == 0) return;
  const std::string who = worker->options().name;
  cluster_->executor()->Note(StrCat(who, " reports ", hit, " sound copies"));
  Send(worker, StrCat(kService, "ReportCorrupt"), report.SerializeAsString(),
       absl::ZeroDuration(), [this, who](const std::string& told) {
         AnyAnswer outcomes;
         if (operations_->corruption_expected() || !Parse(told, &outcomes)) {
           return;
         }
         for (const char outcome : outcomes.outcomes()) {
           if (static_cast<Outcome>(outcome) != Outcome::kCorrupt) continue;
           oracle_->Violation(
               StrCat("A SOUND COPY IS ISOLATED: reported by ", who));
         }
       });
}

}  // namespace firnkv
