// The CLI's commands and their arguments: `firnkv NOUN VERB ...` and `firnkv
// VERB ...`. Each command declares its arguments into a struct of its own and
// gets it filled.
//
//     struct Options { std::string name; };
//
//     void AddTenantCreate(CommandTree* tree) {
//       tree->Add<Options>(
//           "tenant create", "Make a tenant.",
//           [](Arguments* arguments, Options* options) {
//             arguments->Place("NAME", &options->name, "Its name.");
//           },
//           Run);
//     }
//
// The command-line library stands behind this header, so that a command is
// compiled without it.
//
// Threading: none. The tree owns what commands gave it.

#ifndef FIRNKV_TOOLS_FIRNKV_COMMAND_TREE_H_
#define FIRNKV_TOOLS_FIRNKV_COMMAND_TREE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tools/firnkv/exit_code.h"

namespace CLI {
class App;
}  // namespace CLI

namespace firnkv {

class Context;

// Declares arguments. Names: "--block-bytes" is an option, "NAME" stands by its
// place; help says what it is, defaults are the targets' values at declaration.
// Targets outlive the tree's use.
class Arguments {
 public:
  explicit Arguments(CLI::App* app) : app_(app) {}

  // By its place; refused where it is missing.
  void Place(const std::string& name, std::string* target,
             const std::string& help);
  // By its place, may be missing.
  void MaybePlace(const std::string& name, std::string* target,
                  const std::string& help);
  // All that is left; at least one.
  void Places(const std::string& name, std::vector<std::string>* target,
              const std::string& help);

  void Text(const std::string& name, std::string* target,
            const std::string& help);
  void OneOf(const std::string& name, std::string* target,
             std::vector<std::string> choices, const std::string& help);
  // May be given several times.
  void Texts(const std::string& name, std::vector<std::string>* target,
             const std::string& help);
  void Count(const std::string& name, std::uint64_t* target,
             const std::string& help);
  void Count(const std::string& name, std::uint32_t* target,
             const std::string& help);
  void Count(const std::string& name, std::optional<std::uint64_t>* target,
             const std::string& help);
  void Real(const std::string& name, double* target, const std::string& help);
  void Size(const std::string& name, std::uint64_t* target,
            const std::string& help);
  void Time(const std::string& name, absl::Duration* target,
            const std::string& help);
  void Flag(const std::string& name, bool* target, const std::string& help);
  // "--wait" or "--wait=30s"; zero where it says no time.
  void FlagOrTime(const std::string& name,
                  std::optional<absl::Duration>* target,
                  const std::string& help);

 private:
  CLI::App* const app_;
};

class CommandTree {
 public:
  // `program` is what --help says of the whole.
  explicit CommandTree(const std::string& program);
  ~CommandTree();

  // Options before the command.
  Arguments Globals();
  void SetVersion(const std::string& version);
  // What one noun is about, for its --help; before its commands.
  void AddNoun(const std::string& noun, const std::string& help);

  // `run` is called if the command line names this command. `path` is "VERB" or
  // "NOUN VERB".
  using Run = std::function<ExitCode(Context&)>;
  Arguments Add(std::string_view path, const std::string& help, Run run);

  // The same with a struct of options that the tree keeps.
  template <typename Options>
  void Add(std::string_view path, const std::string& help,
           const std::function<void(Arguments*, Options*)>& declare,
           std::function<ExitCode(Context&, const Options&)> run) {
    // Shared: std::function wants to be copied; the tree is the one owner.
    auto options = std::make_shared<Options>();
    Arguments arguments =
        Add(path, help, [options, run = std::move(run)](Context& context) {
          return run(context, *options);
        });
    declare(&arguments, options.get());
  }

  // Reads `arguments` (without the program's name). A command: what to call.
  // Else: how to end; --help went to `out`, complaints to `err`.
  struct Parsed {
    Run run;
    std::string path;
    ExitCode exit_code = ExitCode::kOk;
  };
  Parsed Parse(absl::Span<const std::string> arguments, std::ostream* out,
               std::ostream* err);

 private:
  // If a word stands where a command should: says so, and which one is near.
  bool SayUnknownCommand(std::ostream* err) const;

  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_COMMAND_TREE_H_
