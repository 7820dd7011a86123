// One operation of one worker, while it lasts: what Operations knows of it.
//
// Threading. One thread only. Shared by the callbacks of its Client.

#ifndef FIRNKV_TESTS_SIM_OPERATION_H_
#define FIRNKV_TESTS_SIM_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/lookup.h"
#include "client/read.h"
#include "client/view.h"
#include "client/write.h"
#include "proto/base/clock.h"
#include "proto/base/text.h"
#include "tests/sim/key_space.h"
#include "tests/sim/operations.h"

namespace firnkv {

struct SimOperation {
  std::uint64_t number = 0;
  std::string kind;
  SimWorker* worker = nullptr;
  std::uint64_t life = 0;
  std::uint64_t pauses = 0;
  BootTime began;
  std::int64_t began_true = 0;
  absl::Duration deadline;
  std::size_t name_space = 0;
  std::size_t clears_seen = 0;
  bool quiet = false;
  bool leading_run = false;
  std::vector<PlannedBlock> blocks;
  Operations::Done done;

  // One a block.
  std::vector<std::vector<std::byte>> memory;
  std::vector<absl::Span<std::byte>> bytes;  // In `memory` or shared.
  std::vector<std::uint64_t> salts;
  std::vector<std::vector<Buffer>> read_buffers;
  std::vector<std::vector<ConstBuffer>> write_buffers;
  std::vector<ReadTarget> read_targets;
  std::vector<WriteBlock> write_blocks;
  std::vector<ExistsTarget> exists_targets;
  std::vector<RemoveTarget> remove_targets;
  std::byte* shared = nullptr;
  // Of its one block, before it is scribbled on; and whether it was.
  std::vector<std::uint32_t> checksums;
  bool scribbled = false;

  // Views, what was seen in them at first, and whether that changed beneath.
  ViewBatch views;
  std::vector<bool> changed;
  int looks_left = 0;
  absl::Duration between_looks;

  std::vector<Outcome> outcomes;
  bool outcome_came = false;
  bool free_came = false;

  std::string Name() const {
    return StrCat("#", number, " ", kind, " of ", blocks.size(), " by ",
                  worker->options().name, ".", life);
  }
};

// `bytes` as one to four buffers.
template <typename B, typename S>
std::vector<B> Pieces(S bytes, SimExecutor* world) {
  std::vector<B> pieces;
  std::size_t at = 0;
  const std::size_t many = 1 + world->random()->Below(4);
  for (std::size_t i = 0; i < many && at < bytes.size(); ++i) {
    const std::size_t rest = bytes.size() - at;
    const std::size_t take =
        i + 1 == many ? rest : 1 + world->random()->Below(rest);
    B piece;
    piece.address = bytes.data() + at;
    piece.length = take;
    pieces.push_back(piece);
    at += take;
  }
  return pieces;
}

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_OPERATION_H_
