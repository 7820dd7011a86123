#include "server/bin/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "absl/status/status.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/base/config.h"

namespace firnkv {
namespace {

absl::Status Load(const std::string& config_path, const OptionList& list,
                  const std::map<std::string, std::string>& flags) {
  if (!config_path.empty()) RETURN_IF_ERROR(LoadYamlFile(config_path, list));
  RETURN_IF_ERROR(LoadEnvironment(list));
  for (const auto& [name, value] : flags) {
    RETURN_IF_ERROR(Annotate(list.Find(name)->set(value), FlagName(name)));
  }
  return absl::OkStatus();
}

std::string FlagHelp(const Option& option) {
  std::string help = option.help;
  if (!option.bounds_text.empty()) {
    StrAppend(&help, " (", option.bounds_text, ")");
  }
  if (!option.default_text.empty()) {
    StrAppend(&help, " [", option.default_text, "]");
  }
  return help;
}

void AddFlags(const OptionList& list, CLI::App* app,
              std::map<std::string, std::string>* flags) {
  for (const Option& option : list.options()) {
    CLI::Option* const flag =
        app->add_option_function<std::string>(
               FlagName(option.name),
               [flags, name = option.name](const std::string& value) {
                 (*flags)[name] = value;
               },
               FlagHelp(option))
            ->type_name(option.kind)
            ->group("Options");
    // "--dram-huge-pages" alone is "true". CLI11 takes expected(0) for the sign
    // of a flag, and remembers it.
    if (option.kind == "flag") flag->expected(0)->expected(0, 1);
  }
}

}  // namespace

std::optional<CommandLine> ParseCommandLine(int argc, char** argv,
                                            const Program& program,
                                            const OptionList& list,
                                            int* exit_code) {
  CommandLine line;
  std::string config_path;
  bool print_config = false;
  std::map<std::string, std::string> flags;

  CLI::App app(program.purpose);
  app.set_version_flag("--version", kVersion);
  app.add_option("--config", config_path,
                 "YAML file with options; --print-config shows a whole one")
      ->type_name("FILE");
  app.add_flag("--check", line.check,
               "Print every limit that matters and whether this can work, "
               "then end");
  app.add_flag("--print-config", print_config,
               "Print all options as they would be used, as YAML, then end");
  if (!program.documents.empty()) {
    app.add_option("--print-document", line.print_document,
                   "Print a generated document of docs/, then end")
        ->check(CLI::IsMember(program.documents))
        ->group("Developers");
  }
  AddFlags(list, &app, &flags);
  // What no flag is, is said here, with the flag that may be meant.
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11's own 100s become the usual 2 for wrong usage.
    *exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  if (const std::vector<std::string> left = app.remaining(); !left.empty()) {
    const std::string& first = left.front();
    const std::string what = first.starts_with("-")
                                 ? UnknownFlag(first, list)
                                 : StrCat("'", first, "' is not expected here");
    std::fprintf(stderr, "%s: %s\n", argv[0], what.c_str());
    *exit_code = 2;
    return std::nullopt;
  }
  if (!line.print_document.empty()) return line;

  const absl::Status loaded = Load(config_path, list, flags);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[0],
                 std::string(loaded.message()).c_str());
    *exit_code = 2;
    return std::nullopt;
  }
  if (print_config) {
    std::fputs(RenderYaml(list, program.purpose).c_str(), stdout);
    *exit_code = 0;
    return std::nullopt;
  }
  return line;
}

}  // namespace firnkv
