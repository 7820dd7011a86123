// Attacks by names and by numbers: sessions, leases and reservations that are
// guessed; connections and messages without end.
//
// Threading. One thread.

#ifndef FIRNKV_TESTS_PROCESS_HOSTILE_FLOOD_H_
#define FIRNKV_TESTS_PROCESS_HOSTILE_FLOOD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/process/hostile_world.h"

namespace firnkv {

// Calls with session ids that are none, over, or said in the wrong place
// (`tcp`: the node's gRPC there): how many were served.
absl::StatusOr<Tally> GuessSessions(HostileWorld* world,
                                    const std::string& tcp);
// Leases and reservations 1 to `count`, which others have: renewed, committed.
absl::StatusOr<Tally> GuessHandles(HostileWorld* world, std::uint64_t count);

// `count` sessions ask for a descriptor and never take it: sent, ended.
absl::StatusOr<Tally> LeaveInFlight(HostileWorld* world, std::uint64_t count);
// `count` sessions ask for a descriptor again and again, say each time that
// they have taken it, and receive nothing; a session that is ended goes on as
// another one, and its socket stays open. All are held in `held`.
absl::StatusOr<Tally> ClaimInFlight(
    HostileWorld* world, std::uint64_t count,
    std::vector<std::unique_ptr<HostileSession>>* held);
// Sends descriptors that nobody asked for, before and after the hello.
absl::StatusOr<Tally> SendUnexpected(HostileWorld* world);
// Sessions and silent connections until `count`: opened, refused; all are held
// at once, and dropped on return.
absl::StatusOr<Tally> OpenWithoutEnd(HostileWorld* world, std::uint64_t count);
// Connections to the node's gRPC for its sessions until `count`: opened, those
// that it speaks on, and refused; all are held at once.
absl::StatusOr<Tally> OpenControlWithoutEnd(HostileWorld* world,
                                            std::uint64_t count);
// Garbage packets, each on a connection of its own, and calls that nobody waits
// for.
absl::StatusOr<Tally> Flood(HostileWorld* world, std::uint64_t count);

// Streams to "host:port": garbage, leads with lengths that cannot be, hellos
// that stop in the middle. How many of them the node ended.
absl::StatusOr<Tally> FloodStream(const std::string& address,
                                  std::uint64_t count);

// Says hello from a user namespace of its own, in which its uid is root:
// served, refused; `unshared` 0 where this machine makes none.
Tally SpeakFromAnotherNamespace(const std::string& socket);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_HOSTILE_FLOOD_H_
