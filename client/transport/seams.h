// Everything by which a process of FirnKV touches the world, in one struct. The
// real ones are made by the binaries and by Client::Connect; the simulator
// makes fakes (tests/support). All outlive whoever is given them.

#ifndef FIRNKV_CLIENT_TRANSPORT_SEAMS_H_
#define FIRNKV_CLIENT_TRANSPORT_SEAMS_H_

#include "client/transport/byte_stream.h"
#include "client/transport/control_channel.h"
#include "client/transport/local_socket.h"
#include "client/transport/shared_memory.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/random.h"

namespace firnkv {

struct Seams {
  const Clock* clock = nullptr;
  Executor* executor = nullptr;
  Random* random = nullptr;
  Network* network = nullptr;
  LocalSockets* sockets = nullptr;
  MemoryMaker* memory = nullptr;
  ControlConnector* control = nullptr;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_SEAMS_H_
