// firnkv-node: a cache node. Without configuration it embeds a catalog, and one
// process is a whole cluster.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/synchronization/notification.h"
#include "client/transport/local_channel.h"
#include "client/transport/memfd.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/base/config.h"
#include "server/base/grpc_server.h"
#include "server/bin/catalog_runner.h"
#include "server/bin/check.h"
#include "server/bin/command_line.h"
#include "server/bin/documents.h"
#include "server/bin/node_runner.h"
#include "server/bin/process.h"
#include "server/bin/signals.h"
#include "server/node/node.h"

namespace firnkv {
namespace {

constexpr char kName[] = "firnkv-node";
// How long the first lines wait for the registration, to say how it went.
constexpr absl::Duration kPatience = absl::Seconds(2);

void SayReady(const NodeOptions& options, const DaemonOptions& daemon,
              NodeRunner* runner, Process* process) {
  const absl::Status link = runner->WaitForLink(kPatience);
  std::printf(
      "%s %s ready in %s\n"
      "  data      %s\n"
      "  node      %s\n"
      "  sessions  %s (%s)\n"
      "  stream    %s\n"
      "  grpc      %s\n"
      "  http      %s\n"
      "  catalog   %s\n"
      "  dram      %s in regions of %s\n",
      kName, kVersion,
      absl::FormatDuration(absl::Trunc(process->age(), absl::Milliseconds(1)))
          .c_str(),
      daemon.data_dir.c_str(), ToHex(runner->node()->address().node).c_str(),
      options.socket.c_str(), WhoIsServed(options).c_str(),
      runner->node()->address().stream_address.c_str(),
      runner->control_address().c_str(), process->http_address().c_str(),
      runner->catalog_text(link).c_str(),
      FormatBytes(options.dram_bytes).c_str(),
      FormatBytes(RegionBytes(options)).c_str());
  std::fflush(stdout);
}

RealSeams::Options SeamsFor(const NodeOptions& options) {
  RealSeams::Options seams;
  seams.memory.huge_pages = options.huge_pages;
  // On a small machine another thread only takes turns with those of readers
  // (docs/BENCHMARKS.md).
  seams.tcp.threads =
      options.stream_threads > 0
          ? static_cast<int>(options.stream_threads)
          : std::clamp(static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)) / 4, 1,
                       4);
  return seams;
}

int Serve(const DaemonOptions& daemon, const NodeOptions& options,
          const CatalogOptions& catalog, const OptionList& list) {
  absl::StatusOr<std::unique_ptr<Process>> process =
      Process::Open(kName, daemon, SeamsFor(options));
  if (!process.ok()) return Fail(kName, process.status());
  absl::StatusOr<std::unique_ptr<NodeRunner>> runner =
      NodeRunner::Start(daemon, options, catalog, process->get());
  if (!runner.ok()) return Fail(kName, runner.status());
  const absl::Status http = (*process)->ServeHttp(
      &list, [&runner] { return (*runner)->UnhealthyBecause(); });
  if (!http.ok()) return Fail(kName, http);
  SayReady(options, daemon, runner->get(), process->get());

  WaitForEnd();
  const absl::Duration time = (*runner)->EndingTime();
  EndByForceAfter(time + absl::Seconds(10));
  (*process)->log()->Write(Severity::kNotice, "draining", {});
  const bool healthy = (*runner)->FailedBecause().empty();
  (*runner)->Drain(time);
  (*process)->StopHttp();
  runner->reset();
  return healthy ? 0 : 1;
}

}  // namespace

int NodeMain(int argc, char** argv) {
  BlockSignals();
  TurnOffDeadlockDetection();
  DaemonOptions daemon;
  daemon.data_dir = DefaultDataDirectory();
  daemon.http = "127.0.0.1:7412";
  NodeOptions options;
  options.socket = DefaultSessionSocket();
  CatalogOptions catalog;
  OptionList list;
  Describe(&daemon, &list);
  Describe(&options, &list);
  Describe(&catalog, &list);
  int exit_code = 0;
  const std::optional<CommandLine> line = ParseCommandLine(
      argc, argv,
      {.purpose = "A cache node of a FirnKV cluster.",
       .documents = {"config", "metrics", "node.yaml", "catalog.yaml"}},
      list, &exit_code);
  if (!line.has_value()) return exit_code;
  if (!line->print_document.empty()) {
    return PrintDocument(line->print_document);
  }
  options.version = kVersion;
  options.own_uid = ::geteuid();
  if (line->check) return CheckNode(daemon, options);
  absl::Status valid = Validate(options);
  valid.Update(ValidateHttp(daemon, options.plaintext_network,
                            "node.plaintext_network"));
  if (!valid.ok()) return Fail(kName, valid);
  // Rule P10: nobody looks into the pool's owner from outside.
  const absl::Status undumpable = MakeUndumpable();
  if (!undumpable.ok()) return Fail(kName, undumpable);
  return Serve(daemon, options, catalog, list);
}

}  // namespace firnkv

int main(int argc, char** argv) { return firnkv::NodeMain(argc, argv); }
