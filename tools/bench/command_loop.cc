#include "tools/bench/command_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/text.h"

namespace firnkv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMillis = 80;

struct Tally {
  std::uint64_t ops = 0;
  std::uint64_t bytes = 0;
  Clock::time_point end;
  absl::Status status;
};

void RunOps(Op op, int thread, Clock::time_point until, Tally* tally) {
  do {
    const absl::StatusOr<std::uint64_t> bytes = op(thread);
    if (!bytes.ok()) {
      tally->status = bytes.status();
      break;
    }
    ++tally->ops;
    tally->bytes += *bytes;
    tally->end = Clock::now();
  } while (tally->end < until);
}

}  // namespace

Command::Command(const std::string& line) {
  std::istringstream words(line);
  words >> verb_;
  std::string word;
  while (words >> word) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    words_[word.substr(0, equals)] = word.substr(equals + 1);
  }
}

std::string Command::Text(const std::string& word,
                          const std::string& otherwise) const {
  const auto found = words_.find(word);
  return found == words_.end() ? otherwise : found->second;
}

std::uint64_t Command::Number(const std::string& word,
                              std::uint64_t otherwise) const {
  const auto found = words_.find(word);
  if (found == words_.end()) return otherwise;
  return std::strtoull(found->second.c_str(), nullptr, 10);
}

int CommandLoop::Run() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const Command command(line);
    const auto act = acts_.find(command.verb());
    const absl::StatusOr<Counts> counts =
        act == acts_.end()
            ? absl::UnimplementedError(StrCat("no command '", line, "'"))
            : act->second(command);
    if (counts.ok()) {
      std::cout << "ok";
      for (const auto& [name, count] : *counts) {
        std::cout << " " << name << "=" << count;
      }
      std::cout << std::endl;
    } else {
      std::string text = counts.status().ToString();
      std::replace(text.begin(), text.end(), '\n', ' ');
      std::cout << "error " << text << std::endl;
    }
  }
  return 0;
}

absl::StatusOr<Counts> Measure(const Command& command, Op op) {
  const auto threads = static_cast<std::size_t>(
      std::max<std::uint64_t>(command.Number("threads", 1), 1));
  std::vector<Tally> tallies(threads);
  const Clock::time_point began = Clock::now();
  const Clock::time_point until =
      began + std::chrono::milliseconds(command.Number("millis", kMillis));
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) {
    others.emplace_back(RunOps, op, static_cast<int>(i), until, &tallies[i]);
  }
  RunOps(op, 0, until, &tallies[0]);
  for (std::thread& other : others) other.join();

  Tally all;
  all.end = began;
  for (const Tally& one : tallies) {
    if (!one.status.ok()) return one.status;
    all.ops += one.ops;
    all.bytes += one.bytes;
    all.end = std::max(all.end, one.end);
  }
  const auto nanos =
      std::chrono::duration_cast<std::chrono::nanoseconds>(all.end - began);
  return Counts{{"nanos", static_cast<std::uint64_t>(nanos.count())},
                {"ops", all.ops},
                {"bytes", all.bytes}};
}

}  // namespace firnkv
