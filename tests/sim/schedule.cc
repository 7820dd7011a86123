#include "tests/sim/schedule.h"

#include <memory>
#include <utility>

#include "proto/base/text.h"
#include "server/node/node.h"
#include "tests/sim/answer_check.h"
#include "tests/sim/faults.h"
#include "tests/sim/frame_intruder.h"
#include "tests/sim/frame_watch.h"
#include "tests/sim/header_check.h"
#include "tests/sim/intruder.h"
#include "tests/sim/key_space.h"
#include "tests/sim/operator.h"
#include "tests/sim/oracle.h"
#include "tests/sim/reckoning.h"
#include "tests/sim/trials.h"
#include "tests/sim/workload.h"
#include "tests/support/cluster.h"

namespace firnkv {
namespace {

// Longest deadline of the workload and the grace, and what a paused process
// adds once it goes on.
constexpr absl::Duration kLongestOperation = absl::Seconds(6);
// Reservations (30 s), leases (10 s), memberships (10 s) and the longest
// backoff are over.
constexpr absl::Duration kQuiet = absl::Seconds(50);
// A schedule that gets nowhere ends here.
constexpr absl::Duration kLongestSchedule = absl::Minutes(20);

const KeySpace& Keys() {
  static const KeySpace& keys = *new KeySpace();
  return keys;
}

// A storm takes some five seconds of virtual time; in some schedules it takes
// its time, so that leases, memberships, reservations and graces end in it.
bool IsSlow(std::uint64_t seed) { return seed % 8 == 5; }

SimCluster::Options ClusterOptions(const ScheduleOptions& options) {
  SimCluster::Options cluster;
  cluster.seed = options.seed;
  cluster.tracing = options.tracing;
  cluster.name_spaces = KeySpace::NameSpaces();
  cluster.nodes = 3 + static_cast<int>(options.seed % 8 == 0) +
                  static_cast<int>(options.seed % 16 == 0);
  // Of each tenant, one without a local node: all its writes are remote. In one
  // schedule of three there is none, and a node whose workers are dead has
  // nothing reserved (faults.cc).
  cluster.remote_workers = options.seed % 3 == 0 ? 0 : 1;
  // A region each for the two tenants, or one more to fight for. The largest
  // block is a quarter of a region.
  cluster.region_bytes = 512 * kKiB;
  cluster.pool_bytes = (2 + options.seed % 2) * cluster.region_bytes;
  // Holders stop at 7/8 of a lease, so clocks may differ by an eighth; 3 % is
  // more than any real clock.
  cluster.drift = options.seed % 2 == 0 ? 30'000 : 0;
  cluster.grace = Trials::GraceOf(options.seed);
  // A claim at a time, of as much as there is: what is not given back is missed
  // soon.
  cluster.reserved_bytes = cluster.pool_bytes;
  // Comparisons often enough to see what is about to be mended, or a log that
  // does not hold an outage.
  if (options.seed % 4 == 2) cluster.digest_interval = absl::Seconds(8);
  if (options.seed % 4 == 1) cluster.announcement_entries = 64;
  return cluster;
}

class Schedule {
 public:
  explicit Schedule(const ScheduleOptions& options)
      : options_(options),
        cluster_(ClusterOptions(options)),
        oracle_(cluster_.executor()),
        operations_(cluster_.world(), &oracle_),
        frames_(cluster_.world()),
        answers_(&cluster_, &oracle_, &operations_),
        intruder_(&cluster_, &oracle_, &operations_),
        frame_intruder_(&cluster_, &oracle_),
        workload_(cluster_.world(), &Keys(), &operations_,
                  IsSlow(options.seed) ? 20 : 1),
        admin_(&cluster_, &oracle_, &operations_),
        faults_({.cluster = &cluster_,
                 .oracle = &oracle_,
                 .operations = &operations_,
                 .admin = &admin_,
                 .answers = &answers_,
                 .pace = IsSlow(options.seed) ? 8 : 1}),
        headers_(&cluster_, &oracle_, &operations_,
                 IsSlow(options.seed) ? 8 : 1),
        reckoning_(&cluster_, &Keys(), &oracle_, &operations_),
        trials_({.cluster = &cluster_,
                 .keys = &Keys(),
                 .oracle = &oracle_,
                 .operations = &operations_,
                 .reckoning = &reckoning_,
                 .answers = &answers_}) {}

  ScheduleReport Run() {
    if (Storm()) {
      Calm();
      Reckon();
    }
    return Report();
  }

 private:
  bool Storm() {
    for (const auto& worker : cluster_.workers()) {
      workload_.Drive(worker.get(), 2);
    }
    if (!cluster_.Start()) {
      oracle_.Violation("NO START");
      return false;
    }
    admin_.Start();
    faults_.Start();
    headers_.Start();
    intruder_.Start();
    frame_intruder_.Start();
    const bool enough = cluster_.RunUntil(
        [this] {
          return !oracle_.violations().empty() ||
                 (operations_.counts().begun >= options_.operations &&
                  faults_.injected() >= options_.faults);
        },
        kLongestSchedule);
    if (!enough) oracle_.Violation("STUCK: no requests any more");
    operations_of_the_storm_ = operations_.counts().begun;
    workload_.Stop();
    faults_.Stop();
    headers_.Stop();
    intruder_.Stop();
    frame_intruder_.Stop();
    return oracle_.violations().empty();
  }

  void Calm() {
    cluster_.executor()->Note("calm");
    cluster_.HealEverything();
    for (int n = 1; n <= cluster_.nodes(); ++n) {
      cluster_.Node(n).node()->SetDramTarget(cluster_.options().pool_bytes);
    }
    cluster_.RunFor(kLongestOperation);
    for (const std::string& name : operations_.NotEnded()) {
      oracle_.Violation(StrCat("NOT ENDED: ", name));
    }
    if (!cluster_.RunUntil([this] { return !admin_.repairing(); })) {
      oracle_.Violation("NOT REPAIRED: the catalog");
    }
    if (!cluster_.RunUntil([this] { return cluster_.EverybodyIsReady(); })) {
      oracle_.Violation("NOT READY AGAIN: a worker");
    }
    cluster_.RunFor(kQuiet);
    operations_.ExpectDenials(false);
  }

  void Reckon() {
    if (!oracle_.violations().empty()) return;
    cluster_.executor()->Note("reckoning");
    headers_.Check();
    reckoning_.CheckNothingIsLeftOver();
    reckoning_.CheckNobodyFellBack();
    reckoning_.CheckIndexAndNodesAgree();
    reckoning_.CheckLeadingRuns();
    reckoning_.CheckEveryKeyCanBeWritten();
    if (!oracle_.violations().empty()) return;
    trials_.Run();
    reckoning_.CheckNobodyFellBack();
    reckoning_.CheckIndexAndNodesAgree();
    reckoning_.CheckWorkersGiveEverythingBack();
    reckoning_.CheckNothingIsLeftOver();
  }

  ScheduleReport Report() {
    ScheduleReport report;
    report.seed = options_.seed;
    report.violations = oracle_.violations();
    report.event_hash = cluster_.executor()->event_hash();
    report.events = cluster_.executor()->events();
    report.operations = operations_of_the_storm_;
    report.faults = faults_.injected();
    report.hits_checked = oracle_.hits_checked();
    report.headers_checked = headers_.headers_checked();
    report.intrusions = intruder_.calls();
    report.frame_calls = frames_.calls();
    report.frame_intrusions = frame_intruder_.calls();
    report.counts = operations_.counts();
    for (int n = 1; n <= cluster_.nodes(); ++n) {
      if (cluster_.Node(n).running()) {
        report.evictions += cluster_.Node(n).Snapshot().evicted_blocks;
        report.copied_hits += cluster_.Node(n).Snapshot().copied_hits;
      }
    }
    return report;
  }

  const ScheduleOptions options_;
  SimCluster cluster_;
  Oracle oracle_;
  Operations operations_;
  FrameWatch frames_;
  AnswerCheck answers_;
  Intruder intruder_;
  FrameIntruder frame_intruder_;
  Workload workload_;
  Operator admin_;
  Faults faults_;
  HeaderCheck headers_;
  Reckoning reckoning_;
  Trials trials_;
  std::uint64_t operations_of_the_storm_ = 0;
};

}  // namespace

ScheduleReport RunSchedule(const ScheduleOptions& options) {
  Schedule schedule(options);
  return schedule.Run();
}

std::string Describe(const ScheduleReport& report) {
  std::string text =
      StrCat("seed ", report.seed, ": ", report.operations, " operations, ",
             report.faults, " faults, ", report.events, " events, ",
             report.hits_checked, " hits checked, ", report.evictions,
             " evictions, ", report.copied_hits, " hits of copies, ",
             report.counts.bytes_mapped, " B mapped, ",
             report.counts.bytes_remote, " B remote, hash ", report.event_hash);
  for (std::size_t i = 0; i <= kLastOutcome; ++i) {
    const auto name = OutcomeName(static_cast<Outcome>(i));
    if (report.counts.reads[i] != 0) {
      absl::StrAppend(&text, "\n  read  ", std::string(name), ": ",
                      report.counts.reads[i]);
    }
    if (report.counts.writes[i] != 0) {
      absl::StrAppend(&text, "\n  write ", std::string(name), ": ",
                      report.counts.writes[i]);
    }
    if (report.counts.views[i] != 0) {
      absl::StrAppend(&text, "\n  view  ", std::string(name), ": ",
                      report.counts.views[i]);
    }
  }
  for (const std::string& violation : report.violations) {
    absl::StrAppend(&text, "\n  VIOLATION ", violation);
  }
  return text;
}

}  // namespace firnkv
