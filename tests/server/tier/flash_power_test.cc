// Power goes at every write and flush, under every fault that the simulated
// device knows: what a later run serves is right, or it is a miss.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/tier/flash_fixture.h"

namespace firnkv {
namespace {

// What was asked of the device so far, and what it answered.
class History {
 public:
  explicit History(FlashWorld* flash) : flash_(flash) {}

  // A batch of new blocks, and some that were there before.
  void StoreSome(int count) {
    std::vector<FlashBlock> batch;
    for (int i = 0; i < count; ++i) {
      const int tenant = static_cast<int>(Below(3));
      const int key = 1 + static_cast<int>(blocks_.size() + batch.size());
      const std::uint64_t length =
          Below(4) == 0 ? FlashWorld::kLargestBlock : 1 + Below(4096);
      batch.push_back(MakeFlashBlock(tenant, key, length));
    }
    const auto outcomes = flash_->StoreAll(batch);
    for (int i = 0; i < count; ++i) {
      stored_[batch[i].header.block] = outcomes[i] == StoreOutcome::kStored;
      blocks_.push_back(std::move(batch[i]));
    }
  }

  void LoadSome(int count) {
    for (int i = 0; i < count && !blocks_.empty(); ++i) {
      Check(blocks_[Below(blocks_.size())]);
    }
  }

  // Every block that was ever tried. The blocks that the device had promised
  // and does not serve.
  std::vector<std::size_t> CheckAll() {
    std::vector<std::size_t> missing;
    std::vector<BlockId> ids;
    for (const FlashBlock& block : blocks_) ids.push_back(block.header.block);
    const auto loaded = flash_->LoadAll(ids);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      loads_ += 1;
      if (loaded[i].outcome == LoadOutcome::kLoaded) {
        ++hits_;
        EXPECT_TRUE(FlashWorld::IsRight(blocks_[i], loaded[i]))
            << "block " << i;
      } else if (stored_[ids[i]]) {
        missing.push_back(i);
      }
    }
    return missing;
  }

  std::uint64_t Below(std::uint64_t bound) {
    return flash_->world()->random()->Below(bound);
  }
  std::uint64_t hits() const { return hits_; }
  std::uint64_t loads() const { return loads_; }

 private:
  void Check(const FlashBlock& block) {
    const FlashWorld::Loaded loaded = flash_->LoadAll({block.header.block})[0];
    if (loaded.outcome == LoadOutcome::kLoaded) {
      EXPECT_TRUE(FlashWorld::IsRight(block, loaded));
    }
  }

  FlashWorld* const flash_;
  std::vector<FlashBlock> blocks_;
  std::map<BlockId, bool> stored_;
  std::uint64_t hits_ = 0;
  std::uint64_t loads_ = 0;
};

struct Plan {
  std::string name;
  SimDevice::Faults faults;
  // Nothing lies: what was stored is there after a power cut.
  bool honest = false;
  bool reclaim = false;
};

std::vector<Plan> Plans() {
  std::vector<Plan> plans;
  plans.push_back({"power only", {}, true, false});
  plans.push_back({"reclaim", {}, false, true});
  plans.push_back({"lost writes", {.lost_writes = 60}, false, true});
  plans.push_back({"misdirected", {.misdirected_writes = 60}, false, true});
  plans.push_back({"torn writes", {.torn_writes = 60}, false, true});
  plans.push_back({"flipped bits", {.flipped_bits = 100}, false, true});
  plans.push_back({"failed writes", {.failed_writes = 60}, false, true});
  plans.push_back({"failed reads", {.failed_reads = 60}, false, true});
  plans.push_back({"failed flushes", {.failed_flushes = 100}, false, true});
  plans.push_back({"lying flushes", {.lying_flushes = 300}, false, true});
  Plan all{"all", {}, false, true};
  all.faults = {.lost_writes = 20,
                .misdirected_writes = 20,
                .torn_writes = 20,
                .flipped_bits = 20,
                .failed_writes = 20,
                .failed_reads = 20,
                .failed_flushes = 20,
                .lying_flushes = 100,
                .slow = 50};
  plans.push_back(all);
  return plans;
}

struct Sum {
  std::uint64_t hits = 0;
  std::uint64_t loads = 0;
  std::uint64_t cuts = 0;
  std::uint64_t refused = 0;
};

// One device from its first run to its third.
void RunOnce(const Plan& plan, std::uint64_t seed, std::uint64_t cut_after,
             Sum* sum) {
  SCOPED_TRACE(plan.name + ", seed " + std::to_string(seed) +
               ", power cut after " + std::to_string(cut_after));
  FlashWorld flash(seed);
  flash.options()->keep_free_segments = plan.reclaim ? 2 : 0;
  ASSERT_OK(flash.Boot());
  History history(&flash);
  flash.device()->SetFaults(plan.faults);
  flash.device()->CutPowerAfter(cut_after);
  for (int i = 0; i < 12 && !flash.device()->power_is_cut(); ++i) {
    history.StoreSome(1 + static_cast<int>(history.Below(20)));
    history.LoadSome(3);
  }
  sum->cuts += flash.device()->power_is_cut() ? 1 : 0;
  for (int run = 0; run < 2; ++run) {
    flash.Crash();
    flash.device()->SetFaults({});
    const absl::Status booted = flash.Boot();
    if (!booted.ok()) {
      // A misdirected write can take both superblocks, and is refused then.
      EXPECT_GT(plan.faults.misdirected_writes, 0u) << booted;
      ++sum->refused;
      return;
    }
    const std::vector<std::size_t> missing = history.CheckAll();
    if (plan.honest) {
      EXPECT_TRUE(missing.empty()) << missing[0];
    }
    history.StoreSome(10);
    history.CheckAll();
  }
  sum->hits += history.hits();
  sum->loads += history.loads();
}

// Rules F1, F2, F3, P12.
TEST(FlashPowerTest, WhereverPowerGoesWhatWasStoredIsThereAndRight) {
  Sum sum;
  for (std::uint64_t cut_after = 0; cut_after < 90; ++cut_after) {
    RunOnce(Plans()[0], 1 + cut_after, cut_after, &sum);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }

  EXPECT_GT(sum.cuts, 40u);
  EXPECT_GT(sum.hits * 2, sum.loads);
}

// Rules F1, F2, F3, F5, P12.
TEST(FlashPowerTest, UnderEveryFaultWhatIsServedIsRight) {
  for (const Plan& plan : Plans()) {
    Sum sum;
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      RunOnce(plan, seed * 7919, seed * 4, &sum);
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }

    EXPECT_GT(sum.cuts, 8u) << plan.name;
    EXPECT_GT(sum.hits, 100u) << plan.name;
    EXPECT_LT(sum.refused, 15u) << plan.name;
  }
}

}  // namespace
}  // namespace firnkv
