#include "tools/firnkv/safe_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "proto/base/text.h"

namespace firnkv {
namespace {

absl::Status Failed(const std::string& path) {
  return absl::ErrnoToStatus(errno, ToAbsl(path));
}

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

SafeFile::SafeFile(std::string path, Options options)
    : path_(std::move(path)),
      temporary_(StrCat(path_, ".", getpid(), ".partial")),
      options_(options) {}

SafeFile::~SafeFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(temporary_.c_str());
}

absl::Status SafeFile::Open() {
  if (options_.overwrite == Overwrite::kRefuse &&
      access(path_.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(
        StrCat(path_, " is there already; --force replaces it"));
  }
  // With its final rights from the begin: never readable by others meanwhile.
  file_ =
      open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file_ < 0) return Failed(temporary_);
  if (fchmod(file_, options_.mode) != 0) return Failed(temporary_);
  return absl::OkStatus();
}

absl::Status SafeFile::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failed(temporary_);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SafeFile::Commit() {
  if (fsync(file_) != 0) return Failed(temporary_);
  const unsigned flags =
      options_.overwrite == Overwrite::kRefuse ? RENAME_NOREPLACE : 0;
  if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), flags) !=
      0) {
    return Failed(path_);
  }
  close(std::exchange(file_, -1));
  const int folder =
      open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return Failed(FolderOf(path_));
  const int synced = fsync(folder);
  close(folder);
  return synced == 0 ? absl::OkStatus() : Failed(FolderOf(path_));
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          std::size_t most) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Failed(path);
  std::string bytes;
  char chunk[64 << 10];
  while (in.read(chunk, sizeof(chunk)) || in.gcount() > 0) {
    bytes.append(chunk, static_cast<std::size_t>(in.gcount()));
    if (bytes.size() > most) {
      return absl::ResourceExhaustedError(
          StrCat(path, ": longer than ", most, " bytes"));
    }
  }
  if (in.bad()) return absl::DataLossError(StrCat(path, ": cannot be read"));
  return bytes;
}

}  // namespace firnkv
