#include "tests/server/node/node_fixture.h"

#include <utility>
#include <variant>

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr NodeEpoch kEpoch{0xe90c};

ClusterSecret SecretOfTheTest() {
  SeededRandom random(11);
  return ClusterSecret::Make(&random);
}

NodeId NodeOfTheTest() {
  SeededRandom random(12);
  return NodeId::Make(&random);
}

PoolOptions PoolOfTheTest() {
  PoolOptions options;
  options.epoch = kEpoch;
  options.target_bytes = 16 * kMiB;
  options.region_bytes = 4 * kMiB;
  options.reserve_bytes = 0;
  return options;
}

}  // namespace

BlockKey KeyOf(std::uint64_t n) {
  return MakeBlockKey(StrCat("block ", n), Shard{});
}

std::vector<std::byte> ContentOf(std::uint64_t n, std::size_t bytes) {
  std::vector<std::byte> content(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    content[i] = static_cast<std::byte>((i * 31 + n * 17 + i / 256) & 0xff);
  }
  return content;
}

NodeFixture::NodeFixture()
    : secret_(SecretOfTheTest()),
      catalog_machine_(world_.NewMachine("catalog", "catalog")),
      node_(world_.NewMachine("node", "node")),
      client_(world_.NewMachine("client", "node")),
      catalog_(secret_, catalog_machine_->process()->clock()),
      catalog_serving_(world_.control()->Serve(
          kCatalogAddress, catalog_machine_->process(), {&catalog_})),
      alice_(catalog_.AddTenant("alice")),
      bob_(catalog_.AddTenant("bob")),
      granite_(catalog_.AddNamespace("alice")),
      state_(NodeOfTheTest()),
      credentials_(secret_, catalog_.cluster, node_->process()->clock()),
      announcements_({}, node_->process()),
      pool_(std::make_unique<DramPool>(
          PoolOfTheTest(), DramPool::Parts{.clock = node_->process()->clock(),
                                           .executor = node_->process(),
                                           .memory = node_->seams().memory,
                                           .limits = nullptr,
                                           .events = &announcements_,
                                           .hooks = nullptr})),
      catalog_client_(node_->seams().control->Connect(kCatalogAddress),
                      &credentials_),
      namespaces_({}, &catalog_client_, node_->process()->clock(),
                  [this](const NamespaceFacts& facts) {
                    changed_.push_back(facts.name_space);
                    pool_->SetClearEpoch(facts.name_space, facts.clear_epoch);
                  }) {}

NodeFixture::~NodeFixture() { catalog_client_.Close(); }

Generation NodeFixture::Store(const NamespaceFacts& facts, std::uint64_t n,
                              std::size_t bytes) {
  return StoreAt(facts, n, ChainPlace{.anchor = KeyOf(n)}, bytes);
}

Generation NodeFixture::StoreAt(const NamespaceFacts& facts, std::uint64_t n,
                                const ChainPlace& place, std::size_t bytes) {
  ReserveRequest request;
  request.name_space = ToPoolNamespace(facts);
  request.blocks = {{KeyOf(n), place, bytes}};
  request.deadline = In(absl::Seconds(1));
  request.reserved_until = In(absl::Seconds(10));
  ReserveAnswer answer;
  bool done = false;
  pool_->StartReserve(std::move(request), [&](ReserveAnswer got) {
    answer = std::move(got);
    done = true;
  });
  CHECK(world_.executor()->RunUntil([&] { return done; }));
  CHECK(answer.status.ok());
  CHECK(answer.blocks[0].outcome == Outcome::kStored);
  auto target = pool_->BeginCopy(answer.blocks[0].copy);
  CopyTarget& copy = std::get<CopyTarget>(target);
  const std::vector<std::byte> content = ContentOf(n, bytes);
  CopyWithCrc32c(copy.bytes.data(), content);
  const CommitResult committed =
      pool_->Commit(std::move(copy), PieceChecksums(content));
  CHECK(committed.outcome == Outcome::kStored);
  return committed.generation;
}

bool NodeFixture::Holds(const NamespaceFacts& facts, std::uint64_t n) {
  const BlockKey key = KeyOf(n);
  return pool_
             ->Contains(ToPoolNamespace(facts), {&key, 1},
                        ReadSpan::kEveryBlock)[0]
             .outcome == Outcome::kHit;
}

}  // namespace firnkv
