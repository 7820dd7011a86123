// What a worker does with the SDK, to be measured: connects, writes, reads,
// looks at views, asks. The commands are those of sdk_program.cc.
//
// Everything is verified as the SDK verifies it, in every figure; with check=1
// every byte that was read is compared besides, with what was written.
//
// Threading. One thread; measuring commands start their own.

#ifndef FIRNKV_TOOLS_BENCH_SDK_WORKER_H_
#define FIRNKV_TOOLS_BENCH_SDK_WORKER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/chain.h"
#include "client/client.h"
#include "tools/bench/command_loop.h"
#include "tools/bench/landing.h"

namespace firnkv {

class SdkWorker {
 public:
  // A namespace and the blocks of it that are read.
  struct BlockSet {
    NamespaceHandle name_space;
    std::vector<Chain::Block> blocks;
    // Of each block.
    std::uint64_t bytes = 0;
    // Where the next batch begins; goes round.
    std::atomic<std::uint64_t> next{0};
    // The number of the next block that is new.
    std::uint64_t next_new = 0;
  };

  // connect client=NAME socket=PATH uid=UID | catalog=ADDRESS token=TOKEN
  // further: map=0, threads=2, streams=4, frames=0 (calls by gRPC alone)
  absl::StatusOr<Counts> Connect(const Command& command);
  // close client=NAME
  absl::StatusOr<Counts> Close(const Command& command);
  // open client= name= bytes=SIZE (of each block; 0: of any)
  absl::StatusOr<Counts> Open(const Command& command);
  // fill client= name= blocks=COUNT published=0: writes what is not there
  absl::StatusOr<Counts> Fill(const Command& command);
  // keys name= blocks=COUNT of=TOTAL: of blocks that others have announced
  absl::StatusOr<Counts> Keys(const Command& command);

  // read client= name= count= threads=1 millis= check=0
  absl::StatusOr<Counts> Read(const Command& command);
  // paced client= name= count= hertz= millis=: p50 and p99 of one thread's
  absl::StatusOr<Counts> Paced(const Command& command);
  // views client= name= count= threads=1 millis=
  absl::StatusOr<Counts> Views(const Command& command);
  // exists client= name= count= threads=1 millis=
  absl::StatusOr<Counts> Exists(const Command& command);
  // write client= name= count= shared=0 millis=: blocks that are new
  absl::StatusOr<Counts> Write(const Command& command);
  // write_odd client= name= bytes=TOTAL: blocks of odd sizes, 4 KiB to 16 MiB
  absl::StatusOr<Counts> WriteOdd(const Command& command);

  // stats client=: what the Client counts, releases left out of `calls`
  absl::StatusOr<Counts> Stats(const Command& command);

 private:
  absl::StatusOr<Client*> ClientOf(const Command& command) const;
  absl::StatusOr<BlockSet*> SetOf(const Command& command) const;

  std::map<std::string, std::unique_ptr<Client>> clients_;
  std::map<std::string, std::unique_ptr<BlockSet>> sets_;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_BENCH_SDK_WORKER_H_
