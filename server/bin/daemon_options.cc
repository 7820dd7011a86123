#include "server/bin/daemon_options.h"

#include "client/transport/socket_address.h"

namespace firnkv {

void Describe(DaemonOptions* options, OptionList* list) {
  list->Text("data_dir", &options->data_dir,
             {.help = "Directory of what must outlive the process: identity, "
                      "secret, the catalog's database. One process each."});
  list->Text("cluster_secret_file", &options->secret_file,
             {.help = "File with the cluster's secret, the same on every "
                      "daemon, mode 0600; empty: cluster.secret in data_dir, "
                      "made there by the catalog."});
  list->Text("http.address", &options->http,
             {.help = "host:port of /metrics, /healthz and /configz; empty: "
                      "none.",
              .check = CheckHostPortOrEmpty});
  list->Text("catalog.listen", &options->catalog_listen,
             {.help = "host:port of the gRPC of the catalog that runs in this "
                      "process.",
              .check = CheckHostPort});
  list->Flag("catalog.plaintext_network", &options->catalog_plaintext_network,
             {.help = "Allow catalog.listen beyond loopback without TLS."});
  list->Count("threads", &options->threads,
              {.help = "Threads for tasks; gRPC and network threads come "
                       "besides.",
               .least = 1,
               .most = 256});
  list->Text("log.level", &options->log_level,
             {.help = "Least severity that is logged.",
              .one_of = {"debug", "notice", "warning", "error"}});
}

std::string SecretFile(const DaemonOptions& options) {
  return options.secret_file.empty() ? options.data_dir + "/cluster.secret"
                                     : options.secret_file;
}

Severity LeastSeverity(const DaemonOptions& options) {
  if (options.log_level == "debug") return Severity::kDebug;
  if (options.log_level == "warning") return Severity::kWarning;
  if (options.log_level == "error") return Severity::kError;
  return Severity::kNotice;
}

}  // namespace firnkv
