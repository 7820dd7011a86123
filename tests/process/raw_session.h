// A local session without the SDK: for a client that does what the SDK never
// would. It holds leases and reservations for as long as it likes, asks for
// regions that are none of its business, and tries to write what it may read.
//
// Threading. One thread; every call waits for its answer.

#ifndef FIRNKV_TESTS_PROCESS_RAW_SESSION_H_
#define FIRNKV_TESTS_PROCESS_RAW_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/chain.h"
#include "client/namespace.h"
#include "client/session_messages.h"
#include "client/transport/memfd.h"
#include "client/transport/seams.h"
#include "tests/client/transport/inbox.h"

namespace firnkv {

class RawSession {
 public:
  // `seams` outlive it.
  static absl::StatusOr<std::unique_ptr<RawSession>> Connect(
      const Seams& seams, const std::string& path);

  // Leases the blocks and maps where they lie. Returns how many are hits.
  absl::StatusOr<int> Hold(const NamespaceHandle& name_space,
                           const std::vector<Chain::Block>& blocks,
                           absl::Duration lease);
  // How many bytes of what Hold has leased are not the blocks'.
  std::size_t WrongBytesHeld() const;
  // Serial of a region in which something that is held lies.
  std::uint64_t region() const { return held_.empty() ? 0 : held_[0].region; }

  // Returns how many were reserved; they are never committed.
  absl::StatusOr<int> Reserve(const NamespaceHandle& name_space,
                              const std::vector<Chain::Block>& blocks,
                              std::uint64_t block_bytes);

  // PERMISSION_DENIED where the node refuses.
  absl::StatusOr<std::shared_ptr<SharedMemory>> Descriptor(std::uint64_t region,
                                                           DescriptorOf what);

 private:
  struct Message {
    std::string bytes;
    std::shared_ptr<SharedMemory> memory;
  };
  struct Held {
    BlockId block;
    std::uint64_t region = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    const MemoryMapping* mapping = nullptr;
  };

  explicit RawSession(const Seams& seams) : seams_(seams) {}
  absl::StatusOr<FromNode> Take(std::shared_ptr<SharedMemory>* memory);
  absl::StatusOr<std::string> Call(const std::string& method,
                                   std::string request);
  absl::StatusOr<const MemoryMapping*> MapRegion(std::uint64_t region);

  const Seams seams_;
  SessionWelcome welcome_;
  std::vector<Held> held_;
  std::vector<std::pair<std::uint64_t, std::unique_ptr<MemoryMapping>>> mapped_;
  Inbox<Message> inbox_;
  std::unique_ptr<ControlChannel> channel_;
  std::unique_ptr<LocalSocket> socket_;
};

// Tries every way of writing to memory, or of changing its size, that a
// descriptor may offer. Returns the names of those that worked.
std::vector<std::string> WaysToWrite(int descriptor);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_RAW_SESSION_H_
