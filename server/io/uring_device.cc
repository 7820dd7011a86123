#include "server/io/uring_device.h"

#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// A transfer that moves nothing this often in a row has failed.
constexpr int kMaxTries = 64;
// The kernel's limit of one read or write is 2 GiB less a page.
constexpr std::uint64_t kMaxTransfer = kGiB;
// Every fourth turn is a write's.
constexpr unsigned kTurns = 4;
constexpr unsigned kNoIndex = UINT32_MAX;
// Of the eventfd's read; slots have lower numbers.
constexpr std::uint64_t kWake = UINT64_MAX;

bool Aligned(std::uint64_t number) { return number % kDeviceAlignment == 0; }

std::string Reason(int error) { return std::strerror(error); }

absl::Status QueueIsFull() {
  return absl::ResourceExhaustedError("device queue is full");
}

}  // namespace

absl::StatusOr<std::unique_ptr<UringDevice>> UringDevice::Open(
    DeviceFile file, const Options& options, const Clock* clock) {
  if (options.depth < 1 || options.depth > 4096) {
    return absl::InvalidArgumentError(
        StrCat("depth ", options.depth, " is not within 1 to 4096"));
  }
  auto device = std::unique_ptr<UringDevice>(
      new UringDevice(std::move(file), options, clock));
  RETURN_IF_ERROR(device->MakeRing());
  UringDevice* const self = device.get();
  RETURN_IF_ERROR(self->thread_.Start(options.name, [self] { self->Run(); }));
  return device;
}

UringDevice::UringDevice(DeviceFile file, const Options& options,
                         const Clock* clock)
    : file_(std::move(file)), options_(options), clock_(clock) {
  slots_.resize(options_.depth);
  for (unsigned i = options_.depth; i > 0; --i) free_slots_.push_back(i - 1);
}

UringDevice::~UringDevice() {
  Drain();
  if (has_ring_) io_uring_queue_exit(&ring_);
  // The kernel takes rings apart later, and a registered descriptor, with its
  // lock, lives until then.
  ::flock(file_.descriptor.get(), LOCK_UN);
}

bool UringDevice::TryRing(unsigned flags, int* error) {
  // One more: the eventfd's read.
  *error = -io_uring_queue_init(options_.depth + 1, &ring_, flags);
  return *error == 0;
}

absl::Status UringDevice::MakeRing() {
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
  if (!wake_.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  UringFeatures features;
  features.direct = file_.direct;
  if (!file_.direct) {
    features.missing.push_back(
        "O_DIRECT: the filesystem refuses it; transfers go through the page "
        "cache, which costs a copy each and memory");
  }
  // The ring starts disabled, so that its thread, and not this one, becomes
  // the one submitter that the kernel may then rely on.
  int error = 0;
  if (TryRing(IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER |
                  IORING_SETUP_DEFER_TASKRUN,
              &error)) {
    features.deferred = true;
  } else {
    features.missing.push_back(
        StrCat("io_uring deferred completions: ", Reason(error),
               "; the kernel is older than 6.1; completions cost more"));
    if (!TryRing(IORING_SETUP_R_DISABLED, &error)) {
      return absl::UnavailableError(
          StrCat("io_uring: ", Reason(error),
                 "; a container needs a seccomp profile that allows "
                 "io_uring_setup, the host kernel.io_uring_disabled = 0"));
    }
  }
  has_ring_ = true;
  {
    MutexLock lock(&mutex_);
    features_ = std::move(features);
  }
  RegisterFile();
  return absl::OkStatus();
}

void UringDevice::RegisterFile() {
  const int fd = file_.descriptor.get();
  const int file_error = -io_uring_register_files(&ring_, &fd, 1);
  const int memory_error =
      -io_uring_register_buffers_sparse(&ring_, kMaxMemoryPieces);
  fixed_file_ = file_error == 0;
  MutexLock lock(&mutex_);
  features_.fixed_file = fixed_file_;
  if (file_error != 0) {
    features_.missing.push_back(
        StrCat("io_uring registered files: ", Reason(file_error)));
  }
  features_.fixed_memory = memory_error == 0;
  if (memory_error != 0) {
    features_.missing.push_back(
        StrCat("io_uring registered buffers: ", Reason(memory_error),
               "; the pages of each transfer are pinned by themselves"));
    return;
  }
  for (unsigned i = kMaxMemoryPieces; i > 0; --i) free_pieces_.push_back(i - 1);
}

// --- Starting.

bool UringDevice::Fits(const Transfer& transfer) const {
  return transfer.offset <= file_.bytes &&
         transfer.bytes <= file_.bytes - transfer.offset;
}

void UringDevice::StartReads(absl::Span<ReadRequest> batch) {
  std::deque<Transfer> transfers;
  for (ReadRequest& request : batch) {
    Transfer& one = transfers.emplace_back();
    one.kind = Kind::kRead;
    one.offset = request.offset;
    one.memory = request.into.data();
    one.bytes = request.into.size();
    one.done = std::move(request.done);
  }
  Start(std::move(transfers));
}

void UringDevice::StartWrites(absl::Span<WriteRequest> batch) {
  std::deque<Transfer> transfers;
  for (WriteRequest& request : batch) {
    Transfer& one = transfers.emplace_back();
    one.kind = Kind::kWrite;
    one.offset = request.offset;
    // The kernel only reads it.
    one.memory = const_cast<std::byte*>(request.from.data());
    one.bytes = request.from.size();
    one.done = std::move(request.done);
  }
  Start(std::move(transfers));
}

void UringDevice::StartFlush(Done done) {
  std::deque<Transfer> transfers;
  transfers.emplace_back().done = std::move(done);
  Start(std::move(transfers));
}

void UringDevice::Start(std::deque<Transfer> transfers) {
  std::vector<std::pair<Done, absl::Status>> refused;
  bool stopped = false;
  bool signal = false;
  {
    MutexLock lock(&mutex_);
    stopped = stopping_;
    for (Transfer& one : transfers) {
      CHECK(Aligned(one.offset) && Aligned(one.bytes) &&
            Aligned(reinterpret_cast<std::uintptr_t>(one.memory)) &&
            (one.bytes > 0 || one.kind == Kind::kFlush));
      absl::Status status;
      if (stopping_) {
        status = absl::UnavailableError("the device is closed");
      } else if (!Fits(one)) {
        status = absl::OutOfRangeError("beyond the end of the device");
      } else if (reads_.size() + writes_.size() >= options_.max_queued) {
        status = QueueIsFull();
      }
      if (!status.ok()) {
        refused.emplace_back(std::move(one.done), std::move(status));
        continue;
      }
      estimate_.Started(one.bytes, clock_->Now());
      (one.kind == Kind::kRead ? reads_ : writes_).push_back(std::move(one));
    }
    if (!refused.empty() && !stopped) {
      // Never inside a Start.
      calls_.push_back([refused = std::move(refused)]() mutable {
        for (auto& [done, status] : refused) std::move(done)(status);
      });
      refused.clear();
    }
    signal = !signalled_ && !stopped;
    if (signal) signalled_ = true;
  }
  if (signal) Signal();
  for (auto& [done, status] : refused) std::move(done)(status);
}

void UringDevice::Signal() {
  const std::uint64_t one = 1;
  CHECK(::write(wake_.get(), &one, sizeof(one)) == sizeof(one));
}

DeviceLoad UringDevice::GetLoad() const {
  const BootTime now = clock_->Now();
  MutexLock lock(&mutex_);
  return {.transfers = estimate_.transfers(),
          .bytes = estimate_.bytes(),
          .issued = issued_,
          .predicted_wait = estimate_.PredictWait(now)};
}

UringFeatures UringDevice::features() const {
  MutexLock lock(&mutex_);
  return features_;
}

void UringDevice::Drain() {
  bool signal = false;
  {
    MutexLock lock(&mutex_);
    signal = !stopping_;
    stopping_ = true;
    signalled_ = true;
  }
  if (signal && wake_.valid()) Signal();
  thread_.Join();
}

// --- The ring's thread.

void UringDevice::Run() {
  // Debian's liburing 2.3 declares io_uring_enable_rings and does not have it.
  CHECK(io_uring_register(static_cast<unsigned>(ring_.ring_fd),
                          IORING_REGISTER_ENABLE_RINGS, nullptr, 0) == 0);
  while (TakeWork()) {
    ListenForWork();
    SubmitAndWait();
    Reap();
  }
  MutexLock lock(&mutex_);
  stopped_ = true;
  changed_.SignalAll();
}

bool UringDevice::TakeWork() {
  std::vector<absl::AnyInvocable<void()>> calls;
  std::vector<unsigned> taken;
  bool more = true;
  {
    MutexLock lock(&mutex_);
    signalled_ = stopping_;
    calls.swap(calls_);
    while (!free_slots_.empty()) {
      const unsigned slot = free_slots_.back();
      if (!TakeOne(&slots_[slot])) break;
      free_slots_.pop_back();
      taken.push_back(slot);
    }
    issued_ += taken.size();
    more = !stopping_ || issued_ > 0 || !calls.empty();
  }
  for (const unsigned slot : again_) Prepare(slot);
  again_.clear();
  for (const unsigned slot : taken) Prepare(slot);
  for (auto& call : calls) call();
  return more;
}

bool UringDevice::TakeOne(Transfer* transfer) {
  const bool writes_turn = turn_ % kTurns == kTurns - 1;
  std::deque<Transfer>* from = &reads_;
  if (reads_.empty() || (writes_turn && !writes_.empty())) from = &writes_;
  if (from->empty()) return false;
  if (!reads_.empty() && !writes_.empty()) ++turn_;
  if (from == &writes_ && writes_turn) turn_ = 0;
  *transfer = std::move(from->front());
  from->pop_front();
  return true;
}

unsigned UringDevice::MemoryIndex(const std::byte* memory,
                                  std::uint64_t bytes) const {
  auto it = memory_.upper_bound(memory);
  if (it == memory_.begin()) return kNoIndex;
  --it;
  const auto into = static_cast<std::uint64_t>(memory - it->first);
  if (into >= it->second.bytes || bytes > it->second.bytes - into) {
    return kNoIndex;
  }
  return it->second.index;
}

void UringDevice::Prepare(unsigned slot) {
  const Transfer& one = slots_[slot];
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
  // As many entries as slots, and one for the eventfd.
  CHECK(sqe != nullptr);
  const int fd = fixed_file_ ? 0 : file_.descriptor.get();
  std::byte* const memory = one.memory + one.moved;
  const std::uint64_t left = std::min(one.bytes - one.moved, kMaxTransfer);
  const auto bytes = static_cast<unsigned>(left);
  const std::uint64_t offset = one.offset + one.moved;
  const unsigned index = MemoryIndex(memory, left);
  const int buffer = static_cast<int>(index);
  switch (one.kind) {
    case Kind::kRead:
      if (index != kNoIndex) {
        io_uring_prep_read_fixed(sqe, fd, memory, bytes, offset, buffer);
      } else {
        io_uring_prep_read(sqe, fd, memory, bytes, offset);
      }
      break;
    case Kind::kWrite:
      if (index != kNoIndex) {
        io_uring_prep_write_fixed(sqe, fd, memory, bytes, offset, buffer);
      } else {
        io_uring_prep_write(sqe, fd, memory, bytes, offset);
      }
      break;
    case Kind::kFlush:
      io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
      break;
  }
  if (fixed_file_) sqe->flags |= IOSQE_FIXED_FILE;
  io_uring_sqe_set_data64(sqe, slot);
}

void UringDevice::ListenForWork() {
  if (listening_) return;
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
  CHECK(sqe != nullptr);
  io_uring_prep_read(sqe, wake_.get(), &wake_count_, sizeof(wake_count_), 0);
  io_uring_sqe_set_data64(sqe, kWake);
  listening_ = true;
}

void UringDevice::SubmitAndWait() {
  const int result = io_uring_submit_and_wait(&ring_, 1);
  // EAGAIN and EBUSY: the kernel has no memory for more just now; what it has
  // not taken stays in the ring and goes with the next round.
  CHECK(result >= 0 || result == -EINTR || result == -EAGAIN ||
        result == -EBUSY);
}

void UringDevice::Reap() {
  struct Ended {
    Done done;
    absl::Status status;
  };
  std::vector<Ended> ended;
  std::array<io_uring_cqe*, 64> cqes;
  unsigned count = 0;
  while ((count = io_uring_peek_batch_cqe(&ring_, cqes.data(), cqes.size())) >
         0) {
    const BootTime now = clock_->Now();
    for (unsigned i = 0; i < count; ++i) {
      const std::uint64_t who = io_uring_cqe_get_data64(cqes[i]);
      if (who == kWake) {
        listening_ = false;
        continue;
      }
      const auto slot = static_cast<unsigned>(who);
      Transfer& one = slots_[slot];
      Ended end;
      if (!Advance(&one, cqes[i]->res, &end.status)) {
        again_.push_back(slot);
        continue;
      }
      end.done = std::move(one.done);
      ended.push_back(std::move(end));
      free_slots_.push_back(slot);
      MutexLock lock(&mutex_);
      estimate_.Ended(one.bytes, now);
      --issued_;
    }
    io_uring_cq_advance(&ring_, count);
  }
  for (Ended& end : ended) std::move(end.done)(end.status);
}

bool UringDevice::Advance(Transfer* transfer, int result,
                          absl::Status* status) {
  if (result == -EAGAIN || result == -EINTR) {
    if (++transfer->tries < kMaxTries) return false;
    *status = absl::UnavailableError(
        StrCat("flash device ", file_.path, ": ", Reason(-result)));
    return true;
  }
  if (result < 0) {
    const std::string text =
        StrCat("flash device ", file_.path, ": ", Reason(-result));
    const bool full = result == -ENOSPC || result == -EDQUOT;
    *status = full ? absl::ResourceExhaustedError(text)
                   : absl::UnavailableError(text);
    return true;
  }
  if (transfer->kind == Kind::kFlush) return true;
  // The rest begins aligned, whatever the device's own block is.
  const std::uint64_t left = transfer->bytes - transfer->moved;
  const auto got = static_cast<std::uint64_t>(result);
  if (got == left) return true;
  const std::uint64_t step = got - got % kDeviceAlignment;
  transfer->moved += step;
  if (got > 0 && (step > 0 || ++transfer->tries < kMaxTries)) {
    if (step > 0) transfer->tries = 0;
    return false;
  }
  const std::string text =
      StrCat("flash device ", file_.path, ": came to an end at ",
             transfer->offset + transfer->moved);
  *status = transfer->kind == Kind::kRead ? absl::DataLossError(text)
                                          : absl::UnavailableError(text);
  return true;
}

}  // namespace firnkv
