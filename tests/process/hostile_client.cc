// A client that keeps no rule, in a process of its own: reads commands, a line
// each, and answers each with a line. Ends with its input.
//
//     ok NAME=NUMBER...          it was done
//     failed CODE MESSAGE        it could not be tried
//
// The words of a command are those of the functions that it calls.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tests/process/hostile_flood.h"
#include "tests/process/hostile_memory.h"
#include "tests/process/hostile_staging.h"
#include "tests/process/hostile_stream.h"
#include "tests/process/hostile_world.h"
#include "tests/process/hostile_writer.h"

namespace firnkv {
namespace {

class HostileProgram {
 public:
  std::string Obey(const std::string& line) {
    std::istringstream words(line);
    std::string name;
    std::string text;
    words >> name >> text;
    const std::uint64_t number = std::strtoull(text.c_str(), nullptr, 10);
    const absl::StatusOr<Tally> tally = Do(name, text, number);
    if (!tally.ok()) return StrCat("failed ", tally.status().ToString());
    std::string answer = "ok";
    for (const auto& [what, count] : *tally) {
      StrAppend(&answer, " ", what, "=", count);
    }
    return answer;
  }

 private:
  absl::StatusOr<Tally> Do(const std::string& name, const std::string& text,
                           std::uint64_t number) {
    if (name == "connect") return Connect(text);
    if (name == "write")
      return Tally{{"there", WriteBlocks(&world_, 0, number)}};
    if (name == "keep") return Keep(number);
    if (name == "look") return kept_.Look(world_);
    if (name == "reopen") return kept_.Reopen();
    if (name == "scribble") return kept_.Scribble();
    if (name == "pry") return Pry(static_cast<pid_t>(number));
    if (name == "lend-wrong-kinds") return LendWrongKinds(&world_, text);
    if (name == "lend-without-end") return LendWithoutEnd(&world_);
    if (name == "commit-from-a-hole") return CommitFromAHole(&world_, 100'000);
    if (name == "scribble-during-commits") {
      return ScribbleDuringCommits(&world_, kFirstOtherSize, number);
    }
    if (name == "guess-sessions") return GuessSessions(&world_, text);
    if (name == "guess-handles") return GuessHandles(&world_, number);
    if (name == "leave-in-flight") return LeaveInFlight(&world_, number);
    if (name == "claim-in-flight") {
      return ClaimInFlight(&world_, number, &unread_);
    }
    if (name == "open-control-without-end") {
      return OpenControlWithoutEnd(&world_, number);
    }
    if (name == "send-unexpected") return SendUnexpected(&world_);
    if (name == "open-without-end") return OpenWithoutEnd(&world_, number);
    if (name == "flood") return Flood(&world_, number);
    if (name == "flood-stream") return FloodStream(text, 10);
    if (name == "forge-tokens") return ForgeTokens(&world_);
    if (name == "break-writes") return BreakWrites(&world_);
    if (name == "write-into-foreign") return WriteIntoForeign(&world_, text);
    if (name == "stall-writes") return StallWrites(&world_, number, &stalled_);
    if (name == "unshare") return SpeakFromAnotherNamespace(text);
    return absl::InvalidArgumentError(StrCat("what is ", name, "?"));
  }

  absl::StatusOr<Tally> Connect(const std::string& path) {
    RETURN_IF_ERROR(world_.Connect(path));
    return Tally();
  }
  absl::StatusOr<Tally> Keep(std::uint64_t count) {
    ASSIGN_OR_RETURN(const int regions, kept_.Keep(&world_, count));
    return Tally{{"regions", regions}};
  }

  HostileWorld world_;
  KeptRegions kept_;
  std::vector<std::unique_ptr<HostileSession>> unread_;
  std::vector<HostileStream> stalled_;
};

}  // namespace
}  // namespace firnkv

int main() {
  std::signal(SIGPIPE, SIG_IGN);
  firnkv::TurnOffDeadlockDetection();
  firnkv::HostileProgram program;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::printf("%s\n", program.Obey(line).c_str());
    std::fflush(stdout);
  }
  return 0;
}
