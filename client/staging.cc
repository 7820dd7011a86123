#include "client/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "proto/base/status.h"

namespace firnkv {

// --- FreeRanges.

std::optional<std::uint64_t> FreeRanges::Take(std::uint64_t bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, length] = *it;
    if (length < bytes) continue;
    free_.erase(it);
    if (length > bytes) free_.emplace(offset + bytes, length - bytes);
    return offset;
  }
  return std::nullopt;
}

void FreeRanges::Give(std::uint64_t offset, std::uint64_t bytes) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

// --- Receipts.

StagingPool::Range& StagingPool::Range::operator=(Range&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(staging_, other.staging_);
  std::swap(offset_, other.offset_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

StagingPool::Range::~Range() {
  if (pool_ != nullptr) {
    pool_->Give(staging_, offset_, AlignUp(bytes_.size(), kAlignment));
  }
}

StagingPool::Pin& StagingPool::Pin::operator=(Pin&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(allocation_, other.allocation_);
  std::swap(staging_, other.staging_);
  std::swap(offset_, other.offset_);
  return *this;
}

StagingPool::Pin::~Pin() {
  if (pool_ != nullptr) pool_->Unpin(allocation_);
}

// --- The SDK's own.

StagingPool::StagingPool(const Seams* seams, const Options& options,
                         Handover handover)
    : seams_(seams),
      options_(options),
      handover_(std::move(handover)),
      arena_bytes_(
          std::min(options.own_bytes / kPageBytes * kPageBytes, kArenaBytes)) {}

StagingPool::~StagingPool() { Close(); }

void StagingPool::Close() {
  std::deque<Wish> wishes;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    wishes.swap(wishes_);
  }
  for (Wish& wish : wishes) std::move(wish.done)(Range());
  scope_.Close();
}

absl::StatusOr<std::unique_ptr<StagingPool::Arena>> StagingPool::MakeArena(
    std::uint64_t bytes) {
  ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                   seams_->memory->Make(MemoryKindWanted::kStaging,
                                        "firnkv-staging", bytes));
  ASSIGN_OR_RETURN(std::unique_ptr<MemoryMapping> mapping,
                   memory->Map(MapAccess::kReadWrite));
  return std::make_unique<Arena>(Arena{.staging = handover_(memory),
                                       .mapping = std::move(mapping),
                                       .free = FreeRanges(bytes),
                                       .bytes = bytes});
}

bool StagingPool::MayGrow() const {
  return !growing_ && own_bytes_ + arena_bytes_ <= options_.own_bytes;
}

StagingPool::Range StagingPool::TakeNow(std::uint64_t bytes) {
  Range range;
  for (auto& [id, arena] : own_) {
    const auto offset = arena->free.Take(AlignUp(bytes, kAlignment));
    if (!offset) continue;
    range.pool_ = this;
    range.staging_ = id;
    range.offset_ = *offset;
    range.bytes_ = arena->mapping->bytes().subspan(*offset, bytes);
    break;
  }
  return range;
}

std::uint64_t StagingPool::StartTake(std::uint64_t bytes, RangeDone done) {
  Range range;
  std::uint64_t wish = 0;
  {
    MutexLock lock(&mutex_);
    if (!closed_ && bytes > 0 && bytes <= arena_bytes_) {
      if (wishes_.empty()) range = TakeNow(bytes);
      if (!range) {
        wish = next_wish_++;
        wishes_.push_back(
            Wish{.number = wish, .bytes = bytes, .done = std::move(done)});
      }
    }
  }
  if (wish == 0) {
    std::move(done)(std::move(range));
    return 0;
  }
  seams_->executor->Post(scope_.Wrap([this] { Serve(); }));
  return wish;
}

void StagingPool::Forget(std::uint64_t wish) {
  RangeDone forgotten;
  {
    MutexLock lock(&mutex_);
    const auto it =
        std::find_if(wishes_.begin(), wishes_.end(),
                     [wish](const Wish& one) { return one.number == wish; });
    if (it == wishes_.end()) return;
    forgotten = std::move(it->done);
    wishes_.erase(it);
    // Who stood behind it may have room by now.
    if (wishes_.empty() || closed_) return;
  }
  seams_->executor->Post(scope_.Wrap([this] { Serve(); }));
}

void StagingPool::Give(std::uint64_t staging, std::uint64_t offset,
                       std::uint64_t bytes) {
  {
    MutexLock lock(&mutex_);
    const auto it = own_.find(staging);
    if (it == own_.end()) return;
    it->second->free.Give(offset, bytes);
    if (wishes_.empty() || closed_) return;
  }
  seams_->executor->Post(scope_.Wrap([this] { Serve(); }));
}

void StagingPool::Serve() {
  std::vector<std::pair<RangeDone, Range>> served;
  bool grow = false;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    while (!wishes_.empty()) {
      Range range = TakeNow(wishes_.front().bytes);
      if (!range) break;
      served.emplace_back(std::move(wishes_.front().done), std::move(range));
      wishes_.pop_front();
    }
    grow = !wishes_.empty() && MayGrow();
    growing_ = growing_ || grow;
  }
  for (auto& [done, range] : served) std::move(done)(std::move(range));
  if (!grow) return;

  absl::StatusOr<std::unique_ptr<Arena>> arena = MakeArena(arena_bytes_);
  RangeDone without;
  {
    MutexLock lock(&mutex_);
    growing_ = false;
    if (arena.ok()) {
      own_bytes_ += arena_bytes_;
      const std::uint64_t id = (*arena)->staging;
      own_.emplace(id, *std::move(arena));
    } else if (own_.empty() && !wishes_.empty()) {
      // Nobody will give anything back: waiting has no sense.
      without = std::move(wishes_.front().done);
      wishes_.pop_front();
    } else {
      return;
    }
  }
  if (without) std::move(without)(Range());
  Serve();
}

// --- Shared with the caller.

absl::StatusOr<absl::Span<std::byte>> StagingPool::AllocateShared(
    std::size_t wanted) {
  if (wanted == 0) return absl::InvalidArgumentError("0 bytes of memory");
  if (wanted > options_.shared_bytes) {
    return absl::ResourceExhaustedError("over ClientOptions::shared_bytes");
  }
  const std::uint64_t bytes = AlignUp(wanted, kPageBytes);
  const auto take = [&](Arena* arena) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                        mutex_) -> absl::Span<std::byte> {
    const auto offset = arena->free.Take(bytes);
    if (!offset) return {};
    const auto range = arena->mapping->bytes().subspan(*offset, wanted);
    allocations_.emplace(range.data(), Allocation{.staging = arena->staging,
                                                  .offset = *offset,
                                                  .bytes = bytes});
    return range;
  };
  std::uint64_t arena_bytes = std::max(bytes, kSharedArenaBytes);
  absl::Span<std::byte> found;
  {
    MutexLock lock(&mutex_);
    if (closed_) return absl::CancelledError("the Client was closed");
    for (auto& [id, arena] : shared_) {
      found = take(arena.get());
      if (!found.empty()) break;
    }
    if (found.empty()) {
      const std::uint64_t left = options_.shared_bytes -
                                 std::min(options_.shared_bytes, shared_bytes_);
      if (arena_bytes > left) arena_bytes = bytes;
      if (arena_bytes > left) {
        return absl::ResourceExhaustedError("over ClientOptions::shared_bytes");
      }
      shared_bytes_ += arena_bytes;
    }
  }
  if (!found.empty()) {
    // Of an earlier owner; new memory is zeros by itself.
    std::memset(found.data(), 0, found.size());
    return found;
  }
  absl::StatusOr<std::unique_ptr<Arena>> arena = MakeArena(arena_bytes);
  MutexLock lock(&mutex_);
  if (!arena.ok()) {
    shared_bytes_ -= arena_bytes;
    return arena.status();
  }
  found = take(arena->get());
  const std::uint64_t id = (*arena)->staging;
  shared_.emplace(id, *std::move(arena));
  return found;
}

void StagingPool::FreeShared(std::byte* address) {
  MutexLock lock(&mutex_);
  const auto it = allocations_.find(address);
  if (it == allocations_.end() || it->second.freed) return;
  it->second.freed = true;
  if (it->second.pins == 0) GiveAllocation(it);
}

void StagingPool::GiveAllocation(
    std::map<std::byte*, Allocation>::iterator it) {
  const Allocation& allocation = it->second;
  const auto arena = shared_.find(allocation.staging);
  if (arena != shared_.end()) {
    arena->second->free.Give(allocation.offset, allocation.bytes);
  }
  allocations_.erase(it);
}

std::optional<StagingPool::Pin> StagingPool::PinShared(
    absl::Span<const std::byte> bytes) {
  MutexLock lock(&mutex_);
  // The last allocation that begins at or before it.
  auto it = allocations_.upper_bound(const_cast<std::byte*>(bytes.data()));
  if (it == allocations_.begin()) return std::nullopt;
  --it;
  const auto within = static_cast<std::uint64_t>(bytes.data() - it->first);
  Allocation& allocation = it->second;
  if (allocation.freed || within > allocation.bytes ||
      bytes.size() > allocation.bytes - within) {
    return std::nullopt;
  }
  ++allocation.pins;
  Pin pin;
  pin.pool_ = this;
  pin.allocation_ = it->first;
  pin.staging_ = allocation.staging;
  pin.offset_ = allocation.offset + within;
  return pin;
}

void StagingPool::Unpin(std::byte* address) {
  MutexLock lock(&mutex_);
  const auto it = allocations_.find(address);
  if (it == allocations_.end()) return;
  --it->second.pins;
  if (it->second.pins == 0 && it->second.freed) GiveAllocation(it);
}

}  // namespace firnkv
