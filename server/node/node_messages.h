// Messages of NodeService to and from the plain types of the node's paths:
// bounds every field and names the one that is wrong (INVALID_ARGUMENT).
//
// Who asks and by when is filled in by the service.
//
// Threading. Pure functions.

#ifndef FIRNKV_SERVER_NODE_NODE_MESSAGES_H_
#define FIRNKV_SERVER_NODE_NODE_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/node/copy_run.h"
#include "server/node/promoter.h"
#include "server/node/read_path.h"
#include "server/node/reservations.h"
#include "server/node/write_path.h"
#include "server/policy/eviction.h"
#include "server/tier/lease_table.h"

namespace firnkv {

namespace v1 {
class CommitRequest;
class ExistsRequest;
class ExistsResponse;
class FetchCopiesRequest;
class NodeRemoveRequest;
class NoteRemoteReadsRequest;
class NoteRemoteReadsResponse;
class OpenReadRequest;
class OpenReadResponse;
class ReleaseRequest;
class RenewRequest;
class ReportCorruptRequest;
class ReserveRequest;
class ReserveResponse;
}  // namespace v1

// Numbers that calls share, whichever way they come.
absl::StatusOr<CommitWait> WaitFromWire(std::uint32_t wait_for);
absl::StatusOr<EvictionPolicy::ConversationState> ConversationFromWire(
    std::uint32_t session_state);

absl::StatusOr<SessionCall> CallFromProto(const v1::OpenReadRequest& message);
absl::StatusOr<SessionCall> CallFromProto(const v1::ExistsRequest& message);
absl::StatusOr<SessionCall> CallFromProto(const v1::NodeRemoveRequest& message);
absl::StatusOr<SessionCall> CallFromProto(
    const v1::ReportCorruptRequest& message);
// As many as keys, none of them zero.
absl::StatusOr<std::vector<Generation>> GenerationsFromProto(
    const v1::ReportCorruptRequest& message);

void ToProto(const ReadPath::OpenAnswer& answer, v1::OpenReadResponse* out);
void ToProto(absl::Span<const Found> found, v1::ExistsResponse* out);

absl::StatusOr<std::vector<LeaseId>> LeasesFromProto(
    const v1::ReleaseRequest& message);
absl::StatusOr<std::vector<LeaseId>> LeasesFromProto(
    const v1::RenewRequest& message);

absl::StatusOr<WritePath::ReserveCall> CallFromProto(
    const v1::ReserveRequest& message);
void ToProto(const Reservations::ReserveAnswer& answer,
             v1::ReserveResponse* out);
absl::StatusOr<WritePath::CommitCall> CallFromProto(
    const v1::CommitRequest& message);

// Its source, namespace and blocks: keys not zero and none twice, lengths and
// clear epochs not zero.
absl::StatusOr<CopyOrder> OrderFromProto(const v1::FetchCopiesRequest& message);
// Blocks as of an order. Where they came from is checked and dropped: a node
// connects to nobody on a session's word.
absl::StatusOr<Promoter::Note> NoteFromProto(
    const v1::NoteRemoteReadsRequest& message);
void ToProto(absl::Span<const std::size_t> here,
             v1::NoteRemoteReadsResponse* out);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_MESSAGES_H_
