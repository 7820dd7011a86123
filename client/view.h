// Views: blocks read where they lie in the local node's pool, without a copy.
//
// A view is a promise that is checked afterwards: the bytes may change beneath
// a reader that is too slow, so what was read from a view counts only if its
// Close, after the last use, says kHit. What was not kHit is thrown away as if
// it had never been read.
//
//     firnkv::ViewBatch views = client->OpenViews({
//         .name_space = granite,
//         .keys = keys,
//         .deadline = absl::Milliseconds(8),
//     });
//     for (std::size_t i = 0; i < views.report().leading_hits; ++i) {
//       for (absl::Span<const std::byte> span : views.spans(i)) Use(span);
//     }
//     WaitForTheLastUse();  // Device copies too.
//     const std::vector<firnkv::Outcome> verdicts = std::move(views).Close();
//
// A batch opens many blocks with one call and closes them with none: the
// verdict is decided in this process, the leases are given back later, in a
// batch with others.
//
// Only the local node's DRAM can be viewed. A block that it lacks is kMiss here
// though other nodes may have it: Read (read.h) goes further. So it is with a
// session that may not map (rule P10): its views are kUnavailable and the
// report says FAILED_PRECONDITION; Read serves it by the stream.
//
// Verdicts of blocks that were opened as kHit (others keep their outcome):
//
//     kHit          what was read is the block
//     kTimedOut     older than max_age, or than the lease that was granted
//     kUnavailable  the session has ended, or the slot was given away; open
//                   again, or Read
//     kCorrupt      only where the node wants checksums verified (rule P10:
//                   this process could write what it maps): they failed
//     kCancelled    the Client was closed
//
// Threading. A ViewBatch belongs to one thread at a time. Spans may be read by
// any threads, all of whose uses happen before Close. Neither Close nor the
// destructor waits for anything.
//
// Ownership. The caller owns the batch, which may outlive its Client: spans
// stay readable until the batch is closed or destroyed, whatever becomes of
// session, node or Client. In a forked child every call on a batch says
// kUnavailable and its destructor does nothing (rule S6).

#ifndef FIRNKV_CLIENT_VIEW_H_
#define FIRNKV_CLIENT_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/namespace.h"
#include "client/read.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"

namespace firnkv {

class OpenedViews;

// The oldest that a view may get: its holder stops at 7/8 (rule A7) of the 30 s
// after which the node ends the session that still looks (rule P9), 26.25 s.
inline constexpr absl::Duration kLongestViewAge = absl::Seconds(26);

struct OpenViewsRequest {
  NamespaceHandle name_space;
  // Blocks of one chain, in its order; at most kMaxBatchKeys, none twice. Read
  // during the call only.
  absl::Span<const BlockKey> keys;
  // Of the opening, as ReadRequest's.
  absl::Duration deadline;
  // kLeadingRun: what follows the first block that is no hit is kSkipped.
  ReadWant want = ReadWant::kLeadingRun;
  // For how long after the call the views shall count; positive, at most
  // kLongestViewAge. The node keeps the slots for that long if the batch is not
  // closed before, so ask for what is needed. Nothing prolongs it: a lease that
  // had to be renewed would be lost just when the node wants the slots.
  absl::Duration max_age = absl::Seconds(5);
  TrafficClass traffic = TrafficClass::kForeground;
  TraceId trace;
};

struct ViewReport {
  // INVALID_ARGUMENT where the request itself was wrong, FAILED_PRECONDITION
  // where this session may not map, CANCELLED after Close of the Client; OK
  // otherwise, whatever the outcomes.
  absl::Status status;
  // How many outcomes at the front are kHit.
  std::size_t leading_hits = 0;
  std::size_t hits = 0;
  // Of the hits.
  std::uint64_t bytes = 0;
  // Of the kCongested ones the longest; zero where there is none.
  absl::Duration retry_after;
  // How much longer than the end of the opening a Close may say kHit.
  absl::Duration good_for;
  absl::Duration took;
};

// Where in the caller's code a batch was opened: said of one that is forgotten.
struct CallSite {
  static constexpr CallSite Here(const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    return CallSite{file, line};
  }
  const char* file = "";
  int line = 0;
};

class [[nodiscard]] ViewBatch {
 public:
  // Of no blocks.
  ViewBatch();
  // Only the SDK can make one of these.
  explicit ViewBatch(std::unique_ptr<OpenedViews> opened);
  ViewBatch(ViewBatch&& other) noexcept;
  // What this batch had is dropped, as the destructor does.
  ViewBatch& operator=(ViewBatch&& other) noexcept;
  // Gives back what was not closed; counted as ClientStats::views_dropped, and
  // logged under ClientOptions::check_views.
  ~ViewBatch();

  // As many as the request had keys; 0 once closed or moved away, where all
  // below say as little: no spans, kUnavailable, an empty report.
  std::size_t size() const;
  const ViewReport& report() const;
  Outcome outcome(std::size_t index) const;
  // The block's bytes in order; empty unless its outcome is kHit.
  absl::Span<const absl::Span<const std::byte>> spans(std::size_t index) const;
  // Of all its spans.
  std::uint64_t length(std::size_t index) const;

  // The verdict on each block, in the order of the keys. Afterwards the spans
  // must not be touched; where ClientOptions::check_views is on, that faults.
  [[nodiscard]] std::vector<Outcome> Close() &&;

 private:
  // Null: of no blocks.
  std::unique_ptr<OpenedViews> opened_;
};

// Runs exactly once, at the deadline at the latest, on a client thread or
// inside the call, under no lock; it must not block and may start another
// operation.
using OpenViewsDone = absl::AnyInvocable<void(ViewBatch) &&>;

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_VIEW_H_
