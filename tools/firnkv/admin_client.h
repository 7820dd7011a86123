// Calls of the control services, from the CLI: blocking, each with its token
// and its deadline, and with errors that say what to do.
//
//     AdminClient catalog(channel, "127.0.0.1:7400", token, timeout);
//     auto nodes = catalog.Call<v1::ListNodesResponse>(
//         "AdminService/ListNodes", v1::ListNodesRequest());
//
// Threading. One thread at a time.

#ifndef FIRNKV_TOOLS_FIRNKV_ADMIN_CLIENT_H_
#define FIRNKV_TOOLS_FIRNKV_ADMIN_CLIENT_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/control_channel.h"
#include "proto/base/id.h"
#include "proto/base/status.h"

namespace firnkv {

namespace v1 {
class RequestHeader;
}  // namespace v1

class AdminClient {
 public:
  struct Options {
    // "host:port" or "unix:PATH".
    std::string address;
    // Empty: only Connect can be called.
    std::string token;
    absl::Duration timeout = absl::Seconds(10);
  };

  // `connector` outlives it.
  AdminClient(ControlConnector* connector, Options options);

  const std::string& address() const { return options_.address; }
  void set_token(std::string token) { options_.token = std::move(token); }

  // `method` is "AdminService/ListNodes".
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(std::string_view method, Request request) {
    FillHeader(request.mutable_header());
    ASSIGN_OR_RETURN(const std::string bytes,
                     CallEncoded(method, request.SerializeAsString()));
    Response response;
    if (!response.ParseFromString(bytes)) return Unreadable(method);
    return response;
  }

  // Which cluster it is; `service` is "CatalogService" or "NodeService". Needs
  // no token. FAILED_PRECONDITION where there is no common protocol.
  absl::StatusOr<ClusterId> Connect(std::string_view service);

 private:
  void FillHeader(v1::RequestHeader* header) const;
  absl::StatusOr<std::string> CallEncoded(std::string_view method,
                                          std::string request);
  absl::Status Unreadable(std::string_view method) const;

  Options options_;
  const std::unique_ptr<ControlChannel> channel_;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_ADMIN_CLIENT_H_
