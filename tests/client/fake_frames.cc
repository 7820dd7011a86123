#include "tests/client/fake_frames.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/session_frame.h"
#include "proto/convert.h"
#include "proto/node.pb.h"

namespace firnkv {
namespace {

absl::Duration Millis(std::uint32_t millis) {
  return absl::Milliseconds(static_cast<std::int64_t>(millis));
}

std::uint32_t ToMillis(absl::Duration duration) {
  return static_cast<std::uint32_t>(absl::ToInt64Milliseconds(duration));
}

// As they are, right or wrong.
std::vector<Outcome> Outcomes(const std::string& bytes) {
  std::vector<Outcome> outcomes;
  for (const char byte : bytes) outcomes.push_back(static_cast<Outcome>(byte));
  return outcomes;
}

std::string OpenReadMessage(std::string_view bytes) {
  const auto body = DecodeCallOpenRead(bytes);
  EXPECT_TRUE(body.ok()) << body.status();
  v1::OpenReadRequest request;
  ToProto(body->header, request.mutable_header());
  request.set_name_space(IdToProto(body->name_space));
  request.set_clear_epoch(static_cast<std::uint64_t>(body->clear_epoch));
  request.set_keys(KeysToProto(body->keys));
  request.set_leading_run(body->leading_run);
  request.set_for_view(body->for_view);
  request.set_lease_millis(ToMillis(body->lease));
  return request.SerializeAsString();
}

std::string ReleaseMessage(std::string_view bytes) {
  const auto body = DecodeCallRelease(bytes);
  EXPECT_TRUE(body.ok()) << body.status();
  v1::ReleaseRequest request;
  for (const std::uint64_t lease : body->leases) request.add_leases(lease);
  return request.SerializeAsString();
}

std::string ReserveMessage(std::string_view bytes) {
  const auto body = DecodeCallReserve(bytes);
  EXPECT_TRUE(body.ok()) << body.status();
  v1::ReserveRequest request;
  ToProto(body->header, request.mutable_header());
  request.set_name_space(IdToProto(body->name_space));
  request.set_clear_epoch(static_cast<std::uint64_t>(body->clear_epoch));
  std::vector<BlockRow> rows;
  for (const CallReserveBody::Block& block : body->blocks) {
    rows.push_back({block.key, block.place, block.length});
  }
  ToProto(rows, request.mutable_blocks());
  request.set_reservation_millis(ToMillis(body->reservation));
  request.set_wait_for(body->wait_for);
  request.mutable_hint()->set_conversation(body->conversation);
  request.mutable_hint()->set_session_state(body->session_state);
  return request.SerializeAsString();
}

std::string CommitMessage(std::string_view bytes) {
  const auto body = DecodeCallCommit(bytes);
  EXPECT_TRUE(body.ok()) << body.status();
  v1::CommitRequest request;
  ToProto(body->header, request.mutable_header());
  request.set_reservation(body->reservation);
  request.set_wait_for(body->wait_for);
  for (const CallCommitBody::Block& block : body->blocks) {
    request.add_indexes(block.index);
    request.add_extent_counts(static_cast<std::uint32_t>(block.extents.size()));
    for (const CallExtent& extent : block.extents) {
      request.add_extent_stagings(extent.memory);
      request.add_extent_offsets(extent.offset);
      request.add_extent_lengths(extent.length);
    }
    for (const std::uint32_t piece : block.pieces) request.add_pieces(piece);
  }
  return request.SerializeAsString();
}

std::optional<std::string> OpenedBody(const std::string& bytes) {
  v1::OpenReadResponse response;
  if (!response.ParseFromString(bytes)) return std::nullopt;
  CallOpenedBody body;
  body.lease = response.lease();
  body.lease_time = Millis(response.lease_millis());
  body.clear_epoch = ClearEpoch{response.clear_epoch()};
  body.retry_after = Millis(response.retry_after_millis());
  int hit = 0;
  int extent = 0;
  for (const Outcome outcome : Outcomes(response.outcomes())) {
    CallOpenedBody::Block block;
    block.outcome = outcome;
    if (outcome == Outcome::kHit) {
      if (hit >= response.generations_size() ||
          hit >= response.lengths_size() ||
          hit >= response.extent_counts_size()) {
        return std::nullopt;
      }
      block.generation = Generation{response.generations(hit)};
      std::uint64_t left = response.lengths(hit);
      for (std::uint32_t n = 0; n < response.extent_counts(hit); ++n) {
        if (extent >= response.extent_regions_size() ||
            extent >= response.extent_offsets_size() ||
            extent >= response.extent_lengths_size()) {
          return std::nullopt;
        }
        block.extents.push_back({response.extent_regions(extent),
                                 response.extent_offsets(extent),
                                 response.extent_lengths(extent)});
        left -= response.extent_lengths(extent);
        ++extent;
      }
      if (left != 0) return std::nullopt;
      ++hit;
    }
    body.blocks.push_back(std::move(block));
  }
  if (hit != response.generations_size() || hit != response.lengths_size() ||
      extent != response.extent_regions_size()) {
    return std::nullopt;
  }
  return EncodeCallOpened(body);
}

std::optional<std::string> ReservedBody(const std::string& bytes) {
  v1::ReserveResponse response;
  if (!response.ParseFromString(bytes)) return std::nullopt;
  CallReservedBody body;
  body.reservation = response.reservation();
  body.reservation_time = Millis(response.reservation_millis());
  body.clear_epoch = ClearEpoch{response.clear_epoch()};
  body.retry_after = Millis(response.retry_after_millis());
  body.outcomes = Outcomes(response.outcomes());
  return EncodeCallReserved(body);
}

std::optional<std::string> CommittedBody(const std::string& bytes) {
  v1::CommitResponse response;
  if (!response.ParseFromString(bytes)) return std::nullopt;
  CallCommittedBody body;
  body.retry_after = Millis(response.retry_after_millis());
  body.outcomes = Outcomes(response.outcomes());
  return EncodeCallCommitted(body);
}

}  // namespace

FramedCall CallOfPacket(std::string_view packet) {
  const auto frame = DecodeCallPacket(packet);
  EXPECT_TRUE(frame.ok()) << frame.status();
  FramedCall call;
  call.number = frame->request;
  switch (frame->type) {
    case FrameType::kCallOpenRead:
      call.method = "OpenRead";
      call.request = OpenReadMessage(frame->body);
      break;
    case FrameType::kCallRelease:
      call.method = "Release";
      call.request = ReleaseMessage(frame->body);
      break;
    case FrameType::kCallReserve:
      call.method = "Reserve";
      call.request = ReserveMessage(frame->body);
      break;
    case FrameType::kCallCommit:
      call.method = "Commit";
      call.request = CommitMessage(frame->body);
      break;
    default:
      ADD_FAILURE() << "a frame that only a node sends";
  }
  return call;
}

std::string PacketOfAnswer(const FramedCall& call,
                           const absl::StatusOr<std::string>& response) {
  if (!response.ok()) {
    return EncodeCallPacket(FrameType::kCallFailed, call.number,
                            EncodeRefused({.reason = response.status()}));
  }
  FrameType type = FrameType::kCallOpened;
  std::optional<std::string> body;
  if (call.method == "OpenRead") {
    body = OpenedBody(*response);
  } else if (call.method == "Reserve") {
    type = FrameType::kCallReserved;
    body = ReservedBody(*response);
  } else {
    type = FrameType::kCallCommitted;
    body = CommittedBody(*response);
  }
  return EncodeCallPacket(type, call.number, body.value_or("no such body"));
}

}  // namespace firnkv
