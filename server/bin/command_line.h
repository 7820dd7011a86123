// A daemon's command line: flags made from its options, --config, --check,
// --print-config, --version. Of defaults, file, environment and flags the later
// wins.

#ifndef FIRNKV_SERVER_BIN_COMMAND_LINE_H_
#define FIRNKV_SERVER_BIN_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <vector>

#include "server/base/option.h"

namespace firnkv {

// The project's version in CMakeLists.txt; said by --version, Status and the
// handshake's log lines.
inline constexpr char kVersion[] = FIRNKV_VERSION;

struct CommandLine {
  // Print what would be used and whether it can work, then end.
  bool check = false;
  // Print a generated document, then end.
  std::string print_document;
};

// What a daemon says of itself.
struct Program {
  const char* purpose = "";
  // Generated documents that it can print.
  std::vector<std::string> documents;
};

// Fills the targets of `list`. nullopt: the process is to end with *exit_code;
// what there was to say has been printed.
std::optional<CommandLine> ParseCommandLine(int argc, char** argv,
                                            const Program& program,
                                            const OptionList& list,
                                            int* exit_code);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_COMMAND_LINE_H_
