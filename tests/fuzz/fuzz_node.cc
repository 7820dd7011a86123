#include "tests/fuzz/fuzz_node.h"

#include "proto/base/check.h"

namespace firnkv {
namespace {

// Inputs that one node serves.
constexpr int kInputsANode = 500;
constexpr std::uint64_t kBlock = 1;
// The longest that the node lets anything of a closed connection linger: its
// refusal (ServedConnection::Options).
constexpr absl::Duration kLinger = absl::Milliseconds(600);

}  // namespace

FuzzNode::FuzzNode()
    : hostile_(NewClient(kAliceUid)), slate_(catalog_.AddNamespace("bob")) {
  // A failed expectation of the fixture is a finding too.
  testing::GTEST_FLAG(break_on_failure) = true;
  StartNode();
  well_behaved_ = Connect(kBobUid);
  CHECK(Write(well_behaved_.get(), slate_, kBlock) == Outcome::kStored);
}

FuzzNode::~FuzzNode() {
  well_behaved_.reset();
  StopNode();
}

FuzzNode& FuzzNode::Fresh() {
  static std::unique_ptr<FuzzNode> node;
  static int inputs = 0;
  if (inputs++ % kInputsANode == 0) {
    node.reset();
    node = std::make_unique<FuzzNode>();
  }
  return *node;
}

std::unique_ptr<SessionPeer> FuzzNode::Hostile() {
  std::unique_ptr<SessionPeer> session = Connect(hostile_);
  CHECK(session->welcome() != nullptr);
  return session;
}

std::unique_ptr<RawStreamPeer> FuzzNode::HostileStream() {
  auto stream = std::make_unique<RawStreamPeer>(hostile_, kStream);
  CHECK(world_.executor()->RunUntil([&] { return stream->connected(); }));
  return stream;
}

void FuzzNode::CheckUnharmed() {
  RunFor(kLinger);
  const v1::NodeStatusResponse status = Status();
  CHECK(status.sessions() == 1);
  CHECK(status.leases() == 0);
  CHECK(status.reservations() == 0);
  CHECK(status.holds() == 0);
  CHECK(status.staging_bytes() == 0);
  CHECK(status.retiring_slots() == 0);
  CHECK(!well_behaved_->closed());
  const Outcome read = Read(well_behaved_.get(), slate_, kBlock);
  if (read == Outcome::kHit) return;
  // Evicted for room, as may be; never refused.
  CHECK(read == Outcome::kMiss);
  CHECK(Write(well_behaved_.get(), slate_, kBlock) == Outcome::kStored);
}

}  // namespace firnkv
