#include "tests/support/standing_copy.h"

#include <sys/mman.h>

#include <atomic>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

// A handler has no other way to what it is for.
std::atomic<StandingCopy*> armed{nullptr};

}  // namespace

StandingCopy::StandingCopy(std::size_t bytes) : bytes_(bytes) {
  CHECK(bytes >= 2 * kPageBytes);
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  memory_ = static_cast<std::byte*>(memory);
  const std::size_t first = AlignUp(bytes_ / 2, kPageBytes);
  closed_ = memory_ + first;
  closed_bytes_ = AlignUp(bytes_, kPageBytes) - first;
}

StandingCopy::~StandingCopy() {
  if (armed.load() == this) {
    armed.store(nullptr);
    sigaction(SIGSEGV, &before_, nullptr);
  }
  munmap(memory_, bytes_);
}

void StandingCopy::Arm(std::function<void()> meanwhile) {
  CHECK(armed.load() == nullptr);
  meanwhile_ = std::move(meanwhile);
  struct sigaction action = {};
  action.sa_sigaction = &StandingCopy::OnFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  CHECK(sigaction(SIGSEGV, &action, &before_) == 0);
  armed.store(this);
  CHECK(mprotect(closed_, closed_bytes_, PROT_NONE) == 0);
}

void StandingCopy::OnFault(int, siginfo_t* fault, void*) {
  StandingCopy* const copy = armed.load();
  const auto* const at = static_cast<const std::byte*>(fault->si_addr);
  if (copy == nullptr || at < copy->closed_ ||
      at >= copy->closed_ + copy->closed_bytes_) {
    // Somebody else's fault, which the default action ends the process for.
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  copy->Stand();
}

void StandingCopy::Stand() {
  armed.store(nullptr);
  sigaction(SIGSEGV, &before_, nullptr);
  CHECK(mprotect(closed_, closed_bytes_, PROT_READ | PROT_WRITE) == 0);
  ++stood_;
  meanwhile_();
}

}  // namespace firnkv
