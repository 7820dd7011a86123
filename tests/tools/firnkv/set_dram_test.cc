// The DRAM target of a running node, from the command line.

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "proto/base/bytes.h"
#include "proto/node.pb.h"
#include "tests/tools/firnkv/cli_test_support.h"

namespace firnkv {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class SetDramTest : public CliTest {
 protected:
  SetDramTest() {
    control_.On<v1::SetDramRequest, v1::SetDramResponse>(
        "NodeService/SetDram",
        [this](const v1::SetDramRequest& request)
            -> absl::StatusOr<v1::SetDramResponse> {
          if (request.header().token().empty()) {
            return absl::UnauthenticatedError("no token");
          }
          if (!refusal_.ok()) return refusal_;
          target_ = request.dram_bytes();
          return v1::SetDramResponse();
        });
    control_.On<v1::NodeStatusRequest, v1::NodeStatusResponse>(
        "NodeService/Status",
        [this](const v1::NodeStatusRequest&)
            -> absl::StatusOr<v1::NodeStatusResponse> {
          v1::NodeStatusResponse response;
          response.set_dram_target_bytes(target_);
          response.set_dram_mapped_bytes(mapped_);
          response.set_dram_retiring_bytes(mapped_ -
                                           std::min(mapped_, target_));
          if (mapped_ > target_) mapped_ -= step_;
          return response;
        });
  }

  absl::Status refusal_;
  std::uint64_t target_ = 0;
  std::uint64_t mapped_ = 4 * kGiB;
  std::uint64_t step_ = kGiB;
};

TEST_F(SetDramTest, TheLocalNodeIsToldAndTheAnswerSaysForHowLong) {
  EXPECT_EQ(Run({"node", "set-dram", "3GiB"}), 0) << err();

  EXPECT_EQ(target_, 3 * kGiB);
  EXPECT_EQ(control_.addresses.back(),
            "unix:" + folder_ + "/node.sock.control");
  EXPECT_THAT(out(), AllOf(HasSubstr("target of 3 GiB until it restarts"),
                           HasSubstr("1 GiB being given back")));
}

TEST_F(SetDramTest, AnotherNodeIsNamedByItsAddress) {
  EXPECT_EQ(Run({"node", "set-dram", "8GiB", "--node", "other:7410"}), 0);

  EXPECT_EQ(control_.addresses.back(), "other:7410");
  EXPECT_THAT(out(), Not(HasSubstr("given back")));
}

TEST_F(SetDramTest, WaitReturnsOnceNoMoreIsMapped) {
  EXPECT_EQ(Run({"node", "set-dram", "1GiB", "--wait", "--json"}), 0) << err();

  EXPECT_THAT(out(), AllOf(HasSubstr("\"dram_mapped_bytes\": 1073741824"),
                           HasSubstr("\"persistent\": false")));
  EXPECT_THAT(err(), HasSubstr("give back bytes"));
}

TEST_F(SetDramTest, WaitBeyondTheTimeoutIsDoneInPart) {
  step_ = 0;

  EXPECT_EQ(Run({"node", "set-dram", "1GiB", "--wait", "--timeout", "2s"}), 3);

  EXPECT_THAT(out(), HasSubstr("3 GiB being given back"));
}

TEST_F(SetDramTest, ARefusalSaysWhoseAndWhy) {
  refusal_ = absl::FailedPreconditionError("cgroup v2 /a has 5 bytes left");

  EXPECT_EQ(Run({"node", "set-dram", "1GiB"}), 1);

  EXPECT_THAT(err(), HasSubstr("node.sock.control: cgroup v2 /a has 5"));
}

TEST_F(SetDramTest, ASizeThatIsNoneIsAWrongCommandLine) {
  EXPECT_EQ(Run({"node", "set-dram", "lots"}), 2);

  EXPECT_EQ(control_.calls["NodeService/SetDram"], 0);
}

}  // namespace
}  // namespace firnkv
