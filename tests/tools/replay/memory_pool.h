// A pool of blocks in this process, for replays: endless, shared by all
// workers, and able to lie.
//
// Threading. Thread-safe, but for what spoils it, which is set before.

#ifndef FIRNKV_TESTS_TOOLS_REPLAY_MEMORY_POOL_H_
#define FIRNKV_TESTS_TOOLS_REPLAY_MEMORY_POOL_H_

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "proto/base/mutex.h"
#include "tools/replay/pool_access.h"

namespace firnkv {

// What all workers see.
struct SharedBlocks {
  Mutex mutex;
  std::map<BlockKey, std::vector<std::byte>> blocks ABSL_GUARDED_BY(mutex);
  std::map<BlockKey, ChainPlace> places ABSL_GUARDED_BY(mutex);
};

class MemoryPool : public PoolAccess {
 public:
  explicit MemoryPool(SharedBlocks* shared) : shared_(*shared) {}

  // --- Lies.
  bool flip_one_byte = false;
  bool forget_to_copy = false;
  bool serve_another_block = false;
  absl::Status read_status;
  absl::Status write_status;
  Outcome write_outcome = Outcome::kStored;

  // --- What was asked.
  std::size_t reads = 0;
  std::size_t writes = 0;
  std::size_t largest_batch = 0;
  std::size_t allocated = 0;
  std::size_t published_writes = 0;

  ReadReport Read(const ReadRequest& request) override {
    ++reads;
    largest_batch = std::max(largest_batch, request.blocks.size());
    ReadReport report;
    report.status = read_status;
    if (!read_status.ok()) return report;
    MutexLock lock(&shared_.mutex);
    for (ReadTarget& target : request.blocks) {
      auto found = shared_.blocks.find(target.key);
      if (found == shared_.blocks.end()) {
        target.outcome = Outcome::kMiss;
        break;
      }
      if (serve_another_block) found = shared_.blocks.begin();
      const Buffer& to = target.destination[0];
      if (!forget_to_copy) {
        std::memcpy(to.address, found->second.data(), to.length);
      }
      if (flip_one_byte) to.address[to.length / 2] ^= std::byte{4};
      target.outcome = Outcome::kHit;
      ++report.hits;
      ++report.leading_hits;
      report.bytes_mapped += to.length;
    }
    return report;
  }

  WriteReport Write(const WriteRequest& request) override {
    ++writes;
    if (request.wait_for == WriteWait::kPublished) ++published_writes;
    largest_batch = std::max(largest_batch, request.blocks.size());
    WriteReport report;
    report.status = write_status;
    if (!write_status.ok()) return report;
    MutexLock lock(&shared_.mutex);
    for (WriteBlock& block : request.blocks) {
      block.outcome = write_outcome;
      if (write_outcome != Outcome::kStored) continue;
      const ConstBuffer& from = block.source[0];
      const auto added = shared_.blocks.emplace(
          block.key,
          std::vector<std::byte>(from.address, from.address + from.length));
      if (!added.second) {
        block.outcome = Outcome::kAlreadyThere;
        ++report.already_there;
        continue;
      }
      shared_.places[block.key] = block.place;
      ++report.stored;
      report.bytes_stored += from.length;
    }
    return report;
  }

  absl::StatusOr<absl::Span<std::byte>> AllocateShared(
      std::size_t bytes) override {
    allocated = bytes;
    memory_ = std::make_unique<std::byte[]>(bytes);
    return absl::MakeSpan(memory_.get(), bytes);
  }

  ClientStats Stats() const override { return {}; }

 private:
  SharedBlocks& shared_;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_TOOLS_REPLAY_MEMORY_POOL_H_
