// A named thread that is joined: the only way a daemon's part starts one
// outside the executor and the transports.

#ifndef FIRNKV_SERVER_BASE_THREAD_H_
#define FIRNKV_SERVER_BASE_THREAD_H_

#include <string>
#include <thread>

#include "absl/functional/any_invocable.h"

namespace firnkv {

class NamedThread {
 public:
  // Starts at once. `name` as the kernel shows it: 15 characters.
  NamedThread(std::string name, absl::AnyInvocable<void() &&> body);
  NamedThread(const NamedThread&) = delete;
  NamedThread& operator=(const NamedThread&) = delete;
  // Waits for the body's end; whoever owns the thread has told it to end.
  ~NamedThread();

 private:
  std::thread thread_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_THREAD_H_
