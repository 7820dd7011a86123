// What a node that is away costs its readers: one bounded timeout, then
// nothing; what its return takes; and that nobody storms it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class DeadPeerTest : public ClientFixture {
 protected:
  void SetUp() override {
    Connect();
    remote_->Put(Id(1), BytesFor(1, 64));
    catalog_->Locate(Id(1), remote_->address(), 64);
  }
  // Of a block that only other nodes have; whether it took any time.
  Outcome ReadOne(absl::Duration deadline = absl::Seconds(5)) {
    std::vector<Landing> wanted{{1, 64}};
    const ReadReport report = Read(wanted, ReadWant::kEveryBlock, deadline);
    if (report.took > absl::Milliseconds(1)) ++slow_;
    longest_ = std::max(longest_, report.took);
    return wanted[0].target.outcome;
  }
  // Nothing gets from the worker's host to the node's, nor back.
  void Cut() { world_.links()->Cut("node1", "node2"); }
  void Heal() { world_.links()->HealAll(); }

  int slow_ = 0;
  absl::Duration longest_;
};

TEST_F(DeadPeerTest, ACutOffNodeCostsOneReadItsTimeoutAndTheOthersNothing) {
  Cut();

  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(ReadOne(), Outcome::kUnavailable);
    RunFor(absl::Milliseconds(100));
  }

  EXPECT_EQ(slow_, 1);
  EXPECT_LE(longest_, options_.stream_connect_timeout + absl::Milliseconds(10));
  // Twenty seconds: 50 ms doubled up to 1 s, and a probe takes one.
  const ClientStats stats = client_->Stats();
  EXPECT_GE(stats.probes, 8u);
  EXPECT_LE(stats.probes, 20u);
  EXPECT_LE(stats.stream_connects, stats.probes + 1);
  EXPECT_EQ(stats.breaker_skips, 199u);
}

TEST_F(DeadPeerTest, ANodeThatFellSilentCostsOneDeadline) {
  EXPECT_EQ(ReadOne(), Outcome::kHit);
  slow_ = 0;
  remote_->machine()->process()->Pause();

  EXPECT_EQ(ReadOne(absl::Milliseconds(200)), Outcome::kTimedOut);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(ReadOne(absl::Milliseconds(200)), Outcome::kUnavailable);
    RunFor(absl::Milliseconds(100));
  }

  EXPECT_EQ(slow_, 1);
}

// A deadline that is shorter than a node may take says nothing of the node.
TEST_F(DeadPeerTest, ADeadlineThatIsTooShortTellsNothing) {
  EXPECT_EQ(ReadOne(), Outcome::kHit);
  remote_->stream().silent = true;

  EXPECT_EQ(ReadOne(absl::Milliseconds(5)), Outcome::kTimedOut);
  remote_->stream().silent = false;

  EXPECT_EQ(ReadOne(), Outcome::kHit);
}

TEST_F(DeadPeerTest, ReadsMoveToAnotherLocation) {
  FakeNode other(&world_, "node3", cluster_);
  other.Put(Id(1), BytesFor(1, 64));
  // Farther than the one that is away.
  NodeAddress far = other.address();
  far.labels = {.zone = "elsewhere", .rack = "x", .host = "node3"};
  catalog_->Locate(Id(1), far, 64);
  Cut();

  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(ReadOne(), Outcome::kHit);
    RunFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(slow_, 1);

  Heal();
  RunFor(absl::Seconds(6));
  EXPECT_EQ(ReadOne(), Outcome::kHit);
  RunFor(absl::Seconds(1));
  const int before = remote_->stream().reads;
  EXPECT_EQ(ReadOne(), Outcome::kHit);
  EXPECT_EQ(remote_->stream().reads, before + 1)
      << "the nearest, once it is back";
  client_.reset();
}

TEST_F(DeadPeerTest, AHealedNodeIsReadOnceAProbeHasReachedIt) {
  Cut();
  EXPECT_EQ(ReadOne(), Outcome::kUnavailable);
  Heal();
  RunFor(absl::Seconds(1));

  EXPECT_EQ(ReadOne(), Outcome::kUnavailable) << "no read waits to find out";
  RunFor(absl::Milliseconds(100));

  EXPECT_EQ(ReadOne(), Outcome::kHit);
  EXPECT_EQ(client_->Stats().probes, 1u);
  EXPECT_EQ(slow_, 1);
}

TEST_F(DeadPeerTest, ANodeThatCameBackAsAnotherRunIsReadAtOnce) {
  remote_->StopServing();
  EXPECT_EQ(ReadOne(), Outcome::kUnavailable);
  FakeNode again(&world_, "node4", cluster_);
  again.Put(Id(1), BytesFor(1, 64));
  NodeAddress address = again.address();
  catalog_->Forget(Id(1));
  catalog_->Locate(Id(1), address, 64);

  EXPECT_EQ(ReadOne(), Outcome::kHit);
  client_.reset();
}

TEST_F(DeadPeerTest, ManyReadsAtOnceMakeNoStormOfConnections) {
  Cut();
  std::vector<std::vector<Landing>> landings;
  std::vector<std::shared_ptr<ReadState>> reads;
  for (int i = 0; i < 60; ++i) {
    landings.emplace_back();
    landings.back().emplace_back(1, 64);
  }
  for (auto& one : landings) {
    reads.push_back(BeginRead(one, ReadWant::kEveryBlock, absl::Seconds(5)));
  }
  for (const auto& read : reads) Finish(read.get());

  for (const auto& one : landings) {
    EXPECT_THAT(OutcomesOf(one), Each(Outcome::kUnavailable));
  }
  EXPECT_LE(client_->Stats().stream_connects,
            static_cast<std::uint64_t>(options_.streams_per_node));
}

TEST_F(DeadPeerTest, AProbeWantsNoBytes) {
  Cut();
  EXPECT_EQ(ReadOne(), Outcome::kUnavailable);
  Heal();
  RunFor(absl::Seconds(1));
  const std::uint64_t before = client_->Stats().stream_blocks;

  EXPECT_EQ(ReadOne(), Outcome::kUnavailable);
  RunFor(absl::Milliseconds(100));

  EXPECT_EQ(client_->Stats().probes, 1u);
  EXPECT_EQ(client_->Stats().stream_blocks, before);
}

TEST_F(DeadPeerTest, ClosingTheClientEndsAProbe) {
  Cut();
  EXPECT_EQ(ReadOne(), Outcome::kUnavailable);
  RunFor(absl::Seconds(1));
  EXPECT_EQ(ReadOne(), Outcome::kUnavailable);
  EXPECT_EQ(client_->Stats().probes, 1u);

  client_->Close();
  RunFor(absl::Seconds(5));
}

// --- The local node.

// Counts who connects.
class CountingSockets : public LocalSockets {
 public:
  explicit CountingSockets(LocalSockets* sockets) : sockets_(*sockets) {}
  absl::StatusOr<std::unique_ptr<LocalSocket>> Connect(
      std::string_view path) override {
    ++connects;
    return sockets_.Connect(path);
  }
  absl::StatusOr<std::unique_ptr<LocalListener>> Listen(
      std::string_view path,
      absl::AnyInvocable<void(std::unique_ptr<LocalSocket>)> on_accept)
      override {
    return sockets_.Listen(path, std::move(on_accept));
  }

  int connects = 0;

 private:
  LocalSockets& sockets_;
};

class AwayNodeTest : public ClientFixture {
 protected:
  AwayNodeTest() : sockets_(machine_->seams().sockets) {
    Seams seams = machine_->seams();
    seams.sockets = &sockets_;
    Client::StartCreate(options_, seams,
                        [&](absl::StatusOr<std::unique_ptr<Client>> client) {
                          ASSERT_OK(client);
                          client_ = *std::move(client);
                        });
    EXPECT_TRUE(Run([&] { return client_ != nullptr; }));
    sockets_.connects = 0;
  }
  ~AwayNodeTest() override { client_.reset(); }

  CountingSockets sockets_;
};

TEST_F(AwayNodeTest, ANodeThatIsAwayIsLookedForAtAPace) {
  node_->StopServing();

  RunFor(absl::Minutes(1));

  // 20 ms doubled up to 2 s, each drawn from its upper half.
  EXPECT_GE(sockets_.connects, 60 / 2);
  EXPECT_LE(sockets_.connects, 2 * 60 / 2 + 8);
}

TEST_F(AwayNodeTest, CallsMeanwhileAreRefusedAtOnceAndMakeNoConnections) {
  node_->StopServing();
  RunFor(absl::Seconds(10));
  const int before = sockets_.connects;
  catalog_->silent.clear();
  for (int i = 0; i < 100; ++i) {
    const auto write = BeginWrite({{7, BytesFor(7, 64)}});
    Finish(write.get());
    EXPECT_EQ(write->blocks[0].outcome, Outcome::kUnavailable);
    EXPECT_LE(write->report->took, absl::Milliseconds(1));
  }

  EXPECT_LE(sockets_.connects, before + 1);
}

TEST_F(AwayNodeTest, ANodeThatCameBackIsFoundWithinThePace) {
  node_->StopServing();
  RunFor(absl::Minutes(1));

  node_->StartServing();
  RunFor(absl::Seconds(2) + absl::Milliseconds(100));

  EXPECT_TRUE(client_->Describe().session);
}

}  // namespace
}  // namespace firnkv
