// Waiting for time to pass, in the tools: between two requests of a trace, or
// two looks at something that takes a while.

#ifndef FIRNKV_TOOLS_REPLAY_PAUSE_H_
#define FIRNKV_TOOLS_REPLAY_PAUSE_H_

#include <functional>

#include "absl/time/time.h"

namespace firnkv {

// Returns after at most `time`.
using Pause = std::function<void(absl::Duration time)>;

// In real time.
void PauseFor(absl::Duration time);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_PAUSE_H_
