// No lock of the SDK is held while it copies a caller's bytes: other calls go
// on in the middle of a copy. Counted, not timed.

#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/support/standing_copy.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Above and below what is copied inside the call.
class CopyLockTest : public ClientFixture,
                     public ::testing::WithParamInterface<std::size_t> {
 protected:
  void SetUp() override {
    options_.staging_bytes = 2 * kLargestBlockBytes;
    Connect();
  }

  // One more of each call, in the middle of the copy that stands.
  void StartOthers() {
    read_ = BeginRead(landings_);
    write_ = BeginWrite({{3, source_}});
    ASSERT_OK(client_->AllocateShared(kPageBytes));
    started_ += client_->Stats().sessions;
  }
  void FinishOthers() {
    Finish(read_.get());
    Finish(write_.get());
    EXPECT_THAT(OutcomesOf(landings_), ElementsAre(Outcome::kHit));
    EXPECT_EQ(write_->blocks[0].outcome, Outcome::kStored);
  }

  std::vector<Landing> landings_{{2, 1000}};
  std::vector<std::byte> source_ = BytesFor(3, 1000);
  std::shared_ptr<ReadState> read_;
  std::shared_ptr<WriteState> write_;
  std::uint64_t started_ = 0;
};

TEST_P(CopyLockTest, OtherCallsGoOnWhileAReadIsCopied) {
  StandingCopy landing(GetParam());
  node_->Put(Id(1), BytesFor(1, GetParam()));
  node_->Put(Id(2), BytesFor(2, 1000));
  const Buffer buffer{.address = landing.bytes().data(),
                      .length = landing.bytes().size()};
  ReadTarget target{
      .key = KeyOf(1), .anchor = KeyOf(1), .destination = {&buffer, 1}};
  bool free = false;
  landing.Arm([&] { StartOthers(); });

  client_->StartRead({.name_space = handle_,
                      .blocks = {&target, 1},
                      .deadline = absl::Seconds(1)},
                     {.on_outcome = [](const ReadReport&) {},
                      .on_buffers_free = [&] { free = true; }});
  ASSERT_TRUE(Run([&] { return free; }));

  EXPECT_EQ(landing.stood(), 1);
  EXPECT_EQ(started_, 1u);
  EXPECT_EQ(target.outcome, Outcome::kHit);
  FinishOthers();
}

TEST_P(CopyLockTest, OtherCallsGoOnWhileAWriteIsStaged) {
  StandingCopy source(GetParam());
  node_->Put(Id(2), BytesFor(2, 1000));
  source.Arm([&] { StartOthers(); });

  const auto state = BeginWrite({{1, source.bytes()}});
  Finish(state.get());

  EXPECT_EQ(source.stood(), 1);
  EXPECT_EQ(started_, 1u);
  EXPECT_EQ(state->blocks[0].outcome, Outcome::kStored);
  FinishOthers();
}

INSTANTIATE_TEST_SUITE_P(Sizes, CopyLockTest,
                         ::testing::Values(64 * kKiB, 2 * kMiB));

}  // namespace
}  // namespace firnkv
