#include "server/tier/flash_contents.h"

#include <string_view>
#include <utility>

namespace firnkv {
namespace {

std::string_view TextOf(const AlignedMemory& memory, std::uint64_t bytes) {
  return {reinterpret_cast<const char*>(memory.bytes().data()), bytes};
}

}  // namespace

void FlashContents::Read(const SegmentName& name, Got got) {
  std::optional<std::vector<ContentsEntry>> open = writer_->CopyOpen(name);
  if (open) {
    executor_->Post(
        scope_.Wrap([got = std::move(got), open = std::move(open)]() mutable {
          std::move(got)(std::move(open));
        }));
    return;
  }
  auto work = std::make_unique<Work>();
  work->name = name;
  work->got = std::move(got);
  ReadPages(std::move(work), SealOffset(space_->layout().segment_bytes),
            kFlashPage, &FlashContents::OnSeal);
}

void FlashContents::ReadPages(WorkPtr work, std::uint64_t offset,
                              std::uint64_t bytes,
                              void (FlashContents::*next)(WorkPtr, bool)) {
  work->memory = std::make_unique<AlignedMemory>(bytes);
  ledger_->read_bytes.Add(bytes);
  const std::uint64_t at =
      space_->layout().SegmentOffset(work->name.segment) + offset;
  const absl::Span<std::byte> into = work->memory->bytes();
  device_->StartRead(
      at, into,
      [this, next, work = std::move(work)](absl::Status status) mutable {
        const bool read = status.ok();
        executor_->Post(
            scope_.Wrap([this, next, read, work = std::move(work)]() mutable {
              (this->*next)(std::move(work), read);
            }));
      });
}

void FlashContents::OnSeal(WorkPtr work, bool read) {
  const std::uint64_t segment_bytes = space_->layout().segment_bytes;
  const std::optional<SegmentSeal> seal =
      read ? DecodeSeal(TextOf(*work->memory, kFlashPage)) : std::nullopt;
  if (!seal || seal->name != work->name ||
      seal->contents_bytes > segment_bytes - 2 * kFlashPage) {
    std::move(work->got)(std::nullopt);
    return;
  }
  work->seal = *seal;
  ReadPages(std::move(work),
            ContentsOffset(segment_bytes, seal->contents_bytes),
            AlignUp(seal->contents_bytes, kFlashPage), &FlashContents::OnTable);
}

void FlashContents::OnTable(WorkPtr work, bool read) {
  std::optional<SegmentContents> contents =
      read ? DecodeContents(TextOf(*work->memory, work->seal.contents_bytes))
           : std::nullopt;
  if (!contents || contents->name != work->name ||
      contents->entries.size() != work->seal.records) {
    std::move(work->got)(std::nullopt);
    return;
  }
  std::move(work->got)(std::move(contents->entries));
}

}  // namespace firnkv
