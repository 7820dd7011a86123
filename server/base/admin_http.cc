#include "server/base/admin_http.h"

#include <httplib.h>
#include <sched.h>
#include <sys/socket.h>

#include <utility>

#include "client/transport/named_thread.h"
#include "client/transport/socket_address.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr int kThreads = 2;
constexpr std::size_t kLargestRequestBytes = 4096;

void Route(httplib::Server* http, AdminHttp::Pages pages) {
  http->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  http->set_payload_max_length(kLargestRequestBytes);
  // httplib's default shares a port between processes: a second daemon would
  // take half of the first one's requests instead of being told.
  http->set_socket_options([](int socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  // One request a connection: one that is kept for the next request keeps a
  // thread, and with two of them nobody else, no health check, is answered.
  http->set_keep_alive_max_count(1);
  http->set_read_timeout(5);
  http->set_write_timeout(5);
  http->Get("/", [](const httplib::Request&, httplib::Response& out) {
    out.set_content(
        "/metrics  for Prometheus\n"
        "/healthz  200 while it serves\n"
        "/configz  every option with its value\n",
        "text/plain");
  });
  http->Get("/metrics", [read = std::move(pages.metrics)](
                            const httplib::Request&, httplib::Response& out) {
    out.set_content(read(), "text/plain; version=0.0.4");
  });
  http->Get("/healthz", [read = std::move(pages.unhealthy_because)](
                            const httplib::Request&, httplib::Response& out) {
    const std::string why = read();
    out.status = why.empty() ? 200 : 503;
    out.set_content(why.empty() ? "ok\n" : StrCat(why, "\n"), "text/plain");
  });
  http->Get("/configz", [read = std::move(pages.config)](
                            const httplib::Request&, httplib::Response& out) {
    out.set_content(read(), "text/yaml");
  });
}

}  // namespace

struct AdminHttp::Server {
  httplib::Server http;
  NamedThread thread;
};

absl::StatusOr<std::unique_ptr<AdminHttp>> AdminHttp::Start(
    std::string_view address, Pages pages) {
  ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(address));
  int port = where.port;
  auto server = std::make_unique<Server>();
  Route(&server->http, std::move(pages));
  if (port == 0) {
    port = server->http.bind_to_any_port(where.host.c_str());
  } else if (!server->http.bind_to_port(where.host.c_str(), port)) {
    port = -1;
  }
  if (port < 0) {
    return absl::UnavailableError(
        StrCat("cannot listen for HTTP on ", address,
               ": taken or not an address of this host; set http.address"));
  }
  if (const absl::Status started = server->thread.Start(
          "firnkv-http", [http = &server->http] { http->listen_after_bind(); });
      !started.ok()) {
    return started;
  }
  // A stop before it listens would be lost; the thread is there within
  // microseconds, and httplib has nothing else to wait on.
  while (!server->http.is_running()) ::sched_yield();
  const std::string_view host = address.substr(0, address.rfind(':'));
  return std::unique_ptr<AdminHttp>(
      new AdminHttp(std::move(server), StrCat(host, ":", port)));
}

AdminHttp::AdminHttp(std::unique_ptr<Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {}

AdminHttp::~AdminHttp() { Stop(); }

void AdminHttp::Stop() {
  if (server_ == nullptr) return;
  server_->http.stop();
  server_->thread.Join();
  server_.reset();
}

}  // namespace firnkv
