// A daemon's data directory: one process at a time, and the cluster's secret.

#ifndef FIRNKV_SERVER_BIN_DATA_DIRECTORY_H_
#define FIRNKV_SERVER_BIN_DATA_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/random.h"
#include "proto/base/token.h"

namespace firnkv {

// $XDG_DATA_HOME/firnkv, ~/.local/share/firnkv, or /var/lib/firnkv for root.
std::string DefaultDataDirectory();

// /run/firnkv/node.sock for root, else under $XDG_RUNTIME_DIR, else in /tmp.
std::string DefaultSessionSocket();

// Holds the lock of a directory, made where it is missing (0700), until
// destroyed. Move-only.
class DataDirectory {
 public:
  // FAILED_PRECONDITION where another process holds it, naming it.
  static absl::StatusOr<DataDirectory> Open(const std::string& path);
  DataDirectory(DataDirectory&& other) noexcept;
  DataDirectory& operator=(DataDirectory&& other) = delete;
  ~DataDirectory();

  std::string File(std::string_view name) const;

 private:
  DataDirectory(std::string path, int lock)
      : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;
};

// Reads a secret file: 64 hex digits. Refuses one that others may read.
absl::StatusOr<ClusterSecret> ReadSecret(const std::string& path);

// As ReadSecret, but makes the file (0600, synced) where there is none.
absl::StatusOr<ClusterSecret> ReadOrMakeSecret(const std::string& path,
                                               Random* random);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_DATA_DIRECTORY_H_
