// The two macros and one helper that the absl of Debian 12 lacks.

#ifndef FIRNKV_PROTO_BASE_STATUS_H_
#define FIRNKV_PROTO_BASE_STATUS_H_

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/text.h"

namespace firnkv {

// `status` with "context: " before its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status,
                             std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), StrCat(context, ": ", status.message()));
}

}  // namespace firnkv

#define FIRNKV_CONCAT_INNER(a, b) a##b
#define FIRNKV_CONCAT(a, b) FIRNKV_CONCAT_INNER(a, b)

// Returns from the calling function with the status of `expr` unless it is OK.
#define RETURN_IF_ERROR(expr)                                       \
  do {                                                              \
    if (absl::Status firnkv_status = (expr); !firnkv_status.ok()) { \
      return firnkv_status;                                         \
    }                                                               \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): x is F's value, or its status is returned.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER(FIRNKV_CONCAT(firnkv_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                           \
  if (!tmp.ok()) return tmp.status();          \
  lhs = *std::move(tmp)

#endif  // FIRNKV_PROTO_BASE_STATUS_H_
