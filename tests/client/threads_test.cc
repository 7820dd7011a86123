// The SDK on real threads: real sockets, shared memory and executors, two real
// nodes and a catalog in this process, several callers at once over each
// Client. Only gRPC is missing, so that the sanitizers see all of it.

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/blocking.h"
#include "client/chain.h"
#include "client/client.h"
#include "client/frame_calls.h"
#include "client/transport/local_channel.h"
#include "client/transport/named_thread.h"
#include "client/transport/real_seams.h"
#include "client/transport/stream_transport.h"
#include "gtest/gtest.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "server/catalog/catalog.h"
#include "server/node/node.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_node.h"
#include "tests/support/sim_store.h"

namespace firnkv {
namespace {

constexpr std::size_t kBlockBytes = 70'000;
constexpr int kChains = 12;
constexpr int kBlocksAChain = 6;

// Who answers where: control calls without gRPC.
class Switchboard {
 public:
  void Serve(const std::string& address,
             std::vector<ControlService*> handlers) {
    MutexLock lock(&mutex_);
    served_[address] = std::move(handlers);
  }
  std::unique_ptr<ControlChannel> Connect(std::string_view address,
                                          Executor* executor) {
    MutexLock lock(&mutex_);
    return std::make_unique<LocalChannel>(executor,
                                          served_[std::string(address)]);
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::vector<ControlService*>> served_
      ABSL_GUARDED_BY(mutex_);
};

// The thread is inside a blocking call of a Client.
thread_local bool is_blocked = false;

// One process's view of it.
class Line : public ControlConnector {
 public:
  explicit Line(Switchboard* board) : board_(*board) {}
  std::unique_ptr<ControlChannel> Connect(std::string_view address) override {
    return board_.Connect(address, executor);
  }
  Executor* executor = nullptr;

 private:
  Switchboard& board_;
};

std::unique_ptr<RealSeams> Machine(Switchboard* board) {
  auto line = std::make_unique<Line>(board);
  Line* const raw = line.get();
  auto seams = RealSeams::Make({}, std::move(line));
  EXPECT_TRUE(seams.ok()) << seams.status();
  raw->executor = (*seams)->seams().executor;
  return *std::move(seams);
}

std::string Hash(int chain, int position) {
  return "chain " + std::to_string(chain) + " " + std::to_string(position);
}

std::vector<std::byte> BytesOf(const BlockKey& key) {
  std::vector<std::byte> bytes(kBlockBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(key.bytes[i % 32] + i / 32);
  }
  return bytes;
}

StateContract Contract() {
  StateContract contract;
  contract.model = contract.weights_revision = contract.tokenizer = "m";
  contract.preprocessing = contract.positional = contract.kv_dtype = "m";
  contract.layer_order = contract.kv_order = contract.head_grouping = "m";
  contract.page_order = "m";
  contract.block_tokens = contract.tensor_parallel = 1;
  contract.pipeline_parallel = contract.context_parallel = 1;
  contract.layout_version = 1;
  return contract;
}

// Takes one block, and notes on which thread.
class NotingSink : public StreamSink {
 public:
  // `waiter` is finished at its end; null: nobody is.
  explicit NotingSink(WaitingThread* waiter) : waiter_(waiter) {}

  ByteRun OnHeader(std::size_t, const SlotHeader& header) override {
    bytes.resize(header.length);
    return {absl::MakeSpan(bytes)};
  }
  void OnBlock(std::size_t, Outcome told, absl::Duration) override {
    outcome = told;
  }
  void OnEnd(StreamEnd, const absl::Status&) override {
    thread = std::this_thread::get_id();
    if (waiter_ != nullptr) waiter_->Finish();
  }

  std::vector<std::byte> bytes;
  Outcome outcome = Outcome::kUnset;
  std::thread::id thread;

 private:
  WaitingThread* const waiter_;
};

class ThreadsTest : public ::testing::Test {
 protected:
  struct Host {
    std::unique_ptr<RealSeams> seams;
    std::unique_ptr<SimNodeState> state;
    std::unique_ptr<Node> node;
    std::unique_ptr<RealSeams> client_seams;
    std::unique_ptr<Client> client;
  };

  static void SetUpTestSuite() {
#ifdef FIRNKV_TSAN
    // Debian's abseil is not built for TSan: its graph of locks looks racy.
    TurnOffDeadlockDetection();
#endif
  }

  void SetUp() override {
    SystemRandom random;
    secret_ = ClusterSecret::Make(&random);
    catalog_seams_ = Machine(&board_);
    catalog_ = std::make_unique<Catalog>(CatalogOptions(), &store_,
                                         catalog_seams_->seams(), secret_);
    ASSERT_OK(catalog_->Start());
    board_.Serve("catalog", catalog_->services());
    for (int i = 0; i < 2; ++i) StartHost(i, &random);
    auto handle =
        hosts_[0].client->OpenNamespace({.name = "chat",
                                         .contract = Contract(),
                                         .deadline = absl::Seconds(20)});
    ASSERT_OK(handle);
    handle_ = *handle;
  }

  void TearDown() override {
    for (Host& host : hosts_) host.client.reset();
    for (Host& host : hosts_) host.node.reset();
    catalog_.reset();
    for (Host& host : hosts_) ::unlink(SocketOf(host).c_str());
  }

  static std::string SocketOf(const Host& host) {
    return "/tmp/firnkv-threads-" + std::to_string(::getpid()) + "-" +
           ToHex(host.state->memory().node).substr(0, 8);
  }

  void StartHost(int number, Random* random) {
    Host host;
    host.seams = Machine(&board_);
    host.client_seams = Machine(&board_);
    host.state = std::make_unique<SimNodeState>(NodeId::Make(random));
    NodeOptions options;
    options.socket = SocketOf(host);
    options.stream = "127.0.0.1:0";
    options.catalog = "catalog";
    options.labels.host = "host" + std::to_string(number);
    // Small, so that slots are reused all the time.
    options.dram_bytes = 3 * kMiB;
    options.region_bytes = kMiB;
    options.own_uid = ::geteuid();
    Node::Parts parts;
    parts.state = host.state.get();
    parts.secret = secret_;
    host.node =
        std::make_unique<Node>(options, host.seams->seams(), std::move(parts));
    board_.Serve("unix:" + options.socket + ".control", host.node->services());
    ASSERT_OK(host.node->Start("127.0.0.1:1"));
    ClientOptions client;
    client.socket_path = options.socket;
    client.connect_timeout = absl::Seconds(30);
    client.staging_bytes = kMiB;
    client.check_views = number == 1;
    auto made = Client::Create(client, host.client_seams->seams());
    ASSERT_OK(made);
    host.client = *std::move(made);
    hosts_.push_back(std::move(host));
  }

  // Reads a chain and writes what it lacks, as a worker does.
  void Turn(Client* client, int number, SeededRandom* random) {
    Chain chain({.block_tokens = 16, .shard = {}});
    for (int i = 0; i < kBlocksAChain; ++i) chain.Append(Hash(number, i));
    std::vector<std::vector<std::byte>> memory(
        kBlocksAChain, std::vector<std::byte>(kBlockBytes));
    std::vector<std::vector<Buffer>> buffers(kBlocksAChain);
    std::vector<ReadTarget> wanted(kBlocksAChain);
    for (int i = 0; i < kBlocksAChain; ++i) {
      const std::size_t cut = random->Below(kBlockBytes);
      buffers[i] = {
          {.address = memory[i].data(), .length = cut},
          {.address = memory[i].data() + cut, .length = kBlockBytes - cut}};
      wanted[i].key = chain.block(i).key;
      wanted[i].anchor = chain.block(i).place.anchor;
      wanted[i].destination = buffers[i];
    }
    const absl::Duration deadline =
        random->Below(8) == 0 ? absl::Microseconds(500) : absl::Seconds(10);
    is_blocked = true;
    const ReadReport read = client->Read({.name_space = handle_,
                                          .blocks = absl::MakeSpan(wanted),
                                          .deadline = deadline});
    is_blocked = false;
    std::vector<WriteBlock> lacking;
    std::vector<std::vector<ConstBuffer>> sources(kBlocksAChain);
    std::vector<std::vector<std::byte>> computed(kBlocksAChain);
    for (int i = 0; i < kBlocksAChain; ++i) {
      computed[i] = BytesOf(wanted[i].key);
      if (wanted[i].outcome == Outcome::kHit) {
        ++hits_;
        if (memory[i] != computed[i]) ++wrong_;
        continue;
      }
      sources[i] = {{.address = computed[i].data(), .length = kBlockBytes}};
      WriteBlock block;
      block.key = chain.block(i).key;
      block.place = chain.block(i).place;
      block.source = sources[i];
      lacking.push_back(block);
    }
    remote_ += read.bytes_remote;
    if (lacking.empty()) return;
    is_blocked = true;
    const WriteReport written =
        client->Write({.name_space = handle_,
                       .blocks = absl::MakeSpan(lacking),
                       .deadline = deadline,
                       .wait_for = random->Below(2) == 0 ? WriteWait::kPublished
                                                         : WriteWait::kLocal});
    is_blocked = false;
    EXPECT_OK(written.status);
    stored_ += written.stored;
  }

  // Looks at a chain where it lies; true of blocks that its Close vouches for
  // are counted, wrong ones too.
  void Look(Client* client, int number) {
    std::vector<BlockKey> keys;
    Chain chain({.block_tokens = 16, .shard = {}});
    for (int i = 0; i < kBlocksAChain; ++i) {
      keys.push_back(chain.Append(Hash(number, i)).key);
    }
    ViewBatch views = client->OpenViews(
        {.name_space = handle_, .keys = keys, .deadline = absl::Seconds(10)});
    std::vector<bool> right;
    for (std::size_t i = 0; i < views.size(); ++i) {
      std::vector<std::byte> seen;
      for (const auto span : views.spans(i)) {
        seen.insert(seen.end(), span.begin(), span.end());
      }
      right.push_back(seen == BytesOf(keys[i]));
    }
    const std::vector<Outcome> verdicts = std::move(views).Close();
    for (std::size_t i = 0; i < verdicts.size(); ++i) {
      if (verdicts[i] != Outcome::kHit) continue;
      ++viewed_;
      if (!right[i]) ++wrong_;
    }
  }

  // --- Straight over the stream, from the first host's node.
  StreamCredentials Credentials() const {
    const Client::About about = hosts_[0].client->Describe();
    return {about.cluster, about.token};
  }
  StreamPeer Peer() const {
    const NodeAddress node = hosts_[0].node->address();
    return {
        .address = node.stream_address, .node = node.node, .epoch = node.epoch};
  }
  // Chain 1's first.
  StreamRead OneBlock() const {
    StreamRead read;
    read.name_space = handle_.id;
    read.deadline = BootTime::Infinite();
    read.keys = {
        {.key = MakeBlockKey(Hash(1, 0), Shard{}), .room = kBlockBytes}};
    return read;
  }
  // Which thread its end ran on.
  std::thread::id ReadOnce(StreamTransport* streams) const {
    WaitingThread waiter(nullptr);
    const auto sink = std::make_shared<NotingSink>(&waiter);
    streams->StartRead(Peer(), OneBlock(), sink);
    waiter.Wait();
    EXPECT_EQ(sink->outcome, Outcome::kHit);
    EXPECT_EQ(sink->bytes, BytesOf(MakeBlockKey(Hash(1, 0), Shard{})));
    return sink->thread;
  }

  Switchboard board_;
  ClusterSecret secret_;
  SimStore store_;
  std::unique_ptr<RealSeams> catalog_seams_;
  std::unique_ptr<Catalog> catalog_;
  std::vector<Host> hosts_;
  NamespaceHandle handle_;
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> wrong_{0};
  std::atomic<std::uint64_t> stored_{0};
  std::atomic<std::uint64_t> remote_{0};
  std::atomic<std::uint64_t> viewed_{0};
};

TEST_F(ThreadsTest, ManyCallersAtOnceNeverGetWrongBytes) {
  {
    std::vector<std::unique_ptr<NamedThread>> callers;
    for (int i = 0; i < 4; ++i) {
      callers.push_back(std::make_unique<NamedThread>());
      ASSERT_OK(callers.back()->Start("caller", [this, i] {
        SeededRandom random(static_cast<std::uint64_t>(i) + 1);
        for (int turn = 0; turn < 100; ++turn) {
          Turn(hosts_[i % 2].client.get(),
               static_cast<int>(random.Below(kChains)), &random);
        }
      }));
    }
  }

  EXPECT_EQ(wrong_, 0u);
  EXPECT_GT(hits_, 0u);
  EXPECT_GT(stored_, 0u);
  EXPECT_GT(remote_, 0u);
}

// One read after the other, of one block; their callbacks.
class Reader {
 public:
  Reader(Client* client, const NamespaceHandle& handle)
      : client_(*client), handle_(handle), memory_(kBlockBytes) {}

  void Read(int chain) {
    Blocking<bool> free;
    buffer_ = {.address = memory_.data(), .length = kBlockBytes};
    target_ = ReadTarget();
    target_.key = MakeBlockKey(Hash(chain, 0), Shard{});
    target_.anchor = target_.key;
    target_.destination = absl::MakeConstSpan(&buffer_, 1);
    client_.StartRead({.name_space = handle_,
                       .blocks = absl::MakeSpan(&target_, 1),
                       .deadline = absl::Seconds(10)},
                      {.on_outcome = [this](const ReadReport&) { Note(); },
                       .on_buffers_free =
                           [&] {
                             Note();
                             free.Set(true);
                           }});
    free.Wait();
  }
  int in_blocked_threads() const { return in_blocked_threads_; }

 private:
  void Note() {
    if (is_blocked) ++in_blocked_threads_;
  }

  Client& client_;
  const NamespaceHandle handle_;
  std::vector<std::byte> memory_;
  Buffer buffer_;
  ReadTarget target_;
  std::atomic<int> in_blocked_threads_{0};
};

// Whoever waits in a blocking call may hold what such a callback wants.
TEST_F(ThreadsTest, CallbacksNeverRunInAnotherThreadsBlockingCall) {
  Client* const client = hosts_[1].client.get();
  Reader reader(client, handle_);
  {
    std::vector<std::unique_ptr<NamedThread>> callers;
    // More than the connections that are shared.
    for (int i = 0; i < 6; ++i) {
      callers.push_back(std::make_unique<NamedThread>());
      ASSERT_OK(callers.back()->Start("caller", [this, i, client] {
        SeededRandom random(static_cast<std::uint64_t>(i) + 1);
        for (int turn = 0; turn < 40; ++turn) {
          Turn(i == 0 ? hosts_[0].client.get() : client,
               static_cast<int>(random.Below(kChains)), &random);
        }
      }));
    }
    SeededRandom random(77);
    for (int i = 0; i < 100; ++i) {
      reader.Read(static_cast<int>(random.Below(kChains)));
    }
  }

  EXPECT_EQ(reader.in_blocked_threads(), 0);
  EXPECT_EQ(wrong_, 0u);
  EXPECT_GT(remote_, 0u);
}

// Once there is a connection: a read is one waking, of who waits for it.
TEST_F(ThreadsTest, WhoWaitsForARemoteReadReceivesIt) {
  SeededRandom random(1);
  Turn(hosts_[0].client.get(), 1, &random);
  StreamTransport streams(&hosts_[1].client_seams->seams(), {},
                          [this] { return Credentials(); });

  // Until the network's thread is done with the connection.
  EXPECT_NE(ReadOnce(&streams), std::this_thread::get_id());
  while (ReadOnce(&streams) != std::this_thread::get_id()) {
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(ReadOnce(&streams), std::this_thread::get_id());
  }
  EXPECT_EQ(streams.counters().connects.value(), 1u);
}

// Whoever waits on a connection is alone on it, however few there may be.
TEST_F(ThreadsTest, NobodyElsesReadIsReceivedByWhoWaits) {
  SeededRandom random(1);
  Turn(hosts_[0].client.get(), 1, &random);
  StreamTransport::Options one_connection;
  one_connection.connections_per_node = 1;
  StreamTransport streams(&hosts_[1].client_seams->seams(), one_connection,
                          [this] { return Credentials(); });
  while (ReadOnce(&streams) != std::this_thread::get_id()) {
  }

  // This thread waits, and receives, until the other thread's read has ended.
  WaitingThread waiter(nullptr);
  const auto own = std::make_shared<NotingSink>(nullptr);
  streams.StartRead(Peer(), OneBlock(), own);
  const auto others = std::make_shared<NotingSink>(&waiter);
  NamedThread other;
  ASSERT_OK(other.Start(
      "other", [&] { streams.StartRead(Peer(), OneBlock(), others); }));
  waiter.Wait();

  EXPECT_EQ(others->outcome, Outcome::kHit);
  EXPECT_NE(others->thread, std::this_thread::get_id());
  EXPECT_EQ(streams.counters().connects.value(), 2u);
  other.Join();
}

// Rules P4 and P7: the pool is so small that slots change hands all the time.
TEST_F(ThreadsTest, ViewsAmongReadersAndWritersNeverVouchForWrongBytes) {
  {
    std::vector<std::unique_ptr<NamedThread>> callers;
    for (int i = 0; i < 4; ++i) {
      callers.push_back(std::make_unique<NamedThread>());
      ASSERT_OK(callers.back()->Start("caller", [this, i] {
        SeededRandom random(static_cast<std::uint64_t>(i) + 1);
        for (int turn = 0; turn < 60; ++turn) {
          const int chain = static_cast<int>(random.Below(kChains));
          if (i % 2 == 0) Turn(hosts_[0].client.get(), chain, &random);
          Look(hosts_[0].client.get(), chain);
        }
      }));
    }
  }

  EXPECT_EQ(wrong_, 0u);
  EXPECT_GT(stored_, 0u);
  EXPECT_GT(viewed_, 0u);
}

// Spans under check_views are addresses that end with the batch.
TEST_F(ThreadsTest, AViewThatIsUsedAfterItsCloseFaults) {
  SeededRandom random(1);
  Turn(hosts_[1].client.get(), 1, &random);
  Chain chain({.block_tokens = 16, .shard = {}});
  const std::vector<BlockKey> keys = {chain.Append(Hash(1, 0)).key};
  ViewBatch views = hosts_[1].client->OpenViews(
      {.name_space = handle_, .keys = keys, .deadline = absl::Seconds(10)});
  ASSERT_EQ(views.outcome(0), Outcome::kHit);
  const std::byte* const place = views.spans(0)[0].data();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  // A system call says EFAULT where a load would end the test.
  EXPECT_EQ(::write(ends[1], place, 1), 1);

  EXPECT_EQ(std::move(views).Close(), std::vector<Outcome>{Outcome::kHit});

  EXPECT_EQ(::write(ends[1], place, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(ThreadsTest, ClosingUnderLoadEndsEveryCall) {
  std::vector<std::unique_ptr<NamedThread>> callers;
  std::atomic<int> ended{0};
  std::atomic<bool> closing{false};
  for (int i = 0; i < 3; ++i) {
    callers.push_back(std::make_unique<NamedThread>());
    ASSERT_OK(callers.back()->Start("caller", [&, i] {
      SeededRandom random(static_cast<std::uint64_t>(i) + 9);
      // A call begun after Close is cancelled, and as good as any.
      while (!closing) {
        std::vector<std::byte> memory(kBlockBytes);
        const Buffer buffer{.address = memory.data(), .length = kBlockBytes};
        ReadTarget target;
        target.key =
            MakeBlockKey(Hash(static_cast<int>(random.Below(4)), 0), Shard{});
        target.anchor = target.key;
        target.destination = absl::MakeConstSpan(&buffer, 1);
        hosts_[0].client->Read({.name_space = handle_,
                                .blocks = absl::MakeSpan(&target, 1),
                                .deadline = absl::Seconds(5)});
        ++ended;
      }
    }));
  }
  while (ended < 30) {
    hosts_[1].client->Exists(
        {.name_space = handle_, .blocks = {}, .deadline = absl::Seconds(1)});
  }

  hosts_[0].client->Close();
  closing = true;
  callers.clear();

  EXPECT_GE(ended, 30);
}

}  // namespace
}  // namespace firnkv
