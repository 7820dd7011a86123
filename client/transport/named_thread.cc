#include "client/transport/named_thread.h"

#include <signal.h>

#include <initializer_list>
#include <utility>

#include "proto/base/text.h"

namespace firnkv {

struct NamedThread::Entry {
  std::string name;
  Task body;
  NamedThread* owner;
};

void* NamedThread::Run(void* argument) {
  // Owned from here on; freed before the thread ends, so before Join returns.
  std::unique_ptr<Entry> entry(static_cast<Entry*>(argument));
  pthread_setname_np(pthread_self(), entry->name.c_str());
  entry->owner->self_.store(pthread_self(), std::memory_order_relaxed);
  std::move(entry->body)();
  return nullptr;
}

absl::Status NamedThread::Start(std::string_view name, Task body) {
  auto entry = std::make_unique<Entry>();
  entry->name = std::string(name.substr(0, 15));
  entry->body = std::move(body);
  entry->owner = this;

  // A new thread inherits the mask of the one that makes it.
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  for (const int signal :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
    sigdelset(&blocked, signal);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const int error = pthread_create(&thread_, nullptr, &Run, entry.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return absl::ResourceExhaustedError(
        StrCat("cannot start thread ", name, ": error ", error));
  }
  // The thread's now.
  (void)entry.release();
  running_ = true;
  return absl::OkStatus();
}

void NamedThread::Join() {
  if (!running_) return;
  running_ = false;
  pthread_join(thread_, nullptr);
}

// Relaxed is enough: a thread sees its own store, and every other thread
// compares unequal whether it sees the store or not.
bool NamedThread::IsCurrent() const {
  const pthread_t self = self_.load(std::memory_order_relaxed);
  return self != pthread_t{} && pthread_equal(self, pthread_self()) != 0;
}

}  // namespace firnkv
