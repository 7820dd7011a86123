#include "client/peer_probes.h"

#include <memory>
#include <utility>

namespace firnkv {

// Shared by the connection and the timer.
class PeerProbes::Probe : public StreamSink {
 public:
  Probe(Router* router, NodeId node) : router_(router), node_(node) {}

  // Whatever it has: nothing of it is wanted.
  ByteRun OnHeader(std::size_t, const SlotHeader&) override { return {}; }
  void OnBlock(std::size_t, Outcome, absl::Duration) override {}
  void OnEnd(StreamEnd end, const absl::Status&) override {
    router_->End(node_, 0, VerdictOf(end));
  }

 private:
  static Router::Verdict VerdictOf(StreamEnd end) {
    switch (end) {
      case StreamEnd::kServed:
      // It speaks: what is wrong is the caller's or the location's affair.
      case StreamEnd::kRefused:
      case StreamEnd::kOtherRun:
      case StreamEnd::kTooOld:
        return Router::Verdict::kServed;
      case StreamEnd::kUnreachable:
      case StreamEnd::kBroken:
      case StreamEnd::kCancelled:
        break;
    }
    return Router::Verdict::kAway;
  }

  Router* const router_;
  const NodeId node_;
};

void PeerProbes::Start(const NodeAddress& node, const BlockId& block) {
  counters_->probes.Add();
  StreamRead read;
  read.name_space = block.name_space;
  read.deadline = seams_->clock->Now() + kTimeout;
  // Room for nothing: a block that is there is of the wrong size, without a
  // payload.
  read.keys = {{.key = block.key, .room = 0}};
  // The sink is shared by its connection (StreamSink).
  const StreamTransport::Ticket ticket = streams_->StartRead(
      {.address = node.stream_address, .node = node.node, .epoch = node.epoch},
      std::move(read), std::make_shared<Probe>(router_, node.node));
  // Of a probe that has ended it is nobody's.
  seams_->executor->PostAt(seams_->clock->Now() + kTimeout,
                           scope_.Wrap([this, ticket] {
                             streams_->Cancel(ticket, absl::ZeroDuration());
                           }));
}

}  // namespace firnkv
