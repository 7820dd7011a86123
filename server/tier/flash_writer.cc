#include "server/tier/flash_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/checksum.h"

namespace firnkv {
namespace {

// Large enough that a device is at its rate, small enough that several are
// under way at once.
constexpr std::uint64_t kTransferBytes = kMiB;

}  // namespace

FlashWriter::FlashWriter(const Options& options, BlockDevice* device,
                         FlashSpace* space, Executor* executor,
                         FlashLedger* ledger)
    : options_(options),
      device_(device),
      space_(space),
      executor_(executor),
      ledger_(ledger),
      // Two rounds, each in one buffer, so that neither waits for a part of
      // what the other has.
      pool_(2 *
            std::max(options.round_bytes,
                     AlignUp(PlaceRecord(kRecordAlignment,
                                         space->layout().largest_block_bytes)
                                 .end,
                             kFlashPage) +
                         2 * kFlashPage)) {}

FlashWriter::~FlashWriter() {
  scope_.Close();
  pool_.DropWaiting();
}

std::uint64_t FlashWriter::LargestRound() const {
  return pool_.memory().size() / 2;
}

std::uint64_t FlashWriter::waiting_bytes() const {
  MutexLock lock(&mutex_);
  return waiting_bytes_;
}

void FlashWriter::Append(absl::Span<FlashAppend> batch) {
  std::vector<FlashAppend> refused;
  {
    MutexLock lock(&mutex_);
    for (FlashAppend& append : batch) {
      CHECK(append.header->length == append.bytes.size());
      if (waiting_bytes_ + append.bytes.size() > options_.max_waiting_bytes &&
          waiting_bytes_ > 0) {
        refused.push_back(std::move(append));
        continue;
      }
      waiting_bytes_ += append.bytes.size();
      waiting_.push_back(std::move(append));
    }
  }
  executor_->Post(scope_.Wrap([this, refused = std::move(refused)]() mutable {
    for (FlashAppend& append : refused) {
      std::move(append.done)(StoreOutcome::kFull, Generation::kNone);
    }
    Pump();
  }));
}

void FlashWriter::SealAll(Task done) {
  {
    MutexLock lock(&mutex_);
    seal_waiters_.push_back(std::move(done));
  }
  executor_->Post(scope_.Wrap([this] { Pump(); }));
}

void FlashWriter::Adopt(const SegmentName& name,
                        std::vector<ContentsEntry> entries,
                        std::uint64_t data_end) {
  MutexLock lock(&mutex_);
  OpenSegment& open = open_[name.segment];
  open.name = name;
  open.end = data_end;
  open.records = static_cast<std::uint32_t>(entries.size());
  open.entries = std::move(entries);
  full_.insert(name.segment);
}

std::optional<std::vector<ContentsEntry>> FlashWriter::CopyOpen(
    const SegmentName& name) const {
  MutexLock lock(&mutex_);
  const auto it = open_.find(name.segment);
  if (it == open_.end() || it->second.name != name) return std::nullopt;
  return it->second.entries;
}

// --- Placing.

void FlashWriter::Pump() {
  Round* round = nullptr;
  std::vector<FlashAppend> no_room;
  std::uint64_t bytes = 0;
  {
    MutexLock lock(&mutex_);
    if (writing_) return;
    const bool seal_all =
        waiting_.empty() && !finishing_ && !seal_waiters_.empty();
    if (waiting_.empty() && !seal_all) return;
    writing_ = std::make_unique<Round>();
    round = writing_.get();
    if (seal_all) {
      round->sealed.swap(seal_waiters_);
      for (const auto& [number, open] : open_) full_.insert(number);
      of_tenant_.clear();
    } else {
      Plan(round, &no_room);
    }
    bytes = LayOut(round);
  }
  for (FlashAppend& append : no_room) {
    std::move(append.done)(StoreOutcome::kFull, Generation::kNone);
  }
  if (bytes == 0) {
    OnWritten(round);
    return;
  }
  pool_.Take(bytes, [this, round](BufferPool::Buffer buffer) {
    round->buffer = std::move(buffer);
    WriteHeaders(round);
  });
}

void FlashWriter::Plan(Round* round, std::vector<FlashAppend>* full) {
  std::uint64_t bytes = 0;
  while (!waiting_.empty()) {
    const std::uint64_t length = waiting_.front().bytes.size();
    // Header, payload and the end each on a page of their own, and the rest of
    // the last page of a new unit.
    const std::uint64_t most = AlignUp(RecordHeaderBytes(length), kFlashPage) +
                               length + 3 * kFlashPage;
    if (bytes > 0 && bytes + most > options_.round_bytes) break;
    FlashAppend append = std::move(waiting_.front());
    waiting_.pop_front();
    OpenSegment* const open = OpenFor(append, round);
    if (open == nullptr) {
      waiting_bytes_ -= length;
      full->push_back(std::move(append));
      continue;
    }
    bytes += Place(open, std::move(append), round);
  }
}

bool FlashWriter::Fits(const OpenSegment& open,
                       const SlotHeader& header) const {
  const RecordPlace place = PlaceRecord(open.end, header.length);
  const std::uint64_t pairs =
      open.pairs.size() +
      (open.pairs.contains({header.block.name_space, header.clear_epoch}) ? 0
                                                                          : 1);
  return pairs <= kMaxSegmentNamespaces &&
         open.records < SegmentIndex::kMaxRecords &&
         AlignUp(place.end, kFlashPage) <=
             ContentsOffset(space_->layout().segment_bytes,
                            ContentsBytes(open.records + 1, pairs));
}

FlashWriter::OpenSegment* FlashWriter::OpenFor(const FlashAppend& append,
                                               Round* round) {
  const auto it = of_tenant_.find(append.tenant);
  if (it != of_tenant_.end()) {
    OpenSegment& open = open_[it->second];
    if (Fits(open, *append.header)) return &open;
    round->full.push_back(it->second);
    of_tenant_.erase(it);
  }
  const std::optional<SegmentName> name = space_->Open(append.tenant);
  if (!name) return nullptr;
  round->fresh.push_back(*name);
  of_tenant_[append.tenant] = name->segment;
  OpenSegment& open = open_[name->segment];
  open = OpenSegment{};
  open.name = *name;
  return &open;
}

std::uint64_t FlashWriter::Place(OpenSegment* open, FlashAppend append,
                                 Round* round) {
  const SlotHeader& header = *append.header;
  std::uint64_t bytes = 0;
  const std::uint32_t segment = open->name.segment;
  const auto unit = std::find_if(
      round->units.begin(), round->units.end(),
      [segment](const Unit& one) { return one.name.segment == segment; });
  if (unit == round->units.end()) {
    Unit one;
    one.name = open->name;
    one.first = open->end;
    round->units.push_back(one);
    bytes += kFlashPage;
  }
  Placed placed;
  placed.segment = segment;
  placed.place = PlaceRecord(open->end, header.length);
  bytes += placed.place.end - open->end;
  open->end = placed.place.end;
  ++open->records;
  open->pairs.emplace(header.block.name_space, header.clear_epoch);
  ++placed_count_;
  placed.check =
      options_.check_one_in > 0 && placed_count_ % options_.check_one_in == 0;
  placed.append = std::move(append);
  round->placed.push_back(std::move(placed));
  return bytes;
}

std::uint64_t FlashWriter::LayOut(Round* round) {
  std::uint64_t bytes = 0;
  std::map<std::uint32_t, const Unit*> by_segment;
  for (Unit& unit : round->units) {
    OpenSegment& open = open_[unit.name.segment];
    open.end = AlignUp(open.end, kFlashPage);
    unit.end = open.end;
    unit.at = bytes;
    bytes += unit.end - unit.first;
    by_segment[unit.name.segment] = &unit;
  }
  CHECK(bytes <= LargestRound());
  for (Placed& one : round->placed) {
    const Unit& unit = *by_segment[one.segment];
    one.at = unit.at + (one.place.offset - unit.first);
  }
  return bytes;
}

// --- Writing.

void FlashWriter::WriteHeaders(Round* round) {
  if (round->fresh.empty()) {
    Later(round, &FlashWriter::CopyRecords);
    return;
  }
  round->headers =
      std::make_unique<AlignedMemory>(round->fresh.size() * kFlashPage);
  std::vector<BlockDevice::WriteRequest> writes;
  for (std::size_t i = 0; i < round->fresh.size(); ++i) {
    const absl::Span<std::byte> page =
        round->headers->bytes().subspan(i * kFlashPage, kFlashPage);
    const std::string bytes = EncodeSegmentHeader(round->fresh[i]);
    std::memcpy(page.data(), bytes.data(), bytes.size());
    BlockDevice::WriteRequest write;
    write.offset = space_->layout().SegmentOffset(round->fresh[i].segment);
    write.from = page;
    writes.push_back(std::move(write));
  }
  WriteAll(round, std::move(writes), &FlashWriter::FlushHeaders);
}

void FlashWriter::FlushHeaders(Round* round) {
  if (Failed(round)) {
    OnWritten(round);
    return;
  }
  Flush(round, &FlashWriter::CopyRecords);
}

void FlashWriter::CopyRecords(Round* round) {
  if (Failed(round)) {
    OnWritten(round);
    return;
  }
  // Each transfer starts as soon as its bytes stand in the buffer: the device
  // does not wait for the last one. One more end is ours, so that the round
  // outlives this loop.
  std::vector<BlockDevice::WriteRequest> writes = WritesOf(round);
  {
    MutexLock lock(&mutex_);
    round->left = writes.size() + 1;
  }
  const std::byte* const base = round->buffer.bytes().data();
  std::size_t started = 0;
  const auto start = [&](std::uint64_t filled) {
    std::size_t ready = started;
    while (ready < writes.size() &&
           writes[ready].from.data() + writes[ready].from.size() <=
               base + filled) {
      ++ready;
    }
    device_->StartWrites(
        absl::MakeSpan(writes).subspan(started, ready - started));
    started = ready;
  };
  for (const Unit& unit : round->units) {
    std::uint64_t filled = unit.at;
    for (const Placed& one : round->placed) {
      if (one.segment != unit.name.segment) continue;
      CopyOne(*round, one, &filled);
      start(filled);
    }
    const std::uint64_t end = unit.at + (unit.end - unit.first);
    std::memset(round->buffer.bytes().data() + filled, 0, end - filled);
    start(end);
  }
  CHECK(started == writes.size());
  OnOne(round, &FlashWriter::OnWritten, absl::OkStatus());
}

void FlashWriter::CopyOne(const Round& round, const Placed& one,
                          std::uint64_t* filled) {
  std::byte* const base = round.buffer.bytes().data();
  RecordHeader record;
  for (const Unit& unit : round.units) {
    if (unit.name.segment == one.segment) record.lap = unit.name.lap;
  }
  record.segment = one.segment;
  record.offset = one.place.offset;
  record.padded = one.place.padded;
  record.header = *one.append.header;
  const std::string header = EncodeRecordHeader(record);
  std::memset(base + *filled, 0, one.at - *filled);
  std::memcpy(base + one.at, header.data(), header.size());
  const std::uint64_t payload = one.at + (one.place.payload - one.place.offset);
  std::memset(base + one.at + header.size(), 0,
              payload - one.at - header.size());
  std::memcpy(base + payload, one.append.bytes.data(), one.append.bytes.size());
  *filled = payload + one.append.bytes.size();
}

// In the order of the buffer.
std::vector<BlockDevice::WriteRequest> FlashWriter::WritesOf(Round* round) {
  std::vector<BlockDevice::WriteRequest> writes;
  for (const Unit& unit : round->units) {
    const std::uint64_t bytes = unit.end - unit.first;
    const std::uint64_t offset =
        space_->layout().SegmentOffset(unit.name.segment) + unit.first;
    for (std::uint64_t at = 0; at < bytes; at += kTransferBytes) {
      BlockDevice::WriteRequest write;
      write.offset = offset + at;
      write.from = round->buffer.bytes().subspan(
          unit.at + at, std::min(kTransferBytes, bytes - at));
      write.done = [this, round](absl::Status status) {
        OnOne(round, &FlashWriter::OnWritten, status);
      };
      ledger_->written_bytes.Add(write.from.size());
      writes.push_back(std::move(write));
    }
  }
  return writes;
}

void FlashWriter::OnWritten(Round* round) {
  {
    MutexLock lock(&mutex_);
    round->written = true;
    if (finishing_) return;  // Its end goes on with this one.
    CHECK(writing_.get() == round);
    finishing_ = std::move(writing_);
  }
  FlushRecords(round);
  Pump();
}

// --- Steps.

void FlashWriter::Later(Round* round, Step next) {
  executor_->Post(scope_.Wrap([this, round, next] { (this->*next)(round); }));
}

void FlashWriter::WriteAll(Round* round,
                           std::vector<BlockDevice::WriteRequest> writes,
                           Step next) {
  if (writes.empty()) {
    (this->*next)(round);
    return;
  }
  {
    MutexLock lock(&mutex_);
    round->left = writes.size();
  }
  for (BlockDevice::WriteRequest& write : writes) {
    ledger_->written_bytes.Add(write.from.size());
    write.done = [this, round, next](absl::Status status) {
      OnOne(round, next, status);
    };
  }
  device_->StartWrites(absl::MakeSpan(writes));
}

void FlashWriter::Flush(Round* round, Step next) {
  {
    MutexLock lock(&mutex_);
    round->left = 1;
    flushes_.emplace_back(round, next);
    if (flushes_.size() > 1) return;
  }
  StartFlush();
}

// One at a time: the kernel tells an error to one flush of a descriptor only,
// so that of two at once the one that ends well proves nothing.
void FlashWriter::StartFlush() {
  ledger_->flushes.Add();
  device_->StartFlush([this](absl::Status status) { OnFlushed(status); });
}

void FlashWriter::OnFlushed(const absl::Status& status) {
  std::pair<Round*, Step> mine;
  bool more = false;
  {
    MutexLock lock(&mutex_);
    mine = flushes_.front();
    flushes_.pop_front();
    more = !flushes_.empty();
    if (!status.ok()) {
      // Rule F2: what was written since the last good flush is dropped.
      if (writing_) writing_->doomed = true;
      if (finishing_) finishing_->doomed = true;
    }
  }
  if (more) StartFlush();
  OnOne(mine.first, mine.second, status);
}

void FlashWriter::OnOne(Round* round, Step next, const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    round->status.Update(status);
    CHECK(round->left > 0);
    if (--round->left > 0) return;
  }
  // Copies and checks are no work for the device's thread.
  Later(round, next);
}

bool FlashWriter::Failed(const Round* round) const {
  MutexLock lock(&mutex_);
  return round->doomed || !round->status.ok();
}

}  // namespace firnkv
