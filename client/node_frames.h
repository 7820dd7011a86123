// The calls of NodeClient that also go as frames (proto/base/session_frame.h):
// requests encoded, answers checked as node_client.h says.
//
// Threading. Pure functions.

#ifndef FIRNKV_CLIENT_NODE_FRAMES_H_
#define FIRNKV_CLIENT_NODE_FRAMES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "client/node_client.h"
#include "proto/base/request.h"

namespace firnkv {

std::string EncodeFrame(const RequestHeader& header,
                        const NodeClient::OpenReadCall& call);
std::string EncodeFrame(const RequestHeader& header,
                        const NodeClient::ReserveCall& call);
std::string EncodeFrame(const RequestHeader& header,
                        const NodeClient::CommitCall& call);

// `wanted` is how many blocks were asked about; INTERNAL for an answer that
// cannot be, else the call's own status.
absl::StatusOr<NodeClient::OpenReadAnswer> OpenedFromFrame(
    absl::StatusOr<std::string> body, std::size_t wanted);
absl::StatusOr<NodeClient::ReserveAnswer> ReservedFromFrame(
    absl::StatusOr<std::string> body, std::size_t wanted);
absl::StatusOr<NodeClient::CommitAnswer> CommittedFromFrame(
    absl::StatusOr<std::string> body, std::size_t wanted);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_NODE_FRAMES_H_
