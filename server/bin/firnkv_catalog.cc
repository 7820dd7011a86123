// firnkv-catalog: the cluster's index and its administrative state.

#include <cstdio>

#include "proto/base/mutex.h"
#include "proto/base/text.h"
#include "server/bin/catalog_runner.h"
#include "server/bin/check.h"
#include "server/bin/command_line.h"
#include "server/bin/process.h"
#include "server/bin/signals.h"

namespace firnkv {
namespace {

constexpr char kName[] = "firnkv-catalog";
constexpr absl::Duration kGrace = absl::Seconds(2);
constexpr absl::Duration kHealthPeriod = absl::Seconds(1);

// Ends the process when the catalog's store has failed: a supervisor starts a
// new one.
void WatchHealth(Process* process, CatalogRunner* runner, TaskScope* scope) {
  process->seams().executor->PostAt(
      process->seams().clock->Now() + kHealthPeriod,
      scope->Wrap([process, runner, scope] {
        const absl::Status health = runner->catalog()->health();
        if (health.ok()) return WatchHealth(process, runner, scope);
        process->log()->Write(Severity::kError, "store_failed",
                              {{"why", ToStd(health.message())}});
        EndThisProcess();
      }));
}

int Serve(const DaemonOptions& daemon, CatalogOptions options,
          const OptionList& list) {
  absl::StatusOr<std::unique_ptr<Process>> process =
      Process::Open(kName, daemon);
  if (!process.ok()) return Fail(kName, process.status());
  const absl::StatusOr<ClusterSecret> secret =
      ReadOrMakeSecret(SecretFile(daemon), (*process)->seams().random);
  if (!secret.ok()) return Fail(kName, secret.status());
  options.version = kVersion;
  absl::StatusOr<std::unique_ptr<CatalogRunner>> runner =
      CatalogRunner::Start(daemon, options, *secret, process->get());
  if (!runner.ok()) return Fail(kName, runner.status());
  const absl::Status http = (*process)->ServeHttp(&list, [&runner] {
    return std::string((*runner)->catalog()->health().message());
  });
  if (!http.ok()) return Fail(kName, http);

  std::printf(
      "%s %s ready in %s\n"
      "  data      %s\n"
      "  secret    %s\n"
      "  cluster   %s\n"
      "  grpc      %s\n"
      "  http      %s\n",
      kName, kVersion,
      absl::FormatDuration(
          absl::Trunc((*process)->age(), absl::Milliseconds(1)))
          .c_str(),
      daemon.data_dir.c_str(), SecretFile(daemon).c_str(),
      ToHex((*runner)->catalog()->cluster()).c_str(),
      (*runner)->address().c_str(), (*process)->http_address().c_str());
  std::fflush(stdout);

  TaskScope scope;
  WatchHealth(process->get(), runner->get(), &scope);
  WaitForEnd();
  scope.Close();
  EndByForceAfter(2 * kGrace + absl::Seconds(5));
  const bool healthy = (*runner)->catalog()->health().ok();
  (*process)->StopHttp();
  (*runner)->Stop(kGrace);
  return healthy ? 0 : 1;
}

}  // namespace

int CatalogMain(int argc, char** argv) {
  BlockSignals();
  TurnOffDeadlockDetection();
  DaemonOptions daemon;
  daemon.data_dir = DefaultDataDirectory() + "-catalog";
  daemon.http = "127.0.0.1:7402";
  CatalogOptions options;
  OptionList list;
  Describe(&daemon, &list);
  Describe(&options, &list);
  int exit_code = 0;
  const std::optional<CommandLine> line = ParseCommandLine(
      argc, argv, {.purpose = "The catalog of a FirnKV cluster."}, list,
      &exit_code);
  if (!line.has_value()) return exit_code;
  if (line->check) return CheckCatalog(daemon);
  const absl::Status valid = ValidateHttp(
      daemon, daemon.catalog_plaintext_network, "catalog.plaintext_network");
  if (!valid.ok()) return Fail(kName, valid);
  return Serve(daemon, options, list);
}

}  // namespace firnkv

int main(int argc, char** argv) { return firnkv::CatalogMain(argc, argv); }
