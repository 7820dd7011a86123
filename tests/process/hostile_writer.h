// Attacks by writes over the stream: blocks that are not what was reserved,
// payloads that are not what was announced, reservations that nobody fills, and
// what is another tenant's.
//
// Threading. One thread.

#ifndef FIRNKV_TESTS_PROCESS_HOSTILE_WRITER_H_
#define FIRNKV_TESTS_PROCESS_HOSTILE_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/process/hostile_stream.h"
#include "tests/process/hostile_world.h"

namespace firnkv {

// Hellos with tokens that are forged, cut short, of another session that has
// ended or of none: how many were served, of how many.
absl::StatusOr<Tally> ForgeTokens(HostileWorld* world);

// Writes of every wrong kind, each on a stream of its own: tried; ended, those
// that the node hung up on; wrong, those of its outcomes that are not what the
// attack deserves; hits, blocks of the attack that can be read afterwards.
absl::StatusOr<Tally> BreakWrites(HostileWorld* world);

// Writes into and asks about namespace `hex`, which is another tenant's: told,
// the outcomes that are not kDenied.
absl::StatusOr<Tally> WriteIntoForeign(HostileWorld* world,
                                       const std::string& hex);

// `count` streams that reserve all that they get, send half of a block, and
// stall; held in `held`: reserved, congested.
absl::StatusOr<Tally> StallWrites(HostileWorld* world, std::uint64_t count,
                                  std::vector<HostileStream>* held);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_HOSTILE_WRITER_H_
