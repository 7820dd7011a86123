#include "tests/process/soak_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "proto/base/check.h"

namespace firnkv {

SoakPageFile SoakPageFile::Create(const std::string& path, std::uint32_t uid) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                      S_IRUSR | S_IWUSR);
  CHECK(fd >= 0);
  CHECK(ftruncate(fd, sizeof(SoakPage)) == 0);
  CHECK(fchown(fd, uid, uid) == 0);
  close(fd);
  return SoakPageFile(path);
}

SoakPageFile::SoakPageFile(const std::string& path) : path_(path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0);
  void* const memory = mmap(nullptr, sizeof(SoakPage), PROT_READ | PROT_WRITE,
                            MAP_SHARED, fd, 0);
  CHECK(memory != MAP_FAILED);
  close(fd);
  // Zeros, or what another process has counted: lock-free counters have no
  // other state than their bytes.
  page_ = static_cast<SoakPage*>(memory);
}

SoakPageFile::SoakPageFile(SoakPageFile&& other) noexcept
    : path_(std::move(other.path_)), page_(std::exchange(other.page_, {})) {}

SoakPageFile::~SoakPageFile() {
  if (page_ != nullptr) munmap(page_, sizeof(SoakPage));
}

}  // namespace firnkv
