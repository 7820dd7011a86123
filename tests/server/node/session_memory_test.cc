// What sessions cost that connect and go silent.

#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/node/whole_node.h"

namespace {

// Bytes of the heap that are in use, of this whole program.
std::atomic<std::int64_t> heap_bytes{0};

}  // namespace

void* operator new(std::size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  heap_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  return memory;
}
void operator delete(void* memory) noexcept {
  heap_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace firnkv {
namespace {

using SessionMemoryTest = WholeNodeTest;

// Both ends are in this program, so the node's part is less: the bound is what
// docs/ARCHITECTURE.md states.
TEST_F(SessionMemoryTest, TenThousandSilentSessionsCostABoundedMemory) {
  constexpr std::int64_t kSessions = 10'000;
  constexpr std::int64_t kMostASession = 8 * 1024;
  NodeOptions options = DefaultOptions();
  options.max_sessions = kSessions + 1;
  options.max_sessions_a_uid = kSessions + 1;
  StartNode(options);
  SimMachine* const machine = NewClient(kAliceUid);
  std::vector<std::unique_ptr<SessionPeer>> peers;
  peers.reserve(kSessions + 2);
  peers.push_back(Connect(machine));
  const std::int64_t before = heap_bytes;

  for (std::int64_t i = 0; i < kSessions; ++i) {
    peers.push_back(Connect(machine));
    ASSERT_NE(peers.back()->welcome(), nullptr) << i;
  }
  RunFor(absl::Seconds(60));

  const std::int64_t each = (heap_bytes - before) / kSessions;
  std::printf("%lld bytes a session\n", static_cast<long long>(each));
  EXPECT_LE(each, kMostASession);
  EXPECT_EQ(Status().sessions(), static_cast<std::uint64_t>(kSessions + 1));
  EXPECT_EQ(Connect(machine)->welcome(), nullptr) << "over the caps";
  peers.clear();
  RunFor(absl::Seconds(1));
  EXPECT_EQ(Status().sessions(), 0u);
  StopNode();
}

}  // namespace
}  // namespace firnkv
