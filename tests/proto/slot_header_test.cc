// Slot headers: the encoding, the mapped table, the sequence lock.

#include "proto/base/slot_header.h"

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/proto/broken_bytes.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

using ::testing::Eq;
using ::testing::Optional;

constexpr std::uint64_t kRegionBytes = 64 * kPageBytes;
constexpr RegionId kRegion{NodeEpoch{0xabcdef}, 7};

// Memory as mmap gives it: zeros, aligned to a page.
class Table {
 public:
  explicit Table(std::uint64_t region_bytes = kRegionBytes)
      : size_(HeaderTableBytes(region_bytes)),
        bytes_(static_cast<std::byte*>(
            ::operator new (size_, std::align_val_t{kPageBytes}))) {
    std::memset(bytes_, 0, size_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() { ::operator delete (bytes_, std::align_val_t{kPageBytes}); }

  absl::Span<std::byte> span() { return {bytes_, size_}; }
  std::uint8_t& operator[](std::size_t offset) {
    return reinterpret_cast<std::uint8_t*>(bytes_)[offset];
  }

 private:
  const std::size_t size_;
  std::byte* const bytes_;
};

class HeaderTable : public ::testing::Test {
 protected:
  HeaderTableReader Reader() {
    return *HeaderTableReader::Open(table_.span(), kRegion);
  }
  // Where the header of `page` lies, by docs/PROTOCOL.md.
  static std::size_t At(std::uint32_t page) { return 4096 + 256 * page; }

  Table table_;
  HeaderTableWriter writer_{table_.span(), kRegion, kRegionBytes};
};

TEST_F(HeaderTable, WhatWasWrittenIsRead) {
  writer_.Write(3, SampleHeader());

  EXPECT_THAT(Reader().Read(3), Optional(Eq(SampleHeader())));
  EXPECT_THAT(Reader().ReadGeneration(3),
              Optional(Eq(SampleHeader().generation)));
}

TEST_F(HeaderTable, SlotsDoNotTouchEachOther) {
  SlotHeader first = SampleHeader();
  SlotHeader second = SampleHeader();
  second.generation = Generation{99};
  second.block.key = CountingId<BlockKey>(0xc0);
  second.pieces = {1, 2};

  writer_.Write(0, first);
  writer_.Write(18, second);

  EXPECT_THAT(Reader().Read(0), Optional(Eq(first)));
  EXPECT_THAT(Reader().Read(18), Optional(Eq(second)));
  EXPECT_EQ(Reader().Read(1), std::nullopt);
}

TEST_F(HeaderTable, ASlotMayEndWithTheRegion) {
  writer_.Write(64 - 18, SampleHeader());

  EXPECT_THAT(Reader().Read(64 - 18), Optional(Eq(SampleHeader())));
}

TEST_F(HeaderTable, AHeaderThatRunsBeyondItsRegionIsRefused) {
  writer_.Write(64 - 18, SampleHeader());
  const std::size_t pieces = 4096 + 64 * 256;

  // The same header a page later: right in itself, but a page too long there.
  std::memcpy(&table_[At(64 - 17)], &table_[At(64 - 18)], 256);
  std::memmove(&table_[pieces + 4 * (64 - 17)], &table_[pieces + 4 * (64 - 18)],
               8);

  EXPECT_EQ(Reader().Read(64 - 17), std::nullopt);
}

TEST_F(HeaderTable, ANeverUsedSlotHoldsNothing) {
  EXPECT_EQ(Reader().Read(5), std::nullopt);
  EXPECT_THAT(Reader().ReadGeneration(5), Optional(Eq(Generation::kNone)));
}

// Rule P7.
TEST_F(HeaderTable, ABumpedSlotHoldsNothingAndHasTheNewGeneration) {
  writer_.Write(3, SampleHeader());  // Rule P7.

  writer_.Bump(3, Generation{0x0102030405060709});

  EXPECT_EQ(Reader().Read(3), std::nullopt);
  EXPECT_THAT(Reader().ReadGeneration(3),
              Optional(Eq(Generation{0x0102030405060709})));
}

TEST_F(HeaderTable, PagesOutOfBoundsHoldNothing) {
  for (const std::uint32_t page : {64u, 65u, 1u << 24, UINT32_MAX}) {
    EXPECT_EQ(Reader().Read(page), std::nullopt);
    EXPECT_EQ(Reader().ReadGeneration(page), std::nullopt);
  }
}

// Rule P5.
TEST_F(HeaderTable, AWriterStoppedInTheMiddleMakesTheReaderGiveUp) {
  writer_.Write(3, SampleHeader());  // Rule P5.

  table_[At(3)] |= 1;  // The odd sequence, as a stopped node left it.

  EXPECT_EQ(Reader().Read(3), std::nullopt);
}

TEST_F(HeaderTable, AWriterStoppedInTheMiddleDoesNotDelayTheSecondLook) {
  writer_.Write(3, SampleHeader());

  table_[At(3)] |= 1;

  EXPECT_THAT(Reader().ReadGeneration(3),
              Optional(Eq(SampleHeader().generation)));
}

// Rule P10.
TEST_F(HeaderTable, TheWriterDoesNotBelieveWhatStandsInTheTable) {
  writer_.Write(3, SampleHeader());  // Rule P10: it never reads it back.

  table_[At(3)] = 0xff;
  writer_.Write(3, SampleHeader());

  EXPECT_THAT(Reader().Read(3), Optional(Eq(SampleHeader())));
}

TEST_F(HeaderTable, EveryFlippedBitOfAHeaderOrPieceIsNoticed) {
  writer_.Write(3, SampleHeader());
  const std::size_t pieces = 4096 + 64 * 256 + 3 * 4;

  const auto expect_noticed = [&](std::size_t offset) {
    for (int bit = 0; bit < 8; ++bit) {
      table_[offset] ^= 1 << bit;
      EXPECT_EQ(Reader().Read(3), std::nullopt) << offset << " bit " << bit;
      table_[offset] ^= 1 << bit;
    }
  };

  for (std::size_t i = 0; i < 25 * 8; ++i) expect_noticed(At(3) + 8 + i);
  for (std::size_t i = 0; i < 2 * 4; ++i) expect_noticed(pieces + i);
  EXPECT_THAT(Reader().Read(3), Optional(Eq(SampleHeader())));
}

TEST_F(HeaderTable, RandomBytesAreNoHeaderAndCrashNobody) {
  SeededRandom random(11);
  for (int round = 0; round < 200; ++round) {
    auto* const first = &table_[4096];
    random.Fill({first, table_.span().size() - 4096});
    // Half of the sequences are odd; most lengths are out of bounds, so let
    // some be near them.
    for (std::uint32_t page = 0; page < 64; page += 2) {
      table_[At(page)] &= 0xfe;
      const std::uint64_t length = random.Below(2 * kRegionBytes);
      std::memcpy(&table_[At(page) + 8 * 23], &length, 8);
    }

    for (std::uint32_t page = 0; page < 64; ++page) {
      ASSERT_EQ(Reader().Read(page), std::nullopt);
    }
  }
}

// Rule P3.
TEST_F(HeaderTable, TheWrongRegionIsNotOpened) {
  EXPECT_EQ(HeaderTableReader::Open(table_.span(), {NodeEpoch{0xabcdef}, 8}),
            std::nullopt);  // Rule P3.
  EXPECT_EQ(HeaderTableReader::Open(table_.span(), {NodeEpoch{0xabcdee}, 7}),
            std::nullopt);
}

TEST_F(HeaderTable, AnyFlippedBitOfTheLeadIsNotOpenedOrStaysInBounds) {
  for (std::size_t offset = 0; offset < sizeof(HeaderTableLead); ++offset) {
    for (int bit = 0; bit < 8; ++bit) {
      table_[offset] ^= 1 << bit;
      const auto reader = HeaderTableReader::Open(table_.span(), kRegion);
      // Only the count of pages may change, and only to fewer or as many as
      // the memory has room for.
      if (reader) {
        EXPECT_GE(offset, 12u);
        EXPECT_LT(offset, 16u);
        for (std::uint32_t page = 0; page < 130; ++page) reader->Read(page);
      }
      table_[offset] ^= 1 << bit;
    }
  }
}

TEST_F(HeaderTable, MemoryThatIsTooSmallIsNotOpened) {
  for (const std::size_t size : {0, 31, 4095, 4096, 4096 + 64 * 260 - 1}) {
    EXPECT_EQ(HeaderTableReader::Open(table_.span().first(size), kRegion),
              std::nullopt);
  }
  EXPECT_EQ(HeaderTableReader::Open(table_.span().subspan(1), kRegion),
            std::nullopt);
}

// A header all of whose fields follow from `n`.
SlotHeader HeaderOf(std::uint64_t n) {
  SlotHeader header = SampleHeader();
  header.generation = Generation{n};
  header.block.key.bytes.fill(static_cast<std::uint8_t>(n | 1));
  header.place.parent.bytes.fill(static_cast<std::uint8_t>(n));
  header.place.position = static_cast<std::uint32_t>(n);
  header.commit_time_nanos = static_cast<std::int64_t>(n);
  header.pieces = {static_cast<std::uint32_t>(n),
                   static_cast<std::uint32_t>(~n)};
  return header;
}

// Rule P5.
TEST_F(HeaderTable, AReaderBesideAWriterSeesWholeHeadersInOrder) {
  constexpr std::uint64_t kLast = 20'000;  // Rule P5.
  std::atomic<bool> started{false};
  std::thread writer([&] {
    while (!started.load()) {
    }
    for (std::uint64_t n = 1; n <= kLast; ++n) writer_.Write(3, HeaderOf(n));
  });

  const HeaderTableReader reader = Reader();
  std::uint64_t last = 0;
  started.store(true);
  while (last < kLast) {
    const std::optional<SlotHeader> header = reader.Read(3);
    if (!header) continue;
    const auto n = static_cast<std::uint64_t>(header->generation);
    ASSERT_EQ(*header, HeaderOf(n));
    ASSERT_GE(n, last);
    last = n;
  }

  writer.join();
}

// Rules P4, P7.
TEST_F(HeaderTable, ACopyWithAnUnchangedGenerationIsOfOneLifeOfTheSlot) {
  constexpr std::uint64_t kLives = 20'000;  // Rules P4 and P7.
  // The slot's bytes, as words, so that the race is one that C++ allows.
  std::array<std::atomic<std::uint64_t>, 64> slot{};
  std::atomic<bool> over{false};
  std::thread node([&] {
    for (std::uint64_t n = 1; n <= kLives; ++n) {
      writer_.Bump(3, Generation{n});
      for (auto& word : slot) word.store(n, std::memory_order_relaxed);
      writer_.Write(3, HeaderOf(n));
    }
    over.store(true);
  });

  const HeaderTableReader reader = Reader();
  std::uint64_t accepted = 0;
  bool last_round = false;
  while (!last_round) {
    last_round = over.load();
    const std::optional<SlotHeader> before = reader.Read(3);
    if (!before) continue;
    std::array<std::uint64_t, 64> copy;
    for (std::size_t i = 0; i < copy.size(); ++i) {
      copy[i] = slot[i].load(std::memory_order_relaxed);
    }
    if (reader.ReadGeneration(3) != before->generation) continue;
    ++accepted;
    for (const std::uint64_t word : copy) {
      ASSERT_EQ(word, static_cast<std::uint64_t>(before->generation));
    }
  }

  node.join();
  EXPECT_GT(accepted, 0u);
}

TEST(IsSane, RefusesWhatNoBlockCanHave) {
  const auto changed = [](auto change) {
    SlotHeader header = SampleHeader();
    change(header);
    return IsSane(header);
  };

  EXPECT_TRUE(IsSane(SampleHeader()));
  EXPECT_FALSE(changed([](auto& h) { h.block.name_space = {}; }));
  EXPECT_FALSE(changed([](auto& h) { h.block.key = {}; }));
  EXPECT_FALSE(changed([](auto& h) { h.clear_epoch = ClearEpoch::kUnknown; }));
  EXPECT_FALSE(changed([](auto& h) { h.generation = Generation::kNone; }));
  EXPECT_FALSE(changed([](auto& h) { h.place.shard = {2, 2}; }));
  EXPECT_FALSE(changed([](auto& h) { h.place.shard = {0, 0}; }));
  EXPECT_FALSE(changed([](auto& h) { h.pieces.pop_back(); }));
  EXPECT_FALSE(changed([](auto& h) { h.pieces.push_back(0); }));
  EXPECT_FALSE(changed([](auto& h) { h.length = 0, h.pieces.clear(); }));
  EXPECT_FALSE(changed([](auto& h) {
    h.length = kLargestBlockBytes + 1;
    h.pieces.assign(kMaxPieces + 1, 0);
  }));
}

std::string Encoded(const SlotHeader& header) {
  std::string out;
  AppendSlotHeader(header, &out);
  return out;
}

TEST(SlotHeaderEncoding, ComesBackAndLeavesWhatFollows) {
  const std::string bytes = Encoded(SampleHeader()) + "payload";
  std::string_view rest = bytes;

  EXPECT_THAT(TakeSlotHeader(&rest), Optional(Eq(SampleHeader())));
  EXPECT_EQ(rest, "payload");
}

TEST(SlotHeaderEncoding, OfTheLargestBlockComesBack) {
  SlotHeader header = SampleHeader();
  header.length = kLargestBlockBytes;
  header.pieces.assign(kMaxPieces, 0x01020304);
  const std::string bytes = Encoded(header);
  std::string_view rest = bytes;

  EXPECT_THAT(TakeSlotHeader(&rest), Optional(Eq(header)));
}

TEST(SlotHeaderEncoding, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      Encoded(SampleHeader()), [](std::string_view bytes) {
        std::string_view rest = bytes;
        const bool taken = TakeSlotHeader(&rest).has_value();
        // Refused bytes stay where they are.
        EXPECT_EQ(rest.size() == bytes.size(), !taken);
        return taken && rest.empty();
      });
}

TEST(SlotHeaderEncoding, AnInsaneHeaderIsRefusedThoughItsChecksumIsRight) {
  SlotHeader longer = SampleHeader();
  longer.length = kLargestBlockBytes;  // But two pieces.
  SlotHeader nobody = SampleHeader();
  nobody.block.key = BlockKey{};

  for (const SlotHeader& header : {longer, nobody}) {
    const std::string bytes = Encoded(header);
    std::string_view rest = bytes;
    EXPECT_EQ(TakeSlotHeader(&rest), std::nullopt);
  }
}

}  // namespace
}  // namespace firnkv
