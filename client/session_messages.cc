#include "client/session_messages.h"

#include <utility>

#include "proto/base/limits.h"
#include "proto/base/slot_header.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "proto/session.pb.h"

namespace firnkv {
namespace {

absl::Status Nonsense(std::string_view what) {
  return absl::InternalError(StrCat("the node sent ", what));
}

absl::Duration Seconds(std::uint32_t seconds) {
  return absl::Seconds(static_cast<std::int64_t>(seconds));
}

absl::StatusOr<FromNode> Decode(const v1::SessionWelcome& message) {
  SessionWelcome welcome;
  ASSIGN_OR_RETURN(welcome.handshake, FromProto(message.handshake()));
  ASSIGN_OR_RETURN(welcome.session,
                   IdFromProto<SessionId>("session", message.session()));
  ASSIGN_OR_RETURN(welcome.tenant,
                   IdFromProto<TenantId>("tenant", message.tenant()));
  ASSIGN_OR_RETURN(welcome.node, IdFromProto<NodeId>("node", message.node()));
  ASSIGN_OR_RETURN(welcome.labels, FromProto(message.labels()));
  welcome.epoch = NodeEpoch{message.epoch()};
  if (welcome.session.IsZero() || welcome.epoch == NodeEpoch::kNone) {
    return Nonsense("a session without an id");
  }
  if (message.token().size() > kMaxTokenBytes) return Nonsense("a long token");
  welcome.tenant_name = message.tenant_name();
  welcome.mapping = message.mapping();
  welcome.verify_views = message.verify_views();
  welcome.stream_address = message.stream_address();
  welcome.catalog_address = message.catalog_address();
  welcome.token = message.token();
  welcome.token_life = Seconds(message.token_life_seconds());
  welcome.largest_block_bytes = message.largest_block_bytes();
  welcome.max_staging_bytes = message.max_staging_bytes();
  welcome.max_stagings = message.max_stagings();
  welcome.control_address = message.control_address();
  welcome.call_frames = message.call_frames();
  return FromNode(std::move(welcome));
}

absl::StatusOr<FromNode> Decode(const v1::SessionRefused& message) {
  if (message.code() == 0 || message.code() > 16) {
    return Nonsense("a refusal without a reason");
  }
  return FromNode(SessionRefused{
      absl::Status(static_cast<absl::StatusCode>(message.code()),
                   ToAbsl(message.reason().substr(0, kMaxReasonBytes)))});
}

absl::StatusOr<FromNode> Decode(const v1::DescriptorIs& message) {
  if (message.what() > 1) return Nonsense("a descriptor of what?");
  return FromNode(
      DescriptorIs{.region = message.region(),
                   .what = static_cast<DescriptorOf>(message.what()),
                   .bytes = message.bytes()});
}

std::string Encode(const v1::ClientMessage& message) {
  return message.SerializeAsString();
}

}  // namespace

std::string EncodeSessionHello(const SessionHello& hello) {
  v1::ClientMessage message;
  v1::SessionHello& out = *message.mutable_hello();
  ToProto(hello.handshake, out.mutable_handshake());
  if (hello.want_mapping) out.add_mapped_layouts(kMappedLayoutVersion);
  out.set_token(hello.token);
  out.set_client_name(hello.client_name);
  out.set_call_frames(hello.call_frames);
  return Encode(message);
}

std::string EncodeDescriptorWanted(std::uint64_t region, DescriptorOf what) {
  v1::ClientMessage message;
  message.mutable_descriptor_wanted()->set_region(region);
  message.mutable_descriptor_wanted()->set_what(
      static_cast<std::uint32_t>(what));
  return Encode(message);
}

std::string EncodeDescriptorTaken(std::uint64_t region, DescriptorOf what) {
  v1::ClientMessage message;
  message.mutable_descriptor_taken()->set_region(region);
  message.mutable_descriptor_taken()->set_what(
      static_cast<std::uint32_t>(what));
  return Encode(message);
}

std::string EncodeAddStaging(std::uint64_t staging, std::uint64_t bytes) {
  v1::ClientMessage message;
  message.mutable_add_staging()->set_staging(staging);
  message.mutable_add_staging()->set_bytes(bytes);
  return Encode(message);
}

std::string EncodeRegionUnmapped(std::uint64_t region) {
  v1::ClientMessage message;
  message.mutable_region_unmapped()->set_region(region);
  return Encode(message);
}

std::string EncodeRenewToken() {
  v1::ClientMessage message;
  message.mutable_renew_token();
  return Encode(message);
}

absl::StatusOr<FromNode> DecodeFromNode(std::string_view bytes) {
  v1::NodeMessage message;
  if (bytes.size() > kMaxSessionMessageBytes ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Nonsense("no message");
  }
  switch (message.kind_case()) {
    case v1::NodeMessage::kWelcome:
      return Decode(message.welcome());
    case v1::NodeMessage::kRefused:
      return Decode(message.refused());
    case v1::NodeMessage::kDescriptorIs:
      return Decode(message.descriptor_is());
    case v1::NodeMessage::kDescriptorRefused:
      return FromNode(
          DescriptorRefused{.region = message.descriptor_refused().region(),
                            .reason = message.descriptor_refused().reason()});
    case v1::NodeMessage::kStagingAccepted:
      return FromNode(
          StagingAccepted{.staging = message.staging_accepted().staging()});
    case v1::NodeMessage::kStagingRefused:
      return FromNode(
          StagingRefused{.staging = message.staging_refused().staging(),
                         .reason = message.staging_refused().reason()});
    case v1::NodeMessage::kRegionRetired:
      return FromNode(
          RegionRetired{.region = message.region_retired().region()});
    case v1::NodeMessage::kTokenIs:
      if (message.token_is().token().size() > kMaxTokenBytes) {
        return Nonsense("a long token");
      }
      return FromNode(
          TokenIs{.token = message.token_is().token(),
                  .life = Seconds(message.token_is().token_life_seconds())});
    case v1::NodeMessage::KIND_NOT_SET:
      break;
  }
  return Nonsense("nothing");
}

}  // namespace firnkv
