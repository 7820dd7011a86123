// The node's end of a local session (proto/session.proto): packets of a live
// session and of one that has said nothing yet, with memory beside them, of the
// right kind or not.

#include "proto/base/check.h"
#include "proto/session.pb.h"
#include "tests/fuzz/fuzz_node.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace firnkv {
namespace {

constexpr int kMostPackets = 12;

enum Flag : std::uint8_t { kSealed = 1, kUnsealed = 2, kLong = 4 };

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
      session->SendRaw(std::string(input.Bytes(input.U16())),
                       MemoryFor(node.hostile(), flags));
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
  return {fresh + hello,
          fresh + hello + hello,
          live + staging(1, kPageBytes, kSealed) + Packet(drop),
          live + staging(1, kPageBytes, kUnsealed) +
              staging(2, kMiB, kSealed | kLong) +
              staging(2, kMiB, kSealed | kLong),
          live + Packet(wanted) + Packet(taken) + Packet(unmapped),
          live + Packet(wanted) + Packet(wanted) + Packet(renew),
          live + Packet(renew, kSealed)};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  firnkv::Play(firnkv::FuzzInput(bytes, size));
  return 0;
}
