// Operations that are submitted now and whose results are drained later, by an
// engine whose loop waits on descriptors: one descriptor a Client, readable
// while something has finished that was not drained.
//
//     const int fd = *client->CompletionFd();      // Into epoll or asyncio.
//     const CompletionId id = *client->SubmitRead(request);
//     ...
//     // Once fd is readable:
//     for (Completion& one : client->DrainCompletions()) {
//       if (const auto* read = std::get_if<ReadReport>(&one.result)) ...
//     }
//
// An operation is finished when both its ends are over (ReadDone): its outcomes
// stand in the caller's structs, and its buffers are the caller's again. Spans
// and buffers of a request stay alive and untouched until then.
//
// Each submitted operation finishes exactly once, also by its deadline and by
// Client::Close; results may be drained after Close, and go with the Client.

#ifndef FIRNKV_CLIENT_COMPLETION_H_
#define FIRNKV_CLIENT_COMPLETION_H_

#include <cstddef>
#include <cstdint>
#include <variant>

#include "client/lookup.h"
#include "client/read.h"
#include "client/view.h"
#include "client/write.h"

namespace firnkv {

// Names one submitted operation of one Client; never reused, never zero.
enum class CompletionId : std::uint64_t { kNone = 0 };

struct Completion {
  CompletionId id = CompletionId::kNone;
  // By what was submitted. A ViewBatch is open: closing it is the caller's.
  std::variant<ReadReport, WriteReport, ViewBatch, ExistsReport> result;
};

// Submitted and not drained, of one Client; beyond it a submit is
// RESOURCE_EXHAUSTED and nothing was begun.
inline constexpr std::size_t kMaxUndrained = 4096;

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_COMPLETION_H_
