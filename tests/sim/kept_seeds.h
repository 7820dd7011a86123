// Seeds that once found something, and what. A schedule follows from its seed
// and from the simulation as it is: where that has grown since, the seed plays
// another schedule now, so what was found also has a test of its own beside the
// code that it was about.

#ifndef FIRNKV_TESTS_SIM_KEPT_SEEDS_H_
#define FIRNKV_TESTS_SIM_KEPT_SEEDS_H_

#include <cstdint>

namespace firnkv {

struct KeptSeed {
  std::uint64_t seed = 0;
  // Part of the test's name.
  const char* found = "";
};

inline constexpr KeptSeed kKeptSeeds[] = {
    // A remote reader found a corrupt copy and its node was never told (P12).
    {7, "CorruptCopyThatWasOnlyReadRemotely"},
    // A catalog of another cluster, after the loss of a disk, refused tokens:
    // its answer became kDenied.
    {12, "TokensRefusedByTheWrongCatalog"},
    // Streams that were let in with a token of before accept-restore gave
    // kDenied instead of making room for new ones.
    {17, "StreamsWithAnOutdatedToken"},
    // A node that was destroyed while somebody waited for room answered through
    // a write path that was gone.
    {51, "CompletionAfterItsWritePath"},
    // A read that had ended read its caller's blocks, given back by then.
    {84, "ReadOfBlocksThatWereGivenBack"},
    // After an outage the read that probes a node was refused by its own probe.
    {107, "ReadRefusedByItsOwnProbe"},
    // A write that ended at its deadline never heard what Reserve answered: its
    // slots were blocked for half a minute.
    {1270, "SlotsOfALateReserve"},
    // A client that died with what its ended session had sent unread: its
    // connection counted for ever (here the sockets' fake was wrong).
    {7329, "SessionOfAClientThatDiedUnreading"},
    // A client that died in the middle of a write gave staging back to a pool
    // that was gone.
    {8580, "WriteThatOutlivedItsStaging"},
    // A restarted node asked what a namespace is, was told of before a clear,
    // and registered after it: no heartbeat told it of that clear (C2).
    {3200, "AnswerFromBeforeARegistration"},
    // A node whose planned pause came between the death of its workers and the
    // look at what they had left (here the look was wrong).
    {207177, "PauseBeforeSessionsWereOver"},
    // A client that was stopped when its session broke and died so: as 7329.
    {1004811, "SessionOfAClientThatDiedStopped"},
    // A node left while the catalog died of writing that down (here the look
    // was wrong).
    {1009521, "LeaveThatTheCatalogDiedOf"},
    // A node that stood still copied what it had been committed before its
    // session ended, from staging in use again (here the look was wrong).
    {1010024, "CommitThatOutlivedItsSession"},
    {1042139, "CommitThatCameAfterItsSession"},
    // An accept-restore that came twice outdated the tokens that its answer had
    // the operator mint (here the operator looked at nothing else).
    {1038157, "AcceptRestoreThatCameTwice"},
    // Two accept-restores one after the other, of states from before the first:
    // the second raised clear epochs no higher, and readers that knew those of
    // the first were served nothing any more (A9).
    {1020061, "SecondAcceptRestoreNoHigherThanTheFirst"},
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_KEPT_SEEDS_H_
