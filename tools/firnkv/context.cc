#include "tools/firnkv/context.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "proto/base/status.h"
#include "proto/base/tenant.h"
#include "proto/base/text.h"
#include "tools/firnkv/secret_file.h"

namespace firnkv {
namespace {

constexpr char kSystemSocket[] = "/run/firnkv/node.sock";
constexpr char kDefaultCatalog[] = "127.0.0.1:7400";
constexpr char kSecretName[] = "/cluster.secret";
// Long enough for one command of a person.
constexpr absl::Duration kTokenLifeOfACommand = absl::Minutes(30);

bool Readable(const std::string& path) {
  return access(path.c_str(), R_OK) == 0;
}

}  // namespace

std::optional<std::string> Context::Variable(const char* name) const {
  std::optional<std::string> value = world_.environment(name);
  if (value.has_value() && value->empty()) return std::nullopt;
  return value;
}

std::string Context::OptionOr(const std::string& option,
                              const char* variable) const {
  return option.empty() ? Variable(variable).value_or("") : option;
}

std::string Context::socket() const {
  const std::string given = OptionOr(options_.socket, "FIRNKV_CLI_SOCKET");
  if (!given.empty()) return given;
  if (geteuid() == 0 || access(kSystemSocket, F_OK) == 0) return kSystemSocket;
  // Where a node of this user puts it.
  const std::optional<std::string> runtime = Variable("XDG_RUNTIME_DIR");
  return runtime.has_value() ? *runtime + "/firnkv/node.sock"
                             : StrCat("/tmp/firnkv-", geteuid(), "/node.sock");
}

bool Context::names_socket() const {
  return !OptionOr(options_.socket, "FIRNKV_CLI_SOCKET").empty() ||
         access(socket().c_str(), F_OK) == 0;
}

absl::StatusOr<std::unique_ptr<Client>> Context::ConnectClient(
    const std::string& socket) {
  ClientOptions options;
  options.socket_path = socket;
  options.catalog_address = OptionOr(options_.catalog, "FIRNKV_CLI_CATALOG");
  options.client_name = "firnkv";
  options.connect_timeout = std::min(options_.timeout, absl::Seconds(5));
  std::optional<std::uint64_t> uid = options_.node_uid;
  if (const auto text = Variable("FIRNKV_CLI_NODE_UID");
      !uid && text.has_value()) {
    std::uint64_t value = 0;
    if (!absl::SimpleAtoi(ToAbsl(*text), &value)) {
      return absl::InvalidArgumentError(
          StrCat("FIRNKV_CLI_NODE_UID is '", *text, "', which is no uid"));
    }
    uid = value;
  }
  if (uid.has_value()) options.server_uid = static_cast<std::uint32_t>(*uid);
  const std::string token_file =
      OptionOr(options_.token_file, "FIRNKV_CLI_TOKEN_FILE");
  if (!token_file.empty()) {
    ASSIGN_OR_RETURN(options.token, ReadTokenFile(token_file));
  }
  absl::StatusOr<std::unique_ptr<Client>> client =
      world_.connect(std::move(options));
  if (client.ok()) return client;
  std::string advice;
  if (absl::IsUnavailable(client.status())) {
    advice =
        "\n  is firnkv-node running on this host? Another socket: --socket "
        "PATH or FIRNKV_CLI_SOCKET";
  } else if (absl::IsPermissionDenied(client.status()) ||
             absl::IsUnauthenticated(client.status())) {
    advice =
        "\n  the node serves the uids of its sessions.uid_map; a node under "
        "another uid than yours is named by --node-uid";
  }
  return absl::Status(client.status().code(),
                      StrCat("node at ", socket, ": ",
                             ToStd(client.status().message()), advice));
}

absl::StatusOr<Client*> Context::LocalClient() {
  if (local_ == nullptr) {
    ASSIGN_OR_RETURN(local_, ConnectClient(socket()));
  }
  return local_.get();
}

std::string Context::CatalogAddress() {
  const std::string given = OptionOr(options_.catalog, "FIRNKV_CLI_CATALOG");
  if (!given.empty()) return given;
  if (access(socket().c_str(), F_OK) == 0) {
    const absl::StatusOr<Client*> client = LocalClient();
    if (client.ok()) {
      const std::string address = (*client)->Describe().catalog_address;
      if (!address.empty()) return address;
    }
  }
  return kDefaultCatalog;
}

std::vector<std::string> Context::LikelySecretFiles() const {
  std::vector<std::string> files;
  if (const auto state = Variable("XDG_DATA_HOME"); state.has_value()) {
    files.push_back(StrCat(*state, "/firnkv", kSecretName));
  }
  if (const auto home = Variable("HOME"); home.has_value()) {
    files.push_back(StrCat(*home, "/.local/share/firnkv", kSecretName));
  }
  files.push_back(StrCat("/var/lib/firnkv", kSecretName));
  return files;
}

absl::StatusOr<std::optional<ClusterSecret>> Context::FindSecret() {
  const std::string given =
      OptionOr(options_.secret_file, "FIRNKV_CLI_SECRET_FILE");
  std::vector<std::string> files = LikelySecretFiles();
  if (!given.empty()) files = {given};
  for (const std::string& file : files) {
    if (given.empty() && !Readable(file)) continue;
    ASSIGN_OR_RETURN(const ClusterSecret secret, ReadSecretFile(file));
    token_origin_ = StrCat("the secret in ", file);
    return std::optional<ClusterSecret>(secret);
  }
  return std::optional<ClusterSecret>();
}

absl::Status Context::FindToken(AdminClient* catalog) {
  const std::string file =
      OptionOr(options_.token_file, "FIRNKV_CLI_TOKEN_FILE");
  if (!file.empty()) {
    ASSIGN_OR_RETURN(token_, ReadTokenFile(file));
    token_origin_ = file;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::optional<ClusterSecret> secret, FindSecret());
  if (secret.has_value()) {
    ASSIGN_OR_RETURN(const ClusterId cluster,
                     catalog->Connect("CatalogService"));
    token_ =
        MintToken({.cluster = cluster,
                   .role = Role::kAdmin,
                   .expires = world_.clock->WallNow() + kTokenLifeOfACommand},
                  *secret);
    administrator_ = true;
    return absl::OkStatus();
  }
  absl::StatusOr<Client*> client = LocalClient();
  if (client.ok()) {
    token_ = (*client)->Describe().token;
    token_origin_ = StrCat("the node at ", socket());
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      StrCat("nothing says who you are; ", ToStd(client.status().message()),
             "\n  administrators: --secret-file FILE (cluster.secret in the "
             "catalog's data directory); tenants: run it beside a node"));
}

absl::StatusOr<AdminClient*> Context::Catalog() {
  if (catalog_ != nullptr) return catalog_.get();
  auto catalog = std::make_unique<AdminClient>(
      world_.control, AdminClient::Options{.address = CatalogAddress(),
                                           .timeout = options_.timeout});
  // Kept also where that fails: its address is in the advice.
  catalog_ = std::move(catalog);
  if (const absl::Status status = FindToken(catalog_.get()); !status.ok()) {
    const absl::Status advised(status.code(), Advised(status));
    catalog_.reset();
    return advised;
  }
  catalog_->set_token(token_);
  return catalog_.get();
}

absl::StatusOr<std::unique_ptr<AdminClient>> Context::NodeAt(
    const std::string& address) {
  RETURN_IF_ERROR(Catalog().status());
  return std::make_unique<AdminClient>(
      world_.control,
      AdminClient::Options{
          .address = address, .token = token_, .timeout = options_.timeout});
}

std::string Context::TenantName(const std::string& given) const {
  return given.empty() && administrator_ ? kDefaultTenant : given;
}

ExitCode Context::Print(const std::string& text, const Json& json,
                        ExitCode code) {
  *world_.out << (options_.json ? json.Text() : text);
  world_.out->flush();
  return code;
}

std::string Context::Advice(const absl::Status& status) const {
  if (catalog_ == nullptr) return "";
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    return StrCat("\n  no answer of the catalog at ", catalog_->address(),
                  ": is it running? Another address: --catalog HOST:PORT or "
                  "FIRNKV_CLI_CATALOG; more patience: --timeout");
  }
  if (absl::IsUnauthenticated(status)) {
    return StrCat("\n  the catalog at ", catalog_->address(),
                  " does not accept ",
                  token_origin_.empty() ? "the caller" : token_origin_,
                  "; another one: --secret-file FILE");
  }
  if (absl::IsPermissionDenied(status)) {
    return StrCat("\n  the token is from ", token_origin_,
                  "; an administrator gives --secret-file FILE "
                  "(cluster.secret in the catalog's data directory)");
  }
  return "";
}

std::string Context::Advised(const absl::Status& status) const {
  const std::string message(status.message());
  // Not twice.
  return message.find("\n  ") == std::string::npos
             ? StrCat(message, Advice(status))
             : message;
}

ExitCode Context::Fail(const absl::Status& status) {
  const std::string message(status.message());
  *world_.err << "firnkv: " << Advised(status) << "\n";
  world_.err->flush();
  if (options_.json) {
    Json error = Json::Object();
    error.Set("code", absl::StatusCodeToString(status.code()))
        .Set("message", message);
    *world_.out << Json::Object().Set("error", std::move(error)).Text();
    world_.out->flush();
  }
  return ExitCode::kFailure;
}

absl::StatusOr<bool> Context::Confirm(std::string_view question,
                                      std::string_view unless) {
  if (!world_.in_is_terminal) {
    return absl::FailedPreconditionError(
        StrCat(question, "\n  nobody is here to ask: give ", unless));
  }
  *world_.err << question << " [y/N] ";
  world_.err->flush();
  std::string answer;
  std::getline(*world_.in, answer);
  absl::AsciiStrToLower(&answer);
  return answer == "y" || answer == "yes";
}

}  // namespace firnkv
