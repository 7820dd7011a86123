#include "server/tier/flash_recovery.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/checksum.h"

namespace firnkv {
namespace {

bool IsZero(absl::Span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte one) { return one == std::byte{0}; });
}

ContentsEntry EntryOf(const RecordHeader& record) {
  ContentsEntry entry;
  entry.offset = record.offset;
  entry.padded = record.padded;
  entry.block = record.header.block;
  entry.clear_epoch = record.header.clear_epoch;
  entry.place = record.header.place;
  entry.length = record.header.length;
  return entry;
}

}  // namespace

FlashRecovery::FlashRecovery(BlockDevice* device, FlashSpace* space,
                             FlashWriter* writer, Executor* executor)
    : device_(device), space_(space), writer_(writer), executor_(executor) {}

FlashRecovery::~FlashRecovery() { scope_.Close(); }

void FlashRecovery::Start(Done done) {
  {
    MutexLock lock(&mutex_);
    done_ = std::move(done);
  }
  Next();
}

void FlashRecovery::Next() {
  std::vector<Work*> begin;
  Done done;
  RecoveryReport report;
  {
    MutexLock lock(&mutex_);
    while (works_.size() < kAtOnce && next_ < space_->layout().segments) {
      auto work = std::make_unique<Work>();
      work->segment = next_++;
      begin.push_back(work.get());
      works_.push_back(std::move(work));
    }
    if (works_.empty() && done_) {
      done = std::move(done_);
      done_ = nullptr;
      report = report_;
    }
  }
  for (Work* work : begin) ReadLead(work);
  if (done) std::move(done)(report);
}

void FlashRecovery::Read(Work* work, std::uint64_t offset, std::uint64_t bytes,
                         Step next) {
  if (!work->memory || work->memory->bytes().size() < bytes) {
    work->memory = std::make_unique<AlignedMemory>(bytes);
  }
  work->bytes = bytes;
  {
    MutexLock lock(&mutex_);
    report_.read_bytes += bytes;
  }
  device_->StartRead(space_->layout().SegmentOffset(work->segment) + offset,
                     work->memory->bytes().subspan(0, bytes),
                     [this, work, next](absl::Status status) {
                       const bool read = status.ok();
                       executor_->Post(scope_.Wrap([this, work, next, read] {
                         (this->*next)(work, read);
                       }));
                     });
}

std::string_view FlashRecovery::Text(const Work& work,
                                     std::uint64_t bytes) const {
  return {reinterpret_cast<const char*>(work.memory->bytes().data()), bytes};
}

void FlashRecovery::ReadLead(Work* work) {
  Read(work, 0, kFlashPage, &FlashRecovery::OnLead);
}

void FlashRecovery::OnLead(Work* work, bool read) {
  const std::optional<SegmentName> name =
      read ? DecodeSegmentHeader(Text(*work, kFlashPage)) : std::nullopt;
  if (name) space_->SawLap(name->lap);
  if (!name || name->device != space_->layout().device ||
      name->segment != work->segment) {
    MutexLock lock(&mutex_);
    ++(read ? report_.free : report_.unreadable);
    work->name = SegmentName{};
  } else {
    work->name = *name;
  }
  if (work->name.lap == FlashLap::kNone) {
    End(work);
    return;
  }
  Read(work, SealOffset(space_->layout().segment_bytes), kFlashPage,
       &FlashRecovery::OnSeal);
}

void FlashRecovery::OnSeal(Work* work, bool read) {
  const std::uint64_t segment_bytes = space_->layout().segment_bytes;
  const std::optional<SegmentSeal> seal =
      read ? DecodeSeal(Text(*work, kFlashPage)) : std::nullopt;
  if (seal) space_->SawLap(seal->name.lap);
  if (!seal || seal->name != work->name ||
      seal->contents_bytes > segment_bytes - 2 * kFlashPage ||
      seal->data_end > ContentsOffset(segment_bytes, seal->contents_bytes)) {
    ReadScan(work);
    return;
  }
  work->seal = *seal;
  Read(work, ContentsOffset(segment_bytes, seal->contents_bytes),
       AlignUp(seal->contents_bytes, kFlashPage), &FlashRecovery::OnContents);
}

void FlashRecovery::OnContents(Work* work, bool read) {
  const std::optional<SegmentContents> contents =
      read ? DecodeContents(Text(*work, work->seal.contents_bytes))
           : std::nullopt;
  bool whole = contents && contents->name == work->name &&
               contents->entries.size() == work->seal.records;
  if (whole && !contents->entries.empty()) {
    const ContentsEntry& last = contents->entries.back();
    whole = PlaceRecordAt(last.offset, last.length, last.padded).end <=
            work->seal.data_end;
  }
  if (!whole) {
    {
      MutexLock lock(&mutex_);
      ++report_.torn_contents;
    }
    ReadScan(work);
    return;
  }
  Publish(work->name, contents->entries);
  space_->Seal(work->name.segment, executor_->clock()->Now());
  {
    MutexLock lock(&mutex_);
    ++report_.sealed;
    report_.records += contents->entries.size();
  }
  End(work);
}

void FlashRecovery::Publish(const SegmentName& name,
                            const std::vector<ContentsEntry>& entries) {
  space_->Recover(name);
  // Told once it is known whose it is and that it may be served (rule C3).
  space_->Publish(name.segment, entries, FlashSpace::Telling::kLater);
}

// --- A scan.

void FlashRecovery::ReadScan(Work* work) {
  const FlashSuperblock& layout = space_->layout();
  const std::uint64_t from = work->at - work->at % kFlashPage;
  const std::uint64_t most =
      std::max(kScanBytes, layout.largest_block_bytes + 4 * kFlashPage);
  const std::uint64_t bytes = std::min(AlignUp(most, kFlashPage),
                                       SealOffset(layout.segment_bytes) - from);
  if (bytes == 0) {
    EndScan(work);
    return;
  }
  Read(work, from, bytes, &FlashRecovery::OnScan);
}

void FlashRecovery::OnScan(Work* work, bool read) {
  if (!read) {
    EndScan(work);
    return;
  }
  const std::uint64_t from = work->at - work->at % kFlashPage;
  const absl::Span<const std::byte> bytes =
      work->memory->bytes().subspan(0, work->bytes);
  if (TakeRecords(work, bytes, from)) {
    ReadScan(work);
  } else {
    EndScan(work);
  }
}

bool FlashRecovery::TakeRecords(Work* work, absl::Span<const std::byte> bytes,
                                std::uint64_t from) {
  const std::uint64_t limit = std::min<std::uint64_t>(
      bytes.size(), SealOffset(space_->layout().segment_bytes) - from);
  const std::uint64_t first = work->at;
  while (work->at - from < limit) {
    const std::uint64_t at = work->at - from;
    const absl::Span<const std::byte> rest = bytes.subspan(at, limit - at);
    const std::optional<RecordHeader> record = DecodeRecordHeader(
        {reinterpret_cast<const char*>(rest.data()), rest.size()});
    if (!record) {
      // Zeros up to the next page are the end of a round. On a page's start,
      // and with anything else, the records end here; unless the header goes on
      // beyond what was read.
      const std::uint64_t page = AlignUp(work->at, kFlashPage);
      if (page != work->at &&
          IsZero(bytes.subspan(at, std::min(page - from, limit) - at))) {
        work->at = page;
        continue;
      }
      return rest.size() < RecordHeaderBytes(kLargestBlockBytes) &&
             work->at > first && limit == bytes.size();
    }
    const SlotHeader& header = record->header;
    const RecordPlace place =
        PlaceRecordAt(work->at, header.length, record->padded);
    if (record->lap != work->name.lap ||
        record->segment != work->name.segment || record->offset != work->at ||
        header.length > space_->layout().largest_block_bytes) {
      return false;
    }
    if (place.end - from > limit) {
      // Read again from its own page on, unless that is what was done.
      return work->at > first;
    }
    if (PieceChecksums(bytes.subspan(place.payload - from, header.length)) !=
        header.pieces) {
      return false;
    }
    work->found.push_back(EntryOf(*record));
    work->at = place.end;
  }
  return true;
}

void FlashRecovery::EndScan(Work* work) {
  if (work->found.empty()) {
    MutexLock lock(&mutex_);
    ++report_.free;
  } else {
    Publish(work->name, work->found);
    writer_->Adopt(work->name, work->found, work->at);
    MutexLock lock(&mutex_);
    ++report_.scanned;
    report_.records += work->found.size();
  }
  End(work);
}

void FlashRecovery::End(Work* work) {
  {
    MutexLock lock(&mutex_);
    const auto it =
        std::find_if(works_.begin(), works_.end(),
                     [work](const auto& one) { return one.get() == work; });
    CHECK(it != works_.end());
    works_.erase(it);
  }
  Next();
}

}  // namespace firnkv
