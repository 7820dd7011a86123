// The node's control service (proto/node.proto): calls of a live session, or of
// nobody, over the unix socket and over TCP, on a whole node.

#include "proto/base/check.h"
#include "proto/node.pb.h"
#include "tests/fuzz/fuzz_node.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace firnkv {
namespace {

constexpr int kMostCalls = 8;
constexpr std::uint64_t kBlockBytes = 4096;

// How a call is made, besides its bytes.
enum Flag : std::uint8_t {
  // As it came; else the session's header is put in.
  kAsIs = 1,
  kOverTcp = 2,
};

// What calls before it have brought: a handle that the input calls 1 is this.
struct Handles {
  std::uint64_t lease = 0;
  std::uint64_t reservation = 0;
};

class Caller {
 public:
  explicit Caller(FuzzNode* node) : node_(*node), session_(node->Hostile()) {}

  void Call(std::uint8_t method, std::uint8_t flags, std::string_view bytes) {
    switch (method % 13) {
      case 0:
        return Make<v1::OpenReadRequest>("OpenRead", flags, bytes);
      case 1:
        return Make<v1::ReleaseRequest>("Release", flags, bytes);
      case 2:
        return Make<v1::RenewRequest>("Renew", flags, bytes);
      case 3:
        return Make<v1::ReserveRequest>("Reserve", flags, bytes);
      case 4:
        return Make<v1::CommitRequest>("Commit", flags, bytes);
      case 5:
        return Make<v1::AbortRequest>("Abort", flags, bytes);
      case 6:
        return Make<v1::ExistsRequest>("Exists", flags, bytes);
      case 7:
        return Make<v1::NodeRemoveRequest>("Remove", flags, bytes);
      case 8:
        return Make<v1::ReportCorruptRequest>("ReportCorrupt", flags, bytes);
      case 9:
        return Make<v1::ConnectRequest>("Connect", flags, bytes);
      case 10:
        return Make<v1::DrainRequest>("Drain", flags, bytes);
      case 11:
        return Make<v1::SetDramRequest>("SetDram", flags, bytes);
      default:
        return Make<v1::NodeStatusRequest>("Status", flags, bytes);
    }
  }
  // Its first 16 blocks' worth of staging, as number 1.
  void LendStaging() { node_.LendStaging(session_.get(), 1, 2, kBlockBytes); }

 private:
  void PutHandles(v1::ReleaseRequest* request) { PutLeases(request); }
  void PutHandles(v1::RenewRequest* request) { PutLeases(request); }
  void PutHandles(v1::CommitRequest* request) {
    if (request->reservation() == 1) {
      request->set_reservation(handles_.reservation);
    }
  }
  void PutHandles(v1::AbortRequest* request) {
    if (request->reservation() == 1) {
      request->set_reservation(handles_.reservation);
    }
  }
  template <typename Request>
  void PutHandles(Request*) {}
  template <typename Request>
  void PutLeases(Request* request) {
    for (int i = 0; i < request->leases_size(); ++i) {
      if (request->leases(i) == 1) request->set_leases(i, handles_.lease);
    }
  }

  template <typename Request>
  void Make(std::string_view name, std::uint8_t flags, std::string_view bytes) {
    std::string sent(bytes);
    Request request;
    if ((flags & kAsIs) == 0 && request.ParseFromString(sent)) {
      *request.mutable_header() = node_.Header(session_->id());
      PutHandles(&request);
      sent = request.SerializeAsString();
    }
    const auto answer = node_.CallOver((flags & kOverTcp) == 0, name, sent);
    if (!answer.ok()) return;
    // Rule S3: a session speaks over the node's own socket only.
    CHECK((flags & kOverTcp) == 0 || name == "Connect");
    v1::OpenReadResponse opened;
    if (name == "OpenRead" && opened.ParseFromString(*answer)) {
      handles_.lease = opened.lease();
    }
    v1::ReserveResponse reserved;
    if (name == "Reserve" && reserved.ParseFromString(*answer)) {
      handles_.reservation = reserved.reservation();
    }
  }

  FuzzNode& node_;
  std::unique_ptr<SessionPeer> session_;
  Handles handles_;
};

// --- Seeds.

std::string CallOf(std::uint8_t method,
                   const google::protobuf::Message& request,
                   std::uint8_t flags = 0) {
  std::string call;
  WireWriter out(&call);
  const std::string bytes = request.SerializeAsString();
  out.U8(method);
  out.U8(flags);
  out.U16(static_cast<std::uint16_t>(bytes.size()));
  out.Bytes(bytes);
  return call;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  FuzzNode& node = FuzzNode::Fresh();
  const auto reserve = node.ReserveOf({}, node.granite(), 2, kBlockBytes);
  auto commit = node.CommitOf({}, 1, 2, kBlockBytes);
  commit.set_extent_stagings(0, 1);
  const auto open = node.OpenOf({}, node.granite(), 2);
  v1::ReleaseRequest release;
  release.add_leases(1);
  v1::RenewRequest renew;
  renew.add_leases(1);
  renew.set_lease_millis(1000);
  v1::AbortRequest abort;
  abort.set_reservation(1);
  v1::ExistsRequest exists;
  exists.set_name_space(open.name_space());
  exists.set_keys(open.keys());
  v1::NodeRemoveRequest remove;
  remove.set_name_space(open.name_space());
  remove.set_keys(open.keys());
  v1::ReportCorruptRequest report;
  report.set_name_space(open.name_space());
  report.set_keys(open.keys());
  report.add_generations(1);
  const std::string write = CallOf(3, reserve) + CallOf(4, commit);
  return {write + CallOf(0, open) + CallOf(2, renew) + CallOf(1, release),
          write + CallOf(4, commit) + CallOf(7, remove) + CallOf(6, exists),
          CallOf(3, reserve) + CallOf(5, abort) + CallOf(4, commit),
          write + CallOf(0, open) + CallOf(8, report),
          CallOf(0, open, kAsIs) + CallOf(0, open, kOverTcp) +
              CallOf(9, v1::ConnectRequest(), kAsIs) +
              CallOf(10, v1::DrainRequest()) + CallOf(12, v1::DrainRequest()),
          CallOf(11, v1::SetDramRequest())};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  FuzzNode& node = FuzzNode::Fresh();
  {
    Caller caller(&node);
    caller.LendStaging();
    for (int i = 0; i < kMostCalls && !input.empty(); ++i) {
      const std::uint8_t method = input.U8();
      const std::uint8_t flags = input.U8();
      caller.Call(method, flags, input.Bytes(input.U16()));
    }
  }
  node.CheckUnharmed();
  return 0;
}
