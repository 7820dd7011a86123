#include "tests/process/host_network.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_split.h"
#include "proto/base/check.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tests/process/child_process.h"

namespace firnkv {
namespace {

constexpr char kOwnNamespace[] = "/proc/self/ns/net";

// A program of the system's, by the words of its command line.
absl::Status RunTool(const std::string& command,
                     const std::string& network_file = {}) {
  std::vector<std::string> words = absl::StrSplit(command, ' ');
  const std::string program = "/usr/sbin/" + words[0];
  if (access(program.c_str(), X_OK) != 0) {
    return absl::UnavailableError(StrCat("there is no ", program));
  }
  words.erase(words.begin());
  const Finished run = RunToEnd({.program = program,
                                 .arguments = std::move(words),
                                 .environment = {},
                                 .uid = 0,
                                 .error_file = {},
                                 .network_file = network_file});
  if (run.code == 0) return absl::OkStatus();
  return absl::UnavailableError(StrCat(command, ": ", run.output));
}

// This process is in the new one from now on.
absl::StatusOr<int> NewNamespace() {
  if (unshare(CLONE_NEWNET) != 0) {
    return absl::ErrnoToStatus(errno, "a network namespace");
  }
  return open(kOwnNamespace, O_RDONLY | O_CLOEXEC);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostNetwork>> HostNetwork::Make(int hosts) {
  auto network = std::unique_ptr<HostNetwork>(new HostNetwork());
  // The first one is the bridge's, in which we stay.
  for (int i = hosts; i >= 0; --i) {
    ASSIGN_OR_RETURN(const int file, NewNamespace());
    network->namespaces_.insert(network->namespaces_.begin(), file);
  }
  RETURN_IF_ERROR(RunTool("ip link set lo up"));
  RETURN_IF_ERROR(RunTool("ip link add bridge0 type bridge"));
  RETURN_IF_ERROR(RunTool(
      StrCat("ip address add ", network->address(0), "/24 dev bridge0")));
  RETURN_IF_ERROR(RunTool("ip link set bridge0 up"));
  for (int i = 1; i <= hosts; ++i) RETURN_IF_ERROR(network->AddHost(i));
  return network;
}

HostNetwork::~HostNetwork() {
  for (const int file : namespaces_) close(file);
}

std::string HostNetwork::address(int host) const {
  return StrCat("10.77.0.", 100 + host);
}

std::string HostNetwork::namespace_file(int host) const {
  return StrCat("/proc/", getpid(), "/fd/",
                namespaces_[static_cast<std::size_t>(host)]);
}

absl::Status HostNetwork::AddHost(int host) {
  const std::string file = namespace_file(host);
  RETURN_IF_ERROR(RunTool(StrCat("ip link add port", host,
                                 " type veth peer name eth0 netns ", file)));
  RETURN_IF_ERROR(
      RunTool(StrCat("ip link set port", host, " master bridge0 up")));
  RETURN_IF_ERROR(RunTool("ip link set lo up", file));
  RETURN_IF_ERROR(
      RunTool(StrCat("ip address add ", address(host), "/24 dev eth0"), file));
  RETURN_IF_ERROR(RunTool("ip link set eth0 up", file));
  RETURN_IF_ERROR(RunTool("nft add table ip cuts", file));
  return RunTool(
      "nft add chain ip cuts input { type filter hook input priority 0 ; }",
      file);
}

void HostNetwork::Deafen(int host, int to) {
  const absl::Status added = RunTool(
      StrCat("nft add rule ip cuts input ip saddr ", address(to), " drop"),
      namespace_file(host));
  CHECK(added.ok());
}

// Where packets arrive, and not where they are sent: there the sender would be
// told.
void HostNetwork::CutBetween(int one, int other) {
  Deafen(one, other);
  Deafen(other, one);
}

// Neither from what it says to itself, nor from the test.
void HostNetwork::Cut(int host) {
  for (int other = 1; other < static_cast<int>(namespaces_.size()); ++other) {
    if (other != host) CutBetween(host, other);
  }
}

void HostNetwork::Heal() {
  for (int host = 1; host < static_cast<int>(namespaces_.size()); ++host) {
    const absl::Status healed =
        RunTool("nft flush table ip cuts", namespace_file(host));
    CHECK(healed.ok());
  }
}

}  // namespace firnkv
