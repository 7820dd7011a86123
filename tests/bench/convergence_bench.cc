// How long a node and its catalog take to agree again, and what goes over the
// wire for it: the node's announcer and pool and a catalog over RocksDB in one
// process, encoded messages between them, real clocks.
//
//     convergence_bench [KEYS [DIRECTORY]]      (2000000, a new one in /tmp)
//
// The pool's memory is sparse: slots are taken and published, nothing is
// written to them, so 2 million blocks need no 8 GiB.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/transport/local_channel.h"
#include "client/transport/real_seams.h"
#include "proto/admin.pb.h"
#include "proto/base/check.h"
#include "proto/base/token.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "server/catalog/catalog.h"
#include "server/catalog/rocks_store.h"
#include "server/node/announcer.h"
#include "server/node/node_credentials.h"
#include "server/tier/dram_pool.h"
#include "tools/replay/pause.h"

namespace firnkv {
namespace {

constexpr absl::Duration kLease = absl::Seconds(2);
constexpr absl::Duration kLook = absl::Milliseconds(2);
constexpr std::uint64_t kBlockBytes = 4096;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}
void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Shared memory whose pages come when they are touched.
class SparseMemory : public SharedMemory {
 public:
  explicit SparseMemory(std::shared_ptr<SharedMemory> memory)
      : memory_(std::move(memory)) {}
  std::uint64_t bytes() const override { return memory_->bytes(); }
  absl::StatusOr<std::unique_ptr<MemoryMapping>> Map(
      MapAccess access) override {
    return memory_->Map(access);
  }
  absl::StatusOr<std::shared_ptr<SharedMemory>> ReopenReadOnly() override {
    return memory_->ReopenReadOnly();
  }
  absl::Status CheckStagingSeals() const override {
    return memory_->CheckStagingSeals();
  }
  absl::Status Punch(std::uint64_t offset, std::uint64_t length) override {
    return memory_->Punch(offset, length);
  }
  absl::Status Populate() override { return absl::OkStatus(); }

 private:
  // As the one that it stands for.
  const std::shared_ptr<SharedMemory> memory_;
};

class SparseMaker : public MemoryMaker {
 public:
  explicit SparseMaker(MemoryMaker* maker) : maker_(maker) {}
  absl::StatusOr<std::shared_ptr<SharedMemory>> Make(
      MemoryKindWanted kind, std::string_view name,
      std::uint64_t bytes) override {
    auto memory = maker_->Make(kind, name, bytes);
    if (!memory.ok()) return memory.status();
    return std::make_shared<SparseMemory>(*std::move(memory));
  }
  absl::StatusOr<HeaderTable> MakeHeaderTable(std::string_view name,
                                              std::uint64_t bytes) override {
    return maker_->MakeHeaderTable(name, bytes);
  }

 private:
  MemoryMaker* const maker_;
};

class NoHooks : public RegionHooks {
  void OnRegionMade(TenantId, std::uint64_t) override {}
  void OnRegionRetiring(TenantId, std::uint64_t) override {}
  void ReplaceIoRegistration(std::uint64_t) override {}
  void DeregisterTransports(std::uint64_t) override {}
  void OnRegionGone(TenantId, std::uint64_t) override {}
};

// The network between the two; may be cut.
class CutChannel : public ControlChannel {
 public:
  CutChannel(Executor* executor, const std::unique_ptr<LocalChannel>* channel,
             const std::atomic<bool>* cut)
      : executor_(executor), channel_(*channel), cut_(*cut) {}
  void StartCall(std::string_view method, std::string request,
                 absl::Duration timeout, ControlReply done) override {
    if (cut_) {
      executor_->Post([done = std::move(done)]() mutable {
        std::move(done)(absl::UnavailableError("cut"));
      });
      return;
    }
    channel_->StartCall(method, std::move(request), timeout, std::move(done));
  }

 private:
  Executor* const executor_;
  const std::unique_ptr<LocalChannel>& channel_;
  const std::atomic<bool>& cut_;
};

class Bench {
 public:
  Bench(std::uint64_t keys, const std::string& directory)
      : keys_(keys),
        seams_(Must(RealSeams::Make({}, nullptr))),
        memory_(seams_->seams().memory),
        store_(Must(RocksStore::Open(directory))),
        log_({.max_entries = 1 << 20}, executor()),
        pool_(OptionsOf(keys), {.clock = clock(),
                                .executor = executor(),
                                .memory = &memory_,
                                .events = &log_,
                                .hooks = &hooks_}),
        logger_({}, clock(), nullptr) {
    options_.membership.lease = kLease;
    StartCatalog();
    credentials_ = std::make_unique<NodeCredentials>(
        secret_, catalog_->cluster(), clock());
    client_ = std::make_unique<NodeCatalogClient>(
        std::make_unique<CutChannel>(executor(), &channel_, &cut_),
        credentials_.get());
    announcer_ = std::make_unique<Announcer>(
        Announcer::Options{},
        Announcer::Parts{.executor = executor(),
                         .random = seams_->seams().random,
                         .catalog = client_.get(),
                         .log = &log_,
                         .pool = &pool_,
                         .logger = &logger_},
        [](absl::Status why) { Must(why); });
    address_.node = NodeId::Make(seams_->seams().random);
    address_.epoch = NodeEpoch{seams_->seams().random->NonZero64()};
    address_.stream_address = "127.0.0.1:1";
    address_.control_address = "127.0.0.1:2";
    const v1::NamespaceFacts facts = OpenNamespace("bench");
    name_space_.id = *NamespaceId::FromBytes(facts.name_space());
    name_space_.tenant = tenant_;
    name_space_.clear_epoch = ClearEpoch{facts.clear_epoch()};
    name_space_.chained = false;
  }
  ~Bench() {
    announcer_->Close();
    client_->Close();
  }

  void Run() {
    Phase("fill the pool", keys_, [&] { Add(keys_); });
    Registration first = Register();
    Phase("full inventory", keys_, [&] {
      announcer_->Begin(first.registration, std::nullopt);
      Until([&] { return announcer_->complete() && Told(); });
    });
    const std::uint64_t some = keys_ / 20;
    Phase("announce events", 2 * some, [&] {
      Change(some);
      Until([&] { return Told(); });
    });

    const std::uint64_t few = keys_ / 1000;
    Cut("cut shorter than the lease", 2 * few, [&] {
      cut_ = true;
      Change(few);
      PauseFor(kLease / 4);
      cut_ = false;
    });
    Cut("cut within the grace", 2 * few, [&] {
      announcer_->End();
      Change(few);
      PauseFor(kLease + kLease / 2);
      const Registration again = Register();
      CHECK(again.kept.has_value());
      began_ = clock()->Now();
      announcer_->Begin(again.registration, again.kept);
    });
    Cut("loss of the catalog's tail", 0, [&] {
      announcer_->End();
      LoseEntries(few);
      const Registration again = Register();
      CHECK(again.kept.has_value());
      began_ = clock()->Now();
      const std::uint64_t before =
          announcer_->counters().repaired_buckets.value();
      announcer_->Begin(again.registration,
                        NodeCatalogClient::Registered::Kept{
                            .registration = again.kept->registration,
                            .applied = again.kept->applied - 1});
      Until([&] {
        return announcer_->counters().repaired_buckets.value() > before;
      });
    });
    ClearAll();
  }

 private:
  struct Registration {
    Announcer::Registration registration;
    std::optional<NodeCatalogClient::Registered::Kept> kept;
  };

  static PoolOptions OptionsOf(std::uint64_t keys) {
    PoolOptions options;
    options.epoch = NodeEpoch{1};
    options.region_bytes = 256 * kMiB;
    options.target_bytes =
        (keys * kBlockBytes / options.region_bytes + 3) * options.region_bytes;
    return options;
  }
  Executor* executor() const { return seams_->seams().executor; }
  const Clock* clock() const { return seams_->seams().clock; }

  void StartCatalog() {
    catalog_ = std::make_unique<Catalog>(options_, store_.get(),
                                         seams_->seams(), secret_);
    Must(catalog_->Start());
    channel_ = std::make_unique<LocalChannel>(executor(), catalog_->services());
  }

  template <typename Response, typename Request>
  Response Call(const std::string& method, Role role, Request request) {
    RequestHeader header;
    header.remaining = absl::Minutes(1);
    header.token = MintToken({.cluster = catalog_->cluster(),
                              .tenant = tenant_,
                              .role = role,
                              .session = {},
                              .expires = clock()->WallNow() + kTokenLife},
                             secret_);
    ToProto(header, request.mutable_header());
    absl::Notification answered;
    absl::StatusOr<std::string> answer;
    channel_->StartCall("/firnkv.v1." + method, request.SerializeAsString(),
                        absl::Minutes(1),
                        [&](absl::StatusOr<std::string> bytes) {
                          answer = std::move(bytes);
                          answered.Notify();
                        });
    answered.WaitForNotification();
    Response response;
    CHECK(response.ParseFromString(Must(std::move(answer))));
    return response;
  }

  v1::NamespaceFacts OpenNamespace(const std::string& name) {
    v1::ShowTenantRequest show;
    show.set_name("default");
    tenant_ = *TenantId::FromBytes(
        Call<v1::TenantResponse>("AdminService/ShowTenant", Role::kAdmin, show)
            .tenant()
            .tenant());
    v1::OpenNamespaceRequest open;
    open.set_name(name);
    open.set_create(true);
    v1::StateContract* const contract = open.mutable_contract();
    contract->set_model("bench");
    contract->set_weights_revision("1");
    contract->set_tokenizer("t");
    contract->set_preprocessing("none");
    contract->set_positional("rope");
    contract->set_kv_dtype("bf16");
    contract->set_layer_order("l");
    contract->set_kv_order("k");
    contract->set_head_grouping("8");
    contract->set_page_order("p");
    contract->set_block_tokens(16);
    contract->set_tensor_parallel(1);
    contract->set_pipeline_parallel(1);
    contract->set_context_parallel(1);
    contract->set_layout_version(1);
    return Call<v1::OpenNamespaceResponse>("CatalogService/OpenNamespace",
                                           Role::kTenant, open)
        .facts();
  }

  BlockKey KeyOf(std::uint64_t n) const {
    return MakeBlockKey(std::to_string(n), Shard{});
  }

  // `count` more blocks become resident.
  void Add(std::uint64_t count) {
    while (count > 0) {
      Renew();
      ReserveRequest request;
      request.name_space = name_space_;
      for (; count > 0 && request.blocks.size() < kMaxBatchKeys; --count) {
        const BlockKey key = KeyOf(next_key_++);
        request.blocks.push_back(
            {.key = key, .place = {.anchor = key}, .length = kBlockBytes});
      }
      request.deadline = clock()->Now() + absl::Seconds(30);
      request.reserved_until = request.deadline;
      absl::Notification reserved;
      ReserveAnswer answer;
      pool_.StartReserve(std::move(request), [&](ReserveAnswer got) {
        answer = std::move(got);
        reserved.Notify();
      });
      reserved.WaitForNotification();
      Must(answer.status);
      for (const ReservedBlock& block : answer.blocks) {
        CHECK(block.outcome == Outcome::kStored);
        auto target = pool_.BeginCopy(block.copy);
        CHECK(std::holds_alternative<CopyTarget>(target));
        const CommitResult result =
            pool_.Commit(std::get<CopyTarget>(std::move(target)), {0});
        CHECK(result.outcome == Outcome::kStored);
      }
    }
  }
  // As many leave, the oldest first, and come.
  void Change(std::uint64_t count) {
    std::vector<BlockKey> keys;
    for (std::uint64_t i = 0; i < count; ++i) keys.push_back(KeyOf(oldest_++));
    pool_.Remove(name_space_.id, keys);
    Add(count);
  }

  Registration Register() {
    NodeCatalogClient::RegisterCall call;
    call.address = address_;
    absl::Notification answered;
    absl::StatusOr<NodeCatalogClient::Registered> answer;
    client_->StartRegister(call, absl::Seconds(10), [&](auto got) {
      answer = std::move(got);
      answered.Notify();
    });
    answered.WaitForNotification();
    const NodeCatalogClient::Registered registered = Must(std::move(answer));
    registration_ = registered.registration;
    return {.registration = {.node = address_.node,
                             .epoch = address_.epoch,
                             .id = registered.registration},
            .kept = registered.kept};
  }

  bool Told() const { return log_.pending() == 0; }
  // Keeps the lease.
  void Renew() {
    if (registration_.IsZero() || clock()->Now() - renewed_ < kLease / 4) {
      return;
    }
    renewed_ = clock()->Now();
    NodeCatalogClient::KeepAliveCall call;
    call.node = address_.node;
    call.epoch = address_.epoch;
    call.registration = registration_;
    client_->StartKeepAlive(call, absl::Seconds(1), [](auto) {});
  }
  void Until(const std::function<bool()>& done) {
    while (!done()) {
      PauseFor(kLook);
      Renew();
    }
  }

  void Phase(const char* what, std::uint64_t keys,
             const std::function<void()>& run) {
    const BootTime began = clock()->Now();
    run();
    const double seconds = absl::ToDoubleSeconds(clock()->Now() - began);
    std::printf("%-28s %9llu keys  %8.3f s  %9.0f keys/s\n", what,
                static_cast<unsigned long long>(keys), seconds,
                static_cast<double>(keys) / seconds);
    std::fflush(stdout);
  }
  // `changed` events happen in it.
  void Cut(const char* what, std::uint64_t changed,
           const std::function<void()>& run) {
    const std::uint64_t before = announcer_->counters().entries.value();
    const std::uint64_t compares = announcer_->counters().compares.value();
    began_ = clock()->Now();
    run();
    Until([&] { return announcer_->complete() && Told(); });
    const double seconds = absl::ToDoubleSeconds(clock()->Now() - began_);
    const std::uint64_t sent = announcer_->counters().entries.value() - before;
    std::printf(
        "%-28s %9llu changed, %llu sent: %lld unchanged (%.3f %% of the keys) "
        " %8.3f s, %llu compares\n",
        what, static_cast<unsigned long long>(changed),
        static_cast<unsigned long long>(sent),
        static_cast<long long>(sent) - static_cast<long long>(changed),
        100.0 * (static_cast<double>(sent) - static_cast<double>(changed)) /
            static_cast<double>(keys_),
        seconds,
        static_cast<unsigned long long>(
            announcer_->counters().compares.value() - compares));
    std::fflush(stdout);
  }

  // The catalog is started anew over a store that lacks some entries.
  void LoseEntries(std::uint64_t count) {
    channel_.reset();
    catalog_.reset();
    std::vector<Store::Write> writes;
    for (std::uint64_t i = 0; i < count; ++i) {
      writes.push_back(
          {Family::kKeys,
           EntryKey({.name_space = name_space_.id, .key = KeyOf(oldest_ + i)}),
           std::nullopt});
    }
    Must(store_->Apply(writes, Store::Durability::kSynced));
    const BootTime began = clock()->Now();
    StartCatalog();
    v1::CatalogStatusRequest request;
    std::uint64_t keys = 0;
    while (keys < keys_ - count) {
      PauseFor(10 * kLook);
      keys = Call<v1::CatalogStatusResponse>("AdminService/CatalogStatus",
                                             Role::kAdmin, request)
                 .keys();
    }
    std::printf("%-28s %9llu keys  %8.3f s\n", "start of the catalog",
                static_cast<unsigned long long>(keys),
                absl::ToDoubleSeconds(clock()->Now() - began));
  }

  // The median of some, of a namespace that has nothing; then the one that has
  // everything. Both wait for the disk.
  void ClearAll() {
    OpenNamespace("empty");
    std::vector<double> empty;
    for (int i = 0; i < 11; ++i) empty.push_back(Clear("empty"));
    std::nth_element(empty.begin(), empty.begin() + 5, empty.end());
    std::printf("%-28s %9d keys  %8.3f ms\n", "clear", 0, empty[5]);
    std::printf("%-28s %9llu keys  %8.3f ms\n", "clear",
                static_cast<unsigned long long>(keys_), Clear("bench"));
    const BootTime told = clock()->Now();
    pool_.SetClearEpoch(name_space_.id, ClearEpoch{2});
    std::printf("%-28s %9llu keys  %8.3f ms\n", "clear at the node",
                static_cast<unsigned long long>(keys_),
                absl::ToDoubleMilliseconds(clock()->Now() - told));
  }
  // How many milliseconds it took.
  double Clear(const std::string& name) {
    v1::ClearNamespaceRequest request;
    request.set_tenant_name("default");
    request.set_name(name);
    const BootTime began = clock()->Now();
    Call<v1::ClearNamespaceResponse>("AdminService/ClearNamespace",
                                     Role::kAdmin, request);
    return absl::ToDoubleMilliseconds(clock()->Now() - began);
  }

  const std::uint64_t keys_;
  std::uint64_t next_key_ = 0;
  std::uint64_t oldest_ = 0;
  const std::unique_ptr<RealSeams> seams_;
  SparseMaker memory_;
  const std::unique_ptr<RocksStore> store_;
  NoHooks hooks_;
  AnnouncementLog log_;
  DramPool pool_;
  Logger logger_;
  const ClusterSecret secret_{{1, 2, 3}};
  CatalogOptions options_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<LocalChannel> channel_;
  std::atomic<bool> cut_{false};
  std::unique_ptr<NodeCredentials> credentials_;
  std::unique_ptr<NodeCatalogClient> client_;
  std::unique_ptr<Announcer> announcer_;
  NodeAddress address_;
  RegistrationId registration_;
  TenantId tenant_;
  PoolNamespace name_space_;
  BootTime began_;
  BootTime renewed_;
};

}  // namespace
}  // namespace firnkv

int main(int argc, char** argv) {
  firnkv::TurnOffDeadlockDetection();
  const std::uint64_t keys =
      argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2'000'000;
  std::string directory = "/tmp/firnkv_bench_XXXXXX";
  if (argc > 2) {
    directory = argv[2];
  } else if (mkdtemp(directory.data()) == nullptr) {
    return 1;
  }
  { firnkv::Bench(keys, directory).Run(); }
  if (argc <= 2) std::filesystem::remove_all(directory);
  return 0;
}
