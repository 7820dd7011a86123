#include "tests/process/process_soak.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>

#include "proto/base/text.h"

namespace firnkv {
namespace {

// The namespace's blocks are of no declared size.
constexpr char kOpen[] = "open granite 0";
// What a chain of the load needs, with what slots of size classes lose.
constexpr std::uint64_t kChainBytes = 24 * 58 * kKiB;
constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kReportEvery = absl::Seconds(15);
// Without a single read for this long, nothing moves any more.
constexpr absl::Duration kStandstill = absl::Seconds(60);
// Longer than leases, reservations and membership last here.
constexpr absl::Duration kLongStop = absl::Milliseconds(1600);
constexpr absl::Duration kShortPause = absl::Milliseconds(250);

ProcessCluster::Options ClusterOptions(const ProcessSoak::Options& options) {
  return {.nodes = options.nodes,
          .dram_bytes = options.dram_bytes,
          // The largest block is a quarter of a region.
          .region_bytes = 64 * kMiB,
          .catalog_arguments = {"--catalog-lease", "1s"},
          // Short, so that a stopped process finds its leases gone and its
          // slots reused.
          .node_arguments = {"--leases-longest", "250ms",
                             "--reservations-longest", "1s"}};
}

// A little more than fits, so that slots are reused all the time, while most
// reads are hits. Two tenants each have this many.
std::uint64_t Chains(const ProcessSoak::Options& options) {
  const std::uint64_t fit = options.dram_bytes / kChainBytes / 2;
  return (fit + fit / 16) * static_cast<std::uint64_t>(options.nodes);
}

}  // namespace

ProcessSoak::ProcessSoak(const Options& options)
    : options_(options),
      random_(options.seed),
      cluster_(ClusterOptions(options)) {
  for (int node = 1; node <= options.nodes; ++node) {
    for (const std::uint32_t uid : {kAliceUid, kBobUid}) {
      AddSeat(node, uid, false);
    }
  }
  for (const std::uint32_t uid : {kAliceUid, kBobUid}) AddSeat(1, uid, true);
}

void ProcessSoak::AddSeat(int node, std::uint32_t uid, bool away) {
  const std::string path = StrCat(cluster_.scratch().path(), "/page",
                                  away ? "away" : StrCat(node), ".", uid);
  seats_.push_back({.node = node,
                    .uid = uid,
                    .page = SoakPageFile::Create(path, uid),
                    .worker = nullptr,
                    .away = away});
}

SoakTotals ProcessSoak::Run() {
  began_ = clock_.Now();
  reported_at_ = began_;
  cluster_.Start();
  bool started = cluster_.NodesAreRegistered();
  for (Seat& seat : seats_) {
    if (!seat.away) continue;
    seat.token = cluster_.TokenOf(seat.uid == kAliceUid ? "alice" : "bob");
  }
  for (Seat& seat : seats_) started = started && StartWorker(&seat);
  if (started) {
    RunFaults();
    EndWorkers();
    LookForLeaks();
  }
  AddUp();
  return totals_;
}

void ProcessSoak::Stuck(const std::string& what) {
  ++seen_.stuck;
  std::fprintf(stderr, "stuck: %s\n", what.c_str());
}

bool ProcessSoak::StartWorker(Seat* seat) {
  seat->page.page().due_nanos = 0;
  seat->worker = std::make_unique<Worker>(seat->uid);
  const std::string connect =
      seat->away ? StrCat("away ", cluster_.catalog_address(), " ", seat->token)
                 : StrCat("connect ", cluster_.socket(seat->node));
  for (const std::string& command : {connect, std::string(kOpen)}) {
    const Reply reply = seat->worker->Do(command);
    if (reply.ok) continue;
    Stuck(StrCat("a worker at node ", seat->node, " cannot ", command, ": ",
                 reply.text));
    return false;
  }
  seat->worker->Begin(StrCat("soak ", seat->page.path(), " ", random_.Next64(),
                             " ", Chains(options_), " ", options_.nodes, " ",
                             seat->node));
  return true;
}

// --- While it runs.

std::uint64_t ProcessSoak::ReadsSoFar() const {
  std::uint64_t reads = 0;
  for (const Seat& seat : seats_) reads += seat.page.page().hits;
  return reads;
}

void ProcessSoak::RunFaults() {
  progress_at_ = clock_.Now();
  const auto next_after = [this](std::uint64_t mean) {
    return random_.Below(2 * mean + 1);
  };
  std::uint64_t reads_due = next_after(options_.reads_a_fault);
  BootTime time_due = clock_.Now() + options_.time_a_fault;
  while (ReadsSoFar() < options_.reads &&
         clock_.Now() - began_ < options_.time) {
    if (!Look()) return;
    if (ReadsSoFar() < reads_due && clock_.Now() < time_due) {
      poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(kTick)));
      continue;
    }
    InjectFault();
    reads_due = ReadsSoFar() + next_after(options_.reads_a_fault);
    time_due =
        clock_.Now() + absl::Milliseconds(next_after(static_cast<std::uint64_t>(
                           absl::ToInt64Milliseconds(options_.time_a_fault))));
  }
}

bool ProcessSoak::Look() {
  const BootTime now = clock_.Now();
  for (int node = 1; node <= cluster_.nodes(); ++node) {
    if (!cluster_.node(node).runs()) {
      Stuck(StrCat("node ", node, " has ended:\n", cluster_.node(node).Log()));
      return false;
    }
    NoteCounters(node);
  }
  if (!cluster_.catalog().runs()) {
    Stuck("the catalog has ended:\n" + cluster_.catalog().Log());
    return false;
  }
  for (const Seat& seat : seats_) {
    if (!LookForLateOperation(seat)) return false;
  }
  const std::uint64_t reads = ReadsSoFar();
  if (reads > std::exchange(progress_reads_, reads)) progress_at_ = now;
  if (now - progress_at_ > kStandstill) {
    Stuck("nothing is read any more");
    return false;
  }
  if (options_.progress && now - reported_at_ > kReportEvery) ReportProgress();
  return true;
}

bool ProcessSoak::LookForLateOperation(const Seat& seat) {
  if (!seat.worker->runs()) {
    Stuck(StrCat("the worker of uid ", seat.uid, " at node ", seat.node,
                 " has ended"));
    return false;
  }
  const std::int64_t due = seat.page.page().due_nanos;
  if (due == 0 || clock_.Now() - BootTime::FromNanos(due) < kStandstill) {
    return true;
  }
  Stuck(StrCat("an operation of uid ", seat.uid, " at node ", seat.node,
               " does not end"));
  return false;
}

void ProcessSoak::NoteCounters(int node) {
  const auto newly = [this, node](const char* name) {
    const double now = cluster_.node(node).Metric(name).value_or(0);
    const double before = std::exchange(counters_[{node, name}], now);
    // A node that was started anew counts from nothing.
    return static_cast<std::uint64_t>(now < before ? now : now - before);
  };
  seen_.reuses += newly("firnkv_node_evicted_blocks_total") +
                  newly("firnkv_node_cleared_blocks_total");
  seen_.wrong += newly("firnkv_node_corrupt_copies_total");
  seen_.frame_calls += newly("firnkv_node_frame_calls_total");
  seen_.received_bytes += newly("firnkv_node_stream_received_bytes_total");
  seen_.promoted += newly("firnkv_node_promoted_blocks_total");
}

void ProcessSoak::ReportProgress() {
  reported_at_ = clock_.Now();
  AddUp();
  std::fprintf(
      stderr, "%s\n",
      StrCat("process: after ",
             absl::FormatDuration(
                 absl::Trunc(reported_at_ - began_, absl::Seconds(1))),
             " ", totals_.reads, " reads, ", totals_.remote_reads, " remote, ",
             totals_.stored, " stored, ", totals_.reuses, " reuses, ",
             totals_.kills, " kills, ", totals_.wrong, " wrong")
          .c_str());
}

// --- Faults.

void ProcessSoak::PauseUpTo(absl::Duration most) {
  const auto millis =
      static_cast<std::uint64_t>(absl::ToInt64Milliseconds(most));
  if (random_.Below(3) == 0) return;
  poll(nullptr, 0, static_cast<int>(random_.Below(millis + 1)));
}

void ProcessSoak::InjectFault() {
  const std::uint64_t kind = random_.Below(20);
  if (kind < 6) {
    KillNode(AnyNode());
  } else if (kind < 9) {
    KillCatalog();
  } else if (kind < 12) {
    KillWorker(AnySeat());
  } else if (kind < 13) {
    KillAll();
  } else if (kind < 14) {
    EndNode(AnyNode());
  } else if (kind < 16) {
    StopWorker(AnySeat());
  } else if (kind < 18) {
    StopNode(AnyNode());
  } else if (kind < 19) {
    StopCatalog();
  } else {
    ++seen_.other_faults;
    Clear(random_.Below(2) == 0 ? "alice" : "bob");
  }
}

void ProcessSoak::StartDaemon(Daemon* daemon) {
  if (!daemon->Start()) Stuck("a daemon does not start:\n" + daemon->Log());
}

void ProcessSoak::KillNode(int node) {
  ++seen_.kills;
  NoteCounters(node);
  cluster_.node(node).Kill();
  PauseUpTo(kShortPause);
  StartDaemon(&cluster_.node(node));
}

void ProcessSoak::KillCatalog() {
  ++seen_.kills;
  cluster_.catalog().Kill();
  PauseUpTo(kLongStop);
  StartDaemon(&cluster_.catalog());
}

void ProcessSoak::KillWorker(Seat* seat) {
  ++seen_.kills;
  seat->worker->Kill();
  StartWorker(seat);
}

void ProcessSoak::KillAll() {
  ++seen_.kills;
  for (int node = 1; node <= cluster_.nodes(); ++node) NoteCounters(node);
  for (Seat& seat : seats_) seat.worker->Kill();
  for (int node = 1; node <= cluster_.nodes(); ++node) {
    cluster_.node(node).Kill();
  }
  cluster_.catalog().Kill();
  // Nodes before their catalog, or after it.
  const bool catalog_first = random_.Below(2) == 0;
  if (catalog_first) StartDaemon(&cluster_.catalog());
  for (int node = 1; node <= cluster_.nodes(); ++node) {
    StartDaemon(&cluster_.node(node));
  }
  if (!catalog_first) StartDaemon(&cluster_.catalog());
  for (Seat& seat : seats_) StartWorker(&seat);
}

void ProcessSoak::EndNode(int node) {
  ++seen_.other_faults;
  NoteCounters(node);
  const std::optional<int> code = cluster_.node(node).Terminate();
  if (code != 0) {
    Stuck(StrCat("node ", node, " ended with ", code.value_or(-1), ":\n",
                 cluster_.node(node).Log()));
  }
  StartDaemon(&cluster_.node(node));
}

void ProcessSoak::StopNode(int node) {
  ++seen_.other_faults;
  cluster_.node(node).Signal(SIGSTOP);
  PauseUpTo(kLongStop);
  cluster_.node(node).Signal(SIGCONT);
}

void ProcessSoak::StopCatalog() {
  ++seen_.other_faults;
  cluster_.catalog().Signal(SIGSTOP);
  PauseUpTo(kLongStop);
  cluster_.catalog().Signal(SIGCONT);
}

void ProcessSoak::StopWorker(Seat* seat) {
  ++seen_.other_faults;
  const BootTime began = clock_.Now();
  seat->worker->Signal(SIGSTOP);
  PauseUpTo(kLongStop);
  seat->page.page().stopped_nanos +=
      absl::ToInt64Nanoseconds(clock_.Now() - began);
  seat->worker->Signal(SIGCONT);
}

void ProcessSoak::Clear(const char* tenant) {
  const Finished cleared = cluster_.Admin(
      {"namespace", "clear", "granite", "--tenant", tenant, "--yes"});
  if (cleared.code != 0) Stuck("a clear failed: " + cleared.output);
}

// --- At the end.

void ProcessSoak::EndWorkers() {
  for (Seat& seat : seats_) seat.worker->Begin("stop");
  for (Seat& seat : seats_) {
    const Reply reply = seat.worker->Answer();
    if (!reply.ok || reply["missing"] != 0) {
      Stuck(StrCat("the worker of uid ", seat.uid, " at node ", seat.node,
                   " ended its load with ",
                   reply.text.empty() ? "nothing" : reply.text));
    }
  }
  for (Seat& seat : seats_) seat.worker->Kill();
}

void ProcessSoak::LookForLeaks() {
  const auto must_be_zero = [this](int node, const char* name) {
    if (cluster_.node(node).MetricBecomes(name, 0)) return;
    const double left = cluster_.node(node).Metric(name).value_or(1);
    std::fprintf(stderr, "leaked: %s of node %d is %g\n", name, node, left);
    seen_.leaked += left < 1 ? 1 : static_cast<std::uint64_t>(left);
  };
  for (int node = 1; node <= cluster_.nodes(); ++node) {
    for (const char* name :
         {"firnkv_node_sessions", "firnkv_node_leases", "firnkv_node_holds",
          "firnkv_node_reservations", "firnkv_node_dram_reserved_bytes",
          "firnkv_node_dram_retiring_bytes", "firnkv_node_waiting_batches",
          "firnkv_node_staging_bytes", "firnkv_node_copy_queue_bytes"}) {
      must_be_zero(node, name);
    }
  }
  for (const char* tenant : {"alice", "bob"}) Clear(tenant);
  for (int node = 1; node <= cluster_.nodes(); ++node) {
    must_be_zero(node, "firnkv_node_blocks");
    must_be_zero(node, "firnkv_node_dram_resident_bytes");
    NoteCounters(node);
  }
}

void ProcessSoak::AddUp() {
  SoakTotals sum = seen_;
  for (const Seat& seat : seats_) {
    const SoakPage& page = seat.page.page();
    sum.reads += page.hits;
    sum.remote_reads += page.remote_hits;
    sum.view_reads += page.view_hits;
    sum.bytes += page.hit_bytes;
    sum.stored += page.stored;
    sum.operations += page.operations;
    sum.wrong += page.wrong + page.corrupt;
    sum.stuck += page.late + page.refused;
    sum.longest_over = std::max(
        sum.longest_over, absl::Nanoseconds(page.longest_over_nanos.load()));
  }
  totals_ = sum;
}

}  // namespace firnkv
