// Protobuf says on standard error what it does not like about a message: not
// here, where that is every other one.

#ifndef FIRNKV_TESTS_FUZZ_QUIET_PROTOBUF_H_
#define FIRNKV_TESTS_FUZZ_QUIET_PROTOBUF_H_

#include "google/protobuf/stubs/logging.h"

namespace firnkv {

inline const bool kProtobufIsQuiet =
    (google::protobuf::SetLogHandler(nullptr), true);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_FUZZ_QUIET_PROTOBUF_H_
