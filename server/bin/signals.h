// How a daemon is told to end.

#ifndef FIRNKV_SERVER_BIN_SIGNALS_H_
#define FIRNKV_SERVER_BIN_SIGNALS_H_

namespace firnkv {

// Blocks SIGTERM, SIGINT and SIGHUP in this thread and in all that it starts:
// first thing in main. SIGPIPE is ignored: a gone peer is a status.
void BlockSignals();

// Waits for SIGTERM or SIGINT (returns which). SIGHUP is passed over: a closed
// terminal does not end a daemon.
int WaitForEnd();

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_SIGNALS_H_
