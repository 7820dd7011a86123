// Where a daemon's options come from, later ones over earlier ones: defaults,
// one YAML file, the environment (FIRNKV_DRAM_BYTES), flags (--dram-bytes). An
// unknown key, a bad unit or a value out of bounds is refused, with the line or
// the variable and the reason.
//
// A decoder of outside bytes: bounded, fuzzed. The one place in the daemons
// that reads the environment.

#ifndef FIRNKV_SERVER_BASE_CONFIG_H_
#define FIRNKV_SERVER_BASE_CONFIG_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/option.h"

namespace firnkv {

// A configuration file is small; anything larger is a mistake.
inline constexpr std::size_t kLargestConfigBytes = 1 << 20;

// `name` is for messages: the file's path.
absl::Status LoadYaml(std::string_view yaml, std::string_view name,
                      const OptionList& list);
absl::Status LoadYamlFile(const std::string& path, const OptionList& list);

// All variables that begin with FIRNKV_ and name an option. One that names none
// is refused too, but for those of others: FIRNKV_BIN of the tests, FIRNKV_CLI_
// of the command line tool, and what Kubernetes makes of a service whose name
// begins with "firnkv".
absl::Status LoadEnvironment(const OptionList& list);

// The name of an option as a flag ("--dram-bytes") and as a variable
// ("FIRNKV_DRAM_BYTES").
std::string FlagName(std::string_view option);
std::string VariableName(std::string_view option);

// What is wrong with "--dram-byts=1GiB", with the flag that may be meant.
std::string UnknownFlag(std::string_view argument, const OptionList& list);

// The list as a complete YAML file, each option at its present value with its
// help: --print-config, config/*.yaml and /configz.
std::string RenderYaml(const OptionList& list, std::string_view title);

// A table for docs/CONFIG.md.
std::string RenderOptionsTable(const OptionList& list);

// The value of a variable that is no option (XDG_RUNTIME_DIR); empty if unset.
std::string EnvironmentOrEmpty(const char* name);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_CONFIG_H_
