#include "proto/protobuf_log.h"

#include "google/protobuf/stubs/logging.h"

namespace firnkv {

void SilenceProtobuf() { google::protobuf::SetLogHandler(nullptr); }

}  // namespace firnkv
