// The node's end of a local session (proto/session.proto): packets of a live
// session and of one that has said nothing yet, with memory beside them, of the
// right kind or not.

#include "proto/base/check.h"
#include "proto/base/session_frame.h"
#include "proto/session.pb.h"
#include "tests/fuzz/fuzz_node.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

constexpr int kMostPackets = 12;

// kFrame: the bytes are a call's type and its body without a checksum, in which
// the session's id stands where the session can know it: the target puts both
// there, so that what comes behind them is reached.
enum Flag : std::uint8_t { kSealed = 1, kUnsealed = 2, kLong = 4, kFrame = 8 };

// Where a body names its session: behind protocol, class, deadline and trace;
// a release begins with it.
std::size_t SessionAt(FrameType type) {
  return type == FrameType::kCallRelease ? 0 : 32;
}

std::string FrameFor(const SessionPeer& session, std::string_view bytes) {
  if (bytes.empty()) return "";
  const auto type =
      static_cast<FrameType>(static_cast<std::uint8_t>(bytes[0]) % 32);
  std::string body(bytes.substr(1));
  const std::size_t at = SessionAt(type);
  if (session.welcome() != nullptr && body.size() >= at + SessionId::kBytes) {
    body.replace(at, SessionId::kBytes, session.id().view());
  }
  return EncodeCallPacket(type, 1, WithCrc(body));
}

std::shared_ptr<SharedMemory> MemoryFor(SimMachine* machine,
                                        std::uint8_t flags) {
  const std::uint64_t bytes = (flags & kLong) != 0 ? kMiB : kPageBytes;
  if ((flags & kSealed) != 0) {
    return *machine->memory()->Make(MemoryKindWanted::kStaging, "s", bytes);
  }
  if ((flags & kUnsealed) != 0) {
    return *machine->memory()->Make(MemoryKindWanted::kRegion, "p", bytes);
  }
  return nullptr;
}

std::string Packet(const v1::ClientMessage& message, std::uint8_t flags = 0) {
  std::string packet;
  WireWriter out(&packet);
  const std::string bytes = message.SerializeAsString();
  out.U8(flags);
  out.U16(static_cast<std::uint16_t>(bytes.size()));
  out.Bytes(bytes);
  return packet;
}

std::string Frame(FrameType type, const std::string& body) {
  std::string packet;
  WireWriter out(&packet);
  const std::string bytes =
      std::string(1, static_cast<char>(type)) + WithoutCrc(body);
  out.U8(kFrame);
  out.U16(static_cast<std::uint16_t>(bytes.size()));
  out.Bytes(bytes);
  return packet;
}

// A call of each kind, for blocks of the tenant's own.
std::vector<std::string> FrameSeeds(NamespaceId name_space) {
  CallOpenReadBody open = SampleCallOpenRead();
  open.name_space = name_space;
  CallReserveBody reserve = SampleCallReserve();
  reserve.name_space = name_space;
  reserve.wait_for = 0;
  CallCommitBody commit = SampleCallCommit();
  commit.reservation = 1;
  const std::string open_read =
      Frame(FrameType::kCallOpenRead, EncodeCallOpenRead(open));
  const std::string release =
      Frame(FrameType::kCallRelease,
            EncodeCallRelease({.session = {}, .leases = {1, 2}}));
  const std::string reserved =
      Frame(FrameType::kCallReserve, EncodeCallReserve(reserve));
  const std::string committed =
      Frame(FrameType::kCallCommit, EncodeCallCommit(commit));
  return {open_read, open_read + release, reserved + committed,
          reserved + reserved + open_read};
}

void Play(FuzzInput input) {
  FuzzNode& node = FuzzNode::Fresh();
  {
    // Even: after the welcome.
    const bool live = input.U8() % 2 == 0;
    const std::unique_ptr<SessionPeer> session =
        live ? node.Hostile()
             : std::make_unique<SessionPeer>(node.hostile(), "/run/node.sock");
    CHECK(session->connected());
    for (int i = 0; i < kMostPackets && !input.empty(); ++i) {
      const std::uint8_t flags = input.U8();
      std::string packet(input.Bytes(input.U16()));
      if ((flags & kFrame) != 0) packet = FrameFor(*session, packet);
      session->SendRaw(std::move(packet), MemoryFor(node.hostile(), flags));
    }
    node.Run(absl::Milliseconds(10));
  }
  node.CheckUnharmed();
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  FuzzNode& node = FuzzNode::Fresh();
  const std::string hello = Packet(SessionPeer::Hello(node.cluster()));
  const auto staging = [](std::uint64_t id, std::uint64_t bytes,
                          std::uint8_t flags) {
    v1::ClientMessage message;
    message.mutable_add_staging()->set_staging(id);
    message.mutable_add_staging()->set_bytes(bytes);
    return Packet(message, flags);
  };
  v1::ClientMessage wanted;
  wanted.mutable_descriptor_wanted()->set_region(1);
  wanted.mutable_descriptor_wanted()->set_what(1);
  v1::ClientMessage taken;
  taken.mutable_descriptor_taken()->set_region(1);
  taken.mutable_descriptor_taken()->set_what(1);
  v1::ClientMessage drop;
  drop.mutable_drop_staging()->set_staging(1);
  v1::ClientMessage unmapped;
  unmapped.mutable_region_unmapped()->set_region(1);
  v1::ClientMessage renew;
  renew.mutable_renew_token();
  const std::string live(1, '\0');
  const std::string fresh(1, '\1');
  std::vector<std::string> seeds = {
      fresh + hello,
      fresh + hello + hello,
      live + staging(1, kPageBytes, kSealed) + Packet(drop),
      live + staging(1, kPageBytes, kUnsealed) +
          staging(2, kMiB, kSealed | kLong) + staging(2, kMiB, kSealed | kLong),
      live + Packet(wanted) + Packet(taken) + Packet(unmapped),
      live + Packet(wanted) + Packet(wanted) + Packet(renew),
      live + Packet(renew, kSealed)};
  for (const std::string& frames : FrameSeeds(node.hostile_namespace())) {
    seeds.push_back(live + frames);
    seeds.push_back(fresh + frames);
  }
  return seeds;
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  firnkv::Play(firnkv::FuzzInput(bytes, size));
  return 0;
}
