// What the log says was told, whatever happens and is told in whatever order.

#include "server/node/announcement_log.h"

#include <map>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/support/sim_world.h"

namespace firnkv {
namespace {

class AnnouncementLogTest : public testing::Test {
 protected:
  static SlotHeader HeaderOf(std::uint64_t n, std::uint64_t generation) {
    SlotHeader header;
    SeededRandom random(n);
    header.block = {NamespaceId::Make(&random), BlockKey::Make(&random)};
    header.generation = Generation{generation};
    return header;
  }

  SimWorld world_{0};
  SimMachine* const machine_ = world_.NewMachine("node", "node");
  AnnouncementLog log_{{.max_entries = 64, .batch = 8}, machine_->process()};
};

// Rule A5.
TEST_F(AnnouncementLogTest, ToldIsTheSumOfWhatTheToldEventsLeave) {
  SeededRandom random(42);
  std::map<std::uint64_t, std::uint64_t> present;  // Block -> generation.
  BucketSums told;
  std::uint64_t generation = 0;
  // Before anything is recorded.
  log_.OnPublished(HeaderOf(1, ++generation));
  present[1] = generation;
  const SlotHeader first = HeaderOf(1, generation);
  log_.Restart();
  told.Add(first.block, kDramTier, first.generation);
  std::vector<AnnouncedEntry> untold;

  for (int step = 0; step < 2000; ++step) {
    if (random.Below(3) > 0 && untold.size() < 64) {
      const std::uint64_t n = random.Below(20);
      const auto it = present.find(n);
      if (it == present.end()) {
        present[n] = ++generation;
        log_.OnPublished(HeaderOf(n, generation));
      } else {
        log_.OnWithdrawn(HeaderOf(n, it->second));
        present.erase(it);
      }
      untold = log_.Front(64).entries;
    } else {
      const AnnouncementLog::Oldest batch = log_.Front(random.Below(9));
      for (const AnnouncedEntry& entry : batch.entries) {
        if (entry.operation == AnnouncedOperation::kPublish) {
          told.Add(entry.block, kDramTier, entry.generation);
        } else {
          told.Subtract(entry.block, kDramTier, entry.generation);
        }
      }
      log_.DropUpTo(batch.first + batch.entries.size());
      untold = log_.Front(64).entries;
    }
    ASSERT_EQ(log_.Told(), told) << "step " << step;
  }
}

// Rule A5: what was lost is not guessed.
TEST_F(AnnouncementLogTest, AfterAnOverflowToldIsUnknownUntilARestart) {
  log_.Restart();
  BucketSums all;
  for (std::uint64_t n = 0; n < 65; ++n) {
    const SlotHeader header = HeaderOf(n, n + 1);
    log_.OnPublished(header);
    all.Add(header.block, kDramTier, header.generation);
  }

  EXPECT_TRUE(log_.overflowed());
  EXPECT_EQ(log_.Told(), std::nullopt);
  log_.Restart();
  EXPECT_EQ(log_.Told(), all);
}

}  // namespace
}  // namespace firnkv
