// Attacks by staging: memory that is none, or that changes under the node.
//
// Threading. One thread; ScribbleDuringCommits has another of its own, which
// has ended on return.

#ifndef FIRNKV_TESTS_PROCESS_HOSTILE_STAGING_H_
#define FIRNKV_TESTS_PROCESS_HOSTILE_STAGING_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tests/process/hostile_world.h"

namespace firnkv {

// Hands over descriptors of every wrong kind, each in a session of its own:
// how many were accepted, by name; how many refused, how many ended the
// session. One right one, "right", shows that the rest could have been.
absl::StatusOr<Tally> LendWrongKinds(HostileWorld* world,
                                     const std::string& folder);

// Shrinks, grows and punches staging that the node has, then commits a block
// from the hole.
absl::StatusOr<Tally> CommitFromAHole(HostileWorld* world,
                                      std::uint64_t number);

// Commits blocks [from, from + count) while another thread changes their bytes
// without end. stored, corrupt: the outcomes; wrong: blocks in the pool whose
// bytes are not those that the commit named.
absl::StatusOr<Tally> ScribbleDuringCommits(HostileWorld* world,
                                            std::uint64_t from,
                                            std::uint64_t count);

// Lends what it may and more until it is refused; pieces and MiB accepted.
absl::StatusOr<Tally> LendWithoutEnd(HostileWorld* world);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_HOSTILE_STAGING_H_
