// What a running command has: the global options, the connections that they
// lead to, and the ways to answer.
//
// Whom it talks to, in this order:
//   catalog  --catalog, FIRNKV_CLI_CATALOG, what the local node says, or
//            127.0.0.1:7400
//   node     --socket, FIRNKV_CLI_SOCKET, /run/firnkv/node.sock, where a node
//            of the caller's has its socket
//   as whom  --token-file, --secret-file (makes an administrator's token), the
//            same two from the environment, the secret of a data directory that
//            the caller may read, the local node's token for the caller's
//            tenant
//
// Threading: one command, one thread.

#ifndef FIRNKV_TOOLS_FIRNKV_CONTEXT_H_
#define FIRNKV_TOOLS_FIRNKV_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "proto/base/token.h"
#include "tools/firnkv/admin_client.h"
#include "tools/firnkv/exit_code.h"
#include "tools/firnkv/surroundings.h"
#include "tools/replay/json.h"

namespace firnkv {

struct GlobalOptions {
  std::string socket;
  std::string catalog;
  std::string secret_file;
  std::string token_file;
  std::optional<std::uint64_t> node_uid;
  bool json = false;
  absl::Duration timeout = absl::Seconds(10);
};

class Context {
 public:
  // All outlive it.
  Context(const GlobalOptions& options, Surroundings* world)
      : options_(options), world_(*world) {}

  Surroundings& world() { return world_; }
  absl::Duration timeout() const { return options_.timeout; }
  bool json() const { return options_.json; }

  // --- Connections.

  // A new one to the node at `socket`. The error says which was tried and how
  // to name another.
  absl::StatusOr<std::unique_ptr<Client>> ConnectClient(
      const std::string& socket);
  // To the local node, made at the first call.
  absl::StatusOr<Client*> LocalClient();
  std::string socket() const;
  // The caller said which, or there is one at the usual place.
  bool names_socket() const;

  // To the catalog, with a token; made at the first call. One that does not
  // answer is found at the first request, not here.
  absl::StatusOr<AdminClient*> Catalog();
  // To a node's control service, with the catalog's token: "host:port" or
  // "unix:PATH.control".
  absl::StatusOr<std::unique_ptr<AdminClient>> NodeAt(
      const std::string& address);
  // The token is an administrator's, so that requests must name their tenant.
  bool is_administrator() const { return administrator_; }
  // `given`, or the one that an empty one stands for.
  std::string TenantName(const std::string& given) const;

  // --- Answers.

  // Text for people, or JSON under --json.
  ExitCode Print(const std::string& text, const Json& json,
                 ExitCode code = ExitCode::kOk);
  // Why it failed, with what to do about it.
  ExitCode Fail(const absl::Status& status);
  // Asks on the terminal; false where the answer is not yes. `unless` names the
  // option that answers in advance.
  absl::StatusOr<bool> Confirm(std::string_view question,
                               std::string_view unless);

 private:
  std::optional<std::string> Variable(const char* name) const;
  // The option, or else the variable of the environment, or empty.
  std::string OptionOr(const std::string& option, const char* variable) const;
  std::string CatalogAddress();
  // Files of secrets that a daemon of this user may have made.
  std::vector<std::string> LikelySecretFiles() const;
  // Where the secret is, if anywhere.
  absl::StatusOr<std::optional<ClusterSecret>> FindSecret();
  absl::Status FindToken(AdminClient* catalog);
  std::string Advice(const absl::Status& status) const;
  // The message, with advice where it has none.
  std::string Advised(const absl::Status& status) const;

  const GlobalOptions& options_;
  Surroundings& world_;
  std::unique_ptr<Client> local_;
  std::unique_ptr<AdminClient> catalog_;
  std::string token_;
  // Where it is from, for advice.
  std::string token_origin_;
  bool administrator_ = false;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_CONTEXT_H_
