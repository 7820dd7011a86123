#include "server/bin/process.h"

#include <malloc.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "client/transport/grpc_channel.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/protobuf_log.h"
#include "server/base/config.h"
#include "server/base/prometheus_text.h"
#include "server/node/node_options.h"

namespace firnkv {

namespace {

// glibc raises the size from which memory is mapped for itself with what is
// given back (mallopt(3)), up to 32 MiB: tables that double and the store's
// buffers then come from the heaps of many threads, and what they leave there
// the system never gets again. Measured at a catalog of 1.5 million keys: 127
// bytes of memory a key so, 103 with a fixed size.
void KeepHeapsSmall() {
  mallopt(M_MMAP_THRESHOLD, 256 * kKiB);
  mallopt(M_TRIM_THRESHOLD, kMiB);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Process>> Process::Open(
    const char* name, const DaemonOptions& options, RealSeams::Options seams) {
  SilenceProtobuf();
  KeepHeapsSmall();
  ASSIGN_OR_RETURN(DataDirectory data, DataDirectory::Open(options.data_dir));
  seams.executor.threads = static_cast<int>(options.threads);
  // A daemon has no capabilities and serves other uids, whose namespace links
  // it cannot read.
  seams.sockets.namespace_proof = NamespaceProof::kEqualUidMap;
  ASSIGN_OR_RETURN(std::unique_ptr<RealSeams> made,
                   RealSeams::Make(seams, std::make_unique<GrpcConnector>()));
  return std::unique_ptr<Process>(
      new Process(name, options, std::move(data), std::move(made)));
}

Process::Process(const char* name, const DaemonOptions& options,
                 DataDirectory data, std::unique_ptr<RealSeams> seams)
    : name_(name),
      options_(options),
      data_(std::move(data)),
      seams_(std::move(seams)),
      started_(this->seams().clock->Now()),
      sink_(name),
      log_({.least = LeastSeverity(options)}, this->seams().clock, &sink_) {}

absl::Status Process::ServeHttp(
    const OptionList* options, std::function<std::string()> unhealthy_because) {
  if (options_.http.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      http_, AdminHttp::Start(
                 options_.http,
                 {.metrics = [this] { return RenderPrometheus(metrics_); },
                  .unhealthy_because = std::move(unhealthy_because),
                  .config =
                      [this, options] {
                        return RenderYaml(*options,
                                          StrCat(name_, ", as it runs."));
                      }}));
  return absl::OkStatus();
}

std::string Process::http_address() const {
  return http_ == nullptr ? "-" : http_->address();
}

bool IsOnThisHost(const std::string& address) { return IsLoopback(address); }

absl::Status ValidateHttp(const DaemonOptions& options, bool plaintext_network,
                          const char* flag) {
  if (options.http.empty() || plaintext_network || IsOnThisHost(options.http)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("http.address is ", options.http,
             ", beyond loopback, where anybody may read it; if that network is "
             "trusted, set ",
             flag, ": true"));
}

absl::Status MakeParent(const std::string& path) {
  const std::filesystem::path parent =
      std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("cannot make the directory of ", path, ": ", error.message(),
             "; set node.socket to a path that this user may make"));
}

int Fail(const char* name, const absl::Status& why) {
  std::fprintf(stderr, "%s: %s\n", name, std::string(why.message()).c_str());
  return 1;
}

}  // namespace firnkv
