#include "tests/process/raw_session.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>
#include <variant>

#include "proto/base/session_frame.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "proto/node.pb.h"
#include "tools/replay/block_content.h"

namespace firnkv {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(20);

void FillHeader(const SessionId& session, v1::RequestHeader* out) {
  RequestHeader header;
  header.remaining = kCallTimeout;
  header.session = session;
  ToProto(header, out);
}

std::string KeysOf(const std::vector<Chain::Block>& blocks) {
  std::string keys;
  for (const Chain::Block& block : blocks) keys.append(block.key.view());
  return keys;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawSession>> RawSession::Connect(
    const Seams& seams, const std::string& path) {
  auto session = std::unique_ptr<RawSession>(new RawSession(seams));
  ASSIGN_OR_RETURN(session->socket_, seams.sockets->Connect(path));
  Inbox<Message>* const inbox = &session->inbox_;
  session->socket_->Start(
      {.on_message =
           [inbox](std::string bytes, std::shared_ptr<SharedMemory> memory) {
             inbox->Put({std::move(bytes), std::move(memory)});
           },
       .on_closed = [inbox](const absl::Status&) { inbox->Put({}); }});
  Handshake handshake;
  handshake.test_vector = HandshakeTestVector();
  RETURN_IF_ERROR(
      session->socket_->Send(EncodeSessionHello({.handshake = handshake,
                                                 .want_mapping = true,
                                                 .token = "",
                                                 .client_name = "raw",
                                                 .call_frames = kCallFrames}),
                             nullptr));
  ASSIGN_OR_RETURN(const FromNode answer, session->Take(nullptr));
  if (const auto* refused = std::get_if<SessionRefused>(&answer)) {
    return refused->reason;
  }
  const auto* const welcome = std::get_if<SessionWelcome>(&answer);
  if (welcome == nullptr) return absl::InternalError("no welcome");
  session->welcome_ = *welcome;
  session->channel_ = seams.control->Connect(welcome->control_address);
  return session;
}

absl::StatusOr<FromNode> RawSession::Take(
    std::shared_ptr<SharedMemory>* memory) {
  Message message = inbox_.Take();
  if (message.bytes.empty()) {
    return absl::UnavailableError("the node has closed the session");
  }
  if (memory != nullptr) *memory = std::move(message.memory);
  return DecodeFromNode(message.bytes);
}

absl::StatusOr<std::string> RawSession::Call(const std::string& method,
                                             std::string request) {
  Inbox<absl::StatusOr<std::string>> answer;
  channel_->StartCall("/firnkv.v1.NodeService/" + method, std::move(request),
                      kCallTimeout,
                      [&answer](absl::StatusOr<std::string> response) {
                        answer.Put(std::move(response));
                      });
  return answer.Take();
}

absl::StatusOr<std::shared_ptr<SharedMemory>> RawSession::Descriptor(
    std::uint64_t region, DescriptorOf what) {
  RETURN_IF_ERROR(socket_->Send(EncodeDescriptorWanted(region, what), nullptr));
  std::shared_ptr<SharedMemory> memory;
  ASSIGN_OR_RETURN(const FromNode answer, Take(&memory));
  if (const auto* refused = std::get_if<DescriptorRefused>(&answer)) {
    return absl::PermissionDeniedError(refused->reason);
  }
  RETURN_IF_ERROR(socket_->Send(EncodeDescriptorTaken(region, what), nullptr));
  if (memory == nullptr) return absl::InternalError("no descriptor came");
  return memory;
}

absl::StatusOr<const MemoryMapping*> RawSession::MapRegion(
    std::uint64_t region) {
  for (const auto& one : mapped_) {
    if (one.first == region) return one.second.get();
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<SharedMemory> memory,
                   Descriptor(region, DescriptorOf::kRegion));
  ASSIGN_OR_RETURN(std::unique_ptr<MemoryMapping> mapping,
                   memory->Map(MapAccess::kRead));
  mapped_.emplace_back(region, std::move(mapping));
  return mapped_.back().second.get();
}

absl::StatusOr<int> RawSession::Hold(const NamespaceHandle& name_space,
                                     const std::vector<Chain::Block>& blocks,
                                     absl::Duration lease) {
  v1::OpenReadRequest request;
  FillHeader(welcome_.session, request.mutable_header());
  request.set_name_space(IdToProto(name_space.id));
  request.set_keys(KeysOf(blocks));
  request.set_leading_run(true);
  request.set_lease_millis(
      static_cast<std::uint32_t>(absl::ToInt64Milliseconds(lease)));
  ASSIGN_OR_RETURN(const std::string bytes,
                   Call("OpenRead", request.SerializeAsString()));
  v1::OpenReadResponse response;
  if (!response.ParseFromString(bytes)) return absl::InternalError("nonsense");
  // Every block of these tests has one extent.
  for (int i = 0; i < response.extent_regions_size(); ++i) {
    const std::uint64_t region = response.extent_regions(i);
    ASSIGN_OR_RETURN(const MemoryMapping* const mapping, MapRegion(region));
    held_.push_back({.block = {name_space.id, blocks[i].key},
                     .region = region,
                     .offset = response.extent_offsets(i),
                     .length = response.lengths(i),
                     .mapping = mapping});
  }
  return response.extent_regions_size();
}

std::size_t RawSession::WrongBytesHeld() const {
  std::size_t wrong = 0;
  for (const Held& held : held_) {
    wrong +=
        BlockContent(held.block)
            .CountWrong(held.mapping->bytes().subspan(held.offset, held.length),
                        nullptr);
  }
  return wrong;
}

absl::StatusOr<int> RawSession::Reserve(const NamespaceHandle& name_space,
                                        const std::vector<Chain::Block>& blocks,
                                        std::uint64_t block_bytes) {
  v1::ReserveRequest request;
  FillHeader(welcome_.session, request.mutable_header());
  request.set_name_space(IdToProto(name_space.id));
  std::vector<BlockRow> rows;
  for (const Chain::Block& block : blocks) {
    rows.push_back({block.key, block.place, block_bytes});
  }
  ToProto(rows, request.mutable_blocks());
  request.set_reservation_millis(
      static_cast<std::uint32_t>(absl::ToInt64Milliseconds(kCallTimeout)));
  ASSIGN_OR_RETURN(const std::string bytes,
                   Call("Reserve", request.SerializeAsString()));
  v1::ReserveResponse response;
  if (!response.ParseFromString(bytes)) return absl::InternalError("nonsense");
  int reserved = 0;
  for (const char outcome : response.outcomes()) {
    if (outcome == static_cast<char>(Outcome::kStored)) ++reserved;
  }
  return reserved;
}

std::vector<std::string> WaysToWrite(int descriptor) {
  std::vector<std::string> ways;
  const auto note = [&ways](bool worked, const char* way) {
    if (worked) ways.emplace_back(way);
  };
  const std::string path = StrCat("/proc/self/fd/", descriptor);
  note(open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0, "reopen-read-write");
  note(open(path.c_str(), O_WRONLY | O_CLOEXEC) >= 0, "reopen-write");
  note(truncate(path.c_str(), 4096) == 0, "truncate");
  note(chmod(path.c_str(), 0666) == 0, "chmod");
  note(fchmod(descriptor, 0666) == 0, "fchmod");
  note(ftruncate(descriptor, 4096) == 0, "ftruncate");
  note(pwrite(descriptor, "x", 1, 0) == 1, "pwrite");
  note(fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                 4096) == 0,
       "punch");
  note(fcntl(descriptor, F_ADD_SEALS, F_SEAL_WRITE) == 0, "seal");
  note(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) !=
           MAP_FAILED,
       "map-writable");
  void* const readable =
      mmap(nullptr, 4096, PROT_READ, MAP_SHARED, descriptor, 0);
  note(readable == MAP_FAILED, "cannot-even-map-readable");
  note(mprotect(readable, 4096, PROT_READ | PROT_WRITE) == 0, "mprotect");
  return ways;
}

}  // namespace firnkv
