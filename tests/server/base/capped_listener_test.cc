// How many connections one uid may have, and when one has ended.

#include "server/base/capped_listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/capped_counts.h"
#include "tests/client/transport/inbox.h"
#include "tests/client/transport/raw_socket.h"
#include "tests/client/transport/unix_fixture.h"

namespace firnkv {
namespace {

using Counts = CappedCounts<std::uint32_t>;

// Rule S4.
TEST(CappedCountsTest, AKeyAndAllOfThemAreBounded) {
  Counts counts({.in_all = 3, .a_key = 2});

  const Counts::Receipt one = counts.Take(1);
  const Counts::Receipt two = counts.Take(1);
  EXPECT_FALSE(counts.Take(1)) << "of its key";
  const Counts::Receipt three = counts.Take(2);
  EXPECT_TRUE(three);
  EXPECT_FALSE(counts.Take(3)) << "in all";
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_EQ(counts.Of(1), 2u);
}

TEST(CappedCountsTest, AReceiptCountsUntilItIsDestroyed) {
  Counts counts({.in_all = 1, .a_key = 1});
  Counts::Receipt receipt = counts.Take(1);
  Counts::Receipt moved = std::move(receipt);
  ASSERT_FALSE(counts.Take(1));

  moved = Counts::Receipt();

  EXPECT_EQ(counts.size(), 0u);
  EXPECT_TRUE(counts.Take(1));
}

TEST(CappedCountsTest, AReceiptMayOutliveTheCounts) {
  auto counts = std::make_unique<Counts>(Counts::Caps{.in_all = 1, .a_key = 1});
  const Counts::Receipt receipt = counts->Take(1);

  counts.reset();

  EXPECT_TRUE(receipt);
}

class CappedListenerTest : public testing::Test {
 protected:
  void Start(CappedListener::Options options) {
    options.turned_away = &turned_away_;
    listener_ = *CappedListener::Start(
        path_, options,
        [this](Descriptor socket) { accepted_.Put(std::move(socket)); });
  }
  Descriptor Connect() { return RawUnixConnect(path_, SOCK_STREAM); }
  static bool IsClosed(const Descriptor& fd) {
    char byte = 0;
    return read(fd.get(), &byte, 1) <= 0;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.File("control");
  Counter turned_away_;
  Inbox<Descriptor> accepted_;
  std::unique_ptr<CappedListener> listener_;
};

// Rule S4.
TEST_F(CappedListenerTest, AConnectionBeyondItsUidsCapIsClosed) {
  Start({.most = 10, .most_a_uid = 2});
  const Descriptor one = Connect();
  const Descriptor two = Connect();
  const Descriptor server_one = accepted_.Take();
  const Descriptor server_two = accepted_.Take();

  const Descriptor three = Connect();

  EXPECT_TRUE(IsClosed(three));
  EXPECT_EQ(turned_away_.value(), 1u);
  EXPECT_TRUE(accepted_.empty());
}

// Rule S4.
TEST_F(CappedListenerTest, AConnectionBeyondTheCapOfAllIsClosed) {
  Start({.most = 1, .most_a_uid = 10});
  const Descriptor one = Connect();
  const Descriptor server_one = accepted_.Take();

  EXPECT_TRUE(IsClosed(Connect()));
}

// Rule S4: who serves calls looks for no descriptors.
TEST_F(CappedListenerTest, NoDescriptorsComeWithCalls) {
  Start({.most = 10, .most_a_uid = 10});
  const Descriptor one = Connect();
  const Descriptor server_one = accepted_.Take();
  int takes = 1;
  socklen_t size = sizeof(takes);
  // SO_PASSRIGHTS. Skipped where the kernel does not have it: nothing else
  // keeps descriptors out of a stream that gRPC reads. docs/CORRECTNESS.md, S4,
  // says what that leaves open.
  if (getsockopt(server_one.get(), SOL_SOCKET, 83, &takes, &size) != 0) {
    GTEST_SKIP() << "a kernel before 6.16";
  }

  EXPECT_EQ(takes, 0);
  EXPECT_FALSE(RawSend(one.get(), "a descriptor", {one.get()}));
  EXPECT_TRUE(RawSend(one.get(), "bytes alone", {}));
}

TEST_F(CappedListenerTest, WhatItsServerHasClosedMakesRoom) {
  Start({.most = 10, .most_a_uid = 1});
  const Descriptor one = Connect();
  Descriptor server_one = accepted_.Take();
  ASSERT_TRUE(IsClosed(Connect()));

  server_one.Reset();
  const Descriptor two = Connect();

  EXPECT_TRUE(accepted_.Take().valid());
}

// A descriptor's number alone says nothing: it may be another's by now.
TEST_F(CappedListenerTest, AClosedConnectionsNumberMayBeAnothers) {
  Start({.most = 10, .most_a_uid = 1});
  const Descriptor one = Connect();
  Descriptor server_one = accepted_.Take();
  const int number = server_one.get();

  server_one.Reset();
  const Descriptor other(dup(STDERR_FILENO));
  ASSERT_EQ(other.get(), number);
  const Descriptor two = Connect();

  EXPECT_TRUE(accepted_.Take().valid());
}

}  // namespace
}  // namespace firnkv
