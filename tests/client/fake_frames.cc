#include "tests/client/fake_frames.h"

#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/session_frame.h"
#include "proto/node.pb.h"
#include "tests/support/framed_calls.h"

namespace firnkv {
namespace {

absl::Duration Millis(std::uint32_t millis) {
  return absl::Milliseconds(static_cast<std::int64_t>(millis));
}

// As they are, right or wrong.
std::vector<Outcome> Outcomes(const std::string& bytes) {
  std::vector<Outcome> outcomes;
  for (const char byte : bytes) outcomes.push_back(static_cast<Outcome>(byte));
  return outcomes;
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
  CallMessage message = CallOf(*frame);
  EXPECT_FALSE(message.method.empty()) << "not a call that an SDK sends";
  return {.method = std::move(message.method),
          .request = std::move(message.request),
          .number = frame->request};
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
