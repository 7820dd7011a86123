#include "server/base/grpc_server.h"

#include <errno.h>
#include <google/protobuf/descriptor.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_callback.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "client/transport/descriptor.h"
#include "client/transport/grpc_bytes.h"
#include "client/transport/socket_address.h"
#include "client/transport/unix_socket.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::string_view kUnix = "unix:";

// The path of a unix address; nullopt for others.
std::optional<std::string> UnixPath(std::string_view address) {
  if (address.substr(0, kUnix.size()) != kUnix) return std::nullopt;
  return std::string(address.substr(kUnix.size()));
}

ControlPeer PeerOf(const grpc::CallbackServerContext& context) {
  ControlPeer peer;
  peer.address = context.peer();
  // gRPC derives it from the socket's family, so no remote peer can have it.
  peer.local = UnixPath(peer.address).has_value();
  return peer;
}

// The answer that is owed to one call. Given up unanswered (a task that an
// executor destroyed on its way out, say), it answers UNAVAILABLE: gRPC waits
// for every answer at its shutdown.
class PendingReply {
 public:
  PendingReply(grpc::ServerUnaryReactor* reactor, grpc::ByteBuffer* response)
      : reactor_(reactor), response_(response) {}
  PendingReply(PendingReply&& other) noexcept
      : reactor_(std::exchange(other.reactor_, nullptr)),
        response_(other.response_) {}
  PendingReply& operator=(PendingReply&&) = delete;
  ~PendingReply() {
    (*this)(absl::UnavailableError("the server let the call go"));
  }

  void operator()(absl::StatusOr<std::string> response) {
    grpc::ServerUnaryReactor* const reactor = std::exchange(reactor_, nullptr);
    if (reactor == nullptr) return;
    // Response and reactor are gRPC's again with Finish.
    if (response.ok()) *response_ = ToByteBuffer(*response);
    reactor->Finish(ToGrpcStatus(response.status()));
  }

 private:
  grpc::ServerUnaryReactor* reactor_;
  grpc::ByteBuffer* response_;
};

// Why an address cannot be listened on, since gRPC does not say: tries itself.
std::string WhyNot(const std::string& address) {
  const absl::StatusOr<HostPort> host_port = ParseHostPort(address);
  if (!host_port.ok()) return std::string(ToStd(host_port.status().message()));
  const auto numeric = NumericAddress(*host_port);
  if (!numeric.has_value()) return "is it one of this host's?";
  const Descriptor fd(socket(numeric->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(fd.get(), numeric->get(), numeric->length) == 0 &&
      listen(fd.get(), 1) == 0) {
    return "it is free now";
  }
  return std::strerror(errno);
}

void Configure(const GrpcServer::Options& options,
               grpc::ServerBuilder* builder) {
  const auto max_bytes = static_cast<int>(options.max_message_bytes);
  builder->SetMaxReceiveMessageSize(max_bytes);
  builder->SetMaxSendMessageSize(max_bytes);
  builder->SetResourceQuota(grpc::ResourceQuota("firnkv")
                                .Resize(options.max_buffered_bytes)
                                .SetMaxThreads(options.max_threads));
  // Else a second server silently shares the port of the first.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              options.max_calls_a_connection);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      static_cast<int>(
          absl::ToInt64Milliseconds(options.shortest_ping_interval)));
}

}  // namespace

// One handler as a gRPC service.
class GrpcServer::Bridge : public grpc::Service {
 public:
  Bridge(const google::protobuf::ServiceDescriptor& service,
         ControlService* handler)
      : handler_(handler) {
    for (int i = 0; i < service.method_count(); ++i) {
      names_.push_back(std::make_unique<std::string>(
          StrCat("/", service.full_name(), "/", service.method(i)->name())));
      const std::string* const name = names_.back().get();
      // Owned by grpc::Service, which keeps the pointer to the name.
      AddMethod(
          std::make_unique<grpc::internal::RpcServiceMethod>(
              name->c_str(), grpc::internal::RpcMethod::NORMAL_RPC, nullptr)
              .release());
      MarkMethodRawCallback(
          i, std::make_unique<grpc::internal::CallbackUnaryHandler<
                 grpc::ByteBuffer, grpc::ByteBuffer>>(
                 [this, name](grpc::CallbackServerContext* context,
                              const grpc::ByteBuffer* request,
                              grpc::ByteBuffer* response) {
                   return Serve(*name, context, *request, response);
                 })
                 .release());
    }
  }

 private:
  grpc::ServerUnaryReactor* Serve(const std::string& method,
                                  grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer& request,
                                  grpc::ByteBuffer* response) {
    // Lives until its Finish, which may come before Handle returns.
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const ControlPeer peer = PeerOf(*context);
    PendingReply reply(reactor, response);
    std::string bytes;
    if (absl::Status status = FromByteBuffer(request, &bytes); !status.ok()) {
      reply(std::move(status));
    } else {
      handler_->Handle(method, peer, bytes, std::move(reply));
    }
    return reactor;
  }

  ControlService* const handler_;
  // "/firnkv.v1.NodeService/OpenRead", at addresses that do not move.
  std::vector<std::unique_ptr<std::string>> names_;
};

namespace {

// While it lives, gRPC writes nothing to standard error: why it could not
// listen is in our own status, in a line and not in a page.
class GrpcIsSilent {
 public:
  GrpcIsSilent() {
    gpr_set_log_function([](gpr_log_func_args*) {});
  }
  ~GrpcIsSilent() { gpr_set_log_function(nullptr); }
  GrpcIsSilent(const GrpcIsSilent&) = delete;
  GrpcIsSilent& operator=(const GrpcIsSilent&) = delete;
};

}  // namespace

struct GrpcServer::Parts {
  std::vector<std::unique_ptr<Bridge>> bridges;
  // What gRPC takes connections by that it has not accepted; none where no
  // address is a unix socket. It outlives the server.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  // Before the server is told to end, since it would leak what comes later.
  std::vector<std::unique_ptr<CappedListener>> listeners;
  bool shut_down = false;
};

GrpcServer::GrpcServer(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)) {}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const Options& options, std::vector<ControlService*> handlers) {
  // Once a process suffices, and it must be before a builder is made.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  auto parts = std::make_unique<Parts>();
  grpc::ServerBuilder builder;
  Configure(options, &builder);
  for (ControlService* const handler : handlers) {
    const std::string name(handler->service());
    const google::protobuf::ServiceDescriptor* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            name);
    if (service == nullptr) {
      return absl::FailedPreconditionError(
          StrCat("service ", name, " is not linked into this program"));
    }
    parts->bridges.push_back(std::make_unique<Bridge>(*service, handler));
    builder.RegisterService(parts->bridges.back().get());
  }
  std::vector<int> ports(options.addresses.size(), 0);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = options.addresses[i];
    if (const auto path = UnixPath(address)) {
      RETURN_IF_ERROR(CheckSocketPathIsFree(*path));
      if (parts->acceptor != nullptr) continue;
      using Builder = grpc::ServerBuilder::experimental_type;
      parts->acceptor = builder.experimental().AddExternalConnectionAcceptor(
          Builder::ExternalConnectionType::FROM_FD,
          grpc::InsecureServerCredentials());
      continue;
    }
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(),
                             &ports[i]);
  }
  {
    const GrpcIsSilent silent;
    parts->server = builder.BuildAndStart();
  }

  // The constructor is private. NOLINTNEXTLINE
  std::unique_ptr<GrpcServer> started(new GrpcServer(std::move(parts)));
  RETURN_IF_ERROR(started->NoteAddresses(options.addresses, ports));
  RETURN_IF_ERROR(started->ListenAtPaths(options));
  // The health service knows of a service only what it was told.
  for (const ControlService* const handler : handlers) {
    started->parts_->server->GetHealthCheckService()->SetServingStatus(
        std::string(handler->service()), true);
  }
  return started;
}

absl::Status GrpcServer::NoteAddresses(
    const std::vector<std::string>& addresses, const std::vector<int>& ports) {
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = addresses[i];
    const bool is_path = UnixPath(address).has_value();
    // gRPC gives up on all where one fails; the one without a port is why.
    if (ports[i] == 0 && !is_path) {
      return absl::UnavailableError(
          StrCat("cannot listen on ", address, ": ", WhyNot(address)));
    }
    if (parts_->server == nullptr) continue;
    addresses_.push_back(
        is_path ? address
                : StrCat(address.substr(0, address.rfind(':')), ":", ports[i]));
  }
  if (parts_->server == nullptr) {
    return absl::UnavailableError("gRPC did not start a server");
  }
  return absl::OkStatus();
}

absl::Status GrpcServer::ListenAtPaths(const Options& options) {
  grpc::experimental::ExternalConnectionAcceptor* const acceptor =
      parts_->acceptor.get();
  for (const std::string& address : options.addresses) {
    const auto path = UnixPath(address);
    if (!path.has_value()) continue;
    absl::StatusOr<std::unique_ptr<CappedListener>> listener =
        CappedListener::Start(*path, options.unix_connections,
                              [acceptor](Descriptor socket) {
                                grpc::experimental::ExternalConnectionAcceptor::
                                    NewConnectionParameters connection;
                                connection.fd = socket.Release();
                                acceptor->HandleNewConnection(&connection);
                              });
    if (!listener.ok()) {
      return absl::UnavailableError(StrCat("cannot listen on ", address, ": ",
                                           ToStd(listener.status().message())));
    }
    parts_->listeners.push_back(*std::move(listener));
  }
  return absl::OkStatus();
}

void GrpcServer::SetServing(bool serving) {
  parts_->server->GetHealthCheckService()->SetServingStatus(serving);
}

void GrpcServer::Shutdown(absl::Duration grace) {
  if (parts_->server == nullptr || std::exchange(parts_->shut_down, true)) {
    return;
  }
  parts_->listeners.clear();
  parts_->server->Shutdown(gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(absl::ToInt64Nanoseconds(grace), GPR_TIMESPAN)));
}

}  // namespace firnkv
