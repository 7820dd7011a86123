// The flash tier by itself, beside fio: no node opens it yet, so it is measured
// here, where the server's parts may be included.
//
//     open path=FILE bytes=BYTES largest=BYTES
//     fill blocks=COUNT bytes=BYTES
//     read depth=COUNT millis=MILLIS
//     demote bytes=BYTES millis=MILLIS
//     image path=FILE bytes=BYTES record=BYTES
//     recover path=FILE bytes=BYTES largest=BYTES

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/thread_executor.h"
#include "proto/base/checksum.h"
#include "proto/base/status.h"
#include "server/io/uring_device.h"
#include "server/tier/flash_tier.h"
#include "tools/bench/command_loop.h"

namespace firnkv {
namespace {

using Time = std::chrono::steady_clock;

template <typename Id>
Id IdOf(std::uint64_t number) {
  Id id;
  id.bytes.fill(0x5a);
  std::memcpy(id.bytes.data(), &number, sizeof(number));
  return id;
}

std::uint64_t NanosSince(Time::time_point begin) {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(Time::now() - begin).count());
}

// Lets so many operations be under way.
class Window {
 public:
  void Begin(std::uint64_t most) {
    MutexLock lock(&mutex_);
    while (under_way_ >= most) changed_.Wait(&mutex_);
    ++under_way_;
  }
  void End() {
    MutexLock lock(&mutex_);
    --under_way_;
    changed_.SignalAll();
  }
  void WaitForAll() {
    MutexLock lock(&mutex_);
    while (under_way_ > 0) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
};

class FlashProgram {
 public:
  ~FlashProgram() { Close(); }

  absl::StatusOr<Counts> Open(const Command& command) {
    Close();
    ASSIGN_OR_RETURN(DeviceFile file,
                     OpenDeviceFile({.path = command.Text("path"),
                                     .bytes = command.Number("bytes")}));
    RETURN_IF_ERROR(OpenTier(std::move(file), FlashTakeover::kFormat, command));
    return Counts();
  }

  absl::StatusOr<Counts> Fill(const Command& command) {
    block_bytes_ = command.Number("bytes");
    blocks_ = 0;
    const std::uint64_t blocks = command.Number("blocks");
    Window window;
    std::atomic<std::uint64_t> failed{0};
    for (std::uint64_t i = 0; i < blocks; ++i) {
      window.Begin(64);
      StoreOne(next_key_++, [&](StoreOutcome outcome) {
        if (outcome != StoreOutcome::kStored) ++failed;
        window.End();
      });
    }
    window.WaitForAll();
    if (failed > 0) return absl::InternalError("not all was stored");
    blocks_ = blocks;
    return Counts();
  }

  absl::StatusOr<Counts> Read(const Command& command) {
    const std::uint64_t depth = command.Number("depth", 8);
    const std::uint64_t room = AlignUp(block_bytes_, kFlashPage);
    if (destinations_ == nullptr ||
        destinations_->bytes().size() < depth * room) {
      destinations_ = std::make_unique<AlignedMemory>(depth * room);
    }
    Window window;
    std::atomic<std::uint64_t> ops{0};
    std::atomic<std::uint64_t> failed{0};
    const auto begin = Time::now();
    const auto end =
        begin + std::chrono::milliseconds(command.Number("millis", 100));
    std::atomic<std::uint64_t> next{0};
    // Each place reads one block after the other.
    std::function<void(std::uint64_t)> go = [&](std::uint64_t place) {
      if (Time::now() >= end) {
        window.End();
        return;
      }
      Tier::LoadRequest load;
      load.block = {IdOf<NamespaceId>(1),
                    IdOf<BlockKey>(next_key_ - blocks_ +
                                   Scatter(next.fetch_add(1)) % blocks_)};
      load.destination =
          destinations_->bytes().subspan(place * room, block_bytes_);
      load.done = [&, place](LoadOutcome outcome, const SlotHeader&) {
        ++(outcome == LoadOutcome::kLoaded ? ops : failed);
        go(place);
      };
      tier_->Load(absl::MakeSpan(&load, 1), BootTime::Infinite());
    };
    for (std::uint64_t i = 0; i < depth; ++i) {
      window.Begin(depth);
      go(i);
    }
    window.WaitForAll();
    if (failed > 0) return absl::InternalError("not all was loaded");
    return Counts{{"nanos", NanosSince(begin)},
                  {"ops", ops},
                  {"bytes", ops * block_bytes_}};
  }

  absl::StatusOr<Counts> Demote(const Command& command) {
    block_bytes_ = command.Number("bytes");
    blocks_ = 0;
    Window window;
    std::atomic<std::uint64_t> ops{0};
    const std::uint64_t written = tier_->ledger().written_bytes.value();
    const std::uint64_t asked = tier_->ledger().admitted_bytes.value();
    const auto begin = Time::now();
    const auto end =
        begin + std::chrono::milliseconds(command.Number("millis", 100));
    while (Time::now() < end) {
      window.Begin(std::max<std::uint64_t>(8, 64 * kMiB / block_bytes_));
      StoreOne(next_key_++, [&](StoreOutcome outcome) {
        if (outcome == StoreOutcome::kStored) ++ops;
        window.End();
      });
    }
    window.WaitForAll();
    return Counts{{"nanos", NanosSince(begin)},
                  {"ops", ops},
                  {"bytes", ops * block_bytes_},
                  {"written", tier_->ledger().written_bytes.value() - written},
                  {"admitted", tier_->ledger().admitted_bytes.value() - asked}};
  }

  // A full device's headers, tables of contents and seals, without the records:
  // a sparse file.
  absl::StatusOr<Counts> Image(const Command& command);

  absl::StatusOr<Counts> Recover(const Command& command) {
    Close();
    DeviceFile file;
    file.path = command.Text("path");
    file.bytes = command.Number("bytes");
    file.descriptor =
        Descriptor(::open(file.path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
    if (!file.descriptor.valid()) return absl::ErrnoToStatus(errno, "open");
    const auto begin = Time::now();
    RETURN_IF_ERROR(OpenTier(std::move(file), FlashTakeover::kRefuse, command));
    const std::uint64_t nanos = NanosSince(begin);
    const FlashSpaceSnapshot look = tier_->Look();
    return Counts{{"nanos", nanos},
                  {"records", look.records},
                  {"index_bytes", look.index_bytes}};
  }

 private:
  // Not in the order in which they were written.
  static std::uint64_t Scatter(std::uint64_t number) {
    return number * 0x9e3779b97f4a7c15ULL >> 20;
  }

  FlashTier::Options OptionsFor(const Command& command) {
    FlashTier::Options options;
    options.opening.cluster = IdOf<ClusterId>(1);
    options.opening.node = IdOf<NodeId>(1);
    options.opening.largest_block_bytes = command.Number("largest", kMiB);
    options.scrubber.budget.bytes_a_day = 0;
    options.writer.round_bytes = 16 * kMiB;
    options.keep_free_segments = 2;
    return options;
  }

  absl::Status OpenTier(DeviceFile file, FlashTakeover takeover,
                        const Command& command) {
    ASSIGN_OR_RETURN(device_, UringDevice::Open(std::move(file), {}, &clock_));
    ASSIGN_OR_RETURN(executor_, ThreadExecutor::Make({.threads = 2}, &clock_));
    FlashTier::Options options = OptionsFor(command);
    options.opening.takeover = takeover;
    tier_ = std::make_unique<FlashTier>(
        options, device_.get(), executor_.get(), &random_, &order_,
        [this](std::uint64_t count) {
          return Generation{next_generation_.fetch_add(count)};
        });
    absl::Status opened;
    Window window;
    window.Begin(1);
    tier_->Open([&](absl::Status status) {
      opened = std::move(status);
      window.End();
    });
    window.WaitForAll();
    if (!opened.ok()) return opened;
    for (const absl::Span<std::byte> memory : tier_->memory()) {
      RETURN_IF_ERROR(device_->RegisterMemory(memory));
    }
    tier_->Confirm({.name_space = IdOf<NamespaceId>(1),
                    .tenant = IdOf<TenantId>(1),
                    .clear_epoch = ClearEpoch{1}});
    return absl::OkStatus();
  }

  void Close() {
    if (!tier_) return;
    Window window;
    window.Begin(1);
    tier_->Drain([&] { window.End(); });
    window.WaitForAll();
    executor_->Stop();
    device_->Drain();
    tier_.reset();
    executor_.reset();
    device_.reset();
  }

  SlotHeader HeaderOf(std::uint64_t key) {
    if (bytes_.size() != block_bytes_) {
      bytes_.assign(block_bytes_, std::byte{1});
      for (std::size_t i = 0; i < bytes_.size(); ++i) {
        bytes_[i] = static_cast<std::byte>(random_engine_());
      }
      pieces_ = PieceChecksums(bytes_);
    }
    SlotHeader header;
    header.block = {IdOf<NamespaceId>(1), IdOf<BlockKey>(key)};
    header.clear_epoch = ClearEpoch{1};
    header.generation = Generation{1};
    header.length = block_bytes_;
    header.pieces = pieces_;
    return header;
  }

  void StoreOne(std::uint64_t key, std::function<void(StoreOutcome)> done) {
    // Its header lives as long as the store.
    auto header = std::make_unique<SlotHeader>(HeaderOf(key));
    Tier::StoreRequest store;
    store.header = header.get();
    store.bytes = bytes_;
    store.done = [header = std::move(header), done = std::move(done)](
                     StoreOutcome outcome, Generation) { done(outcome); };
    tier_->Store(absl::MakeSpan(&store, 1));
  }

  SystemClock clock_;
  SystemRandom random_;
  std::mt19937_64 random_engine_;
  ColdestSegmentFirst order_{0};
  std::atomic<std::uint64_t> next_generation_{1};
  std::unique_ptr<UringDevice> device_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<FlashTier> tier_;
  std::unique_ptr<AlignedMemory> destinations_;
  std::vector<std::byte> bytes_;
  std::vector<std::uint32_t> pieces_;
  std::uint64_t block_bytes_ = 0;
  std::uint64_t blocks_ = 0;
  std::uint64_t next_key_ = 1;
};

absl::StatusOr<Counts> FlashProgram::Image(const Command& command) {
  const std::uint64_t record = command.Number("record", 64 * kKiB);
  ASSIGN_OR_RETURN(FlashSuperblock layout,
                   PlanSegments(command.Number("bytes"), record, 64 * kMiB));
  layout.cluster = IdOf<ClusterId>(1);
  layout.node = IdOf<NodeId>(1);
  layout.device = IdOf<FlashDeviceId>(1);
  layout.sequence = 1;
  const Descriptor file(::open(command.Text("path").c_str(),
                               O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return absl::ErrnoToStatus(errno, "open");
  const auto put = [&](std::uint64_t at, const std::string& bytes) {
    return ::pwrite(file.get(), bytes.data(), bytes.size(),
                    static_cast<off_t>(at)) ==
           static_cast<ssize_t>(bytes.size());
  };
  bool all =
      ::ftruncate(file.get(), static_cast<off_t>(command.Number("bytes"))) == 0;
  const std::string superblock = EncodeSuperblock(layout);
  all = all && put(0, superblock) && put(kFlashPage, superblock);
  std::uint64_t records = 0;
  for (std::uint32_t segment = 0; segment < layout.segments; ++segment) {
    SegmentContents contents;
    contents.name = {.device = layout.device,
                     .segment = segment,
                     .lap = FlashLap{std::uint64_t{segment + 1} << 32 | 1},
                     .tenant = IdOf<TenantId>(1)};
    std::uint64_t end = kFlashPage;
    while (true) {
      const RecordPlace place = PlaceRecord(end, record);
      if (AlignUp(place.end, kFlashPage) >
          ContentsOffset(layout.segment_bytes,
                         ContentsBytes(contents.entries.size() + 1, 1))) {
        break;
      }
      ContentsEntry entry;
      entry.offset = place.offset;
      entry.padded = place.padded;
      entry.block = {IdOf<NamespaceId>(1), IdOf<BlockKey>(++records)};
      entry.clear_epoch = ClearEpoch{1};
      entry.length = record;
      contents.entries.push_back(entry);
      end = place.end;
    }
    const std::string table = EncodeContents(contents);
    SegmentSeal seal;
    seal.name = contents.name;
    seal.contents_bytes = table.size();
    seal.records = static_cast<std::uint32_t>(contents.entries.size());
    seal.data_end = AlignUp(end, kFlashPage);
    const std::uint64_t at = layout.SegmentOffset(segment);
    all = all && put(at, EncodeSegmentHeader(contents.name)) &&
          put(at + ContentsOffset(layout.segment_bytes, table.size()), table) &&
          put(at + SealOffset(layout.segment_bytes), EncodeSeal(seal));
  }
  if (!all || ::fdatasync(file.get()) != 0) {
    return absl::ErrnoToStatus(errno, "image");
  }
  return Counts{{"records", records}, {"segments", layout.segments}};
}

}  // namespace
}  // namespace firnkv

int main() {
  firnkv::TurnOffDeadlockDetection();
  firnkv::FlashProgram program;
  firnkv::CommandLoop loop;
  const auto add = [&](const char* verb, auto method) {
    loop.Add(verb, [&program, method](const firnkv::Command& command) {
      return (program.*method)(command);
    });
  };
  add("open", &firnkv::FlashProgram::Open);
  add("fill", &firnkv::FlashProgram::Fill);
  add("read", &firnkv::FlashProgram::Read);
  add("demote", &firnkv::FlashProgram::Demote);
  add("image", &firnkv::FlashProgram::Image);
  add("recover", &firnkv::FlashProgram::Recover);
  return loop.Run();
}
