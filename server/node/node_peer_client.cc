#include "server/node/node_peer_client.h"

#include <utility>

#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/request.h"
#include "proto/base/status.h"
#include "proto/convert.h"
#include "proto/node.pb.h"

namespace firnkv {
namespace {

absl::StatusOr<NodePeerClient::Fetched> Decode(const std::string& bytes,
                                               std::size_t copies) {
  v1::FetchCopiesResponse response;
  if (!response.ParseFromString(bytes)) {
    return absl::InternalError("the node's answer is malformed: not a message");
  }
  NodePeerClient::Fetched fetched;
  absl::StatusOr<std::vector<Outcome>> outcomes =
      OutcomesFromProto(response.outcomes(), copies);
  if (!outcomes.ok()) {
    return absl::InternalError(StrCat("the node's answer is malformed: ",
                                      ToStd(outcomes.status().message())));
  }
  fetched.outcomes = *std::move(outcomes);
  fetched.retry_after = absl::Milliseconds(response.retry_after_millis());
  return fetched;
}

}  // namespace

NodePeerClient::NodePeerClient(std::unique_ptr<ControlChannel> channel,
                               const NodeCredentials* credentials)
    : credentials_(credentials), channel_(std::move(channel)) {
  CHECK(channel_ != nullptr);
}

NodePeerClient::~NodePeerClient() = default;

void NodePeerClient::StartFetchCopies(const FetchCall& call,
                                      absl::Duration timeout, Done done) {
  CHECK(call.copies.size() <= kMaxBatchKeys);
  v1::FetchCopiesRequest request;
  ToProto(RequestHeader{.remaining = timeout - timeout / 8,
                        .traffic = TrafficClass::kRebuild,
                        .trace = {},
                        .session = {},
                        .token = credentials_->NodeToken()},
          request.mutable_header());
  ToProto(call.source, request.mutable_source());
  request.set_name_space(IdToProto(call.name_space));
  std::vector<BlockRow> rows;
  rows.reserve(call.copies.size());
  for (const Copy& copy : call.copies) {
    rows.push_back({copy.key, copy.place, copy.length});
    request.add_clear_epochs(static_cast<std::uint64_t>(copy.clear_epoch));
  }
  ToProto(rows, request.mutable_blocks());
  channel_->StartCall("/firnkv.v1.NodeService/FetchCopies",
                      request.SerializeAsString(), timeout,
                      [copies = call.copies.size(), done = std::move(done)](
                          absl::StatusOr<std::string> bytes) mutable {
                        if (!bytes.ok()) return std::move(done)(bytes.status());
                        std::move(done)(Decode(*bytes, copies));
                      });
}

}  // namespace firnkv
