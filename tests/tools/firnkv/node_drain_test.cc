// A node's planned end, from the command line.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "proto/admin.pb.h"
#include "proto/base/bytes.h"
#include "proto/base/outcome.h"
#include "proto/node.pb.h"
#include "tests/tools/firnkv/cli_test_support.h"

namespace firnkv {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class NodeDrainTest : public CliTest {
 protected:
  NodeDrainTest() {
    AddNode("aa11");
    AddNode("aa22");
    AddNode("bb33");
    control_.On<v1::ListNodesRequest, v1::ListNodesResponse>(
        "AdminService/ListNodes",
        [this](const v1::ListNodesRequest&)
            -> absl::StatusOr<v1::ListNodesResponse> {
          if (catalog_gone_) return absl::UnavailableError("refused");
          return nodes_;
        });
    control_.On<v1::NodeStatusRequest, v1::NodeStatusResponse>(
        "NodeService/Status",
        [this](const v1::NodeStatusRequest&)
            -> absl::StatusOr<v1::NodeStatusResponse> {
          if (ended_) return absl::UnavailableError("connection refused");
          v1::NodeStatusResponse response;
          response.set_node(nodes_.nodes(0).address().node());
          response.set_epoch(7);
          return response;
        });
    control_.On<v1::DrainRequest, v1::DrainResponse>(
        "NodeService/Drain",
        [this](const v1::DrainRequest& request)
            -> absl::StatusOr<v1::DrainResponse> { return Serve(request); });
  }

  void AddNode(const std::string& hex) {
    v1::NodeRow* const row = nodes_.add_nodes();
    std::string id = *FromHex(hex);
    id.resize(16);
    row->mutable_address()->set_node(id);
    row->mutable_address()->set_epoch(7);
    row->mutable_address()->set_control_address("host-" + hex + ":7410");
    row->set_state("alive");
  }

  // Half of the plan at each look, then the end, unless `stays_`.
  absl::StatusOr<v1::DrainResponse> Serve(const v1::DrainRequest& request) {
    if (ended_) return absl::UnavailableError("connection refused");
    if (!refusal_.ok()) return refusal_;
    v1::DrainResponse response;
    if (!request.report_only()) {
      begun_ = request;
    } else {
      EXPECT_TRUE(begun_.has_value());
      clock_.Advance(absl::Milliseconds(request.wait_millis()));
      ++looks_;
    }
    const bool moves = begun_->move_bytes() > 0;
    response.set_drain(moves && looks_ < 3 ? "moving" : "ending");
    if (moves && looks_ > 0) {
      response.set_planned_bytes(1000);
      response.set_planned_blocks(10);
      response.set_moved_bytes(looks_ == 1 ? 400 : 800);
      response.set_moved_blocks(looks_ == 1 ? 4 : 8);
    }
    if (moves && looks_ >= 3) {
      response.set_left_blocks(2);
      for (int i = 0; i <= kLastOutcome; ++i) response.add_outcomes(0);
      response.set_outcomes(static_cast<int>(Outcome::kStored), 8);
      response.set_outcomes(static_cast<int>(Outcome::kCongested), 2);
      response.set_trouble("node at host-bb33:7410: full");
    }
    // The next call finds nobody, and the catalog has heard of it.
    if (!stays_ && looks_ >= 4) {
      ended_ = true;
      if (forgets_) nodes_.mutable_nodes()->DeleteSubrange(0, 1);
    }
    return response;
  }

  v1::ListNodesResponse nodes_;
  bool ended_ = false;
  bool stays_ = false;
  bool forgets_ = true;
  bool catalog_gone_ = false;
  absl::Status refusal_;
  std::optional<v1::DrainRequest> begun_;
  int looks_ = 0;
};

TEST_F(NodeDrainTest, TheMovesAreShownAndTheEndIsLookedAt) {
  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410"}), 0) << err();

  EXPECT_EQ(begun_->deadline_millis(), 60'000u);
  EXPECT_EQ(begun_->move_bytes(), 4 * kGiB);
  EXPECT_THAT(control_.addresses, Contains("host-aa11:7410"));
  EXPECT_THAT(err(), HasSubstr("move bytes"));
  EXPECT_THAT(err(), HasSubstr("800 of 1,000"));
  EXPECT_THAT(out(),
              AllOf(HasSubstr("has ended, and the catalog has forgotten it"),
                    HasSubstr("8 blocks"), HasSubstr("2 blocks that no other"),
                    HasSubstr(StrCat("2 ", OutcomeLabel(Outcome::kCongested))),
                    HasSubstr("because  node at host-bb33:7410: full")));
}

TEST_F(NodeDrainTest, DeadlineAndBudgetAreTheCallers) {
  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410", "--deadline", "5s",
                 "--budget", "64MiB"}),
            0);
  EXPECT_EQ(begun_->deadline_millis(), 5'000u);
  EXPECT_EQ(begun_->move_bytes(), 64 * kMiB);
}

TEST_F(NodeDrainTest, WithoutMovesNothingIsMoved) {
  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410", "--no-move"}), 0);

  EXPECT_EQ(begun_->move_bytes(), 0u);
  EXPECT_THAT(out(), AllOf(HasSubstr("has ended"), Not(HasSubstr("moved"))));
}

TEST_F(NodeDrainTest, WhoDoesNotWaitIsToldThatItBegan) {
  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410", "--no-wait"}), 0);

  EXPECT_EQ(control_.calls["NodeService/Drain"], 1);
  EXPECT_THAT(out(), HasSubstr("drains: it takes no new blocks"));
}

TEST_F(NodeDrainTest, ANodeIsNamedByHowItsIdBegins) {
  EXPECT_EQ(Run({"node", "drain", "AA11"}), 0) << err();

  EXPECT_THAT(control_.addresses, Contains("host-aa11:7410"));
}

TEST_F(NodeDrainTest, ANameOfNoneOrOfSeveralSaysWhatToDo) {
  EXPECT_EQ(Run({"node", "drain", "cc"}), 1);
  EXPECT_THAT(err(), AllOf(HasSubstr("begins with cc"), HasSubstr("node ls")));

  EXPECT_EQ(Run({"node", "drain", "aa"}), 1);
  EXPECT_THAT(err(), AllOf(HasSubstr("2 nodes"), HasSubstr("more digits")));

  nodes_.mutable_nodes(2)->set_state("expired");
  EXPECT_EQ(Run({"node", "drain", "bb"}), 1);
  EXPECT_THAT(err(), HasSubstr("is expired"));
  EXPECT_EQ(control_.calls["NodeService/Drain"], 0);
}

TEST_F(NodeDrainTest, ANodeThatDoesNotAnswerIsAFailureWithAdvice) {
  ended_ = true;

  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410"}), 1);

  EXPECT_THAT(err(), AllOf(HasSubstr("node at host-aa11:7410"),
                           HasSubstr("CONTROL column of firnkv node ls")));
}

TEST_F(NodeDrainTest, ARefusalIsTheNodes) {
  refusal_ = absl::FailedPreconditionError("the node drains already");

  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410"}), 1);

  EXPECT_THAT(err(), HasSubstr("drains already"));
}

TEST_F(NodeDrainTest, ANodeThatOutlivesItsDeadlineIsSaid) {
  stays_ = true;

  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410", "--deadline", "2s"}), 3);

  EXPECT_THAT(out(), HasSubstr("still answers, past its deadline"));
}

TEST_F(NodeDrainTest, AnEndOfWhichTheCatalogDidNotHearIsSaid) {
  forgets_ = false;

  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410", "--deadline", "2s"}), 3);

  EXPECT_THAT(out(), HasSubstr("the catalog still lists it"));
}

// A later run of the node is another one.
TEST_F(NodeDrainTest, ANodeThatWasStartedAgainMeanwhileHasEndedBefore) {
  forgets_ = false;
  nodes_.mutable_nodes(0)->mutable_address()->set_epoch(8);

  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410"}), 0);

  EXPECT_THAT(out(), HasSubstr("has forgotten it"));
}

TEST_F(NodeDrainTest, ANodeThatTakesItsCatalogWithItHasEndedAllTheSame) {
  control_.On<v1::DrainRequest, v1::DrainResponse>(
      "NodeService/Drain",
      [this](const v1::DrainRequest& request)
          -> absl::StatusOr<v1::DrainResponse> {
        const auto response = Serve(request);
        catalog_gone_ = ended_;
        return response;
      });

  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410"}), 0);

  EXPECT_THAT(out(), HasSubstr("the catalog does not answer"));
}

TEST_F(NodeDrainTest, WhoInterruptsLeavesItToGoOn) {
  world_.interrupted = [this] { return looks_ >= 1; };

  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410"}), 3);

  EXPECT_THAT(out(), HasSubstr("goes on draining"));
}

TEST_F(NodeDrainTest, JsonSaysItAll) {
  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410", "--json"}), 0);

  EXPECT_THAT(
      out(),
      AllOf(HasSubstr("\"ended\": true"), HasSubstr("\"forgotten\": true"),
            HasSubstr("\"moved_blocks\": 8"), HasSubstr("\"left_blocks\": 2")));
}

TEST_F(NodeDrainTest, ADeadlineBeyondADayIsAWrongCommandLine) {
  EXPECT_EQ(Run({"node", "drain", "host-aa11:7410", "--deadline", "48h"}), 2);

  EXPECT_FALSE(begun_.has_value());
}

}  // namespace
}  // namespace firnkv
