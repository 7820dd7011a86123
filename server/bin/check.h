// --check: every limit of the machine that matters, what a daemon wants of it,
// and whether that works. Prints a line each, to standard output.
//
// It does what the daemon would do (lock the directory, bind the addresses,
// make and seal a memfd) and undoes it, so it says what is, not what a manual
// says.

#ifndef FIRNKV_SERVER_BIN_CHECK_H_
#define FIRNKV_SERVER_BIN_CHECK_H_

#include "server/bin/daemon_options.h"
#include "server/node/node_options.h"

namespace firnkv {

// Exit codes: 0 works, 1 cannot work (the lines marked FAIL say why).
int CheckNode(const DaemonOptions& daemon, const NodeOptions& options);
int CheckCatalog(const DaemonOptions& daemon);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_CHECK_H_
