// A Client over a scripted node, a second one elsewhere, and a scripted
// catalog, in virtual time. Tests speak in verbs.

#ifndef FIRNKV_TESTS_CLIENT_CLIENT_FIXTURE_H_
#define FIRNKV_TESTS_CLIENT_CLIENT_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_node.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_world.h"

namespace firnkv {

inline BlockKey KeyOf(int number) {
  return MakeBlockKey("block " + std::to_string(number), Shard{});
}

// Bytes that tell which block they are of, at every place.
inline std::vector<std::byte> BytesFor(int number, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(
        (i * 31 + i / 251 + static_cast<std::size_t>(number) * 97) % 256);
  }
  return bytes;
}

// One block of a read with memory of its own, in pieces of `parts` bytes.
struct Landing {
  // NOLINTNEXTLINE: a list of them reads as a list of (number, size).
  Landing(int number, std::size_t size, std::vector<std::size_t> in_parts = {})
      : memory(size, std::byte{0xee}), parts(std::move(in_parts)) {
    if (parts.empty()) parts = {size};
    target.key = KeyOf(number);
    target.anchor = target.key;
  }
  // Once it has its place in memory.
  void Aim() {
    buffers.clear();
    std::size_t at = 0;
    for (const std::size_t part : parts) {
      buffers.push_back({.address = memory.data() + at, .length = part});
      at += part;
    }
    target.destination = buffers;
  }
  std::vector<std::byte> memory;
  std::vector<std::size_t> parts;
  std::vector<Buffer> buffers;
  ReadTarget target;
};

class ClientFixture : public ::testing::Test {
 protected:
  ClientFixture() {
    cluster_.bytes.fill(3);
    catalog_ = std::make_unique<FakeCatalog>(&world_, cluster_);
    node_ = std::make_unique<FakeNode>(&world_, "node1", cluster_);
    remote_ = std::make_unique<FakeNode>(&world_, "node2", cluster_);
    machine_ = world_.NewMachine("worker", "node1");
    options_.socket_path = node_->socket_path();
    options_.server_uid = 1000;
    options_.staging_bytes = 4 * kMiB;
    options_.log = [this](std::string_view line) { log_.emplace_back(line); };
    handle_.id = catalog_->name_space;
    handle_.digest.bytes.fill(7);
    handle_.clear_epoch = ClearEpoch{1};
  }

  ~ClientFixture() override {
    client_.reset();
    world_.executor()->RunReady();
  }

  absl::Status TryConnect() {
    std::optional<absl::Status> result;
    Client::StartCreate(options_, machine_->seams(),
                        [&](absl::StatusOr<std::unique_ptr<Client>> client) {
                          result = client.status();
                          if (client.ok()) client_ = *std::move(client);
                        });
    EXPECT_TRUE(Run([&] { return result.has_value(); }));
    return *result;
  }
  void Connect() { ASSERT_OK(TryConnect()); }

  bool Run(const std::function<bool()>& until) {
    return world_.executor()->RunUntil(until, absl::Minutes(1));
  }
  void RunFor(absl::Duration time) { world_.executor()->RunFor(time); }
  BootTime Now() { return machine_->process()->clock()->Now(); }

  BlockId Id(int number) const { return {handle_.id, KeyOf(number)}; }

  // --- Reads.
  struct ReadState {
    std::vector<ReadTarget> targets;
    std::vector<Landing*> landings;
    std::optional<ReadReport> report;
    std::optional<BootTime> told_at;
    std::optional<BootTime> free_at;
  };
  std::shared_ptr<ReadState> BeginRead(
      std::vector<Landing>& landings, ReadWant want = ReadWant::kLeadingRun,
      absl::Duration deadline = absl::Seconds(1)) {
    auto state = std::make_shared<ReadState>();
    for (Landing& landing : landings) {
      landing.Aim();
      state->targets.push_back(landing.target);
      state->landings.push_back(&landing);
    }
    client_->StartRead({.name_space = handle_,
                        .blocks = absl::MakeSpan(state->targets),
                        .deadline = deadline,
                        .want = want},
                       {.on_outcome =
                            [this, state](const ReadReport& report) {
                              EXPECT_FALSE(state->report.has_value());
                              state->report = report;
                              state->told_at = Now();
                            },
                        .on_buffers_free =
                            [this, state] {
                              EXPECT_TRUE(state->report.has_value());
                              EXPECT_FALSE(state->free_at.has_value());
                              state->free_at = Now();
                            }});
    return state;
  }
  void Finish(ReadState* state) {
    ASSERT_TRUE(Run([&] { return state->free_at.has_value(); }));
    for (std::size_t i = 0; i < state->targets.size(); ++i) {
      state->landings[i]->target.outcome = state->targets[i].outcome;
    }
  }
  ReadReport Read(std::vector<Landing>& landings,
                  ReadWant want = ReadWant::kLeadingRun,
                  absl::Duration deadline = absl::Seconds(1)) {
    const auto state = BeginRead(landings, want, deadline);
    Finish(state.get());
    return *state->report;
  }
  static std::vector<Outcome> OutcomesOf(const std::vector<Landing>& landings) {
    std::vector<Outcome> outcomes;
    for (const Landing& landing : landings) {
      outcomes.push_back(landing.target.outcome);
    }
    return outcomes;
  }

  // --- Writes.
  struct WriteState {
    std::vector<std::vector<ConstBuffer>> sources;
    std::vector<WriteBlock> blocks;
    std::optional<WriteReport> report;
    std::optional<BootTime> told_at;
    std::optional<BootTime> free_at;
  };
  std::shared_ptr<WriteState> BeginWrite(
      const std::vector<std::pair<int, absl::Span<const std::byte>>>& blocks,
      absl::Duration deadline = absl::Seconds(1)) {
    auto state = std::make_shared<WriteState>();
    state->sources.resize(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      state->sources[i] = {{.address = blocks[i].second.data(),
                            .length = blocks[i].second.size()}};
      WriteBlock block;
      block.key = KeyOf(blocks[i].first);
      block.place.anchor = block.key;
      block.place.tokens = 16;
      block.source = state->sources[i];
      state->blocks.push_back(block);
    }
    StartWrite(state, deadline);
    return state;
  }
  void StartWrite(const std::shared_ptr<WriteState>& state,
                  absl::Duration deadline) {
    client_->StartWrite({.name_space = handle_,
                         .blocks = absl::MakeSpan(state->blocks),
                         .deadline = deadline,
                         .wait_for = wait_for_},
                        {.on_outcome =
                             [this, state](const WriteReport& report) {
                               EXPECT_FALSE(state->report.has_value());
                               state->report = report;
                               state->told_at = Now();
                             },
                         .on_buffers_free =
                             [this, state] {
                               EXPECT_TRUE(state->report.has_value());
                               EXPECT_FALSE(state->free_at.has_value());
                               state->free_at = Now();
                             }});
  }
  void Finish(WriteState* state) {
    ASSERT_TRUE(Run([&] { return state->free_at.has_value(); }));
  }

  SimWorld world_{0};
  // Of writes.
  WriteWait wait_for_ = WriteWait::kLocal;
  ClusterId cluster_;
  std::unique_ptr<FakeCatalog> catalog_;
  std::unique_ptr<FakeNode> node_;
  std::unique_ptr<FakeNode> remote_;
  SimMachine* machine_ = nullptr;
  ClientOptions options_;
  NamespaceHandle handle_;
  std::vector<std::string> log_;
  std::unique_ptr<Client> client_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_CLIENT_FIXTURE_H_
