#include "server/tier/flash_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

// The pages that a record touches.
std::uint64_t FirstByte(const RecordPlace& place) {
  return place.offset - place.offset % kFlashPage;
}
std::uint64_t PagesOf(const RecordPlace& place) {
  return AlignUp(place.end, kFlashPage) - FirstByte(place);
}

}  // namespace

FlashReader::FlashReader(const Options& options, BlockDevice* device,
                         FlashSpace* space, Executor* executor,
                         FlashLedger* ledger, std::function<void()> on_isolated)
    : options_(options),
      device_(device),
      space_(space),
      executor_(executor),
      ledger_(ledger),
      on_isolated_(std::move(on_isolated)),
      pool_(std::max(
          options.buffer_bytes,
          2 * (space->layout().largest_block_bytes + 4 * kFlashPage))) {}

FlashReader::~FlashReader() {
  scope_.Close();
  pool_.DropWaiting();
}

std::uint64_t FlashReader::loads_in_flight() const {
  MutexLock lock(&mutex_);
  return loads_;
}

// --- One search.

void FlashReader::Load(absl::Span<FlashLoad> batch, BootTime deadline) {
  const absl::Duration wait = device_->GetLoad().predicted_wait;
  const bool late = executor_->clock()->Now() + wait > deadline;
  for (FlashLoad& load : batch) {
    auto search = std::make_unique<Search>();
    search->load = std::move(load);
    search->left = space_->Find(search->load.block);
    if (!search->left.empty() && late) {
      search->outcome = LoadOutcome::kCongested;
      search->left.clear();
    }
    Begin(std::move(search));
  }
}

void FlashReader::Look(const FlashLoad& what,
                       absl::AnyInvocable<void(LoadOutcome) &&> done) {
  auto search = std::make_unique<Search>();
  search->look = true;
  search->load.block = what.block;
  search->load.tenant = what.tenant;
  search->load.clear_epoch = what.clear_epoch;
  search->load.done = [done = std::move(done)](LoadOutcome outcome,
                                               const SlotHeader&) mutable {
    std::move(done)(outcome);
  };
  search->left = space_->Find(what.block);
  Begin(std::move(search));
}

void FlashReader::Begin(std::unique_ptr<Search> search) {
  {
    MutexLock lock(&mutex_);
    if (loads_ >= options_.max_loads) {
      search->outcome = LoadOutcome::kCongested;
      search->left.clear();
    }
    ++loads_;
  }
  if (search->left.empty()) {
    // Never inside Load.
    executor_->Post(scope_.Wrap([this, search = std::move(search)]() mutable {
      const LoadOutcome outcome = search->outcome;
      End(std::move(search), outcome, SlotHeader{});
    }));
    return;
  }
  TryNext(std::move(search));
}

void FlashReader::TryNext(std::unique_ptr<Search> search) {
  if (search->left.empty()) {
    const LoadOutcome outcome = search->outcome;
    End(std::move(search), outcome, SlotHeader{});
    return;
  }
  Flight* start = nullptr;
  // Ends outside the lock.
  SegmentHold spare;
  {
    MutexLock lock(&mutex_);
    HeldRecord record = std::move(search->left.front());
    search->left.erase(search->left.begin());
    const auto it = shared_.find(record.number);
    if (it != shared_.end()) {
      // Its own hold keeps the number this record's.
      spare = std::move(record.hold);
      ledger_->shared_reads.Add();
      it->second->searches.push_back(std::move(search));
    } else {
      auto flight = std::make_unique<Flight>();
      start = flight.get();
      start->record = std::move(record);
      start->searches.push_back(std::move(search));
      shared_[start->record.number] = start;
      flights_[start] = std::move(flight);
    }
  }
  if (start != nullptr) StartFlight(start);
}

void FlashReader::ReadWhole(HeldRecord record,
                            absl::AnyInvocable<void(WholeRecord) &&> done) {
  auto flight = std::make_unique<Flight>();
  Flight* const start = flight.get();
  start->record = std::move(record);
  start->whole = std::move(done);
  {
    MutexLock lock(&mutex_);
    flights_[start] = std::move(flight);
  }
  StartFlight(start);
}

// --- One flight.

void FlashReader::StartFlight(Flight* flight) {
  pool_.Take(
      PagesOf(flight->record.place), [this, flight](BufferPool::Buffer buffer) {
        flight->buffer = std::move(buffer);
        const HeldRecord& record = flight->record;
        ledger_->read_bytes.Add(flight->buffer.bytes().size());
        device_->StartRead(
            space_->layout().SegmentOffset(record.number.segment) +
                FirstByte(record.place),
            flight->buffer.bytes(),
            [this, flight](absl::Status status) { OnRead(flight, status); });
      });
}

void FlashReader::OnRead(Flight* flight, const absl::Status& status) {
  flight->status = status;
  // Checksums are no work for the device's thread.
  executor_->Post(scope_.Wrap([this, flight] { Land(flight); }));
}

absl::Span<std::byte> FlashReader::RecordBytes(const Flight& flight) const {
  const RecordPlace& place = flight.record.place;
  return flight.buffer.bytes().subspan(place.offset - FirstByte(place),
                                       place.end - place.offset);
}

// What stands there, if it is the record that the index means.
std::optional<RecordHeader> FlashReader::HeaderOf(const Flight& flight) const {
  const absl::Span<std::byte> bytes = RecordBytes(flight);
  std::optional<RecordHeader> record = DecodeRecordHeader(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const HeldRecord& held = flight.record;
  if (!record || record->lap != held.name.lap ||
      record->segment != held.name.segment ||
      record->offset != held.place.offset ||
      record->padded != held.place.padded ||
      record->header.length != held.length) {
    return std::nullopt;
  }
  return record;
}

void FlashReader::Land(Flight* flight) {
  std::unique_ptr<Flight> landed;
  {
    MutexLock lock(&mutex_);
    const auto mine = flights_.find(flight);
    landed = std::move(mine->second);
    flights_.erase(mine);
    const auto it = shared_.find(flight->record.number);
    if (it != shared_.end() && it->second == flight) shared_.erase(it);
  }
  if (!flight->status.ok()) ledger_->device_failures.Add();
  std::optional<RecordHeader> record;
  if (flight->status.ok()) record = HeaderOf(*flight);
  if (flight->whole) {
    GiveWhole(flight, std::move(record));
    return;
  }
  if (!record && flight->status.ok()) Isolate(*flight, nullptr);
  std::vector<std::unique_ptr<Search>> searches = std::move(flight->searches);
  for (std::unique_ptr<Search>& search : searches) {
    if (record) {
      Deliver(flight, *record, std::move(search));
    } else {
      Fail(flight->status.ok() ? LoadOutcome::kCorrupt
                               : LoadOutcome::kDeviceFailed,
           std::move(search));
    }
  }
}

void FlashReader::Deliver(Flight* flight, const RecordHeader& record,
                          std::unique_ptr<Search> search) {
  const HeldRecord& held = flight->record;
  const FlashLoad& load = search->load;
  if (record.header.block != load.block) {
    if (space_->FingerprintOf(record.header.block) !=
        space_->FingerprintOf(load.block)) {
      // A whole record, of a block that nobody put there.
      Isolate(*flight, nullptr);
      Fail(LoadOutcome::kCorrupt, std::move(search));
      return;
    }
    ledger_->collisions.Add();
    TryNext(std::move(search));
    return;
  }
  if (held.name.tenant != load.tenant ||
      record.header.clear_epoch != load.clear_epoch) {
    if (space_->Drop(held, &record.header.block)) {
      ledger_->cleared_records.Add();
    }
    TryNext(std::move(search));
    return;
  }
  if (record.key_id != 0 ||
      (!search->look && load.destination.size() < record.header.length)) {
    TryNext(std::move(search));
    return;
  }
  if (!CopyOut(*flight, record, search.get())) {
    Isolate(*flight, &record);
    Fail(LoadOutcome::kCorrupt, std::move(search));
    return;
  }
  SlotHeader header = record.header;
  header.generation = held.generation;
  if (!search->look) {
    ledger_->loaded_records.Add();
    space_->CountRead(held, executor_->clock()->Now());
  }
  End(std::move(search), LoadOutcome::kLoaded, header);
}

bool FlashReader::CopyOut(const Flight& flight, const RecordHeader& record,
                          Search* search) const {
  const RecordPlace& place = flight.record.place;
  const absl::Span<const std::byte> payload = RecordBytes(flight).subspan(
      place.payload - place.offset, record.header.length);
  if (search->look) return PieceChecksums(payload) == record.header.pieces;
  std::byte* const to = search->load.destination.data();
  for (std::size_t i = 0; i < record.header.pieces.size(); ++i) {
    const absl::Span<const std::byte> piece =
        payload.subspan(i * kPieceBytes, kPieceBytes);
    if (CopyWithCrc32c(to + i * kPieceBytes, piece) !=
        record.header.pieces[i]) {
      std::memset(to, 0, payload.size());
      return false;
    }
  }
  return true;
}

void FlashReader::GiveWhole(Flight* flight,
                            std::optional<RecordHeader> record) {
  WholeRecord whole;
  if (flight->status.ok()) {
    const RecordPlace& place = flight->record.place;
    whole.outcome = LoadOutcome::kCorrupt;
    if (record) {
      whole.payload = RecordBytes(*flight).subspan(place.payload - place.offset,
                                                   record->header.length);
      if (PieceChecksums(whole.payload) == record->header.pieces) {
        whole.outcome = LoadOutcome::kLoaded;
        whole.header = *std::move(record);
      }
    }
    if (whole.outcome == LoadOutcome::kCorrupt) {
      Isolate(*flight, record ? &*record : nullptr);
    }
  }
  whole.record = std::move(flight->record);
  whole.buffer = std::move(flight->buffer);
  std::move(flight->whole)(std::move(whole));
}

void FlashReader::Isolate(const Flight& flight, const RecordHeader* record) {
  if (!space_->Drop(flight.record,
                    record == nullptr ? nullptr : &record->header.block)) {
    return;
  }
  ledger_->corrupt_records.Add();
  on_isolated_();
}

void FlashReader::Fail(LoadOutcome outcome, std::unique_ptr<Search> search) {
  search->outcome = outcome;
  TryNext(std::move(search));
}

void FlashReader::End(std::unique_ptr<Search> search, LoadOutcome outcome,
                      const SlotHeader& header) {
  {
    MutexLock lock(&mutex_);
    --loads_;
  }
  std::move(search->load.done)(outcome, header);
}

}  // namespace firnkv
