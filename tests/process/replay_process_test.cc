// `firnkv replay` over three nodes.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/process/process_cluster.h"
#include "yaml-cpp/yaml.h"

namespace firnkv {
namespace {

class ReplayTest : public ProcessTest {
 protected:
  // A generated trace, played as fast as it goes; what was found.
  YAML::Node Replay(const std::vector<std::string>& more) {
    const std::string trace = cluster().scratch().path() + "/trace.jsonl";
    const Finished made = cluster().Admin(
        {"trace", "generate", trace, "--seed", "7", "--duration", "3m",
         "--conversations", "40", "--thinking", "20s"});
    EXPECT_EQ(made.code, 0) << made.output;
    // The secret, too: only administrators may ask nodes for evictions.
    std::vector<std::string> arguments = {"--secret-file",
                                          cluster().SecretFileOf(kAliceUid),
                                          "--json",
                                          "replay",
                                          trace,
                                          "--speed",
                                          "0",
                                          "--cold",
                                          "--block-bytes",
                                          "16KiB",
                                          "--no-progress"};
    for (int i = 1; i <= cluster().nodes(); ++i) {
      arguments.push_back("--node");
      arguments.push_back(cluster().socket(i));
    }
    for (const std::string& one : more) arguments.push_back(one);
    const Finished run = cluster().Cli(kAliceUid, arguments);
    EXPECT_EQ(run.code, 0) << run.output;
    YAML::Node report;
    EXPECT_NO_THROW(report = YAML::Load(run.output)) << run.output;
    return report;
  }
};

TEST_F(ReplayTest, ATraceOverThreeNodesIsReadRightFromNearAndFar) {
  // A few hundred blocks fit a node: much less than the trace has.
  StartCluster({.nodes = 3, .dram_bytes = 4 * kMiB});

  const YAML::Node report = Replay({"--affinity"});

  EXPECT_GT(report["requests"].as<int>(), 100);
  EXPECT_EQ(report["wrong_bytes"].as<int>(), 0);
  EXPECT_EQ(report["failed_calls"].as<int>(), 0);
  EXPECT_GT(report["bytes_mapped"].as<std::int64_t>(), 0);
  EXPECT_GT(report["bytes_remote"].as<std::int64_t>(), 0);
  EXPECT_GT(report["evictions"].as<std::int64_t>(), 0);
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(cluster().NodeComesToRest(i));
}

}  // namespace
}  // namespace firnkv
