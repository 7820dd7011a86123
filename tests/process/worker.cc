#include "tests/process/worker.h"

#include <filesystem>
#include <sstream>

#include "gtest/gtest.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Beside the test that runs.
std::string ClientProgramPath() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() /
         "process_client";
}

}  // namespace

Worker::Worker(std::uint32_t uid, const Place& place)
    : process_({.program = ClientProgramPath(),
                .arguments = {},
                .environment = {},
                .uid = uid,
                .error_file = "/dev/null",
                .network_file = place.network_file,
                .cgroup_file = place.cgroup_file}) {}

Reply Worker::Answer() {
  Reply reply;
  reply.text = process_.ReadLine().value_or("");
  std::istringstream words(reply.text);
  std::string word;
  words >> word;
  reply.ok = word == "ok";
  while (reply.ok && words >> word) {
    const std::size_t equals = word.find('=');
    reply.counts[word.substr(0, equals)] = std::stoll(word.substr(equals + 1));
  }
  return reply;
}

Reply Worker::Do(const std::string& command) {
  Begin(command);
  return Answer();
}

Reply Worker::EndLoad() {
  Begin("stop");
  const Reply reply = Answer();
  // That of "stop" itself, which is no command.
  Answer();
  return reply;
}

std::unique_ptr<Worker> WorkerAt(const ProcessCluster& cluster, int number,
                                 std::uint32_t uid) {
  auto worker = std::make_unique<Worker>(
      uid, Worker::Place{.network_file = cluster.network_file(number)});
  const Reply connected = worker->Do("connect " + cluster.socket(number));
  EXPECT_TRUE(connected.ok) << connected;
  const Reply opened = worker->Do(StrCat("open granite ", kTestBlockBytes));
  EXPECT_TRUE(opened.ok) << opened;
  return worker;
}

std::unique_ptr<Worker> RemoteWorker(const ProcessCluster& cluster,
                                     int number) {
  auto worker = std::make_unique<Worker>(
      kAliceUid, Worker::Place{.network_file = cluster.network_file(number)});
  const Reply connected = worker->Do(StrCat("away ", cluster.catalog_address(),
                                            " ", cluster.TokenOf("alice")));
  EXPECT_TRUE(connected.ok) << connected;
  const Reply opened = worker->Do(StrCat("open big ", kBigBlockBytes));
  EXPECT_TRUE(opened.ok) << opened;
  return worker;
}

std::unique_ptr<Worker> BigWorkerAt(const ProcessCluster& cluster, int number) {
  std::unique_ptr<Worker> worker = WorkerAt(cluster, number);
  const Reply opened = worker->Do(StrCat("open big ", kBigBlockBytes));
  EXPECT_TRUE(opened.ok) << opened;
  return worker;
}

}  // namespace firnkv
