// Options of a process rather than of a part: where it keeps what it must not
// forget, and where it shows itself.

#ifndef FIRNKV_SERVER_BIN_DAEMON_OPTIONS_H_
#define FIRNKV_SERVER_BIN_DAEMON_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/base/log.h"
#include "server/base/option.h"

namespace firnkv {

struct DaemonOptions {
  std::string data_dir;
  // Empty: cluster.secret in the data directory.
  std::string secret_file;
  // "host:port"; empty: none.
  std::string http;
  // Of the catalog that this process runs.
  std::string catalog_listen = "127.0.0.1:7400";
  bool catalog_plaintext_network = false;
  std::uint64_t threads = 4;
  std::string log_level = "notice";
};

void Describe(DaemonOptions* options, OptionList* list);

std::string SecretFile(const DaemonOptions& options);
Severity LeastSeverity(const DaemonOptions& options);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_DAEMON_OPTIONS_H_
