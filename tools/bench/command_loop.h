// A measuring program: it reads commands from standard input, one a line, and
// answers each with one line on standard output. The driver (run) starts one
// such program for each side of a comparison and lets them take turns.
//
//     read name=blocks count=16 millis=80
//     ok bytes=150994944 nanos=80412345 ops=9
//     read name=nothing
//     error NOT_FOUND: no namespace 'nothing'
//
// Ends with its standard input.
//
// Threading. One thread; what a command starts is its own.

#ifndef FIRNKV_TOOLS_BENCH_COMMAND_LOOP_H_
#define FIRNKV_TOOLS_BENCH_COMMAND_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace firnkv {

// What was asked: a verb, and words with values.
class Command {
 public:
  explicit Command(const std::string& line);

  const std::string& verb() const { return verb_; }
  // `otherwise` where it was not said.
  std::string Text(const std::string& word,
                   const std::string& otherwise = {}) const;
  // Decimal. What is no number is 0.
  std::uint64_t Number(const std::string& word,
                       std::uint64_t otherwise = 0) const;

 private:
  std::string verb_;
  std::map<std::string, std::string> words_;
};

using Counts = std::map<std::string, std::uint64_t>;

class CommandLoop {
 public:
  using Act = std::function<absl::StatusOr<Counts>(const Command&)>;

  void Add(const std::string& verb, Act act) { acts_[verb] = std::move(act); }
  // Returns at the end of standard input: the program's exit code.
  int Run();

 private:
  std::map<std::string, Act> acts_;
};

// Does `op` over and over for the command's `millis` (at least once) in each of
// its `threads` (1) threads, and says `nanos`, `ops` and `bytes`, the sum of
// what `op` returned. The first one that fails ends its thread, and the whole
// fails.
using Op = absl::FunctionRef<absl::StatusOr<std::uint64_t>(int thread)>;
absl::StatusOr<Counts> Measure(const Command& command, Op op);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_BENCH_COMMAND_LOOP_H_
