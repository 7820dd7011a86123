// State contracts as an operator writes them: a YAML (or JSON) file with the
// fields of StateContract by their names.
//
//     model: meta-llama/Llama-3.1-8B
//     weights_revision: 0e9e39f249a16976918f6564b8830bc894c89659
//     ...
//     adapters: [{name: sql, revision: 7}]
//
// Threading: functions.

#ifndef FIRNKV_TOOLS_FIRNKV_CONTRACT_FILE_H_
#define FIRNKV_TOOLS_FIRNKV_CONTRACT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/contract.h"

namespace firnkv {

// Longer files are no contracts.
inline constexpr std::size_t kMaxContractFileBytes = 1 << 20;

// Says nothing of what is missing: options may add it. INVALID_ARGUMENT with
// the line for what is no YAML, an unknown field, and a wrong kind of value.
absl::StatusOr<StateContract> ParseContract(const std::string& text);
absl::StatusOr<StateContract> ReadContractFile(const std::string& path);

// "NAME@REVISION".
absl::StatusOr<Adapter> ParseAdapter(const std::string& text);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_CONTRACT_FILE_H_
