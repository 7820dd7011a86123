// Everything by which the CLI touches the world: made by main.cc for real, by
// tests for show.
//
// Threading: commands run one at a time, on one thread.

#ifndef FIRNKV_TOOLS_FIRNKV_SURROUNDINGS_H_
#define FIRNKV_TOOLS_FIRNKV_SURROUNDINGS_H_

#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/options.h"
#include "client/transport/control_channel.h"
#include "proto/base/clock.h"
#include "proto/base/random.h"
#include "tools/replay/pause.h"

namespace firnkv {

struct Surroundings {
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  std::istream* in = nullptr;
  // They are somebody's terminal.
  bool err_is_terminal = false;
  bool in_is_terminal = false;

  const Clock* clock = nullptr;
  Random* random = nullptr;
  Pause pause = PauseFor;

  ControlConnector* control = nullptr;
  // Client::Connect.
  std::function<absl::StatusOr<std::unique_ptr<Client>>(ClientOptions)> connect;

  // nullopt where it is not set.
  std::function<std::optional<std::string>(const char* name)> environment;

  // From the first call on, an interrupt no longer ends the process.
  std::function<void()> watch_interrupts = [] {};
  // One came since.
  std::function<bool()> interrupted = [] { return false; };
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_SURROUNDINGS_H_
