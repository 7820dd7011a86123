#include "server/bin/data_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/base/config.h"

namespace firnkv {
namespace {

constexpr std::size_t kLongestSecretFile = 256;

// A descriptor that closes itself.
struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) ::close(fd);
  }
};

std::string Errno() { return std::strerror(errno); }

absl::Status WriteSynced(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0) return absl::InternalError(Errno());
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : absl::InternalError(Errno());
}

}  // namespace

std::string DefaultDataDirectory() {
  if (::geteuid() == 0) return "/var/lib/firnkv";
  const std::string data_home = EnvironmentOrEmpty("XDG_DATA_HOME");
  if (!data_home.empty()) return data_home + "/firnkv";
  const std::string home = EnvironmentOrEmpty("HOME");
  return home.empty() ? StrCat("/tmp/firnkv-", ::geteuid())
                      : home + "/.local/share/firnkv";
}

std::string DefaultSessionSocket() {
  if (::geteuid() == 0) return "/run/firnkv/node.sock";
  const std::string runtime = EnvironmentOrEmpty("XDG_RUNTIME_DIR");
  return runtime.empty() ? StrCat("/tmp/firnkv-", ::geteuid(), "/node.sock")
                         : runtime + "/firnkv/node.sock";
}

absl::StatusOr<DataDirectory> DataDirectory::Open(const std::string& path) {
  std::error_code error;
  if (std::filesystem::create_directories(path, error)) {
    ::chmod(path.c_str(), 0700);
  }
  const std::string lock_path = path + "/LOCK";
  const int lock =
      ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) {
    return absl::FailedPreconditionError(
        StrCat("cannot use the data directory ", path, ": ", Errno(),
               "; set data_dir to a directory that this user may write"));
  }
  DataDirectory directory(path, lock);
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(StrCat(
        "the data directory ", path, " is in use by another process (fuser ",
        lock_path, " names it); give each daemon a data_dir of its own"));
  }
  return directory;
}

DataDirectory::DataDirectory(DataDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

DataDirectory::~DataDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

std::string DataDirectory::File(std::string_view name) const {
  return StrCat(path_, "/", name);
}

absl::StatusOr<ClusterSecret> ReadSecret(const std::string& path) {
  const Closer file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) {
    const std::string message =
        StrCat("cannot read the cluster secret ", path, ": ", Errno());
    return errno == ENOENT ? absl::NotFoundError(message)
                           : absl::FailedPreconditionError(message);
  }
  struct stat about = {};
  if (::fstat(file.fd, &about) != 0 || (about.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        StrCat("the cluster secret ", path,
               " may be read by other users; chmod 600 it"));
  }
  std::string text(kLongestSecretFile, '\0');
  const ssize_t got = ::read(file.fd, text.data(), text.size());
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  const std::optional<std::string> bytes =
      FromHex(ToStd(absl::StripAsciiWhitespace(text)));
  const auto secret = ClusterSecret::FromBytes(bytes.value_or(""));
  if (!secret.has_value()) {
    return absl::FailedPreconditionError(
        StrCat("the cluster secret ", path, " is not 64 hex digits"));
  }
  return *secret;
}

absl::StatusOr<ClusterSecret> ReadOrMakeSecret(const std::string& path,
                                               Random* random) {
  absl::StatusOr<ClusterSecret> there = ReadSecret(path);
  if (there.status().code() != absl::StatusCode::kNotFound) return there;
  const ClusterSecret secret = ClusterSecret::Make(random);
  // Written aside and renamed, so that a crash leaves a whole one or none.
  const std::string aside = path + ".new";
  ::unlink(aside.c_str());
  const Closer file{
      ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (file.fd < 0) {
    return absl::FailedPreconditionError(
        StrCat("cannot make the cluster secret ", path, ": ", Errno()));
  }
  RETURN_IF_ERROR(
      Annotate(WriteSynced(file.fd, StrCat(ToHex(secret), "\n")), path));
  if (::rename(aside.c_str(), path.c_str()) != 0) {
    return absl::InternalError(StrCat(path, ": ", Errno()));
  }
  return secret;
}

}  // namespace firnkv
