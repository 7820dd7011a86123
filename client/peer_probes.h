// Asks nodes that failed whether they are back, so that no caller's read has
// to: one small read over the stream, of which no bytes are wanted, with a
// bound of its own. Which node is due, and what follows from the answer, is the
// router's business (router.h).
//
// A node that is still away is asked again every kAgain, for a while after the
// last read that wanted something of it: it is back before the next read, and a
// client that wants nothing asks nobody.
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
  // Not before the router's own pace has run out.
  static constexpr absl::Duration kAgain = Router::kPace.most;
  // Of one read's interest.
  static constexpr int kMostTries = 60;

  PeerProbes(const Seams* seams, ClientCounters* counters, Router* router,
             StreamTransport* streams)
      : seams_(seams),
        counters_(counters),
        router_(router),
        streams_(streams) {}
  ~PeerProbes() { Close(); }

  // The router is told how it went. `block`: one that is wanted of it.
  void Start(const NodeAddress& node, const BlockId& block) {
    Ask(node, block, 1);
  }
  // A request of that run of the node failed, and nobody may come again to ask
  // for a probe: makes one after kAgain, if the router wants it by then.
  void StartLater(NodeId node, NodeEpoch epoch, const BlockId& block) {
    AskLater(node, epoch, block, 1);
  }
  void Close() { scope_.Close(); }

 private:
  class Probe;

  void Ask(const NodeAddress& node, const BlockId& block, int tries);
  void AskLater(NodeId node, NodeEpoch epoch, const BlockId& block, int tries);
  void AskAgain(NodeId node, NodeEpoch epoch, const BlockId& block, int tries);

  const Seams* const seams_;
  ClientCounters* const counters_;
  Router* const router_;
  StreamTransport* const streams_;
  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_PEER_PROBES_H_
