// The limit of a control call: a bare unary gRPC call of raw bytes, blocking
// stub and synchronous server, which is the quickest that this gRPC does.
//
//     serve address=unix:PATH | address=HOST:0      ok port=PORT
//     call address=ADDRESS request=BYTES response=BYTES millis=80
//
// One process serves, another one calls.

#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstring>
#include <memory>
#include <string>

#include "proto/base/text.h"
#include "tools/bench/command_loop.h"

namespace firnkv {
namespace {

constexpr char kMethod[] = "/bench.Bare/Call";

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// Answers as many bytes as the request's first eight ask for.
class Bare : public grpc::Service {
 public:
  Bare() {
    AddMethod(new grpc::internal::RpcServiceMethod(
        kMethod, grpc::internal::RpcMethod::NORMAL_RPC,
        new grpc::internal::RpcMethodHandler<Bare, grpc::ByteBuffer,
                                             grpc::ByteBuffer>(
            [](Bare*, grpc::ServerContext*, const grpc::ByteBuffer* request,
               grpc::ByteBuffer* response) {
              grpc::Slice slice;
              if (!request->TrySingleSlice(&slice).ok() &&
                  !request->DumpToSingleSlice(&slice).ok()) {
                return grpc::Status(grpc::StatusCode::INTERNAL, "no slice");
              }
              std::uint64_t wanted = 0;
              if (slice.size() >= sizeof(wanted)) {
                std::memcpy(&wanted, slice.begin(), sizeof(wanted));
              }
              *response = BufferOf(std::string(wanted, 'r'));
              return grpc::Status::OK;
            },
            this)));
  }
};

class GrpcLimit {
 public:
  absl::StatusOr<Counts> Serve(const Command& command) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(command.Text("address"),
                             grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("cannot serve");
    return Counts{{"port", static_cast<std::uint64_t>(port)}};
  }

  absl::StatusOr<Counts> Call(const Command& command) {
    const std::string address = command.Text("address");
    if (address != address_) {
      address_ = address;
      channel_ =
          grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    }
    std::string bytes(command.Number("request", 16), 'q');
    const std::uint64_t wanted = command.Number("response");
    bytes.resize(std::max(bytes.size(), sizeof(wanted)));
    std::memcpy(bytes.data(), &wanted, sizeof(wanted));
    const grpc::internal::RpcMethod method(
        kMethod, grpc::internal::RpcMethod::NORMAL_RPC, channel_);
    return Measure(command, [&](int) -> absl::StatusOr<std::uint64_t> {
      grpc::ClientContext context;
      const grpc::ByteBuffer request = BufferOf(bytes);
      grpc::ByteBuffer response;
      const grpc::Status status =
          grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
              channel_.get(), method, &context, request, &response);
      if (!status.ok()) return absl::InternalError(status.error_message());
      if (response.Length() != wanted) return absl::InternalError("bytes");
      return response.Length();
    });
  }

 private:
  Bare service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;  // As gRPC has it.
};

}  // namespace
}  // namespace firnkv

int main() {
  firnkv::GrpcLimit limit;
  firnkv::CommandLoop loop;
  loop.Add("serve", [&](const firnkv::Command& command) {
    return limit.Serve(command);
  });
  loop.Add("call",
           [&](const firnkv::Command& command) { return limit.Call(command); });
  return loop.Run();
}
