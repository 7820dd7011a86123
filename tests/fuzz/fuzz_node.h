// A whole simulated node that outlives many inputs, with a tenant that behaves
// beside the one that does not: what the targets of its services share.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_FUZZ_FUZZ_NODE_H_
#define FIRNKV_TESTS_FUZZ_FUZZ_NODE_H_

#include <memory>
#include <string>
#include <string_view>

#include "tests/server/node/whole_node.h"

namespace firnkv {

class FuzzNode : public WholeNodeTest {
 public:
  FuzzNode();
  ~FuzzNode() override;
  void TestBody() override {}

  // The one in use; a new one now and then, so that none grows for ever.
  static FuzzNode& Fresh();

  // A session of the tenant that misbehaves.
  std::unique_ptr<SessionPeer> Hostile();
  // A stream of it, identified.
  std::unique_ptr<RawStreamPeer> HostileStream();
  SimMachine* hostile() { return hostile_; }
  NamespaceId hostile_namespace() const { return granite_.name_space; }
  ClusterId cluster() const { return catalog_.cluster; }

  void Run(absl::Duration time) { RunFor(time); }
  // Whether it was answered at all is checked.
  absl::StatusOr<std::string> CallOver(bool local, std::string_view method,
                                       const std::string& request) {
    return CallRaw(local ? kSessionGrpc : kTcpGrpc, method, request);
  }
  v1::RequestHeader Header(SessionId session) { return HeaderOf(session); }

  // Once everything hostile has ended: nothing of it is left, and the other
  // tenant reads and writes.
  void CheckUnharmed();

  using WholeNodeTest::CommitOf;
  using WholeNodeTest::LendStaging;
  using WholeNodeTest::OpenOf;
  using WholeNodeTest::ReserveOf;
  using WholeNodeTest::Write;
  const NamespaceFacts& granite() const { return granite_; }

 private:
  SimMachine* const hostile_;
  const NamespaceFacts slate_;
  std::unique_ptr<SessionPeer> well_behaved_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_FUZZ_FUZZ_NODE_H_
