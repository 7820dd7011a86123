// Between strings and gRPC's byte buffers, and its statuses and ours. For the
// two ends of the control channel only.

#ifndef FIRNKV_CLIENT_TRANSPORT_GRPC_BYTES_H_
#define FIRNKV_CLIENT_TRANSPORT_GRPC_BYTES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/text.h"

namespace firnkv {

inline grpc::ByteBuffer ToByteBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// INTERNAL where gRPC cannot unpack what it received.
inline absl::Status FromByteBuffer(const grpc::ByteBuffer& buffer,
                                   std::string* bytes) {
  std::vector<grpc::Slice> slices;
  // An empty message has no buffer at all.
  if (buffer.Valid() && !buffer.Dump(&slices).ok()) {
    return absl::InternalError("gRPC cannot read a message");
  }
  bytes->clear();
  bytes->reserve(buffer.Valid() ? buffer.Length() : 0);
  for (const grpc::Slice& slice : slices) {
    bytes->append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return absl::OkStatus();
}

// The two enumerations have the same numbers.
inline absl::Status FromGrpcStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}
inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(ToStd(status.message())));
}

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_GRPC_BYTES_H_
