// How regions are cut: units, slabs, classes, and that it all comes back.

#include "server/tier/slot_space.h"

#include <memory>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "proto/base/random.h"
#include "server/tier/arena.h"
#include "tests/server/tier/pool_fixture.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kRegion = kMiB;
const TenantId kTenant = MakeId<TenantId>(1);

class SlotSpaceTest : public testing::Test {
 protected:
  Region* AddRegion(TenantId tenant = kTenant) {
    const RegionId id = space_.NextRegionId();
    return space_.AddRegion(id, tenant, *arena_.Make(id, 0));
  }
  void Free(Slot* slot) {
    space_.Move(slot, SlotState::kRetiring, {});
    space_.Move(slot, SlotState::kFree, {});
  }

  SimMemory memory_;
  Arena arena_{
      {.region_bytes = kRegion, .reserve_bytes = 0}, &memory_, nullptr};
  SlotSpace space_{kEpoch, kRegion};
};

TEST_F(SlotSpaceTest, ADeclaredSizeIsItsClassUpToAPage) {
  EXPECT_EQ(SlotSpace::SlotBytesFor(1, 100'000), 25u * 4096);
  EXPECT_EQ(SlotSpace::SlotBytesFor(4096, 4096), 4096u);
}

TEST_F(SlotSpaceTest, UndeclaredSizesHaveFourClassesADoubling) {
  std::set<std::uint64_t> classes;
  for (std::uint64_t length = 64 * kKiB + 1; length <= 128 * kKiB; ++length) {
    classes.insert(SlotSpace::SlotBytesFor(length, 0));
  }
  EXPECT_THAT(classes, testing::ElementsAre(80 * kKiB, 96 * kKiB, 112 * kKiB,
                                            128 * kKiB));
}

// Of a region of 64 MiB a unit is 1 MiB.
TEST_F(SlotSpaceTest, ASlabIsAsLargeAsItTakesToWasteLittle) {
  EXPECT_EQ(Region::UnitsFor(4 * kKiB, 64 * kMiB), 1u);
  EXPECT_EQ(Region::UnitsFor(kMiB, 64 * kMiB), 1u);
  EXPECT_EQ(Region::UnitsFor(kMiB + 256 * kKiB, 64 * kMiB), 4u);
  EXPECT_EQ(Region::UnitsFor(16 * kMiB, 64 * kMiB), 16u);
  for (std::uint64_t pages = 1; pages <= 4096; ++pages) {
    const std::uint64_t slot = pages * kPageBytes;
    const std::uint64_t slab = Region::UnitsFor(slot, 64 * kMiB) * kMiB;
    EXPECT_GE(slab, slot);
    // Half a region and more is never lost to a rest.
    EXPECT_LE((slab % slot) * 2, slab) << pages;
  }
}

TEST_F(SlotSpaceTest, NothingIsTakenOfAnothersRegion) {
  AddRegion(MakeId<TenantId>(2));

  EXPECT_EQ(space_.Take(kTenant, 4096), nullptr);
}

TEST_F(SlotSpaceTest, SlotsOfARegionAreApartAndFoundByTheirPage) {
  AddRegion();
  std::set<std::uint32_t> pages;
  while (Slot* const slot = space_.Take(kTenant, 12 * kKiB)) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(pages.insert(slot->id.page + i).second);
    }
    EXPECT_EQ(space_.Find(slot->id), slot);
    EXPECT_EQ(space_.Find({slot->id.region, slot->id.page + 1}), nullptr);
  }
  EXPECT_LE(*pages.rbegin(), kRegion / kPageBytes - 1);
  EXPECT_EQ(space_.Find({99, 0}), nullptr);
  EXPECT_EQ(space_.Find({1, 1 << 30}), nullptr);
}

TEST_F(SlotSpaceTest, AnEmptySlabIsThereForAnyClass) {
  AddRegion();
  std::vector<Slot*> small;
  while (Slot* const slot = space_.Take(kTenant, 4 * kKiB)) {
    small.push_back(slot);
  }
  ASSERT_EQ(space_.Take(kTenant, 256 * kKiB), nullptr);

  for (Slot* slot : small) Free(slot);

  EXPECT_EQ(space_.slabs(), 0u);
  EXPECT_EQ(space_.unused_unit_bytes(), kRegion);
  EXPECT_NE(space_.Take(kTenant, 256 * kKiB), nullptr);
}

// Rule P3.
TEST_F(SlotSpaceTest, GenerationsComeFromOneCounter) {
  AddRegion();
  std::set<Generation> seen;
  for (const std::uint64_t bytes : {4 * kKiB, 8 * kKiB, 256 * kKiB}) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(seen.insert(space_.Take(kTenant, bytes)->generation).second);
    }
  }
}

TEST_F(SlotSpaceTest, TheColdestWindowIsTheOneOfTheColdestBlocks) {
  AddRegion();
  std::vector<Slot*> slots;
  while (Slot* const slot = space_.Take(kTenant, 4 * kKiB)) {
    space_.Move(slot, SlotState::kResident, {});
    // The colder, the further to the end.
    space_.SetWarmth(slot, Warmth{1000 - slot->id.page});
    slots.push_back(slot);
  }
  const Slot* const kept = slots.back();
  const auto window =
      space_.ColdestWindow(kTenant, 16 * kKiB, /*most=*/2,
                           [kept](const Slot& slot) { return &slot != kept; });

  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->first_unit, 62u);
}

TEST_F(SlotSpaceTest, ARetiringRegionGivesOutNothing) {
  Region* const region = AddRegion();
  Slot* const slot = space_.Take(kTenant, 4 * kKiB);

  space_.BeginRetire(region);

  EXPECT_EQ(space_.Take(kTenant, 4 * kKiB), nullptr);
  Free(slot);
  EXPECT_EQ(space_.Take(kTenant, 4 * kKiB), nullptr);
  EXPECT_EQ(space_.RemoveRegion(region->serial())->serial(), 1u);
  EXPECT_TRUE(space_.tenants().empty());
}

TEST_F(SlotSpaceTest, EveryByteIsAccountedForWhateverIsTakenAndFreed) {
  SeededRandom random(7);
  AddRegion();
  AddRegion();
  std::vector<Slot*> taken;
  for (int i = 0; i < 20'000; ++i) {
    if (!taken.empty() && random.Below(2) == 0) {
      const std::size_t at = random.Below(taken.size());
      Free(taken[at]);
      taken[at] = taken.back();
      taken.pop_back();
    } else {
      const std::uint64_t bytes = (1 + random.Below(64)) * kPageBytes;
      if (Slot* const slot = space_.Take(kTenant, bytes)) {
        taken.push_back(slot);
      }
    }
    ASSERT_EQ(space_.live_region_bytes(),
              space_.bytes(SlotState::kFree) +
                  space_.bytes(SlotState::kReserved) +
                  space_.unused_unit_bytes() + space_.slab_rest_bytes());
  }
  for (Slot* slot : taken) Free(slot);
  EXPECT_EQ(space_.unused_unit_bytes(), 2 * kRegion);
}

}  // namespace
}  // namespace firnkv
