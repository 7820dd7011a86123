// What a ViewBatch (view.h) holds, and the verdict on it; and the tie between
// batches and their Client, either of which may end first.
//
// Threading. OpenedViews as ViewBatch; ViewTie may be used from any thread.

#ifndef FIRNKV_CLIENT_OPENED_VIEWS_H_
#define FIRNKV_CLIENT_OPENED_VIEWS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "client/mapped_region.h"
#include "client/operation.h"
#include "client/transport/shared_memory.h"
#include "client/view.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"

namespace firnkv {

// Lets batches use their Client while it lives. Shared by the Client and its
// batches.
class ViewTie {
 public:
  // `check`: what ClientOptions::check_views says. `parts` are used until
  // Close.
  ViewTie(const ClientParts& parts, pid_t pid, bool check)
      : parts_(parts), pid_(pid), check_(check) {}

  // Runs `use` unless the Client has been closed; says whether it ran.
  bool Use(absl::FunctionRef<void(const ClientParts&)> use);
  // No use runs on return, and none from now on. Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // This process is a fork of the Client's (rule S6).
  bool forked() const;
  bool check() const { return check_; }
  // Keeps the addresses of closed views from being used again for a while: a
  // late use of them faults.
  void Keep(std::unique_ptr<MemoryMapping> revoked) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // An address range each; a process may have 65,530.
  static constexpr std::size_t kMostRevoked = 1024;

  const ClientParts parts_;
  const pid_t pid_;
  const bool check_;
  TaskScope scope_;
  Mutex mutex_;
  std::deque<std::unique_ptr<MemoryMapping>> revoked_ ABSL_GUARDED_BY(mutex_);
};

class OpenedViews {
 public:
  using Spans = absl::InlinedVector<absl::Span<const std::byte>, 1>;
  struct Block {
    Outcome outcome = Outcome::kUnset;
    // Of a hit; its regions stay mapped as long as this (rule P9).
    MappedBlock mapped;
    Spans spans;
    // What the spans point to under check_views; empty otherwise.
    absl::InlinedVector<std::unique_ptr<MemoryMapping>, 1> aliases;
    // Only where checksums are verified.
    std::vector<std::uint32_t> pieces;
  };
  // What the node has granted.
  struct Lease {
    SessionId session;
    // 0: nothing to release.
    std::uint64_t id = 0;
    // The lease, cut at the holder's 7/8 and at the caller's max_age.
    BootTime believed_until;
    // Checksums decide too (rule P10).
    bool verify = false;
  };

  // `tie` null: there is no Client to ask, as for calls that were refused.
  // Shared: see ViewTie.
  OpenedViews(std::shared_ptr<ViewTie> tie, std::size_t blocks,
              CallSite opened_at);
  ~OpenedViews();  // Drops what was not closed.

  // The process is a fork: nothing of this may be touched, not even freed.
  bool forked() const { return tie_ != nullptr && tie_->forked(); }

  std::vector<Block>& blocks() { return blocks_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  ViewReport& report() { return report_; }
  const Lease& lease() const { return lease_; }
  // Given back by Close or the destructor.
  void set_lease(const Lease& lease) { lease_ = lease; }

  // Block `index`, whose regions are mapped, becomes a hit if it is there now,
  // else kUnavailable.
  void Place(std::size_t index);
  // Nobody looks at block `index` any more; it ends with `outcome`.
  void Unplace(std::size_t index, Outcome outcome);

  // The verdicts; nothing is left open.
  std::vector<Outcome> Close();
  // Nobody looks at anything any more: what was granted goes back.
  void LetGo();

 private:
  // Where the spans of a block point.
  void PointAt(Block* block);
  // Of lease, session and Client: kHit, or why no view counts.
  Outcome VerdictOfAll(const ClientParts& parts) const;
  // Hits that `whole` lowers.
  void Lower(Outcome whole, std::vector<Outcome>* verdicts) const;
  void Account(const ClientParts& parts,
               const std::vector<Outcome>& verdicts) const;

  // Shared: see ViewTie.
  const std::shared_ptr<ViewTie> tie_;
  const CallSite opened_at_;
  ViewReport report_;
  Lease lease_;
  std::vector<Block> blocks_;
  bool closed_ = false;
};

// What ClientOptions::check_views is where it is not said: whether this is a
// debug or sanitizer build.
bool ChecksViewsByDefault();

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_OPENED_VIEWS_H_
