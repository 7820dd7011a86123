// Asks nodes that failed whether they are back, so that no caller's read has
// to: one small read over the stream, of which no bytes are wanted, with a
// bound of its own. Which node is due, and what follows from the answer, is the
// router's business (router.h).
//
// Threading. All methods may be called from any thread.
//
// Ownership. Belongs to the Client; transport and router outlive it.

#ifndef FIRNKV_CLIENT_PEER_PROBES_H_
#define FIRNKV_CLIENT_PEER_PROBES_H_

#include "absl/time/time.h"
#include "client/counters.h"
#include "client/router.h"
#include "client/transport/seams.h"
#include "client/transport/stream_transport.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/node_address.h"

namespace firnkv {

class PeerProbes {
 public:
  // From the probe to the node's answer, its connection included.
  static constexpr absl::Duration kTimeout = absl::Seconds(1);

  PeerProbes(const Seams* seams, ClientCounters* counters, Router* router,
             StreamTransport* streams)
      : seams_(seams),
        counters_(counters),
        router_(router),
        streams_(streams) {}
  ~PeerProbes() { Close(); }

  // The router is told how it went. `block`: one that is wanted of it.
  void Start(const NodeAddress& node, const BlockId& block);
  void Close() { scope_.Close(); }

 private:
  class Probe;

  const Seams* const seams_;
  ClientCounters* const counters_;
  Router* const router_;
  StreamTransport* const streams_;
  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_PEER_PROBES_H_
