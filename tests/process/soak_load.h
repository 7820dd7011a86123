// What one worker of the soak does over and over: reads a chain, compares every
// byte of every hit, and writes what is missing.
//
// Chains are numbered; each has a home, the node at which it is written, and is
// read from all. A block's size and bytes follow from its key (and namespace),
// so whoever reads it can check it. Sizes are from 4 KiB to 16 MiB, half of
// them at most 32 KiB, and 50 KiB on average.
//
// Threading. One thread.

#ifndef FIRNKV_TESTS_PROCESS_SOAK_LOAD_H_
#define FIRNKV_TESTS_PROCESS_SOAK_LOAD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/chain.h"
#include "client/client.h"
#include "client/view.h"
#include "proto/base/clock.h"
#include "proto/base/random.h"
#include "tests/process/soak_page.h"

namespace firnkv {

// Of a block in the soak.
std::uint64_t SoakBlockBytes(const BlockKey& key);

class SoakLoad {
 public:
  struct Options {
    NamespaceHandle name_space;
    std::uint64_t seed = 0;
    // Chains in all; the home of chain `c` is node 1 + c mod nodes.
    std::uint64_t chains = 0;
    int nodes = 1;
    // Number of the local node.
    int here = 1;
    // ClientOptions::buffer_grace of the client.
    absl::Duration grace;
  };

  // `client` and `page` outlive it.
  SoakLoad(const Options& options, Client* client, SoakPage* page);

  // One chain, viewed, or read and perhaps written.
  void Round();
  // Writes a chain, all of it, and reads it: once all is quiet, every one can
  // be. Counts by outcome: what is not `read_hit` in the end could not.
  std::map<std::string, std::int64_t> WriteToTheEnd();

 private:
  struct Plan {
    std::vector<Chain::Block> blocks;
    std::vector<std::uint64_t> sizes;
    std::uint64_t bytes = 0;
  };
  // Times one call and notes whether it ended when it must.
  class Timed;

  const Plan& PlanOf(std::uint64_t chain);
  std::uint64_t PickChain();
  absl::Duration PickDeadline();
  bool OneIn(std::uint64_t n) { return random_.Below(n) == 0; }

  // Outcomes by block.
  std::vector<Outcome> Read(const Plan& plan, ReadWant want,
                            absl::Duration deadline);
  // The blocks that are no hit.
  std::vector<Outcome> Write(const Plan& plan,
                             const std::vector<Outcome>& found,
                             absl::Duration deadline);
  // Compares where the blocks lie, then asks whether that counts.
  void LookAtViews(const Plan& plan, absl::Duration deadline);
  // How many bytes of the block are wrong.
  std::size_t CountWrong(const BlockKey& key,
                         absl::Span<const std::byte> bytes);
  void NoteHit(const BlockKey& key, std::size_t bytes, std::size_t wrong);

  const Options options_;
  Client* const client_;
  SoakPage* const page_;
  SystemClock clock_;
  SeededRandom random_;
  std::map<std::uint64_t, Plan> plans_;
  std::vector<std::byte> landing_;
  std::vector<std::byte> private_source_;
  // Staging of the client's; empty where there is none.
  absl::Span<std::byte> shared_source_;
  std::uint64_t stream_blocks_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_SOAK_LOAD_H_
