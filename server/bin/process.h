// What every daemon is made of before its purpose: lock, seams, log, and the
// end that it is told.
//
// Threading. The main thread's.

#ifndef FIRNKV_SERVER_BIN_PROCESS_H_
#define FIRNKV_SERVER_BIN_PROCESS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/real_seams.h"
#include "server/base/admin_http.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/option.h"
#include "server/base/spd_log.h"
#include "server/bin/daemon_options.h"
#include "server/bin/data_directory.h"

namespace firnkv {

class Process {
 public:
  // Locks the data directory and makes the seams. Of `seams`, threads of the
  // executor and what sockets take for proof are set here.
  static absl::StatusOr<std::unique_ptr<Process>> Open(
      const char* name, const DaemonOptions& options,
      RealSeams::Options seams = {});

  const Seams& seams() const { return seams_->seams(); }
  const DataDirectory& data() const { return data_; }
  Logger* log() { return &log_; }
  MetricList* metrics() { return &metrics_; }
  absl::Duration age() const { return seams().clock->Now() - started_; }

  // Serves `metrics()` and the options, once both are complete.
  absl::Status ServeHttp(const OptionList* options,
                         std::function<std::string()> unhealthy_because);
  // "-" where there is none.
  std::string http_address() const;
  void StopHttp() { http_.reset(); }

 private:
  Process(const char* name, const DaemonOptions& options, DataDirectory data,
          std::unique_ptr<RealSeams> seams);

  const std::string name_;
  const DaemonOptions options_;
  DataDirectory data_;
  std::unique_ptr<RealSeams> seams_;
  const BootTime started_;
  SpdLog sink_;
  Logger log_;
  MetricList metrics_;
  std::unique_ptr<AdminHttp> http_;
};

// Whether `address`, "host:port", stays on this host.
bool IsOnThisHost(const std::string& address);

// INVALID_ARGUMENT where http.address is beyond loopback and nobody has allowed
// that, by the option `flag`: whoever comes is told everything.
absl::Status ValidateHttp(const DaemonOptions& options, bool plaintext_network,
                          const char* flag);

// Makes the directory that a socket's path is in.
absl::Status MakeParent(const std::string& path);

// Prints "NAME: why" and returns 1, for main.
int Fail(const char* name, const absl::Status& why);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_PROCESS_H_
