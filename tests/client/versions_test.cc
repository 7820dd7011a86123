// A node of another version beneath this SDK: nodes are upgraded under running
// engines, and back.

#include <string>
#include <vector>

#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class VersionsTest : public ClientFixture {
 protected:
  void Speak(std::uint32_t oldest, std::uint32_t newest) {
    node_->on_welcome = [oldest, newest](v1::SessionWelcome* welcome) {
      welcome->mutable_handshake()->set_oldest_protocol(oldest);
      welcome->mutable_handshake()->set_newest_protocol(newest);
    };
  }
  void ReadAndWrite() {
    node_->Put(Id(1), BytesFor(1, 5000));
    std::vector<Landing> landings{{1, 5000}};
    Read(landings);
    EXPECT_THAT(OutcomesOf(landings), ElementsAre(Outcome::kHit));
    const std::vector<std::byte> bytes = BytesFor(++written_, 3000);
    const auto write = BeginWrite({{written_, bytes}});
    Finish(write.get());
    EXPECT_EQ(write->blocks[0].outcome, Outcome::kStored);
  }

 private:
  int written_ = 100;
};

TEST_F(VersionsTest, ANodeOfTheOldestVersionServes) {
  Speak(kOldestProtocolVersion, kOldestProtocolVersion);
  node_->call_frames = 0;

  Connect();

  ReadAndWrite();
}

TEST_F(VersionsTest, ANewerNodeThatStillSpeaksOursServes) {
  node_->on_welcome = [](v1::SessionWelcome* welcome) {
    welcome->mutable_handshake()->set_oldest_protocol(kOldestProtocolVersion);
    welcome->mutable_handshake()->set_newest_protocol(kProtocolVersion + 6);
    // What only a newer SDK would know: fields 900 and 901.
    EXPECT_TRUE(welcome->MergeFromString("\xa0\x38\x07\xaa\x38\x04news"));
  };

  Connect();

  ReadAndWrite();
}

TEST_F(VersionsTest, ANodeThatSpeaksNoneOfOursIsRefusedWithBothRanges) {
  Speak(kProtocolVersion + 4, kProtocolVersion + 6);

  const absl::Status refused = TryConnect();

  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(std::to_string(kProtocolVersion + 4)),
                    HasSubstr(std::to_string(kProtocolVersion + 6)),
                    HasSubstr(std::to_string(kProtocolVersion))));
}

TEST_F(VersionsTest, AnUpgradeBeneathARunningClientIsOneSessionMore) {
  Speak(kOldestProtocolVersion, kOldestProtocolVersion);
  node_->call_frames = 0;
  Connect();
  ReadAndWrite();

  node_->StopServing();
  Speak(kOldestProtocolVersion, kProtocolVersion + 1);
  node_->call_frames = kCallFrames;
  node_->StartServing();
  ASSERT_TRUE(
      Run([&] { return node_->sessions == 2 && client_->Describe().session; }));

  ReadAndWrite();
}

TEST_F(VersionsTest, AnUpgradeThatDropsOursLeavesTheClientWithoutANode) {
  Connect();
  node_->StopServing();
  Speak(kProtocolVersion + 4, kProtocolVersion + 6);
  node_->StartServing();
  RunFor(absl::Seconds(5));

  std::vector<Landing> landings{{1, 5000}};
  Read(landings);

  EXPECT_FALSE(client_->Describe().session);
  EXPECT_THAT(OutcomesOf(landings), ElementsAre(::testing::Ne(Outcome::kHit)));
}

}  // namespace
}  // namespace firnkv
