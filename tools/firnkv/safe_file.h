// Files that are whole or not there.
//
// Threading: functions.

#ifndef FIRNKV_TOOLS_FIRNKV_SAFE_FILE_H_
#define FIRNKV_TOOLS_FIRNKV_SAFE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace firnkv {

enum class Overwrite : std::uint8_t { kRefuse, kReplace };

// A file in the making, beside where it will stand: nobody sees it under its
// name before Commit. Removed where it was not committed..
class SafeFile {
 public:
  struct Options {
    // As chmod has it; 0600 keeps it to its owner.
    unsigned mode = 0600;
    Overwrite overwrite = Overwrite::kRefuse;
  };
  SafeFile(std::string path, Options options);
  SafeFile(const SafeFile&) = delete;
  SafeFile& operator=(const SafeFile&) = delete;
  ~SafeFile();

  // ALREADY_EXISTS where `path` is there and must not be replaced.
  absl::Status Open();
  absl::Status Write(std::string_view bytes);
  // Synced, under its name, and the name synced.
  absl::Status Commit();

 private:
  const std::string path_;
  const std::string temporary_;
  const Options options_;
  int file_ = -1;
};

// RESOURCE_EXHAUSTED where it is longer than `most`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          std::size_t most);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_SAFE_FILE_H_
