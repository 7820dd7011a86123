// The second half of a round (flash_writer.h): flush, check, publish, seal.

#include <cstring>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "server/tier/flash_writer.h"

namespace firnkv {

void FlashWriter::FlushRecords(Round* round) {
  if (Failed(round)) {
    FailRound(round);
    return;
  }
  if (round->placed.empty()) {
    WriteSeals(round);
    return;
  }
  Flush(round, &FlashWriter::ReadBack);
}

absl::Span<std::byte> FlashWriter::BytesOf(const Round& round,
                                           const Placed& one) const {
  return round.buffer.bytes().subspan(one.at, one.place.end - one.place.offset);
}

void FlashWriter::ReadBack(Round* round) {
  if (Failed(round)) {
    FailRound(round);
    return;
  }
  std::vector<BlockDevice::ReadRequest> reads;
  for (const Placed& one : round->placed) {
    if (!one.check) continue;
    const std::uint64_t lead = one.place.offset % kFlashPage;
    const std::uint64_t bytes =
        AlignUp(one.place.end, kFlashPage) - (one.place.offset - lead);
    BlockDevice::ReadRequest read;
    read.offset =
        space_->layout().SegmentOffset(one.segment) + one.place.offset - lead;
    // The round's own copy is of no more use. Neighbours may share a page: both
    // reads put the same bytes there.
    read.into = round->buffer.bytes().subspan(one.at - lead, bytes);
    read.done = [this, round](absl::Status status) {
      OnOne(round, &FlashWriter::Check, status);
    };
    ledger_->read_bytes.Add(bytes);
    std::memset(read.into.data(), 0, read.into.size());
    reads.push_back(std::move(read));
  }
  if (reads.empty()) {
    Later(round, &FlashWriter::Publish);
    return;
  }
  {
    MutexLock lock(&mutex_);
    round->left = reads.size();
  }
  device_->StartReads(absl::MakeSpan(reads));
}

void FlashWriter::Check(Round* round) {
  // A read that failed leaves zeros, which no record is.
  for (Placed& one : round->placed) {
    if (!one.check) continue;
    ledger_->checked_records.Add();
    const absl::Span<std::byte> bytes = BytesOf(*round, one);
    const std::optional<RecordHeader> record = DecodeRecordHeader(
        {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (record && record->header == *one.append.header &&
        record->offset == one.place.offset &&
        PieceChecksums(bytes.subspan(one.place.payload - one.place.offset,
                                     one.append.bytes.size())) ==
            record->header.pieces) {
      continue;
    }
    ledger_->failed_checks.Add();
    one.outcome = StoreOutcome::kDeviceFailed;
  }
  Publish(round);
}

void FlashWriter::Publish(Round* round) {
  {
    MutexLock lock(&mutex_);
    // What a read back said is its record's own affair.
    round->status = absl::OkStatus();
    for (Placed& one : round->placed) {
      waiting_bytes_ -= one.append.bytes.size();
      if (one.outcome != StoreOutcome::kStored) continue;
      const SlotHeader& header = *one.append.header;
      ContentsEntry entry;
      entry.offset = one.place.offset;
      entry.padded = one.place.padded;
      entry.block = header.block;
      entry.clear_epoch = header.clear_epoch;
      entry.place = header.place;
      entry.length = header.length;
      one.generation =
          space_->Publish(one.segment, absl::MakeConstSpan(&entry, 1));
      open_[one.segment].entries.push_back(entry);
    }
  }
  for (Placed& one : round->placed) {
    if (one.outcome == StoreOutcome::kStored) {
      ledger_->stored_records.Add();
      (one.append.again ? ledger_->reappended_bytes : ledger_->admitted_bytes)
          .Add(one.append.bytes.size());
    }
    std::move(one.append.done)(one.outcome, one.generation);
  }
  WriteSeals(round);
}

void FlashWriter::WriteSeals(Round* round) {
  const std::uint64_t segment_bytes = space_->layout().segment_bytes;
  std::vector<SegmentContents> contents;
  std::vector<SegmentSeal> seals;
  std::vector<SegmentName> empty;
  {
    MutexLock lock(&mutex_);
    full_.insert(round->full.begin(), round->full.end());
    for (const std::uint32_t number : full_) {
      const OpenSegment& open = open_[number];
      if (open.entries.empty()) {
        empty.push_back(open.name);
        continue;
      }
      contents.push_back({.name = open.name, .entries = open.entries});
      SegmentSeal seal;
      seal.name = open.name;
      seal.records = static_cast<std::uint32_t>(open.entries.size());
      seal.data_end = open.end;
      seals.push_back(seal);
    }
    for (const SegmentName& name : empty) {
      full_.erase(name.segment);
      open_.erase(name.segment);
    }
  }
  for (const SegmentName& name : empty) {
    space_->Retire(name.segment, name.lap, {}, [] {});
  }
  std::vector<BlockDevice::WriteRequest> writes;
  for (std::size_t i = 0; i < seals.size(); ++i) {
    const std::string encoded = EncodeContents(contents[i]);
    seals[i].contents_bytes = encoded.size();
    const std::string seal = EncodeSeal(seals[i]);
    const std::uint64_t offset = ContentsOffset(segment_bytes, encoded.size());
    SealWrite write;
    write.segment = seals[i].name.segment;
    write.memory = std::make_unique<AlignedMemory>(segment_bytes - offset);
    std::byte* const to = write.memory->bytes().data();
    std::memcpy(to, encoded.data(), encoded.size());
    std::memcpy(to + (SealOffset(segment_bytes) - offset), seal.data(),
                seal.size());
    BlockDevice::WriteRequest request;
    request.offset = space_->layout().SegmentOffset(write.segment) + offset;
    request.from = write.memory->bytes();
    writes.push_back(std::move(request));
    round->seals.push_back(std::move(write));
  }
  WriteAll(round, std::move(writes), &FlashWriter::FlushSeals);
}

void FlashWriter::FlushSeals(Round* round) {
  if (Failed(round) || round->seals.empty()) {
    EndRound(round);
    return;
  }
  Flush(round, &FlashWriter::OnSealed);
}

void FlashWriter::OnSealed(Round* round) {
  if (Failed(round)) {
    EndRound(round);
    return;
  }
  const BootTime now = executor_->clock()->Now();
  {
    MutexLock lock(&mutex_);
    for (const SealWrite& write : round->seals) {
      full_.erase(write.segment);
      open_.erase(write.segment);
    }
  }
  for (const SealWrite& write : round->seals) space_->Seal(write.segment, now);
  EndRound(round);
}

void FlashWriter::FailRound(Round* round) {
  {
    MutexLock lock(&mutex_);
    for (const Unit& unit : round->units) CloseSegment(unit.name.segment);
    for (const SegmentName& name : round->fresh) CloseSegment(name.segment);
    for (const std::uint32_t number : round->full) CloseSegment(number);
    for (const Placed& one : round->placed) {
      waiting_bytes_ -= one.append.bytes.size();
    }
  }
  ledger_->device_failures.Add();
  for (Placed& one : round->placed) {
    std::move(one.append.done)(StoreOutcome::kDeviceFailed, Generation::kNone);
  }
  EndRound(round);
}

void FlashWriter::CloseSegment(std::uint32_t segment) {
  const auto open = open_.find(segment);
  if (open == open_.end()) return;
  full_.insert(segment);
  const auto it = of_tenant_.find(open->second.name.tenant);
  if (it != of_tenant_.end() && it->second == segment) of_tenant_.erase(it);
}

void FlashWriter::EndRound(Round* round) {
  std::unique_ptr<Round> ended;
  Round* next = nullptr;
  {
    MutexLock lock(&mutex_);
    CHECK(finishing_.get() == round);
    ended = std::move(finishing_);
    if (writing_ && writing_->written) {
      finishing_ = std::move(writing_);
      next = finishing_.get();
    }
  }
  for (Task& task : ended->sealed) std::move(task)();
  ended.reset();
  if (next != nullptr) FlushRecords(next);
  Pump();
}

}  // namespace firnkv
