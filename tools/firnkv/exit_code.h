// How the CLI ends: for scripts.

#ifndef FIRNKV_TOOLS_FIRNKV_EXIT_CODE_H_
#define FIRNKV_TOOLS_FIRNKV_EXIT_CODE_H_

namespace firnkv {

enum class ExitCode : int {
  kOk = 0,
  // It could not be done, or was refused; standard error says why.
  kFailure = 1,
  // The command line is wrong; nothing was done.
  kUsage = 2,
  // Done in part, or a miss: some parts of a cluster do not answer, some blocks
  // of a file are gone.
  kPartial = 3,
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_EXIT_CODE_H_
