// `firnkv` as an operator uses it, and what else a cluster answers to its
// operator: gRPC's health and reflection, /metrics, /healthz, /configz.

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/grpc_channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/client/transport/inbox.h"
#include "tests/process/process_cluster.h"
#include "tests/process/worker.h"
#include "yaml-cpp/yaml.h"

namespace firnkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kContract = {"--model",
                                            "granite",
                                            "--weights-revision",
                                            "r1",
                                            "--tokenizer",
                                            "granite@r1",
                                            "--preprocessing",
                                            "none",
                                            "--positional",
                                            "rope",
                                            "--kv-dtype",
                                            "bf16",
                                            "--layer-order",
                                            "layers,kv,heads,tokens,dim",
                                            "--kv-order",
                                            "k-then-v",
                                            "--head-grouping",
                                            "8 kv heads",
                                            "--page-order",
                                            "tokens",
                                            "--block-tokens",
                                            "16",
                                            "--tensor-parallel",
                                            "1",
                                            "--pipeline-parallel",
                                            "1",
                                            "--context-parallel",
                                            "1",
                                            "--layout-version",
                                            "1"};

std::vector<std::string> operator+(std::vector<std::string> a,
                                   const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class CliProcessTest : public ProcessTest {
 protected:
  // What the administrator's command says under --json; null where it does not
  // end with `code`.
  YAML::Node Json(std::vector<std::string> arguments, int code = 0) {
    arguments.insert(arguments.begin(), "--json");
    const Finished run = cluster().Admin(arguments);
    EXPECT_EQ(run.code, code) << run.output;
    // JSON is YAML.
    YAML::Node parsed;
    EXPECT_NO_THROW(parsed = YAML::Load(run.output)) << run.output;
    return parsed;
  }

  std::string Call(const std::string& address, const std::string& method,
                   std::string request) {
    GrpcConnector connector;
    const std::unique_ptr<ControlChannel> channel = connector.Connect(address);
    Inbox<absl::StatusOr<std::string>> answers;
    channel->StartCall(method, std::move(request), kPatience,
                       [&answers](absl::StatusOr<std::string> answer) {
                         answers.Put(std::move(answer));
                       });
    const absl::StatusOr<std::string> answer = answers.Take();
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or("");
  }
};

TEST_F(CliProcessTest, StatusShowsAWellCluster) {
  StartCluster({.nodes = 2});

  const Finished text = cluster().Admin({"status", "--nodes", "2"});
  EXPECT_EQ(text.code, 0) << text.output;
  EXPECT_THAT(text.output, HasSubstr("all is well"));

  const YAML::Node json = Json({"status"});
  EXPECT_EQ(json["catalog"]["nodes_alive"].as<int>(), 2);
  EXPECT_EQ(json["nodes"].size(), 2u);
  EXPECT_EQ(json["degraded"].size(), 0u);
  EXPECT_EQ(Json({"node", "ls"})["nodes"][0]["state"].as<std::string>(),
            "alive");
}

TEST_F(CliProcessTest, TenantsAndNamespacesAreMadeShownAndCleared) {
  StartCluster({.nodes = 1});
  const std::vector<std::string> create =
      std::vector<std::string>{"namespace",
                               "create",
                               "granite",
                               "--tenant",
                               "alice",
                               "--block-bytes",
                               StrCat(kTestBlockBytes, "B")} +
      kContract;
  EXPECT_TRUE(Json(create)["created"].as<bool>());
  EXPECT_FALSE(Json(create)["created"].as<bool>());
  EXPECT_EQ(Json({"tenant", "show", "alice"})["name"].as<std::string>(),
            "alice");
  EXPECT_EQ(Json({"namespace", "ls", "--tenant", "alice"})["namespaces"].size(),
            1u);

  const std::unique_ptr<Worker> worker = WorkerAt(cluster(), 1);
  ASSERT_EQ(worker->Do("write 1 10 published")["write_stored"], 10);
  ASSERT_EQ(worker->Do("read 1 10")["hit"], 10);
  const Finished clear =
      cluster().Admin({"namespace", "clear", "granite", "--tenant", "alice",
                       "--yes", "--wait", "--timeout", "30s"});
  EXPECT_EQ(clear.code, 0) << clear.output;

  // Rules C1, C2.
  EXPECT_EQ(worker->Do("read 1 10")["hit"], 0);
  EXPECT_EQ(
      Json({"namespace", "show", "granite", "--tenant", "alice"})["clear_epoch"]
          .as<int>(),
      2);
}

TEST_F(CliProcessTest, AMissingFieldOfAContractIsNamed) {
  StartCluster({.nodes = 0});

  const Finished run =
      cluster().Admin({"namespace", "create", "granite", "--model", "granite"});

  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.output, HasSubstr("weights_revision"));
}

TEST_F(CliProcessTest, KeyExplainSaysWhoHasABlock) {
  StartCluster({.nodes = 2});
  const std::unique_ptr<Worker> worker = WorkerAt(cluster(), 2);
  ASSERT_EQ(worker->Do("write 7 3 published")["write_stored"], 3);

  const YAML::Node known = Json({"key", "explain", "granite", "--tenant",
                                 "alice", "--hash", "chain 7 block 2"});
  EXPECT_TRUE(known["hit"].as<bool>());
  EXPECT_EQ(known["copies"].size(), 1u);
  EXPECT_FALSE(Json({"key", "explain", "granite", "--tenant", "alice", "--hash",
                     "chain 7 block 3"},
                    3)["known"]
                   .as<bool>());
}

TEST_F(CliProcessTest, AFileComesBackAsItWasPut) {
  StartCluster({.nodes = 2});
  std::string content;
  for (int i = 0; i < 300000; ++i) absl::StrAppend(&content, i, "\n");
  const std::string file = cluster().scratch().WriteFile("file", content);
  const std::string folder = cluster().scratch().FolderOf(kAliceUid, "alice");

  const Finished put =
      cluster().Cli(kAliceUid, {"--json", "put", file, "--block-bytes",
                                "256KiB", "--wait", "published"});
  ASSERT_EQ(put.code, 0) << put.output;
  const std::string name =
      YAML::Load(put.output)["files"][0]["name"].as<std::string>();
  // From the other node, too.
  for (int node : {1, 2}) {
    const std::string back = StrCat(folder, "/back", node);
    const Finished get = cluster().Cli(
        kAliceUid, {"--socket", cluster().socket(node), "get", name, back});
    EXPECT_EQ(get.code, 0) << get.output;
    std::ostringstream bytes;
    bytes << std::ifstream(back).rdbuf();
    EXPECT_TRUE(bytes.str() == content);
  }
  // Rule C1: another tenant's file of that name is another one.
  EXPECT_NE(cluster().Cli(kBobUid, {"get", name, "-"}).code, 0);
}

// Rule A9: losing namespace ids would orphan every block.
TEST_F(CliProcessTest, ABackupBringsTenantsAndNamespacesBack) {
  std::string id;
  const ScratchFolder kept;
  const std::string backup = kept.path() + "/backup";
  {
    StartCluster({.nodes = 0});
    const YAML::Node made =
        Json(std::vector<std::string>{"namespace", "create", "granite",
                                      "--tenant", "alice"} +
             kContract);
    id = made["id"].as<std::string>();
    const Finished run = cluster().Admin({"catalog", "backup", backup});
    ASSERT_EQ(run.code, 0) << run.output;
    // Not replaced without being told to.
    EXPECT_EQ(cluster().Admin({"catalog", "backup", backup}).code, 1);
  }

  StartCluster({.nodes = 0, .uid_map = false});
  const Finished run = cluster().Admin({"catalog", "restore", backup});

  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(Json({"namespace", "show", "granite", "--tenant", "alice"})["id"]
                .as<std::string>(),
            id);
}

TEST_F(CliProcessTest, WithoutAnythingRunningEveryCommandSaysWhatToDo) {
  cluster_ = std::make_unique<ProcessCluster>(ProcessCluster::Options{});

  const Finished status = cluster().Admin({"status", "--timeout", "2s"});
  EXPECT_EQ(status.code, 1);
  EXPECT_THAT(status.output, HasSubstr(cluster().catalog_address()));

  const Finished list = cluster().Admin({"tenant", "ls", "--timeout", "2s"});
  EXPECT_EQ(list.code, 1);
  EXPECT_THAT(list.output, HasSubstr(cluster().catalog_address()));

  const Finished put =
      cluster().Cli(kAliceUid, {"--timeout", "2s", "put", "/etc/hostname"});
  EXPECT_EQ(put.code, 1);
  EXPECT_THAT(put.output,
              AllOf(HasSubstr(cluster().socket(1)), HasSubstr("firnkv-node")));

  EXPECT_EQ(cluster().Admin({"no-such-command"}).code, 2);
}

TEST_F(CliProcessTest, WithoutTheSecretNobodyIsAnAdministrator) {
  StartCluster({.nodes = 0});

  const Finished run =
      cluster().Cli(kAliceUid, {"tenant", "create", "mallory"});

  EXPECT_EQ(run.code, 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("secret"));
}

TEST_F(CliProcessTest, GrpcAnswersHealthAndReflection) {
  StartCluster({.nodes = 1});
  for (const auto& [address, service] :
       {std::pair{cluster().catalog_address(), "firnkv.v1.CatalogService"},
        std::pair{cluster().control_address(1), "firnkv.v1.NodeService"}}) {
    // HealthCheckRequest of all; HealthCheckResponse{status: 1 = SERVING}.
    EXPECT_EQ(Call(address, "/grpc.health.v1.Health/Check", ""), "\x08\x01");
    // ServerReflectionRequest{list_services: ""}.
    EXPECT_THAT(
        Call(address,
             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
             std::string("\x3a\x00", 2)),
        HasSubstr(service));
  }
}

TEST_F(CliProcessTest, MetricsHealthAndConfigurationAreServedOverHttp) {
  StartCluster({.nodes = 1});
  const std::string node = cluster().node(1).options().http;
  const std::string catalog = cluster().catalog().options().http;

  EXPECT_THAT(HttpGet(node, "/healthz"), HasSubstr("200"));
  EXPECT_THAT(HttpGet(catalog, "/healthz"), HasSubstr("200"));
  EXPECT_THAT(HttpGet(node, "/configz"), HasSubstr("stream:"));
  EXPECT_THAT(HttpGet(node, "/nowhere"), HasSubstr("404"));
  // Every documented metric is there; the document is checked against the
  // programs elsewhere.
  std::ifstream document("docs/METRICS.md");
  std::string of_node = HttpGet(node, "/metrics");
  std::string of_catalog = HttpGet(catalog, "/metrics");
  std::string line;
  int metrics = 0;
  while (std::getline(document, line)) {
    if (line.rfind("| `firnkv_", 0) != 0) continue;
    const std::string name = line.substr(3, line.find('`', 3) - 3);
    const bool is_node = name.rfind("firnkv_node_", 0) == 0;
    EXPECT_THAT(is_node ? of_node : of_catalog, HasSubstr("# TYPE " + name));
    ++metrics;
  }
  EXPECT_GT(metrics, 50);
}

}  // namespace
}  // namespace firnkv
