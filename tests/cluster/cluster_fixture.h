// A running cluster, its workers' operations, and what was wrong with them:
// what the stories of tests/cluster stand on.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_CLUSTER_CLUSTER_FIXTURE_H_
#define FIRNKV_TESTS_CLUSTER_CLUSTER_FIXTURE_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/metrics.h"
#include "server/node/node.h"
#include "tests/sim/key_space.h"
#include "tests/sim/operations.h"
#include "tests/sim/oracle.h"
#include "tests/support/cluster.h"
#include "tests/support/matchers.h"

namespace firnkv {

inline constexpr int kAlice = 0;
inline constexpr int kBob = 1;

class ClusterFixture : public ::testing::Test {
 protected:
  // With the key space's namespaces.
  explicit ClusterFixture(SimCluster::Options options)
      : cluster_(WithNameSpaces(std::move(options))) {}

  void SetUp() override { ASSERT_TRUE(cluster_.Start()); }
  // Every hit's bytes were checked against what was written, every operation's
  // ends against its deadline.
  void TearDown() override {
    EXPECT_THAT(oracle_.violations(), ::testing::IsEmpty());
  }

  std::vector<Outcome> WriteBy(SimWorker* worker,
                               const std::vector<PlannedBlock>& blocks,
                               WriteWait wait_for = WriteWait::kLocal) {
    return Await([&](Operations::Done done) {
      operations_.Write(worker,
                        {.blocks = blocks,
                         .deadline = absl::Seconds(2),
                         .wait_for = wait_for},
                        std::move(done));
    });
  }
  std::vector<Outcome> ReadBy(SimWorker* worker,
                              const std::vector<PlannedBlock>& blocks) {
    return Await([&](Operations::Done done) {
      operations_.Read(worker,
                       {.blocks = blocks,
                        .deadline = absl::Seconds(2),
                        .want = ReadWant::kEveryBlock},
                       std::move(done));
    });
  }
  std::uint64_t CounterOf(int node, std::string_view name) {
    MetricList list;
    cluster_.Node(node).node()->DescribeMetrics(&list);
    for (const Metric& one : list.metrics()) {
      if (one.name == name) return std::get<const Counter*>(one.read)->value();
    }
    ADD_FAILURE() << "no metric " << name;
    return 0;
  }
  template <typename Start>
  std::vector<Outcome> Await(Start start) {
    std::vector<Outcome> result;
    bool ended = false;
    start([&](const std::vector<Outcome>& outcomes) {
      result = outcomes;
      ended = true;
    });
    EXPECT_TRUE(cluster_.RunUntil([&] { return ended; }));
    return result;
  }

  const KeySpace keys_;
  const std::vector<PlannedBlock>& prompt_ = keys_.chains()[3];
  SimCluster cluster_;
  Oracle oracle_{cluster_.executor()};
  Operations operations_{cluster_.world(), &oracle_};

 private:
  static SimCluster::Options WithNameSpaces(SimCluster::Options options) {
    options.name_spaces = KeySpace::NameSpaces();
    return options;
  }
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLUSTER_CLUSTER_FIXTURE_H_
