#include "server/base/config.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <map>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "yaml-cpp/yaml.h"

extern char** environ;

namespace firnkv {
namespace {

constexpr int kDeepestNesting = 8;
constexpr std::string_view kPrefix = "FIRNKV_";

absl::Status At(std::string_view name, const YAML::Mark& mark,
                std::string_view what) {
  return absl::InvalidArgumentError(
      StrCat(name, ":", mark.line + 1, ": ", what));
}

// How far two names are apart, for "did you mean".
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

// `spelt` is how options are written where `name` stands: as a flag, say.
std::string DidYouMean(std::string_view name, const OptionList& list,
                       std::string (*spelt)(std::string_view)) {
  std::string best;
  std::size_t best_distance = 6;
  for (const Option& option : list.options()) {
    const std::string known = spelt(option.name);
    const std::size_t distance = Distance(name, known);
    if (distance < best_distance) {
      best = known;
      best_distance = distance;
    }
  }
  return best.empty() ? "; docs/CONFIG.md lists all options"
                      : StrCat("; did you mean ", best, "?");
}

std::string AsItIs(std::string_view option) { return std::string(option); }

// The first option below `name`, as "dram.bytes" is below "dram"; null where
// `name` is no section.
const Option* FirstBelow(std::string_view name, const OptionList& list) {
  const std::string prefix = StrCat(name, ".");
  for (const Option& option : list.options()) {
    if (option.name.starts_with(prefix)) return &option;
  }
  return nullptr;
}

absl::Status SetFromNode(const Option& option, const YAML::Node& node,
                         std::string_view file) {
  absl::Status status;
  if (node.IsSequence()) {
    if (option.set_list == nullptr) {
      return At(file, node.Mark(), StrCat(option.name, " takes one value"));
    }
    std::vector<std::string> values;
    for (const YAML::Node& element : node) {
      if (!element.IsScalar()) {
        return At(file, element.Mark(),
                  StrCat(option.name, " takes a list of plain values"));
      }
      values.push_back(element.Scalar());
    }
    status = option.set_list(values);
  } else if (node.IsScalar()) {
    if (option.set_list != nullptr) {
      return At(file, node.Mark(),
                StrCat(option.name, " takes a list: [", node.Scalar(), "]"));
    }
    status = option.set(node.Scalar());
  } else {
    return At(file, node.Mark(), StrCat(option.name, " has no value"));
  }
  if (status.ok()) return status;
  return At(file, node.Mark(),
            StrCat(option.name, ": ", ToStd(status.message())));
}

// What stands at a key that is no option.
absl::Status NoOption(const std::string& name, const YAML::Node& key,
                      const YAML::Node& value, std::string_view file,
                      const OptionList& list) {
  const Option* const below = FirstBelow(name, list);
  if (below == nullptr) {
    return At(file, key.Mark(),
              StrCat("unknown option ", name, DidYouMean(name, list, AsItIs)));
  }
  // A section of which every line is a comment.
  if (value.IsNull()) return absl::OkStatus();
  return At(file, key.Mark(),
            StrCat(name, " is a section: its options stand below it, like ",
                   below->name));
}

absl::Status Walk(const YAML::Node& node, const std::string& prefix, int depth,
                  std::string_view file, const OptionList& list) {
  if (depth > kDeepestNesting) {
    return At(file, node.Mark(), "is nested too deep");
  }
  std::map<std::string, int> lines;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      return At(file, entry.first.Mark(), "a key must be plain text");
    }
    const std::string name = prefix.empty()
                                 ? entry.first.Scalar()
                                 : StrCat(prefix, ".", entry.first.Scalar());
    // Which of the two would count is nothing to guess at.
    const auto [earlier, first] =
        lines.emplace(name, entry.first.Mark().line + 1);
    if (!first) {
      return At(file, entry.first.Mark(),
                StrCat(name, " stands already in line ", earlier->second));
    }
    if (const Option* option = list.Find(name)) {
      RETURN_IF_ERROR(SetFromNode(*option, entry.second, file));
    } else if (entry.second.IsMap()) {
      RETURN_IF_ERROR(Walk(entry.second, name, depth + 1, file, list));
    } else {
      RETURN_IF_ERROR(NoOption(name, entry.first, entry.second, file, list));
    }
  }
  return absl::OkStatus();
}

bool EndsWithAnyOf(std::string_view text,
                   std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [text](std::string_view end) {
    return text.ends_with(end);
  });
}

// Kubernetes puts the addresses of all services of a namespace into every
// container: a service "firnkv-catalog" is FIRNKV_CATALOG_SERVICE_HOST,
// FIRNKV_CATALOG_PORT, FIRNKV_CATALOG_PORT_7400_TCP_ADDR and so on. Those name
// no option and are nobody's mistake.
bool IsOfAKubernetesService(std::string_view name) {
  return EndsWithAnyOf(name, {"_SERVICE_HOST", "_SERVICE_PORT", "_PORT"}) ||
         name.find("_SERVICE_PORT_") != std::string_view::npos ||
         (name.find("_PORT_") != std::string_view::npos &&
          EndsWithAnyOf(name,
                        {"_TCP", "_TCP_PROTO", "_TCP_PORT", "_TCP_ADDR", "_UDP",
                         "_UDP_PROTO", "_UDP_PORT", "_UDP_ADDR", "_SCTP",
                         "_SCTP_PROTO", "_SCTP_PORT", "_SCTP_ADDR"}));
}

bool IsPlainYaml(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '/' || c == '_' ||
                  c == '-';
         });
}

std::string YamlValue(std::string_view text) {
  if (IsPlainYaml(text)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    // Raw, a newline would be read back as a space, and others not at all.
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      StrAppend(&quoted, "\\x",
                absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
      continue;
    }
    if (c == '\\' || c == '"') quoted.push_back('\\');
    quoted.push_back(c);
  }
  return StrCat(quoted, "\"");
}

void AppendWrapped(std::string_view text, std::string_view indent,
                   std::string* out) {
  std::string line;
  for (const auto word : absl::StrSplit(ToAbsl(text), ' ')) {
    if (!line.empty() && indent.size() + line.size() + word.size() > 76) {
      StrAppend(out, indent, "# ", line, "\n");
      line.clear();
    }
    StrAppend(&line, line.empty() ? "" : " ", ToStd(word));
  }
  StrAppend(out, indent, "# ", line, "\n");
}

// In the order of description, but what parts describe of one section stands
// together: a key may stand in a YAML map only once.
std::vector<const Option*> BySection(const OptionList& list) {
  std::vector<std::string_view> sections;
  std::map<std::string_view, std::vector<const Option*>> members;
  for (const Option& option : list.options()) {
    const std::string_view name = option.name;
    const std::string_view section = name.substr(0, name.find('.'));
    std::vector<const Option*>& in_section = members[section];
    if (in_section.empty()) sections.push_back(section);
    in_section.push_back(&option);
  }
  std::vector<const Option*> ordered;
  for (const std::string_view section : sections) {
    const std::vector<const Option*>& in_section = members[section];
    ordered.insert(ordered.end(), in_section.begin(), in_section.end());
  }
  return ordered;
}

void AppendValue(const Option& option, std::string_view indent,
                 std::string_view leaf, std::string* out) {
  StrAppend(out, indent, leaf, ":");
  if (option.get_list == nullptr) {
    StrAppend(out, " ", YamlValue(option.get()), "\n");
    return;
  }
  const std::vector<std::string> values = option.get_list();
  if (values.empty()) StrAppend(out, " []");
  StrAppend(out, "\n");
  for (const std::string& value : values) {
    StrAppend(out, indent, "  - ", YamlValue(value), "\n");
  }
}

}  // namespace

absl::Status LoadYaml(std::string_view yaml, std::string_view name,
                      const OptionList& list) {
  if (yaml.size() > kLargestConfigBytes) {
    return absl::InvalidArgumentError(
        StrCat(name, " is larger than ", kLargestConfigBytes, " bytes"));
  }
  YAML::Node root;
  // yaml-cpp reports by exceptions; they end here.
  try {
    root = YAML::Load(std::string(yaml));
  } catch (const YAML::Exception& error) {
    return At(name, error.mark, error.msg);
  }
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) return At(name, root.Mark(), "must be a map of options");
  try {
    return Walk(root, "", 0, name, list);
  } catch (const YAML::Exception& error) {
    return At(name, error.mark, error.msg);
  }
}

absl::Status LoadYamlFile(const std::string& path, const OptionList& list) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(StrCat("cannot read the configuration ", path));
  }
  std::string text(kLargestConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  // A directory can be opened, not read.
  if (file.bad()) {
    return absl::InvalidArgumentError(
        StrCat("cannot read the configuration ", path, ": it is no file"));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return LoadYaml(text, path, list);
}

absl::Status LoadEnvironment(const OptionList& list) {
  std::map<std::string, const Option*> by_variable;
  for (const Option& option : list.options()) {
    by_variable[VariableName(option.name)] = &option;
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.substr(0, kPrefix.size()) != kPrefix) continue;
    const std::size_t equals = text.find('=');
    const std::string name(text.substr(0, equals));
    // Where the tests and tools find the binaries, and what the command line
    // tool reads for itself; no options of a daemon.
    if (name == "FIRNKV_BIN" || name.starts_with("FIRNKV_CLI_")) continue;
    const auto it = by_variable.find(name);
    if (it == by_variable.end()) {
      if (IsOfAKubernetesService(name)) continue;
      return absl::InvalidArgumentError(
          StrCat("environment variable ", name, " names no option",
                 DidYouMean(name, list, VariableName)));
    }
    RETURN_IF_ERROR(Annotate(it->second->set(text.substr(equals + 1)),
                             StrCat("environment variable ", name)));
  }
  return absl::OkStatus();
}

std::string FlagName(std::string_view option) {
  return StrCat("--",
                absl::StrReplaceAll(ToAbsl(option), {{".", "-"}, {"_", "-"}}));
}

std::string UnknownFlag(std::string_view argument, const OptionList& list) {
  const std::string_view flag = argument.substr(0, argument.find('='));
  return StrCat("unknown option ", flag, DidYouMean(flag, list, FlagName));
}

std::string VariableName(std::string_view option) {
  return StrCat(kPrefix, absl::AsciiStrToUpper(absl::StrReplaceAll(
                             ToAbsl(option), {{".", "_"}})));
}

std::string RenderYaml(const OptionList& list, std::string_view title) {
  std::string out = StrCat("# ", title, "\n");
  std::vector<std::string> open;
  for (const Option* described : BySection(list)) {
    const Option& option = *described;
    std::vector<std::string> path = absl::StrSplit(option.name, '.');
    const std::string leaf = path.back();
    path.pop_back();
    std::size_t same = 0;
    while (same < path.size() && same < open.size() &&
           path[same] == open[same]) {
      ++same;
    }
    StrAppend(&out, "\n");
    for (std::size_t i = same; i < path.size(); ++i) {
      StrAppend(&out, std::string(2 * i, ' '), path[i], ":\n");
    }
    open = path;
    const std::string indent(2 * path.size(), ' ');
    std::string help = option.help;
    if (!option.bounds_text.empty()) {
      StrAppend(&help, " (", option.bounds_text, ")");
    }
    AppendWrapped(help, indent, &out);
    AppendValue(option, indent, leaf, &out);
  }
  return out;
}

std::string RenderOptionsTable(const OptionList& list) {
  std::string out =
      "| option | flag | default | bounds | takes effect | meaning |\n"
      "|---|---|---|---|---|---|\n";
  for (const Option& option : list.options()) {
    StrAppend(&out, "| `", option.name, "` | `", FlagName(option.name), "` | ",
              option.default_text.empty() ? "–" : option.default_text, " | ",
              option.bounds_text, " | ",
              option.takes == OptionTakes::kLive ? "live" : "at restart", " | ",
              option.help, " |\n");
  }
  return out;
}

std::string EnvironmentOrEmpty(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace firnkv
