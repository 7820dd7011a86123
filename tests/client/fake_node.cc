#include "tests/client/fake_node.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"
#include "proto/base/request.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "tests/client/fake_frames.h"

namespace firnkv {
namespace {

template <typename Message>
Message Parse(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

std::vector<BlockKey> Keys(const std::string& column) {
  auto keys = KeysFromProto("keys", column);
  EXPECT_TRUE(keys.ok()) << keys.status();
  return keys.ok() ? *std::move(keys) : std::vector<BlockKey>();
}

std::string Column(const std::vector<Outcome>& outcomes) {
  return OutcomesToProto(outcomes);
}

}  // namespace

FakeNode::FakeNode(SimWorld* world, const std::string& name, ClusterId cluster,
                   std::uint64_t region_bytes)
    : name_(name),
      cluster_(cluster),
      machine_(world->NewMachine(name, name)),
      id_(NodeId::Make(machine_->seams().random)),
      epoch_(NodeEpoch{machine_->seams().random->NonZero64()}),
      session_id_(SessionId::Make(machine_->seams().random)),
      world_(world) {
  MemoryMaker& memory = *machine_->memory();
  payload_ = *memory.Make(MemoryKindWanted::kRegion, "pool", region_bytes);
  payload_map_ = *payload_->Map(MapAccess::kReadWrite);
  table_ = *memory.MakeHeaderTable("headers", HeaderTableBytes(region_bytes));
  headers_ = std::make_unique<HeaderTableWriter>(table_.writable->bytes(),
                                                 region(), region_bytes);
  StartServing();
}

FakeNode::~FakeNode() = default;

NodeAddress FakeNode::address() const {
  return NodeAddress{.node = id_,
                     .epoch = epoch_,
                     .stream_address = name_ + ":7411",
                     .control_address = name_ + ":7410",
                     .labels = {.zone = "z", .rack = "r", .host = name_}};
}

void FakeNode::StartServing() {
  serving_ = world_->control()->Serve("unix:" + socket_path() + ".control",
                                      machine_->process(), {this});
  stream_ = std::make_unique<FakeStream>(
      machine_, name_ + ":7411",
      FakeStream::Identity{.node = id_, .epoch = epoch_, .cluster = cluster_},
      [this](const BlockId& block) -> std::optional<FakeStream::Copy> {
        const auto it = slots_.find(block);
        if (it == slots_.end()) return std::nullopt;
        return FakeStream::Copy{.header = it->second.header,
                                .bytes = BytesOf(block)};
      });
  auto listener = machine_->sockets()->Listen(
      socket_path(), [this](std::unique_ptr<LocalSocket> socket) {
        Accept(std::move(socket));
      });
  EXPECT_TRUE(listener.ok()) << listener.status();
  if (listener.ok()) listener_ = *std::move(listener);
}

void FakeNode::StopServing() {
  listener_.reset();
  DropSessions();
  serving_.reset();
  stream_.reset();
  unanswered_.clear();
}

// --- Blocks.

SlotHeader FakeNode::HeaderOf(const BlockId& block, Generation generation,
                              const std::vector<std::byte>& bytes,
                              IdentityDigest digest) {
  SlotHeader header;
  header.block = block;
  header.digest = digest;
  if (digest.IsZero()) header.digest.bytes.fill(7);
  header.clear_epoch = ClearEpoch{1};
  header.place.anchor = block.key;
  header.place.tokens = 16;
  header.length = bytes.size();
  header.generation = generation;
  header.pieces = PieceChecksums(bytes);
  return header;
}

void FakeNode::Put(const BlockId& block, const std::vector<std::byte>& bytes,
                   IdentityDigest digest) {
  Slot slot;
  slot.offset = next_offset_;
  next_offset_ += AlignUp(bytes.size(), kPageBytes);
  ASSERT_LE(next_offset_, payload_map_->bytes().size());
  std::memcpy(payload_map_->bytes().data() + slot.offset, bytes.data(),
              bytes.size());
  slot.header = HeaderOf(block, Generation{next_generation_++}, bytes, digest);
  headers_->Write(static_cast<std::uint32_t>(slot.offset / kPageBytes),
                  slot.header);
  slots_.insert_or_assign(block, slot);
}

std::vector<std::byte> FakeNode::BytesOf(const BlockId& block) const {
  const Slot& slot = slots_.at(block);
  const auto bytes =
      payload_map_->bytes().subspan(slot.offset, slot.header.length);
  return {bytes.begin(), bytes.end()};
}

void FakeNode::CorruptOneByte(const BlockId& block, std::size_t at) {
  payload_map_->bytes()[slots_.at(block).offset + at] ^= std::byte{1};
}

void FakeNode::ReuseSlot(const BlockId& block) {
  Slot slot = slots_.at(block);
  slots_.erase(block);
  const auto page = static_cast<std::uint32_t>(slot.offset / kPageBytes);
  headers_->Bump(page, Generation{next_generation_++});
  auto bytes = payload_map_->bytes().subspan(slot.offset, slot.header.length);
  for (std::byte& byte : bytes) byte ^= std::byte{0x5a};
  slot.header.block.key.bytes[0] ^= 0xff;
  slot.header.generation = Generation{next_generation_++};
  slot.header.pieces = PieceChecksums(bytes);
  headers_->Write(page, slot.header);
  slots_.emplace(slot.header.block, slot);
}

void FakeNode::RetireRegion() {
  v1::NodeMessage message;
  message.mutable_region_retired()->set_region(region().serial);
  SendToSession(message);
  for (const auto& [block, slot] : slots_) {
    headers_->Bump(static_cast<std::uint32_t>(slot.offset / kPageBytes),
                   Generation{next_generation_++});
  }
  slots_.clear();
  EXPECT_TRUE(payload_->Punch(0, payload_->bytes()).ok());
}

// --- Sessions.

void FakeNode::Accept(std::unique_ptr<LocalSocket> socket) {
  auto owned = std::make_unique<Session>();
  Session* const session = owned.get();
  session->socket = std::move(socket);
  connected_.push_back(std::move(owned));
  session->socket->Start(
      {.on_message =
           [this, session](std::string message,
                           std::shared_ptr<SharedMemory> memory) {
             OnMessage(session, message, std::move(memory));
           },
       .on_closed = [session](const absl::Status&) { session->over = true; }});
}

void FakeNode::DropSessions() {
  for (const auto& session : connected_) {
    if (!session->over) session->socket->Close();
    session->over = true;
  }
}

void FakeNode::SendPacket(const std::string& packet) {
  for (const auto& session : connected_) {
    if (!session->over) (void)session->socket->Send(packet, nullptr);
  }
}

void FakeNode::SendToSession(const v1::NodeMessage& message,
                             std::shared_ptr<SharedMemory> memory) {
  for (const auto& session : connected_) {
    if (session->over) continue;
    EXPECT_TRUE(
        session->socket->Send(message.SerializeAsString(), memory).ok());
  }
}

void FakeNode::OnMessage(Session* session, const std::string& bytes,
                         std::shared_ptr<SharedMemory> memory) {
  if (BeginsFrame(bytes)) return OnFrame(session, bytes);
  const auto message = Parse<v1::ClientMessage>(bytes);
  switch (message.kind_case()) {
    case v1::ClientMessage::kHello:
      if (!silent_hello) Welcome(session, message.hello());
      return;
    case v1::ClientMessage::kDescriptorWanted:
      if (silent_descriptors) return;
      return SendDescriptor(session, message.descriptor_wanted().region(),
                            message.descriptor_wanted().what());
    case v1::ClientMessage::kAddStaging:
      return TakeStaging(session, message.add_staging(), std::move(memory));
    case v1::ClientMessage::kRegionUnmapped:
      unmapped.push_back(message.region_unmapped().region());
      return;
    case v1::ClientMessage::kRenewToken: {
      ++tokens_renewed;
      v1::NodeMessage answer;
      answer.mutable_token_is()->set_token(
          StrCat("token ", tokens_renewed + 1));
      answer.mutable_token_is()->set_token_life_seconds(3600);
      return SendToSession(answer);
    }
    default:
      return;
  }
}

void FakeNode::OnFrame(Session* session, const std::string& packet) {
  ++frames;
  const FramedCall call = CallOfPacket(packet);
  Handle(call.method, ControlPeer{.local = true, .address = "frames"},
         call.request,
         [session, call](const absl::StatusOr<std::string>& response) {
           if (call.method == "Release" || session->over) return;
           // The Client may have gone meanwhile.
           (void)session->socket->Send(PacketOfAnswer(call, response), nullptr);
         });
}

void FakeNode::Welcome(Session* session, const v1::SessionHello& hello) {
  v1::NodeMessage message;
  if (refuse_session) {
    message.mutable_refused()->set_code(
        static_cast<std::uint32_t>(refuse_session->code()));
    message.mutable_refused()->set_reason(
        std::string(refuse_session->message()));
  } else {
    ++sessions;
    session_id_ = SessionId::Make(machine_->seams().random);
    Handshake handshake;
    handshake.cluster = cluster_;
    handshake.test_vector = HandshakeTestVector();
    v1::SessionWelcome& welcome = *message.mutable_welcome();
    ToProto(handshake, welcome.mutable_handshake());
    welcome.set_agreed_protocol(1);
    welcome.set_session(IdToProto(session_id_));
    welcome.set_tenant(std::string(16, 't'));
    welcome.set_tenant_name("default");
    welcome.set_node(IdToProto(id_));
    welcome.set_epoch(static_cast<std::uint64_t>(epoch_));
    ToProto(address().labels, welcome.mutable_labels());
    welcome.set_mapping(true);
    welcome.set_stream_address(address().stream_address);
    welcome.set_catalog_address(std::string(kFakeCatalogAddress));
    welcome.set_token("token 1");
    welcome.set_token_life_seconds(3600);
    welcome.set_largest_block_bytes(kLargestBlockBytes);
    welcome.set_max_staging_bytes(kGiB);
    welcome.set_max_stagings(64);
    welcome.set_call_frames(std::min(hello.call_frames(), call_frames));
    if (on_welcome) on_welcome(&welcome);
  }
  EXPECT_TRUE(session->socket->Send(message.SerializeAsString(), nullptr).ok());
}

void FakeNode::SendDescriptor(Session* session, std::uint64_t region,
                              std::uint32_t what) {
  v1::NodeMessage message;
  if (refuse_descriptors || (refuse_tables && what == 1) || region != 1) {
    message.mutable_descriptor_refused()->set_region(region);
    message.mutable_descriptor_refused()->set_what(what);
    message.mutable_descriptor_refused()->set_reason("no such region");
    EXPECT_TRUE(
        session->socket->Send(message.SerializeAsString(), nullptr).ok());
    return;
  }
  SharedMemory& memory = what == 0 ? *payload_ : *table_.memory;
  message.mutable_descriptor_is()->set_region(region);
  message.mutable_descriptor_is()->set_what(what);
  message.mutable_descriptor_is()->set_bytes(memory.bytes());
  EXPECT_TRUE(session->socket
                  ->Send(message.SerializeAsString(), *memory.ReopenReadOnly())
                  .ok());
}

void FakeNode::TakeStaging(Session* session, const v1::AddStaging& message,
                           std::shared_ptr<SharedMemory> memory) {
  stagings_added.push_back(message.staging());
  if (silent_staging) return;
  v1::NodeMessage answer;
  if (refuse_staging && refuse_staging(message.staging())) {
    answer.mutable_staging_refused()->set_staging(message.staging());
    answer.mutable_staging_refused()->set_reason("too much");
  } else {
    ASSERT_NE(memory, nullptr);
    EXPECT_TRUE(memory->CheckStagingSeals().ok());  // Rule S1.
    Staging staging;
    staging.mapping = *memory->Map(MapAccess::kRead);
    staging.memory = std::move(memory);
    session->stagings.insert_or_assign(message.staging(), std::move(staging));
    answer.mutable_staging_accepted()->set_staging(message.staging());
  }
  // The Client may have gone meanwhile.
  (void)session->socket->Send(answer.SerializeAsString(), nullptr);
}

// --- Control calls.

void FakeNode::Handle(std::string_view method, const ControlPeer&,
                      std::string_view request, ControlReply reply) {
  const std::string name(method.substr(method.rfind('/') + 1));
  ++calls[name];
  if (const auto it = before.find(name); it != before.end()) it->second();
  if (silent.contains(name)) {
    unanswered_.push_back(std::move(reply));
    return;
  }
  const std::string bytes(request);
  if (const auto it = instead.find(name); it != instead.end()) {
    return std::move(reply)(it->second(bytes));
  }
  auto answer = Answer(name, bytes);
  const auto it = tamper.find(name);
  if (answer.ok() && it != tamper.end()) it->second(&*answer);
  if (const auto delay = late.find(name); delay != late.end()) {
    machine_->process()->PostAfter(
        delay->second,
        [reply = std::move(reply), answer = std::move(answer)]() mutable {
          std::move(reply)(std::move(answer));
        });
    return;
  }
  std::move(reply)(std::move(answer));
}

absl::StatusOr<std::string> FakeNode::Answer(const std::string& method,
                                             const std::string& request) {
  if (method == "OpenRead") {
    return OpenRead(Parse<v1::OpenReadRequest>(request));
  }
  if (method == "Reserve") return Reserve(Parse<v1::ReserveRequest>(request));
  if (method == "Commit") return Commit(Parse<v1::CommitRequest>(request));
  if (method == "Exists") return Exists(Parse<v1::ExistsRequest>(request));
  if (method == "Remove") return Remove(Parse<v1::NodeRemoveRequest>(request));
  if (method == "Release") {
    const auto message = Parse<v1::ReleaseRequest>(request);
    for (const std::uint64_t lease : message.leases()) {
      released.push_back(lease);
    }
    return std::string();
  }
  if (method == "Abort") {
    ++aborts;
    return std::string();
  }
  if (method == "ReportCorrupt") {
    const auto message = Parse<v1::ReportCorruptRequest>(request);
    for (const BlockKey& key : Keys(message.keys())) {
      reported.push_back(key);
    }
    return std::string();
  }
  if (method == "NoteRemoteReads") {
    noted.push_back(Parse<v1::NoteRemoteReadsRequest>(request));
    v1::NoteRemoteReadsResponse response;
    for (const std::uint32_t index : promotes) response.add_here(index);
    return response.SerializeAsString();
  }
  return absl::UnimplementedError(method);
}

std::string FakeNode::OpenRead(const v1::OpenReadRequest& request) {
  const auto name_space = *IdFromProto<NamespaceId>("ns", request.name_space());
  v1::OpenReadResponse response;
  std::vector<Outcome> outcomes;
  bool over = false;
  for (const BlockKey& key : Keys(request.keys())) {
    const auto it = slots_.find(BlockId{name_space, key});
    if (over || it == slots_.end()) {
      outcomes.push_back(over ? Outcome::kSkipped : Outcome::kMiss);
      over = over || request.leading_run();
      continue;
    }
    const Slot& slot = it->second;
    outcomes.push_back(Outcome::kHit);
    response.add_generations(
        static_cast<std::uint64_t>(slot.header.generation));
    response.add_lengths(slot.header.length);
    response.add_extent_counts(1);
    response.add_extent_regions(1);
    response.add_extent_offsets(slot.offset);
    response.add_extent_lengths(slot.header.length);
  }
  response.set_outcomes(Column(outcomes));
  if (response.lengths_size() > 0) {
    response.set_lease(next_number_++);
    response.set_lease_millis(request.lease_millis());
  }
  response.set_clear_epoch(1);
  return response.SerializeAsString();
}

std::string FakeNode::Reserve(const v1::ReserveRequest& request) {
  reserve_requests.push_back(request);
  const auto name_space = *IdFromProto<NamespaceId>("ns", request.name_space());
  const auto rows = *FromProto(request.blocks());
  v1::ReserveResponse response;
  std::vector<Outcome> outcomes;
  std::vector<BlockId> blocks;
  for (const BlockRow& row : rows) {
    const BlockId block{name_space, row.key};
    outcomes.push_back(Has(block) ? Outcome::kAlreadyThere : Outcome::kStored);
    blocks.push_back(block);
  }
  response.set_outcomes(Column(outcomes));
  if (std::find(outcomes.begin(), outcomes.end(), Outcome::kStored) !=
      outcomes.end()) {
    response.set_reservation(next_number_);
    reservations_[next_number_++] = blocks;
    response.set_reservation_millis(request.reservation_millis());
  }
  response.set_clear_epoch(1);
  return response.SerializeAsString();
}

std::string FakeNode::Commit(const v1::CommitRequest& request) {
  ++commits;
  commit_requests.push_back(request);
  Session& session = *connected_.back();
  const std::vector<BlockId>& blocks = reservations_[request.reservation()];
  std::vector<Outcome> outcomes;
  int extent = 0;
  int piece = 0;
  for (int i = 0; i < request.indexes_size(); ++i) {
    std::vector<std::byte> bytes;
    for (std::uint32_t n = 0; n < request.extent_counts(i); ++n, ++extent) {
      const Staging& staging =
          session.stagings.at(request.extent_stagings(extent));
      const auto part = staging.mapping->bytes().subspan(
          request.extent_offsets(extent), request.extent_lengths(extent));
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    bool sound = true;
    for (const std::uint32_t checksum : PieceChecksums(bytes)) {
      sound = sound && request.pieces(piece++) == checksum;
    }
    if (sound) Put(blocks[request.indexes(i)], bytes);
    outcomes.push_back(sound ? Outcome::kStored : Outcome::kCorrupt);
  }
  v1::CommitResponse response;
  response.set_outcomes(Column(outcomes));
  return response.SerializeAsString();
}

std::string FakeNode::Exists(const v1::ExistsRequest& request) {
  const auto name_space = *IdFromProto<NamespaceId>("ns", request.name_space());
  v1::ExistsResponse response;
  std::vector<Outcome> outcomes;
  for (const BlockKey& key : Keys(request.keys())) {
    const auto it = slots_.find(BlockId{name_space, key});
    outcomes.push_back(it == slots_.end() ? Outcome::kMiss : Outcome::kHit);
    if (it != slots_.end()) response.add_lengths(it->second.header.length);
  }
  response.set_outcomes(Column(outcomes));
  return response.SerializeAsString();
}

std::string FakeNode::Remove(const v1::NodeRemoveRequest& request) {
  const auto name_space = *IdFromProto<NamespaceId>("ns", request.name_space());
  std::vector<Outcome> outcomes;
  for (const BlockKey& key : Keys(request.keys())) {
    const bool had = slots_.erase(BlockId{name_space, key}) > 0;
    outcomes.push_back(had ? Outcome::kHit : Outcome::kMiss);
  }
  v1::NodeRemoveResponse response;
  response.set_outcomes(Column(outcomes));
  return response.SerializeAsString();
}

}  // namespace firnkv
