// Request traces: when requests came, how long they were, and which blocks of
// which chain their prompts had.
//
// One JSON value a line, in any order of its fields, others ignored:
//
//     {"timestamp": 0, "input_length": 1300, "output_length": 52,
//      "hash_ids": [0, 14, 15]}
//
// timestamp is in milliseconds, lengths are in tokens. An id stands for its
// block *and all before it* in the prompt: equal ids, equal prefixes. The last
// block may be partial; it is dropped, since engines store full blocks only.
//
// A decoder of outside bytes: every bound is checked before memory is taken,
// and what is wrong is said with its line.
//
// Threading: none; plain values and functions.

#ifndef FIRNKV_TOOLS_REPLAY_TRACE_H_
#define FIRNKV_TOOLS_REPLAY_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace firnkv {

// One line. At 512 tokens a block the longest prompts of today, 2M tokens, have
// 4,096 ids of at most 20 digits: 90 KiB. At 16 tokens a block, 32 times that.
inline constexpr std::size_t kMaxTraceLineBytes = 4 << 20;
// Blocks of one request.
inline constexpr std::size_t kMaxTraceIds = 1 << 18;
// Requests, and blocks of all of them: 2 GiB of ids.
inline constexpr std::size_t kMaxTraceRequests = 1 << 24;
inline constexpr std::size_t kMaxTraceReferences = 1 << 28;

struct TraceRequest {
  // From the trace's start.
  absl::Duration at;
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::vector<std::uint64_t> ids;
};

struct Trace {
  // In order of arrival; every one with its full blocks only.
  std::vector<TraceRequest> requests;
  // Blocks of all requests, and how many different ones.
  std::size_t references = 0;
  std::size_t distinct = 0;
  std::uint64_t input_tokens = 0;
};

struct TraceOptions {
  std::uint32_t block_tokens = 512;
  // Requests that arrive later are left out, and those beyond so many.
  absl::Duration first = absl::InfiniteDuration();
  std::size_t most_requests = kMaxTraceRequests;
};

// One line, with all its ids. INVALID_ARGUMENT says what is wrong and at which
// column.
absl::StatusOr<TraceRequest> ParseTraceLine(std::string_view line);

// The whole of `in`, checked and sorted by arrival. INVALID_ARGUMENT naming the
// line, also where ids and tokens do not agree at `block_tokens`, and where an
// id is seen after two different ones (then it stands for no chain).
absl::StatusOr<Trace> ReadTrace(std::istream& in, const TraceOptions& options);

// NOT_FOUND or PERMISSION_DENIED where the file cannot be opened.
absl::StatusOr<Trace> ReadTraceFile(const std::string& path,
                                    const TraceOptions& options);

// As ReadTrace reads it. Trailing partial blocks have no id, and need none.
void WriteTrace(const Trace& trace, std::ostream& out);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_TRACE_H_
