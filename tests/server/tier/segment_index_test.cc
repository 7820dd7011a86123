#include "server/tier/segment_index.h"

#include <algorithm>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

RecordPlace Place(std::uint32_t ordinal) {
  return PlaceRecord(kFlashPage + ordinal * 8192, 4096);
}

TEST(SegmentIndexTest, AllRecordsOfAFingerprintAreFound) {
  SegmentIndex index(3);
  index.Add(0, 7, Place(0), 4096);
  index.Add(2, 7, Place(0), 4096);
  index.Add(2, 8, Place(1), 4096);

  std::vector<SegmentIndex::Record> found;
  index.Find(7, &found);

  EXPECT_EQ(found.size(), 2u);
  EXPECT_TRUE(index.Has(8));
  EXPECT_FALSE(index.Has(9));
}

TEST(SegmentIndexTest, PlaceLengthAndReadsAreKept) {
  SegmentIndex index(1);
  const RecordPlace place = PlaceRecord(kFlashPage, kLargestBlockBytes);
  const RecordNumber number = index.Add(0, 1, place, kLargestBlockBytes);
  for (int i = 0; i < 20; ++i) index.CountRead(number);

  SegmentIndex::Record record;
  ASSERT_TRUE(index.Get(number, &record));

  EXPECT_EQ(record.place, place);
  EXPECT_TRUE(record.place.padded);
  EXPECT_EQ(record.length, kLargestBlockBytes);
  EXPECT_EQ(record.reads, SegmentIndex::kMostReads);
}

// Against a plain map, with few fingerprints, so that runs of cells are long.
TEST(SegmentIndexTest, AddingAndRemovingAgreesWithAMap) {
  SeededRandom random(5);
  SegmentIndex index(4);
  std::map<RecordNumber, std::uint64_t> there;
  for (int step = 0; step < 20'000; ++step) {
    if (random.Below(3) != 0 || there.empty()) {
      const auto segment = static_cast<std::uint32_t>(random.Below(4));
      const std::uint64_t fingerprint = random.Below(200);
      const RecordNumber number =
          index.Add(segment, fingerprint, Place(index.RecordsOf(segment)), 9);
      there[number] = fingerprint;
    } else if (random.Below(500) == 0) {
      const auto segment = static_cast<std::uint32_t>(random.Below(4));
      index.RemoveSegment(segment);
      std::erase_if(there, [segment](const auto& one) {
        return one.first.segment == segment;
      });
    } else {
      auto it = there.begin();
      std::advance(it, random.Below(std::min<std::size_t>(there.size(), 50)));
      EXPECT_TRUE(index.Remove(it->first));
      EXPECT_FALSE(index.Remove(it->first));
      there.erase(it);
    }
  }
  ASSERT_EQ(index.records(), there.size());
  for (std::uint64_t fingerprint = 0; fingerprint < 200; ++fingerprint) {
    std::vector<SegmentIndex::Record> found;
    index.Find(fingerprint, &found);
    const auto wanted = std::count_if(
        there.begin(), there.end(),
        [fingerprint](const auto& one) { return one.second == fingerprint; });
    EXPECT_EQ(found.size(), static_cast<std::size_t>(wanted));
    for (const SegmentIndex::Record& record : found) {
      EXPECT_EQ(there.at(record.number), fingerprint);
    }
  }
}

TEST(SegmentIndexTest, ARecordCostsFortyBytesAtMostAllIncluded) {
  SeededRandom random(6);
  SegmentIndex index(64);
  // Segments of 20,000, as 1.2 GiB of 64 KiB blocks would be.
  std::uint64_t worst = 0;
  for (std::uint32_t segment = 0; segment < 64; ++segment) {
    for (std::uint32_t i = 0; i < 20'000; ++i) {
      index.Add(segment, random.Next64(), Place(i), 4096);
    }
    index.Shrink(segment);
    if (segment >= 8) {
      worst = std::max(worst, index.memory_bytes() * 100 / index.records());
    }
  }

  EXPECT_LE(worst, 4000u);
}

}  // namespace
}  // namespace firnkv
