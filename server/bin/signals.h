// How a daemon is told to end.

#ifndef FIRNKV_SERVER_BIN_SIGNALS_H_
#define FIRNKV_SERVER_BIN_SIGNALS_H_

#include "absl/time/time.h"

namespace firnkv {

// Blocks SIGTERM, SIGINT and SIGHUP in this thread and in all that it starts:
// first thing in main. SIGPIPE is ignored: a gone peer is a status.
void BlockSignals();

// Waits for SIGTERM or SIGINT (returns which). SIGHUP is passed over: a closed
// terminal does not end a daemon.
int WaitForEnd();

// As if SIGTERM had come; from any thread.
void EndThisProcess();

// An end that hangs is none: kills the process if it is still there then.
void EndByForceAfter(absl::Duration time);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_SIGNALS_H_
