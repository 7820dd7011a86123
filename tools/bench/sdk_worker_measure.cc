// The measuring commands of a worker; what prepares them stands in
// sdk_worker.cc.

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tools/bench/bench_blocks.h"
#include "tools/bench/sdk_worker.h"
#include "tools/replay/block_content.h"
#include "tools/replay/pause.h"

namespace firnkv {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr absl::Duration kDeadline = absl::Seconds(20);

absl::Status NotAHit(std::string_view what, Outcome outcome) {
  return absl::UnavailableError(StrCat(what, " ended ", OutcomeName(outcome)));
}

std::size_t ThreadsOf(const Command& command) {
  return std::max<std::uint64_t>(command.Number("threads", 1), 1);
}

// As many as one call names, at most as many as there are.
std::size_t CountOf(const Command& command, const SdkWorker::BlockSet& set) {
  return std::clamp<std::size_t>(command.Number("count", 1), 1,
                                 std::max<std::size_t>(set.blocks.size(), 1));
}

// Where the next batch of `count` begins.
std::size_t NextBatch(SdkWorker::BlockSet* set, std::size_t count) {
  const std::size_t batches = set->blocks.size() / count;
  return set->next.fetch_add(1, std::memory_order_relaxed) % batches * count;
}

// One thread's reads.
class Reader {
 public:
  Reader(Client* client, SdkWorker::BlockSet* set, std::size_t count)
      : client_(client),
        set_(set),
        landing_(count * set->bytes),
        targets_(count),
        buffers_(count) {}

  absl::StatusOr<std::uint64_t> ReadBatch() {
    const std::size_t first = NextBatch(set_, targets_.size());
    memory_ = landing_.Next();
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const Chain::Block& block = set_->blocks[first + i];
      buffers_[i] = {.address = memory_.data() + i * set_->bytes,
                     .length = set_->bytes};
      targets_[i] = {.key = block.key,
                     .anchor = block.place.anchor,
                     .destination = {&buffers_[i], 1}};
    }
    const ReadReport report = client_->Read({.name_space = set_->name_space,
                                             .blocks = absl::MakeSpan(targets_),
                                             .deadline = kDeadline});
    RETURN_IF_ERROR(report.status);
    if (report.hits != targets_.size()) {
      return NotAHit("a read", targets_[report.leading_hits].outcome);
    }
    return memory_.size();
  }
  // Of the last batch.
  absl::Status Check() const {
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const BlockContent content({set_->name_space.id, targets_[i].key});
      if (content.CountWrong(memory_.subspan(i * set_->bytes, set_->bytes),
                             nullptr) != 0) {
        return absl::DataLossError("a read brought wrong bytes");
      }
    }
    return absl::OkStatus();
  }

 private:
  Client* const client_;
  SdkWorker::BlockSet* const set_;
  Landing landing_;
  absl::Span<std::byte> memory_;
  std::vector<ReadTarget> targets_;
  std::vector<Buffer> buffers_;
};

}  // namespace

absl::StatusOr<Counts> SdkWorker::Read(const Command& command) {
  ASSIGN_OR_RETURN(Client* const client, ClientOf(command));
  ASSIGN_OR_RETURN(BlockSet* const set, SetOf(command));
  const std::size_t count = CountOf(command, *set);
  const bool check = command.Number("check") == 1;
  std::vector<std::unique_ptr<Reader>> readers;
  for (std::size_t i = 0; i < ThreadsOf(command); ++i) {
    readers.push_back(std::make_unique<Reader>(client, set, count));
  }
  return Measure(command, [&](int thread) -> absl::StatusOr<std::uint64_t> {
    Reader& reader = *readers[static_cast<std::size_t>(thread)];
    ASSIGN_OR_RETURN(const std::uint64_t bytes, reader.ReadBatch());
    if (check) RETURN_IF_ERROR(reader.Check());
    return bytes;
  });
}

absl::StatusOr<Counts> SdkWorker::Paced(const Command& command) {
  ASSIGN_OR_RETURN(Client* const client, ClientOf(command));
  ASSIGN_OR_RETURN(BlockSet* const set, SetOf(command));
  Reader reader(client, set, CountOf(command, *set));
  const auto period = std::chrono::nanoseconds(
      1'000'000'000 / std::max<std::uint64_t>(command.Number("hertz", 500), 1));
  const auto began = SteadyClock::now();
  const auto until =
      began + std::chrono::milliseconds(command.Number("millis", 500));
  std::vector<std::uint64_t> nanos;
  // By the plan, not by when the last one ended: a stall is counted by all
  // reads that it kept waiting.
  for (auto due = began; due < until; due += period) {
    const auto left = due - SteadyClock::now();
    if (left > SteadyClock::duration::zero()) {
      PauseFor(absl::FromChrono(left));
    }
    RETURN_IF_ERROR(reader.ReadBatch().status());
    nanos.push_back(static_cast<std::uint64_t>(
        std::chrono::nanoseconds(SteadyClock::now() - due).count()));
  }
  std::sort(nanos.begin(), nanos.end());
  return Counts{{"ops", nanos.size()},
                {"p50", nanos[nanos.size() / 2]},
                {"p99", nanos[nanos.size() * 99 / 100]}};
}

absl::StatusOr<Counts> SdkWorker::Views(const Command& command) {
  ASSIGN_OR_RETURN(Client* const client, ClientOf(command));
  ASSIGN_OR_RETURN(BlockSet* const set, SetOf(command));
  const std::size_t count = CountOf(command, *set);
  std::vector<BlockKey> keys;
  for (const Chain::Block& block : set->blocks) keys.push_back(block.key);
  return Measure(command, [&](int) -> absl::StatusOr<std::uint64_t> {
    ViewBatch views =
        client->OpenViews({.name_space = set->name_space,
                           .keys = absl::MakeConstSpan(keys).subspan(
                               NextBatch(set, count), count),
                           .deadline = kDeadline});
    RETURN_IF_ERROR(views.report().status);
    const std::uint64_t bytes = views.report().bytes;
    for (const Outcome outcome : std::move(views).Close()) {
      if (outcome != Outcome::kHit) return NotAHit("a view", outcome);
    }
    return bytes;
  });
}

absl::StatusOr<Counts> SdkWorker::Exists(const Command& command) {
  ASSIGN_OR_RETURN(Client* const client, ClientOf(command));
  ASSIGN_OR_RETURN(BlockSet* const set, SetOf(command));
  const std::size_t count = CountOf(command, *set);
  std::vector<std::vector<ExistsTarget>> targets(ThreadsOf(command));
  for (auto& some : targets) some.resize(count);
  return Measure(command, [&](int thread) -> absl::StatusOr<std::uint64_t> {
    std::vector<ExistsTarget>& mine = targets[static_cast<std::size_t>(thread)];
    const std::size_t first = NextBatch(set, count);
    for (std::size_t i = 0; i < count; ++i) {
      const Chain::Block& block = set->blocks[first + i];
      mine[i] = {.key = block.key, .anchor = block.place.anchor};
    }
    const ExistsReport report = client->Exists({.name_space = set->name_space,
                                                .blocks = absl::MakeSpan(mine),
                                                .deadline = kDeadline});
    RETURN_IF_ERROR(report.status);
    if (report.hits != count) {
      return NotAHit("a lookup", mine[report.leading_hits].outcome);
    }
    return 0;
  });
}

absl::StatusOr<Counts> SdkWorker::Write(const Command& command) {
  ASSIGN_OR_RETURN(Client* const client, ClientOf(command));
  ASSIGN_OR_RETURN(BlockSet* const set, SetOf(command));
  const std::string name = command.Text("name");
  const std::size_t count = std::max<std::uint64_t>(command.Number("count"), 1);
  const std::size_t batch = count * set->bytes;
  Landing own(batch);
  absl::Span<std::byte> shared;
  const std::size_t batches = std::max<std::size_t>(1, Landing::kBytes / batch);
  if (command.Number("shared") == 1) {
    ASSIGN_OR_RETURN(shared, client->AllocateShared(batch * batches));
  }
  const absl::Span<std::byte> all = shared.empty() ? own.all() : shared;
  // Content does not matter, that its pages are there does.
  BlockContent({set->name_space.id, BenchBlock(name, 0).key}).Fill(all);
  std::size_t turn = 0;
  std::vector<WriteBlock> blocks(count);
  std::vector<ConstBuffer> sources(count);
  absl::StatusOr<Counts> counts =
      Measure(command, [&](int) -> absl::StatusOr<std::uint64_t> {
        const auto from = all.subspan(turn++ % batches * batch, batch);
        for (std::size_t i = 0; i < count; ++i) {
          const Chain::Block block =
              BenchBlock(StrCat(name, "/new"), set->next_new++);
          sources[i] = {.address = from.data() + i * set->bytes,
                        .length = set->bytes};
          blocks[i] = {.key = block.key,
                       .place = block.place,
                       .source = {&sources[i], 1}};
        }
        const WriteReport report =
            client->Write({.name_space = set->name_space,
                           .blocks = absl::MakeSpan(blocks),
                           .deadline = kDeadline});
        RETURN_IF_ERROR(report.status);
        if (report.stored == count) return batch;
        const auto other = std::find_if(
            blocks.begin(), blocks.end(), [](const WriteBlock& block) {
              return block.outcome != Outcome::kStored;
            });
        return NotAHit("a write", other->outcome);
      });
  if (!shared.empty()) client->FreeShared(shared.data());
  return counts;
}

absl::StatusOr<Counts> SdkWorker::WriteOdd(const Command& command) {
  ASSIGN_OR_RETURN(Client* const client, ClientOf(command));
  ASSIGN_OR_RETURN(BlockSet* const set, SetOf(command));
  // Every power of two from 4 KiB to 8 MiB is the lower end of as many sizes.
  constexpr std::uint64_t kLowest = 4 * kKiB;
  constexpr std::uint64_t kDoublings = 12;
  ASSIGN_OR_RETURN(const absl::Span<std::byte> memory,
                   client->AllocateShared(kLowest << kDoublings));
  const std::uint64_t wanted = command.Number("bytes");
  Counts counts{{"bytes", 0}, {"blocks", 0}};
  // Any odd multiplier spreads the sizes; this one is 2^64 over the golden
  // ratio.
  std::uint64_t number = 0;
  absl::Status status;
  while (counts["bytes"] < wanted && status.ok()) {
    const std::uint64_t low = kLowest << number % kDoublings;
    const std::uint64_t spread = ++number * 0x9e3779b97f4a7c15;
    const std::uint64_t bytes = (low + (spread >> 32) % low) | 1;
    const ConstBuffer source{.address = memory.data(), .length = bytes};
    const Chain::Block block = BenchBlock("odd", set->next_new++);
    WriteBlock write{
        .key = block.key, .place = block.place, .source = {&source, 1}};
    const WriteReport report = client->Write({.name_space = set->name_space,
                                              .blocks = {&write, 1},
                                              .deadline = kDeadline});
    status = report.status;
    if (status.ok() && report.stored != 1) {
      status = NotAHit("a write", write.outcome);
    }
    counts["bytes"] += bytes;
    counts["blocks"] += 1;
  }
  client->FreeShared(memory.data());
  if (!status.ok()) return status;
  return counts;
}

}  // namespace firnkv
