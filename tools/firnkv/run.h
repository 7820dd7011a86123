// The CLI as a function.

#ifndef FIRNKV_TOOLS_FIRNKV_RUN_H_
#define FIRNKV_TOOLS_FIRNKV_RUN_H_

#include <string>

#include "absl/types/span.h"
#include "tools/firnkv/exit_code.h"
#include "tools/firnkv/surroundings.h"

namespace firnkv {

// `arguments` without the program's name.
ExitCode RunFirnkv(absl::Span<const std::string> arguments,
                   Surroundings* world);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_RUN_H_
