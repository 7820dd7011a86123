// What protobuf writes on standard error by itself.

#ifndef FIRNKV_PROTO_PROTOBUF_LOG_H_
#define FIRNKV_PROTO_PROTOBUF_LOG_H_

namespace firnkv {

// Protobuf writes a line for every message with a string that is no UTF-8: a
// log that anybody who reaches a daemon could fill. Such a message is answered,
// and counted, like any other bad one. Once, in a daemon's main; never in a
// library, whose host it would silence.
void SilenceProtobuf();

}  // namespace firnkv

#endif  // FIRNKV_PROTO_PROTOBUF_LOG_H_
