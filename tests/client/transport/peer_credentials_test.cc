// Who is trusted with what, by uid, user namespace and capabilities. The peers
// are children of the test with one thread each, made before it has others.

#include "client/transport/peer_credentials.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/client/transport/process_state.h"
#include "tests/client/transport/raw_socket.h"

namespace firnkv {
namespace {

constexpr uid_t kNodeUid = 64321;
constexpr uid_t kClientUid = 64322;

// "CapPrm" as of /proc/PID/status, among other lines.
std::string StatusWith(const std::string& permitted) {
  return StrCat("Name:\tengine\nUid:\t1000\t1000\nCapInh:\tffffffffffffffff\n",
                "CapPrm:\t", permitted, "\nCapEff:\t0000000000000000\n");
}

// A unix listener, and one connection from a child of another identity.
class PeerCredentialsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "changing the uid takes root";
    std::string name = "/tmp/firnkv-peer-XXXXXX";
    folder_ = mkdtemp(name.data());
    ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
    listening_ = RawUnixListen(folder_ + "/s", SOCK_SEQPACKET);
    ASSERT_EQ(chmod((folder_ + "/s").c_str(), 0666), 0);
  }
  void TearDown() override {
    if (child_ > 0) {
      // The end of the connection is the child's sign to end.
      accepted_.Reset();
      listening_.Reset();
      waitpid(child_, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  // `become` runs in the child before it connects.
  template <typename Become>
  void MeetPeer(Become become) {
    child_ = fork();
    if (child_ == 0) {
      listening_.Reset();
      if (!become()) _exit(1);
      const Descriptor connected = RawUnixConnect(folder_ + "/s");
      char byte = 0;
      if (read(connected.get(), &byte, 1) < 0) _exit(2);
      _exit(0);
    }
    accepted_ = Descriptor(accept(listening_.get(), nullptr, nullptr));
    ASSERT_TRUE(accepted_.valid());
  }
  void MeetPeerOfUid(uid_t uid) {
    MeetPeer([uid] { return setgid(uid) == 0 && setuid(uid) == 0; });
  }
  PeerCredentials Read(NamespaceProof proof) {
    return *ReadPeerCredentials(accepted_.get(), proof);
  }

  std::string folder_;
  Descriptor listening_;
  Descriptor accepted_;
  pid_t child_ = 0;
};

TEST_F(PeerCredentialsTest, AnOrdinaryPeerIsTrustedAndNotPrivileged) {
  MeetPeerOfUid(kClientUid);

  const PeerCredentials peer = Read(NamespaceProof::kNamespaceLink);

  EXPECT_EQ(peer.uid, kClientUid);
  EXPECT_EQ(peer.pid, child_);
  EXPECT_TRUE(peer.uid_trusted);
  EXPECT_FALSE(peer.privileged);
}

// Rule P10.
TEST_F(PeerCredentialsTest, RootIsPrivileged) {
  MeetPeer([] { return true; });

  const PeerCredentials peer = Read(NamespaceProof::kNamespaceLink);

  EXPECT_EQ(peer.uid, 0u);
  EXPECT_TRUE(peer.privileged);
}

// Rule S2.
TEST_F(PeerCredentialsTest, TheOverflowUidIsNobody) {
  MeetPeerOfUid(kOverflowUid);

  EXPECT_FALSE(Read(NamespaceProof::kNamespaceLink).uid_trusted);
  EXPECT_FALSE(Read(NamespaceProof::kEqualUidMap).uid_trusted);
}

// Rule S2.
TEST_F(PeerCredentialsTest, APeerOfAnotherUserNamespaceIsNotTrusted) {
  bool allowed = true;
  allowed = InAChild([] { return unshare(CLONE_NEWUSER) == 0 ? 0 : 1; }) == 0;
  if (!allowed) GTEST_SKIP() << "this machine makes no user namespaces";
  MeetPeer([] {
    return setgid(kClientUid) == 0 && setuid(kClientUid) == 0 &&
           unshare(CLONE_NEWUSER) == 0;
  });

  const PeerCredentials peer = Read(NamespaceProof::kNamespaceLink);

  EXPECT_EQ(peer.uid, kClientUid);
  EXPECT_FALSE(peer.uid_trusted);
  EXPECT_TRUE(peer.privileged);
  EXPECT_FALSE(Read(NamespaceProof::kEqualUidMap).uid_trusted);
}

// Rule S2: with nothing to read about a peer, there is nothing to trust.
TEST_F(PeerCredentialsTest, APeerThatHasEndedIsNeitherTrustedNorHarmless) {
  MeetPeer([this] {
    if (setgid(kClientUid) != 0 || setuid(kClientUid) != 0) return false;
    RawUnixConnect(folder_ + "/s");
    _exit(0);
  });
  waitpid(child_, nullptr, 0);
  child_ = 0;

  const PeerCredentials peer = Read(NamespaceProof::kEqualUidMap);

  EXPECT_EQ(peer.uid, kClientUid);
  EXPECT_FALSE(peer.uid_trusted);
  EXPECT_TRUE(peer.privileged);
}

// A node without capabilities may not read the namespace of another uid.
TEST_F(PeerCredentialsTest, AnUnprivilegedNodeTrustsOtherUidsByTheirMapOnly) {
  MeetPeerOfUid(kClientUid);

  const int status = InAChild([this] {
    if (setgid(kNodeUid) != 0 || setuid(kNodeUid) != 0) return 1;
    const PeerCredentials link = Read(NamespaceProof::kNamespaceLink);
    const PeerCredentials map = Read(NamespaceProof::kEqualUidMap);
    if (link.uid_trusted) return 2;
    if (link.privileged || map.privileged) return 3;
    return map.uid_trusted ? 0 : 4;
  });

  EXPECT_EQ(status, 0);
}

TEST_F(PeerCredentialsTest, ASocketWithoutPeerIsAnError) {
  EXPECT_FALSE(ReadPeerCredentials(-1, NamespaceProof::kEqualUidMap).ok());
}

// Rule P10: to trace, to ignore modes, to own files, to become another uid, to
// administrate, to boot another kernel, to make devices, to give programs
// capabilities; whether raised now or only permitted.
TEST(DangerousCapabilityTest, AnyThatReachesForeignMemoryIsFound) {
  for (const char* permitted :
       {"0000000000080000", "0000000000000002", "0000000000000004",
        "0000000000000008", "0000000000200000", "0000000000000080",
        "0000000000400000", "0000000008000000", "0000000080000000",
        "000001ffffffffff"}) {
    EXPECT_EQ(HoldsDangerousCapability(StatusWith(permitted)), true)
        << permitted;
  }
}

TEST(DangerousCapabilityTest, OthersAreNot) {
  // None; CAP_NET_BIND_SERVICE; CAP_IPC_LOCK and CAP_SYS_NICE.
  for (const char* permitted :
       {"0000000000000000", "0000000000000400", "0000000000804000"}) {
    EXPECT_EQ(HoldsDangerousCapability(StatusWith(permitted)), false)
        << permitted;
  }
}

TEST(DangerousCapabilityTest, ATextThatDoesNotSayIsNoAnswer) {
  EXPECT_EQ(HoldsDangerousCapability(""), std::nullopt);
  EXPECT_EQ(HoldsDangerousCapability("CapPrm:\n"), std::nullopt);
  EXPECT_EQ(HoldsDangerousCapability("CapEff:\t0000000000000000\n"),
            std::nullopt);
}

}  // namespace
}  // namespace firnkv
