// The daemon's page for machines that watch it: /metrics (Prometheus), /healthz
// (200 while it serves, 503 while it drains or cannot), /configz (every option
// with its value; secrets are files, never options).
//
// cpp-httplib, from Debian: prometheus-cpp's own exposer can serve /metrics and
// nothing else.
//
// Threading. Owns one listening thread and a small bounded pool; Stop joins
// them.

#ifndef FIRNKV_SERVER_BASE_ADMIN_HTTP_H_
#define FIRNKV_SERVER_BASE_ADMIN_HTTP_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace firnkv {

class AdminHttp {
 public:
  struct Pages {
    std::function<std::string()> metrics;
    // Empty: healthy. Otherwise why not.
    std::function<std::string()> unhealthy_because;
    std::function<std::string()> config;
  };

  // Listens on "host:port" (port 0: any). The functions run on HTTP threads
  // until Stop.
  static absl::StatusOr<std::unique_ptr<AdminHttp>> Start(
      std::string_view address, Pages pages);
  ~AdminHttp();  // Stop().

  void Stop();
  const std::string& address() const { return address_; }

 private:
  struct Server;
  AdminHttp(std::unique_ptr<Server> server, std::string address);

  std::unique_ptr<Server> server_;
  const std::string address_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_ADMIN_HTTP_H_
