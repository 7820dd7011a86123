// `status` and `key explain`: the parts that do not answer are said, and the
// others are shown all the same.

#include "gmock/gmock.h"
#include "proto/admin.pb.h"
#include "proto/node.pb.h"
#include "tests/tools/firnkv/cli_test_support.h"

namespace firnkv {
namespace {

using testing::HasSubstr;
using testing::Not;

class StatusTest : public CliTest {
 protected:
  StatusTest() {
    // No local node is named: only the cluster is asked.
    environment_.erase("FIRNKV_CLI_SOCKET");
    environment_["XDG_RUNTIME_DIR"] = folder_;
    control_.On<v1::CatalogStatusRequest, v1::CatalogStatusResponse>(
        "AdminService/CatalogStatus",
        [](const v1::CatalogStatusRequest&)
            -> absl::StatusOr<v1::CatalogStatusResponse> {
          v1::CatalogStatusResponse response;
          response.set_keys(1234);
          return response;
        });
    control_.On<v1::ListNodesRequest, v1::ListNodesResponse>(
        "AdminService/ListNodes",
        [this](const v1::ListNodesRequest&)
            -> absl::StatusOr<v1::ListNodesResponse> { return nodes_; });
    control_.On<v1::NodeStatusRequest, v1::NodeStatusResponse>(
        "NodeService/Status",
        [this](const v1::NodeStatusRequest&)
            -> absl::StatusOr<v1::NodeStatusResponse> { return node_; });
    node_.set_catalog_link("registered");
    AddNode("aa", "alive");
    AddNode("bb", "alive");
    control_.On<v1::ExplainKeyRequest, v1::ExplainKeyResponse>(
        "AdminService/ExplainKey",
        [this](const v1::ExplainKeyRequest& request)
            -> absl::StatusOr<v1::ExplainKeyResponse> {
          asked_key_ = request.key();
          return explained_;
        });
  }

  void AddNode(const std::string& hex, const std::string& state) {
    v1::NodeRow* const row = nodes_.add_nodes();
    std::string id = *FromHex(hex);
    id.resize(16);
    row->mutable_address()->set_node(id);
    row->mutable_address()->set_control_address("host-" + hex + ":7410");
    row->set_state(state);
  }

  void AddCopy(const std::string& state, std::uint64_t clear_epoch) {
    explained_.set_known(true);
    auto* const places = explained_.mutable_locations();
    places->add_node_indexes(
        static_cast<std::uint32_t>(explained_.nodes_size()));
    places->add_tiers(0);
    places->add_generations(77);
    places->add_lengths(4096);
    explained_.add_nodes()->set_node(std::string(16, '\xab'));
    explained_.add_node_states(state);
    explained_.add_clear_epochs(clear_epoch);
  }

  v1::ListNodesResponse nodes_;
  v1::NodeStatusResponse node_;
  v1::ExplainKeyResponse explained_;
  std::string asked_key_;
};

TEST_F(StatusTest, AHealthyClusterIsWell) {
  EXPECT_EQ(Run({"status", "--nodes", "2"}), 0) << out() << err();

  EXPECT_THAT(out(), HasSubstr("1,234 keys"));
  EXPECT_THAT(out(), HasSubstr("node aa000000"));
  EXPECT_THAT(out(), HasSubstr("all is well"));
  EXPECT_THAT(out(), Not(HasSubstr("DEGRADED")));
}

TEST_F(StatusTest, OneOfAThingIsSaidSo) {
  control_.On<v1::CatalogStatusRequest, v1::CatalogStatusResponse>(
      "AdminService/CatalogStatus",
      [](const v1::CatalogStatusRequest&)
          -> absl::StatusOr<v1::CatalogStatusResponse> {
        v1::CatalogStatusResponse response;
        response.set_tenants(1);
        response.set_namespaces(1);
        return response;
      });
  node_.set_blocks(1);

  Run({"status"});

  EXPECT_THAT(out(), HasSubstr("1 tenant, 1 namespace, 0 keys at 0 places"));
  EXPECT_THAT(out(), HasSubstr("1 block, 0 evictions"));
}

TEST_F(StatusTest, ANodeThatDrainsIsSaidSo) {
  node_.set_drain("moving");

  Run({"status"});

  EXPECT_THAT(out(), HasSubstr("drains: moving"));
}

TEST_F(StatusTest, LabelsThatAreNotSetAreADash) {
  nodes_.mutable_nodes(0)->mutable_address()->mutable_labels()->set_rack("r7");

  EXPECT_EQ(Run({"node", "ls"}), 0);

  EXPECT_THAT(out(), HasSubstr(" -/r7/- "));
  EXPECT_THAT(out(), Not(HasSubstr("//")));
}

TEST_F(StatusTest, NodesAreAskedWhereTheyListen) {
  Run({"status"});

  EXPECT_THAT(control_.addresses, testing::Contains("host-aa:7410"));
  EXPECT_THAT(control_.addresses, testing::Contains("host-bb:7410"));
}

TEST_F(StatusTest, FewerNodesThanWantedAreDegraded) {
  EXPECT_EQ(Run({"status", "--nodes", "3"}), 3);
  EXPECT_THAT(out(), HasSubstr("DEGRADED: 2 nodes are alive, 3 wanted"));
}

TEST_F(StatusTest, ANodeWhoseLeaseIsOverIsDegraded) {
  AddNode("cc", "expired");

  EXPECT_EQ(Run({"status"}), 3);
  EXPECT_THAT(out(), HasSubstr("DEGRADED: node cc000000 is expired"));
}

TEST_F(StatusTest, ANodeThatDoesNotAnswerIsDegraded) {
  control_.methods.erase("NodeService/Status");

  EXPECT_EQ(Run({"status"}), 3);
  EXPECT_THAT(out(), HasSubstr("node bb000000 does not answer at host-bb"));
}

TEST_F(StatusTest, ANodeWithoutItsCatalogIsDegraded) {
  node_.set_catalog_link("away");

  EXPECT_EQ(Run({"status"}), 3);
  EXPECT_THAT(out(), HasSubstr("is not registered at the catalog (away)"));
}

TEST_F(StatusTest, CorruptCopiesAreDegraded) {
  node_.set_corrupt_copies(2);

  EXPECT_EQ(Run({"status"}), 3);
  EXPECT_THAT(out(), HasSubstr("isolated 2 corrupt copies"));
}

TEST_F(StatusTest, ACatalogThatIsAwayAloneIsAFailure) {
  control_.methods.clear();

  EXPECT_EQ(Run({"status", "--catalog", "far:1"}), 1);
  // With its advice, on one line.
  EXPECT_THAT(out(), HasSubstr("DEGRADED: the catalog cannot be asked: "
                               "UNAVAILABLE: connection refused; no answer"));
  EXPECT_THAT(out(), HasSubstr("far:1"));
}

TEST_F(StatusTest, ALocalNodeThatIsNamedAndAwayIsDegraded) {
  EXPECT_EQ(Run({"status", "--socket", folder_ + "/node.sock"}), 3);
  EXPECT_THAT(
      out(),
      HasSubstr("DEGRADED: the local node: UNAVAILABLE: node at " + folder_));
}

TEST_F(StatusTest, JsonHasTheDegradedPartsToo) {
  AddNode("cc", "expired");

  EXPECT_EQ(Run({"status", "--json"}), 3);
  EXPECT_THAT(out(), HasSubstr("\"degraded\": [\n    \"node cc000000"));
  EXPECT_THAT(out(), HasSubstr("\"keys\": 1234"));
}

TEST_F(StatusTest, AKeyThatANodeHasIsAHit) {
  explained_.mutable_facts()->set_clear_epoch(2);
  AddCopy("alive", 2);

  EXPECT_EQ(Run({"key", "explain", "granite", std::string(64, 'a')}), 0)
      << err();
  EXPECT_EQ(ToHex(asked_key_), std::string(64, 'a'));
  EXPECT_THAT(out(), HasSubstr("reading it is a hit"));
  EXPECT_THAT(out(), HasSubstr("abababab"));
}

TEST_F(StatusTest, AnUnknownKeyIsAMissWithItsReasons) {
  EXPECT_EQ(Run({"key", "explain", "granite", std::string(64, 'a')}), 3);
  EXPECT_THAT(out(), HasSubstr("the catalog knows no copy"));
}

TEST_F(StatusTest, AClearedKeyIsAMissThatSaysSo) {
  explained_.mutable_facts()->set_clear_epoch(2);
  AddCopy("alive", 1);

  EXPECT_EQ(Run({"key", "explain", "granite", std::string(64, 'a')}), 3);
  EXPECT_THAT(out(), HasSubstr("cleared after it was written"));
}

TEST_F(StatusTest, AKeyOfADeadNodeIsAMissThatSaysSo) {
  AddCopy("expired", 1);

  EXPECT_EQ(Run({"key", "explain", "granite", std::string(64, 'a')}), 3);
  EXPECT_THAT(out(), HasSubstr("nodes that had it are away"));
}

TEST_F(StatusTest, AKeyCanBeNamedByItsIdInATrace) {
  Run({"key", "explain", "replay", "--trace-id", "513"});

  EXPECT_EQ(
      asked_key_,
      MakeBlockKey(std::string("\x01\x02\0\0\0\0\0\0", 8), Shard()).view());
}

TEST_F(StatusTest, AKeyThatIsNoneIsWrongUsage) {
  EXPECT_EQ(Run({"key", "explain", "granite", "abc"}), 2);
  EXPECT_THAT(err(), HasSubstr("64 hex digits"));
  EXPECT_EQ(Run({"key", "explain", "granite"}), 2);
  EXPECT_EQ(
      Run({"key", "explain", "granite", std::string(64, 'a'), "--hash", "x"}),
      2);
}

}  // namespace
}  // namespace firnkv
