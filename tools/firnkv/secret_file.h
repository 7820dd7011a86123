// What proves to a cluster who the caller is: the file of its secret, or of a
// token.
//
// Threading: functions.

#ifndef FIRNKV_TOOLS_FIRNKV_SECRET_FILE_H_
#define FIRNKV_TOOLS_FIRNKV_SECRET_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/base/token.h"

namespace firnkv {

// 64 hex digits, as the daemons write it. PERMISSION_DENIED also where others
// may read the file: then it is no secret.
absl::StatusOr<ClusterSecret> ReadSecretFile(const std::string& path);

// A token's bytes as hex digits.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_SECRET_FILE_H_
