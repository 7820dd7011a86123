#include "tests/process/process_cluster.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "proto/base/check.h"
#include "proto/base/random.h"
#include "proto/base/text.h"
#include "proto/base/token.h"
#include "tests/process/host_network.h"

namespace firnkv {
namespace {

// In memory, where there is room for it: a killed process loses no more there
// than on a disk, and syncs of busy disks take seconds.
constexpr std::uint64_t kScratchBytes = 2 * kGiB;

}  // namespace

// --- Folders and addresses.

ScratchFolder::ScratchFolder() : path_("/tmp/firnkv-process.XXXXXX") {
  struct statvfs memory = {};
  if (statvfs("/dev/shm", &memory) == 0 &&
      memory.f_bavail * memory.f_frsize >= kScratchBytes) {
    path_ = "/dev/shm/firnkv-process.XXXXXX";
  }
  CHECK(mkdtemp(path_.data()) != nullptr);
  CHECK(chmod(path_.c_str(), 0755) == 0);
}

ScratchFolder::~ScratchFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string ScratchFolder::FolderOf(std::uint32_t uid,
                                    const std::string& name) const {
  const std::string path = path_ + "/" + name;
  mkdir(path.c_str(), 0755);
  CHECK(chown(path.c_str(), uid, uid) == 0);
  return path;
}

std::string ScratchFolder::WriteFile(const std::string& name,
                                     const std::string& text) const {
  const std::string path = path_ + "/" + name;
  std::ofstream(path) << text;
  CHECK(chmod(path.c_str(), 0644) == 0);
  return path;
}

// 19 bits of the process, so that two that run at a time differ, and four
// clusters in each before an address comes again.
std::string OwnLoopbackAddress() {
  static std::uint32_t count = 0;
  const std::uint32_t number =
      static_cast<std::uint32_t>(getpid()) << 2 | (count++ & 3);
  return StrCat("127.", 1 + (number >> 14 & 0x7f), ".", number >> 7 & 0x7f, ".",
                1 + (number & 0x7f));
}

// --- The cluster.

ProcessCluster::ProcessCluster(const Options& options)
    : options_(options), host_(OwnLoopbackAddress()) {
  const std::string folder = scratch_.FolderOf(kDaemonUid, "daemons");
  SystemRandom random;
  std::ofstream(secret_file()) << ToHex(ClusterSecret::Make(&random)) << "\n";
  CHECK(chmod(secret_file().c_str(), 0600) == 0);
  CHECK(chown(secret_file().c_str(), kDaemonUid, kDaemonUid) == 0);
  MakeCatalog();
  for (int i = 1; i <= options_.nodes; ++i) MakeNode(i);
}

std::string ProcessCluster::secret_file() const {
  return scratch_.path() + "/daemons/cluster.secret";
}

std::string ProcessCluster::SecretFileOf(std::uint32_t uid) const {
  const std::string path = StrCat(scratch_.path(), "/secret.", uid);
  std::filesystem::copy_file(secret_file(), path);
  CHECK(chmod(path.c_str(), 0600) == 0);
  CHECK(chown(path.c_str(), uid, uid) == 0);
  return path;
}

std::string ProcessCluster::socket(int number) const {
  return StrCat(scratch_.path(), "/daemons/node", number, ".sock");
}

std::string ProcessCluster::control_address(int number) const {
  return StrCat(Host(number), ":", 7400 + 10 * number);
}

std::string ProcessCluster::Host(int number) const {
  return options_.network == nullptr ? host_
                                     : options_.network->address(1 + number);
}

std::string ProcessCluster::network_file(int number) const {
  return options_.network == nullptr
             ? std::string()
             : options_.network->namespace_file(1 + number);
}

void ProcessCluster::MakeCatalog() {
  Daemon::Options daemon{.program = "firnkv-catalog",
                         .uid = kDaemonUid,
                         .log_file = scratch_.path() + "/catalog.log",
                         .http = Host(0) + ":7402",
                         .network_file = network_file(0)};
  daemon.arguments = {"--data-dir",
                      scratch_.path() + "/daemons/catalog",
                      "--cluster-secret-file",
                      secret_file(),
                      "--catalog-listen",
                      catalog_address(),
                      "--http-address",
                      daemon.http};
  if (options_.network != nullptr) {
    daemon.arguments.insert(daemon.arguments.end(),
                            {"--catalog-plaintext-network", "true"});
  }
  for (const std::string& one : options_.catalog_arguments) {
    daemon.arguments.push_back(one);
  }
  catalog_ = std::make_unique<Daemon>(daemon);
}

void ProcessCluster::MakeNode(int number) {
  const int port = 7400 + 10 * number;
  Daemon::Options daemon{
      .program = "firnkv-node",
      .uid = kDaemonUid,
      .log_file = StrCat(scratch_.path(), "/node", number, ".log"),
      .http = StrCat(Host(number), ":", port + 2),
      .network_file = network_file(number),
      .cgroup_file = options_.cgroup_file};
  daemon.arguments = {"--data-dir",
                      StrCat(scratch_.path(), "/daemons/node", number),
                      "--cluster-secret-file",
                      secret_file(),
                      "--node-catalog",
                      catalog_address(),
                      "--node-socket",
                      socket(number),
                      "--node-control",
                      control_address(number),
                      "--node-stream",
                      StrCat(Host(number), ":", port + 1),
                      "--http-address",
                      daemon.http,
                      "--dram-bytes",
                      StrCat(options_.dram_bytes, "B"),
                      "--dram-region-bytes",
                      StrCat(options_.region_bytes, "B")};
  if (options_.uid_map) {
    daemon.arguments.push_back("--sessions-uid-map");
    daemon.arguments.push_back(
        StrCat(kAliceUid, "=alice,", kBobUid, "=bob,", kDaemonUid, "=alice"));
  }
  if (options_.network != nullptr) {
    daemon.arguments.insert(daemon.arguments.end(),
                            {"--node-plaintext-network", "true"});
  }
  for (const std::string& one : options_.node_arguments) {
    daemon.arguments.push_back(one);
  }
  nodes_.push_back(std::make_unique<Daemon>(daemon));
}

void ProcessCluster::Start() {
  ASSERT_TRUE(catalog_->Start()) << catalog_->Log();
  if (options_.uid_map) {
    for (const char* name : {"alice", "bob"}) {
      const Finished made = Admin({"tenant", "create", name});
      ASSERT_EQ(made.code, 0) << made.output;
    }
  }
  for (const auto& node : nodes_) {
    ASSERT_TRUE(node->Start()) << node->Log();
  }
  ASSERT_TRUE(NodesAreRegistered());
}

Finished ProcessCluster::Cli(std::uint32_t uid,
                             std::vector<std::string> arguments) const {
  ChildProcess::Options options{
      .program = ProgramFolder() + "/firnkv",
      .arguments = std::move(arguments),
      .environment = {"FIRNKV_CLI_CATALOG=" + catalog_address(),
                      StrCat("FIRNKV_CLI_NODE_UID=", kDaemonUid)},
      .uid = uid};
  options.environment.push_back(uid == 0
                                    ? "FIRNKV_CLI_SECRET_FILE=" + secret_file()
                                    : "FIRNKV_CLI_SOCKET=" + socket(1));
  return RunToEnd(options);
}

std::string ProcessCluster::TokenOf(const std::string& tenant) const {
  const Finished made = Admin({"tenant", "token", tenant, "--life", "24h"});
  EXPECT_EQ(made.code, 0) << made.output;
  return std::string(absl::StripAsciiWhitespace(made.output));
}

bool ProcessCluster::NodeComesToRest(int number) {
  return Eventually([&] {
    for (const char* name :
         {"firnkv_node_leases", "firnkv_node_reservations", "firnkv_node_holds",
          "firnkv_node_dram_reserved_bytes",
          "firnkv_node_dram_retiring_bytes"}) {
      if (node(number).Metric(name) != 0) return false;
    }
    return true;
  });
}

bool ProcessCluster::NodesAreRegistered() {
  for (const auto& node : nodes_) {
    if (!node->MetricBecomes("firnkv_node_registered", 1)) return false;
  }
  return true;
}

double ProcessCluster::SumOverNodes(const std::string& metric) {
  double sum = 0;
  for (const auto& node : nodes_) sum += node->Metric(metric).value_or(0);
  return sum;
}

// --- The fixture.

void ProcessTest::SetUp() {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can run daemons and clients as users of their "
                    "own; run this as root";
  }
}

void ProcessTest::TearDown() {
  if (!HasFailure() || cluster_ == nullptr) return;
  std::fprintf(stderr, "--- catalog\n%s", cluster_->catalog().Log().c_str());
  for (int i = 1; i <= cluster_->nodes(); ++i) {
    std::fprintf(stderr, "--- node %d\n%s", i, cluster_->node(i).Log().c_str());
  }
}

ProcessCluster& ProcessTest::StartCluster(
    const ProcessCluster::Options& options) {
  cluster_ = std::make_unique<ProcessCluster>(options);
  cluster_->Start();
  return *cluster_;
}

}  // namespace firnkv
