#include "server/base/thread.h"

#include <pthread.h>

#include <utility>

namespace firnkv {

NamedThread::NamedThread(std::string name, absl::AnyInvocable<void() &&> body)
    : thread_([name = std::move(name), body = std::move(body)]() mutable {
        ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
        std::move(body)();
      }) {}

NamedThread::~NamedThread() { thread_.join(); }

}  // namespace firnkv
