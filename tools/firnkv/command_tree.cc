#include "tools/firnkv/command_tree.h"

#include <algorithm>
#include <map>
#include <memory>

#include "CLI/CLI.hpp"
#include "proto/base/text.h"
#include "tools/firnkv/units.h"

namespace firnkv {
namespace {

// Turns what a command's reader says of a text into the library's form: empty
// if it is fine.
template <typename Parse>
CLI::Validator Checked(Parse parse, const std::string& kind) {
  return CLI::Validator(
      [parse](std::string& text) {
        const absl::Status status = parse(text);
        return status.ok() ? std::string() : std::string(status.message());
      },
      kind);
}

// How many letters differ at least, when they are written one above the other
// from the begin, and from the end: enough for a slip of the hand.
std::size_t Apart(std::string_view a, std::string_view b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  std::size_t front = 0;
  while (front < shorter && a[front] == b[front]) ++front;
  std::size_t back = 0;
  while (back < shorter - front &&
         a[a.size() - 1 - back] == b[b.size() - 1 - back]) {
    ++back;
  }
  return std::max(a.size(), b.size()) - front - back;
}

// The command below `parent` that may be meant; empty: none is near.
std::string Nearest(std::string_view word, const CLI::App& parent) {
  std::string best;
  std::size_t best_apart = 4;
  for (const CLI::App* one : parent.get_subcommands({})) {
    const std::size_t apart = Apart(word, one->get_name());
    if (apart < best_apart && apart < word.size()) {
      best = one->get_name();
      best_apart = apart;
    }
  }
  return best;
}

}  // namespace

struct CommandTree::State {
  explicit State(const std::string& program) : app(program, "firnkv") {}

  struct Command {
    CLI::App* app = nullptr;
    std::string path;
    Run run;
  };

  CLI::App app;
  std::map<std::string, CLI::App*> nouns;
  std::vector<Command> commands;
};

void Arguments::Place(const std::string& name, std::string* target,
                      const std::string& help) {
  app_->add_option(name, *target, help)->required()->type_name("");
}

void Arguments::MaybePlace(const std::string& name, std::string* target,
                           const std::string& help) {
  app_->add_option(name, *target, help)->type_name("");
}

void Arguments::Places(const std::string& name,
                       std::vector<std::string>* target,
                       const std::string& help) {
  app_->add_option(name, *target, help)->required()->type_name("");
}

void Arguments::Text(const std::string& name, std::string* target,
                     const std::string& help) {
  CLI::Option* const option = app_->add_option(name, *target, help);
  if (!target->empty()) option->capture_default_str();
}

void Arguments::OneOf(const std::string& name, std::string* target,
                      std::vector<std::string> choices,
                      const std::string& help) {
  app_->add_option(name, *target, help)
      ->capture_default_str()
      ->check(CLI::IsMember(std::move(choices)));
}

void Arguments::Texts(const std::string& name, std::vector<std::string>* target,
                      const std::string& help) {
  app_->add_option(name, *target, help)->expected(1)->take_all();
}

void Arguments::Count(const std::string& name, std::uint64_t* target,
                      const std::string& help) {
  app_->add_option(name, *target, help)->capture_default_str();
}

void Arguments::Count(const std::string& name, std::uint32_t* target,
                      const std::string& help) {
  app_->add_option(name, *target, help)->capture_default_str();
}

void Arguments::Count(const std::string& name,
                      std::optional<std::uint64_t>* target,
                      const std::string& help) {
  app_->add_option(name, *target, help);
}

void Arguments::Real(const std::string& name, double* target,
                     const std::string& help) {
  app_->add_option(name, *target, help)->capture_default_str();
}

void Arguments::Size(const std::string& name, std::uint64_t* target,
                     const std::string& help) {
  app_->add_option_function<std::string>(
          name,
          [target](const std::string& text) { *target = *ParseSize(text); },
          help)
      ->check(Checked([](const std::string& text)
                          -> absl::Status { return ParseSize(text).status(); },
                      "SIZE"))
      ->default_str(StrCat(*target, "B"));
}

void Arguments::Time(const std::string& name, absl::Duration* target,
                     const std::string& help) {
  CLI::Option* const option =
      app_->add_option_function<std::string>(
              name,
              [target](const std::string& text) { *target = *ParseTime(text); },
              help)
          ->check(Checked(
              [](const std::string& text) -> absl::Status {
                return ParseTime(text).status();
              },
              "TIME"));
  if (*target > absl::ZeroDuration() && *target != absl::InfiniteDuration()) {
    option->default_str(absl::FormatDuration(*target));
  }
}

void Arguments::Flag(const std::string& name, bool* target,
                     const std::string& help) {
  app_->add_flag(name, *target, help);
}

void Arguments::FlagOrTime(const std::string& name,
                           std::optional<absl::Duration>* target,
                           const std::string& help) {
  // shared_ptr: the library wants a text to write to, as long as it has the
  // check.
  auto text = std::make_shared<std::string>();
  const auto read = [text, target](const std::string& given) -> absl::Status {
    // What the library gives a flag without a value.
    if (given == "true") {
      *target = absl::ZeroDuration();
      return absl::OkStatus();
    }
    const absl::StatusOr<absl::Duration> time = ParseTime(given);
    if (!time.ok()) return time.status();
    *target = *time;
    return absl::OkStatus();
  };
  app_->add_flag(name, *text, help)->check(Checked(read, "[=TIME]"));
}

CommandTree::CommandTree(const std::string& program)
    : state_(std::make_unique<State>(program)) {
  state_->app.require_subcommand(1);
  state_->app.get_formatter()->column_width(34);
}

CommandTree::~CommandTree() = default;

Arguments CommandTree::Globals() { return Arguments(&state_->app); }

void CommandTree::SetVersion(const std::string& version) {
  state_->app.set_version_flag("--version", version);
}

void CommandTree::AddNoun(const std::string& noun, const std::string& help) {
  CLI::App* const app = state_->app.add_subcommand(noun, help);
  app->require_subcommand(1);
  // Global options may follow the command.
  app->fallthrough();
  state_->nouns[noun] = app;
}

Arguments CommandTree::Add(std::string_view path, const std::string& help,
                           Run run) {
  const std::size_t space = path.find(' ');
  CLI::App* parent = &state_->app;
  if (space != std::string_view::npos) {
    parent = state_->nouns.at(std::string(path.substr(0, space)));
  }
  const std::string verb(
      space == std::string_view::npos ? path : path.substr(space + 1));
  CLI::App* const app = parent->add_subcommand(verb, help);
  app->fallthrough();
  app->footer(
      "Every command takes --json, --timeout, --socket, --catalog and more: "
      "see firnkv --help.");
  state_->commands.push_back({app, std::string(path), std::move(run)});
  return Arguments(app);
}

bool CommandTree::SayUnknownCommand(std::ostream* err) const {
  const CLI::App* parent = &state_->app;
  for (const auto& [name, noun] : state_->nouns) {
    if (noun->parsed()) parent = noun;
  }
  const std::vector<std::string> left = state_->app.remaining(true);
  const auto word = std::find_if(
      left.begin(), left.end(),
      [](const std::string& one) { return !one.starts_with("-"); });
  if (word == left.end() || !parent->get_subcommands().empty()) return false;
  const std::string nearest = Nearest(*word, *parent);
  const std::string path =
      parent == &state_->app ? "firnkv" : StrCat("firnkv ", parent->get_name());
  *err << "firnkv: there is no command '" << *word << "'"
       << (nearest.empty() ? "" : StrCat("; did you mean ", nearest, "?"))
       << "\n  " << path << " --help lists them\n";
  return true;
}

CommandTree::Parsed CommandTree::Parse(absl::Span<const std::string> arguments,
                                       std::ostream* out, std::ostream* err) {
  // The library takes them from the back.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    state_->app.parse(reversed);
  } catch (const CLI::RequiredError& error) {
    if (SayUnknownCommand(err)) return {nullptr, "", ExitCode::kUsage};
    state_->app.exit(error, *out, *err);
    return {nullptr, "", ExitCode::kUsage};
  } catch (const CLI::ParseError& error) {
    const int code = state_->app.exit(error, *out, *err);
    return {nullptr, "", code == 0 ? ExitCode::kOk : ExitCode::kUsage};
  }
  for (const State::Command& command : state_->commands) {
    if (command.app->parsed()) {
      return {command.run, command.path, ExitCode::kOk};
    }
  }
  return {nullptr, "", ExitCode::kUsage};
}

}  // namespace firnkv
