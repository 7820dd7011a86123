// A node as a Client sees it, scripted: session socket, control calls, mapped
// region, stream. It serves truly what it was given, and misbehaves as a test
// orders.
//
// Threading. One thread only. Ownership: the world outlives it.

#ifndef FIRNKV_TESTS_CLIENT_FAKE_NODE_H_
#define FIRNKV_TESTS_CLIENT_FAKE_NODE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "client/transport/control_channel.h"
#include "client/transport/local_socket.h"
#include "proto/base/id.h"
#include "proto/base/node_address.h"
#include "proto/base/session_frame.h"
#include "proto/base/slot_header.h"
#include "proto/node.pb.h"
#include "proto/session.pb.h"
#include "tests/client/fake_stream.h"
#include "tests/support/sim_world.h"

namespace firnkv {

inline constexpr std::string_view kFakeCatalogAddress = "catalog:7400";

class FakeNode : public ControlService {
 public:
  // `name` names the host too: "node1".
  FakeNode(SimWorld* world, const std::string& name, ClusterId cluster,
           std::uint64_t region_bytes = 8 * kMiB);
  ~FakeNode() override;

  std::string socket_path() const { return "/" + name_ + "/node.sock"; }
  NodeAddress address() const;
  SimMachine* machine() { return machine_; }
  FakeStream& stream() { return *stream_; }

  // --- Its blocks.
  static SlotHeader HeaderOf(const BlockId& block, Generation generation,
                             const std::vector<std::byte>& bytes,
                             IdentityDigest digest);
  void Put(const BlockId& block, const std::vector<std::byte>& bytes,
           IdentityDigest digest = {});
  bool Has(const BlockId& block) const { return slots_.contains(block); }
  std::vector<std::byte> BytesOf(const BlockId& block) const;
  void CorruptOneByte(const BlockId& block, std::size_t at);
  // The slot is given to another block, as rule P7 has it.
  void ReuseSlot(const BlockId& block);
  // All slots, then their memory, as rule P6 has it; sessions are told.
  void RetireRegion();
  void Forget(const BlockId& block) { slots_.erase(block); }

  // --- What it does with control calls; by method: "OpenRead".
  // Heard, never answered.
  std::set<std::string> silent;
  // Answered truly, so much later.
  std::map<std::string, absl::Duration> late;
  // Answered so instead.
  std::map<std::string,
           std::function<absl::StatusOr<std::string>(const std::string&)>>
      instead;
  // The true answer, changed.
  std::map<std::string, std::function<void(std::string*)>> tamper;
  // Runs before the true answer is made.
  std::map<std::string, std::function<void()>> before;
  std::map<std::string, int> calls;
  // Indexes that it says are here by now, to whatever it is told of.
  std::vector<std::uint32_t> promotes;

  // --- What it does in sessions.
  // The newest version of call frames that it speaks; 0: a node that has never
  // heard of them. Calls that come so are in `calls` too.
  std::uint32_t call_frames = kCallFrames;
  int frames = 0;
  std::function<void(v1::SessionWelcome*)> on_welcome;
  std::optional<absl::Status> refuse_session;
  bool silent_hello = false;
  bool silent_descriptors = false;
  bool refuse_descriptors = false;
  // Those of header tables alone: the region retired in between.
  bool refuse_tables = false;
  bool silent_staging = false;
  // By staging id; true: refuse.
  std::function<bool(std::uint64_t)> refuse_staging;
  int sessions = 0;
  std::vector<std::uint64_t> unmapped;
  std::vector<std::uint64_t> stagings_added;
  int tokens_renewed = 0;

  void DropSessions();
  void SendToSession(const v1::NodeMessage& message,
                     std::shared_ptr<SharedMemory> memory = nullptr);
  void SendPacket(const std::string& packet);
  // It dies and comes back as another run: nothing listens between.
  void StopServing();
  void StartServing();

  // --- What it was told.
  std::vector<std::uint64_t> released;
  std::vector<BlockKey> reported;
  std::vector<v1::NoteRemoteReadsRequest> noted;
  int aborts = 0;
  int commits = 0;
  // Extents of all commits.
  std::vector<v1::CommitRequest> commit_requests;
  std::vector<v1::ReserveRequest> reserve_requests;

  RegionId region() const { return {epoch_, 1}; }

  // --- ControlService.
  std::string_view service() const override { return "firnkv.v1.NodeService"; }
  void Handle(std::string_view method, const ControlPeer& peer,
              std::string_view request, ControlReply reply) override;

 private:
  struct Slot {
    std::uint64_t offset = 0;
    SlotHeader header;
  };
  struct Staging {
    std::shared_ptr<SharedMemory> memory;
    std::unique_ptr<MemoryMapping> mapping;
  };
  struct Session {
    std::unique_ptr<LocalSocket> socket;
    std::map<std::uint64_t, Staging> stagings;
    bool over = false;
  };

  void Accept(std::unique_ptr<LocalSocket> socket);
  void OnMessage(Session* session, const std::string& bytes,
                 std::shared_ptr<SharedMemory> memory);
  void OnFrame(Session* session, const std::string& packet);
  void Welcome(Session* session, const v1::SessionHello& hello);
  void SendDescriptor(Session* session, std::uint64_t region,
                      std::uint32_t what);
  void TakeStaging(Session* session, const v1::AddStaging& message,
                   std::shared_ptr<SharedMemory> memory);

  absl::StatusOr<std::string> Answer(const std::string& method,
                                     const std::string& request);
  std::string OpenRead(const v1::OpenReadRequest& request);
  std::string Reserve(const v1::ReserveRequest& request);
  std::string Commit(const v1::CommitRequest& request);
  std::string Exists(const v1::ExistsRequest& request);
  std::string Remove(const v1::NodeRemoveRequest& request);

  const std::string name_;
  const ClusterId cluster_;
  SimMachine* const machine_;
  NodeId id_;
  NodeEpoch epoch_;
  SessionId session_id_;
  std::shared_ptr<SharedMemory> payload_;
  std::unique_ptr<MemoryMapping> payload_map_;
  MemoryMaker::HeaderTable table_;
  std::unique_ptr<HeaderTableWriter> headers_;
  std::map<BlockId, Slot> slots_;
  std::uint64_t next_offset_ = 0;
  std::uint64_t next_generation_ = 100;
  std::uint64_t next_number_ = 1;
  // By reservation: namespace, then what each index is.
  std::map<std::uint64_t, std::vector<BlockId>> reservations_;
  std::unique_ptr<SimControl::Serving> serving_;
  SimWorld* const world_;
  std::unique_ptr<LocalListener> listener_;
  std::unique_ptr<FakeStream> stream_;
  std::vector<std::unique_ptr<Session>> connected_;
  std::vector<ControlReply> unanswered_;
};

// A catalog that knows what it was told.
class FakeCatalog : public ControlService {
 public:
  FakeCatalog(SimWorld* world, ClusterId cluster);
  ~FakeCatalog() override;

  void Locate(const BlockId& block, const NodeAddress& node,
              std::uint64_t length);
  void Forget(const BlockId& block) { locations_.erase(block); }
  // Who takes blocks of remote writers: the first that is not excluded.
  std::vector<NodeAddress> takers;

  std::set<std::string> silent;
  std::map<std::string,
           std::function<absl::StatusOr<std::string>(const std::string&)>>
      instead;
  std::map<std::string, std::function<void(std::string*)>> tamper;
  std::map<std::string, int> calls;
  std::vector<std::string> tokens;
  NamespaceId name_space;

  std::string_view service() const override {
    return "firnkv.v1.CatalogService";
  }
  void Handle(std::string_view method, const ControlPeer& peer,
              std::string_view request, ControlReply reply) override;

 private:
  absl::StatusOr<std::string> Answer(const std::string& method,
                                     const std::string& request);
  absl::StatusOr<std::string> OpenNamespace(const std::string& request);
  absl::StatusOr<std::string> LocateAnswer(const std::string& request);
  absl::StatusOr<std::string> PlaceAnswer(const std::string& request);

  const ClusterId cluster_;
  std::map<BlockId, std::vector<std::pair<NodeAddress, std::uint64_t>>>
      locations_;
  std::unique_ptr<SimControl::Serving> serving_;
  std::vector<ControlReply> unanswered_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_FAKE_NODE_H_
