// Slot headers: the encoding that goes ahead of payload, and the mapped table,
// whose bytes a reader takes from a node that may be another version
// (proto/base/slot_header.h).

#include <algorithm>
#include <memory>

#include "proto/base/check.h"
#include "proto/base/slot_header.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t { kEncoded, kSealed, kTable, kParts };

constexpr std::uint64_t kRegionBytes = 24 * kPageBytes;
constexpr RegionId kRegion{NodeEpoch{5}, 6};

struct alignas(kPageBytes) Table {
  std::byte bytes[HeaderTableBytes(kRegionBytes)] = {};
};

void TryEncoded(std::string_view bytes) {
  std::string_view rest = bytes;
  const std::optional<SlotHeader> header = TakeSlotHeader(&rest);
  if (!header) {
    CHECK(rest == bytes);
    return;
  }
  CHECK(IsSane(*header));
  std::string again;
  AppendSlotHeader(*header, &again);
  CHECK(again == bytes.substr(0, bytes.size() - rest.size()));
  // What one way carries, the other does too.
  if (header->length > kRegionBytes) return;
  const auto table = std::make_unique<Table>();
  HeaderTableWriter writer(table->bytes, kRegion, kRegionBytes);
  writer.Write(0, *header);
  const auto reader = HeaderTableReader::Open(table->bytes, kRegion);
  CHECK(reader.has_value() && reader->Read(0) == header);
}

void TryTable(std::string_view bytes) {
  const auto table = std::make_unique<Table>();
  HeaderTableWriter writer(table->bytes, kRegion, kRegionBytes);
  writer.Write(3, SampleHeader());
  // Changes of it: a place and a byte each.
  for (std::size_t i = 0; i + 3 <= bytes.size(); i += 3) {
    const std::size_t place =
        (static_cast<std::uint8_t>(bytes[i]) |
         static_cast<std::size_t>(static_cast<std::uint8_t>(bytes[i + 1]))
             << 8) %
        sizeof(table->bytes);
    table->bytes[place] ^= static_cast<std::byte>(bytes[i + 2]);
  }
  const auto reader = HeaderTableReader::Open(table->bytes, kRegion);
  if (!reader) return;
  for (const std::uint32_t page : {0U, 3U, 23U, 24U, 1000U, ~0U}) {
    const std::optional<SlotHeader> header = reader->Read(page);
    if (!header) continue;
    CHECK(IsSane(*header));
    CHECK(reader->ReadGeneration(page).has_value());
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::string encoded;
  AppendSlotHeader(SampleHeader(), &encoded);
  // The lead, the slot's first word, its key, its length, a piece.
  const std::string change("\x08\0\x01\0\x13\x01\x20\x13\x80", 9);
  return {Seed(kEncoded, encoded), Seed(kSealed, WithoutCrc(encoded)),
          Seed(kTable, ""), Seed(kTable, change)};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  switch (input.U8() % kParts) {
    case kEncoded:
      TryEncoded(input.Rest());
      break;
    case kSealed:
      TryEncoded(WithCrc(input.Rest()));
      break;
    case kTable:
      TryTable(input.Rest());
      break;
  }
  return 0;
}
