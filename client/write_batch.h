// What writes to the local node and to others have in common: what is checked
// before, the checksums of a block in pieces of memory, and what is counted at
// the end.
//
// Threading: functions.

#ifndef FIRNKV_CLIENT_WRITE_BATCH_H_
#define FIRNKV_CLIENT_WRITE_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "client/memory_kind.h"
#include "client/operation.h"
#include "client/write.h"
#include "proto/base/outcome.h"

namespace firnkv {

// Checks the request and makes the operation known to its Client. False: it has
// ended, and both callbacks of what `take_done` gave have run.
bool BeginWrite(const ClientParts& parts, const WriteRequest& request,
                std::shared_ptr<Operation> operation,
                absl::FunctionRef<WriteDone()> take_done);

// Of all its buffers.
std::uint64_t LengthOf(const WriteBlock& block);
// A length that no block of the namespace has.
bool IsWrongSize(const WriteRequest& request, std::uint64_t length);

// One checksum a piece of the `length` bytes of `source`, which are copied to
// `to` in the same pass; null: they stay where they are.
std::vector<std::uint32_t> StagePieces(absl::Span<const ConstBuffer> source,
                                       std::uint64_t length, std::byte* to);

// kStored or kAlreadyThere.
bool IsThere(Outcome outcome);

// Tells the block its outcome, and counts it.
void TellOutcome(const ClientParts& parts, Outcome outcome,
                 std::uint64_t length, WriteBlock* block, WriteReport* report);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_WRITE_BATCH_H_
