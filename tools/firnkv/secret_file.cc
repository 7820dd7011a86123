#include "tools/firnkv/secret_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// The begin of a file, `most` bytes of it.
absl::StatusOr<std::string> ReadStart(const std::string& path,
                                      std::size_t most) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::ErrnoToStatus(errno, ToAbsl(path));
  std::string text(most, '\0');
  in.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

std::string Trimmed(const std::string& text) {
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace

absl::StatusOr<ClusterSecret> ReadSecretFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadStart(path, 2 * ClusterSecret::kBytes + 2));
  struct stat about;
  if (stat(path.c_str(), &about) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(
        StrCat(path,
               ": others than its owner may read it; chmod 600 it, and "
               "make a new secret if somebody did"));
  }
  const std::optional<std::string> bytes = FromHex(Trimmed(text));
  const auto secret = ClusterSecret::FromBytes(bytes.value_or(""));
  if (!secret.has_value()) {
    return absl::InvalidArgumentError(
        StrCat(path, ": no cluster secret: it must be 64 hex digits"));
  }
  return *secret;
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadStart(path, 2 * kMaxTokenBytes + 2));
  const std::optional<std::string> token = FromHex(Trimmed(text));
  if (!token.has_value() || token->empty()) {
    return absl::InvalidArgumentError(
        StrCat(path, ": no token: it must be hex digits"));
  }
  return *token;
}

}  // namespace firnkv
