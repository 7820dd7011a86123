#include "client/peer_probes.h"

#include <memory>
#include <utility>

namespace firnkv {

// Shared by the connection and the timer.
class PeerProbes::Probe : public StreamSink {
 public:
  // `again`: what to do a while after it failed.
  Probe(const Seams* seams, Router* router, NodeId node, Task again)
      : seams_(seams), router_(router), node_(node), again_(std::move(again)) {}

  // Whatever it has: nothing of it is wanted.
  ByteRun OnHeader(std::size_t, const SlotHeader&) override { return {}; }
  void OnBlock(std::size_t, Outcome, absl::Duration) override {}
  void OnEnd(StreamEnd end, const absl::Status&) override {
    const Router::Verdict verdict = VerdictOf(end);
    router_->End(node_, 0, verdict);
    if (verdict == Router::Verdict::kServed) return;
    seams_->executor->PostAt(seams_->clock->Now() + kAgain, std::move(again_));
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

  const Seams* const seams_;
  Router* const router_;
  const NodeId node_;
  Task again_;
};

void PeerProbes::Ask(const NodeAddress& node, const BlockId& block, int tries) {
  counters_->probes.Add();
  StreamRead read;
  read.name_space = block.name_space;
  read.deadline = seams_->clock->Now() + kTimeout;
  // Room for nothing: a block that is there is of the wrong size, without a
  // payload.
  read.keys = {{.key = block.key, .room = 0}};
  const StreamTransport::Ticket ticket = streams_->StartRead(
      {.address = node.stream_address, .node = node.node, .epoch = node.epoch},
      std::move(read),
      // Shared by its connection (StreamSink).
      std::make_shared<Probe>(
          seams_, router_, node.node, scope_.Wrap([this, node, block, tries] {
            AskAgain(node.node, node.epoch, block, tries + 1);
          })));
  // Of a probe that has ended it is nobody's.
  seams_->executor->PostAt(seams_->clock->Now() + kTimeout,
                           scope_.Wrap([this, ticket] {
                             streams_->Cancel(ticket, absl::ZeroDuration());
                           }));
}

void PeerProbes::AskLater(NodeId node, NodeEpoch epoch, const BlockId& block,
                          int tries) {
  seams_->executor->PostAt(seams_->clock->Now() + kAgain,
                           scope_.Wrap([this, node, epoch, block, tries] {
                             AskAgain(node, epoch, block, tries);
                           }));
}

void PeerProbes::AskAgain(NodeId node, NodeEpoch epoch, const BlockId& block,
                          int tries) {
  if (tries > kMostTries) return;
  Router::Wanted wanted;
  wanted.locations.push_back({.node = node, .epoch = epoch});
  // None: it is back, or runs anew, or somebody else asks it.
  for (const NodeAddress& due : router_->TakeProbes({&wanted, 1})) {
    Ask(due, block, tries);
  }
}

}  // namespace firnkv
