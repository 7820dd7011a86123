#include "client/opened_views.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "client/counters.h"
#include "client/node_client.h"
#include "client/session.h"
#include "proto/base/text.h"

// ASan, and TSan (mutex.h says FIRNKV_TSAN).
#if defined(__SANITIZE_ADDRESS__)
#define FIRNKV_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIRNKV_ASAN 1
#endif
#endif

namespace firnkv {

bool ChecksViewsByDefault() {
#if !defined(NDEBUG) || defined(FIRNKV_ASAN) || defined(FIRNKV_TSAN)
  return true;
#else
  return false;
#endif
}

// --- The tie.

bool ViewTie::Use(absl::FunctionRef<void(const ClientParts&)> use) {
  bool ran = false;
  scope_.Wrap([&] {
    use(parts_);
    ran = true;
  })();
  return ran;
}

void ViewTie::Close() { scope_.Close(); }

bool ViewTie::forked() const { return ::getpid() != pid_; }

void ViewTie::Keep(std::unique_ptr<MemoryMapping> revoked) {
  std::unique_ptr<MemoryMapping> oldest;  // Unmapped without the lock.
  MutexLock lock(&mutex_);
  revoked_.push_back(std::move(revoked));
  if (revoked_.size() <= kMostRevoked) return;
  oldest = std::move(revoked_.front());
  revoked_.pop_front();
}

// --- Opened.

OpenedViews::OpenedViews(std::shared_ptr<ViewTie> tie, std::size_t blocks,
                         CallSite opened_at)
    : tie_(std::move(tie)), opened_at_(opened_at), blocks_(blocks) {}

OpenedViews::~OpenedViews() {
  const bool forgotten =
      !closed_ &&
      std::any_of(blocks_.begin(), blocks_.end(), [](const Block& block) {
        return block.outcome == Outcome::kHit;
      });
  if (forgotten && tie_ != nullptr) {
    tie_->Use([&](const ClientParts& parts) {
      parts.counters->views_dropped.Add();
      if (!tie_->check() || !parts.options->log) return;
      parts.options->log(StrCat("views opened at ", opened_at_.file, ":",
                                opened_at_.line, " were never closed"));
    });
  }
  LetGo();
}

void OpenedViews::Place(std::size_t index) {
  Block& block = blocks_[index];
  std::optional<SlotHeader> header;
  if (InBounds(block.mapped)) header = FirstLook(block.mapped);
  // Nothing has been read yet, so there is nothing to be wrong about: the node
  // broke its lease, or we our deadline.
  if (!header) return Unplace(index, Outcome::kUnavailable);
  if (lease_.verify) block.pieces = std::move(header->pieces);
  PointAt(&block);
  block.outcome = Outcome::kHit;
}

void OpenedViews::PointAt(Block* block) {
  for (const MappedBlock::Extent& extent : block->mapped.extents) {
    std::unique_ptr<MemoryMapping> alias;
    if (tie_->check()) {
      alias = extent.region->payload().Alias(extent.offset, extent.length);
    }
    block->spans.push_back(
        alias != nullptr
            ? absl::Span<const std::byte>(alias->bytes())
            : extent.region->bytes().subspan(extent.offset, extent.length));
    if (alias != nullptr) block->aliases.push_back(std::move(alias));
  }
}

void OpenedViews::Unplace(std::size_t index, Outcome outcome) {
  Block& block = blocks_[index];
  block.outcome = outcome;
  block.spans.clear();
  for (std::unique_ptr<MemoryMapping>& alias : block.aliases) {
    alias->Revoke();
    tie_->Keep(std::move(alias));
  }
  block.aliases.clear();
  block.mapped.extents.clear();
}

// The order decides. All uses of the bytes come first: the caller's, and ours
// where checksums count. Then the second look at each slot, which says whether
// those uses were of the block (mapped_region.cc). Then the clock and the
// session: that they are good now says that they were good all along, since
// neither comes back.
//
// The generation alone would do for bytes that this processor loaded. Lease and
// session are for what it cannot see: a device that copies while nobody looks,
// a region whose memory is punched after the session's end (rule P6).
std::vector<Outcome> OpenedViews::Close() {
  closed_ = true;
  std::vector<Outcome> verdicts;
  verdicts.reserve(blocks_.size());
  for (const Block& block : blocks_) {
    Outcome verdict = block.outcome;
    if (verdict == Outcome::kHit) {
      const bool sound =
          block.pieces.empty() || LiesSound(block.mapped, block.pieces);
      if (!SecondLook(block.mapped)) {
        verdict = Outcome::kUnavailable;
      } else if (!sound) {
        verdict = Outcome::kCorrupt;
      }
    }
    verdicts.push_back(verdict);
  }
  const bool alive =
      tie_ != nullptr && tie_->Use([&](const ClientParts& parts) {
        Lower(VerdictOfAll(parts), &verdicts);
        Account(parts, verdicts);
      });
  if (!alive) Lower(Outcome::kCancelled, &verdicts);
  LetGo();
  return verdicts;
}

Outcome OpenedViews::VerdictOfAll(const ClientParts& parts) const {
  if (parts.seams->clock->Now() >= lease_.believed_until) {
    return Outcome::kTimedOut;
  }
  if (parts.poison->broken() || !parts.session->IsLive(lease_.session)) {
    return Outcome::kUnavailable;
  }
  return Outcome::kHit;
}

void OpenedViews::Lower(Outcome whole, std::vector<Outcome>* verdicts) const {
  if (whole == Outcome::kHit) return;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].outcome == Outcome::kHit) (*verdicts)[i] = whole;
  }
}

void OpenedViews::Account(const ClientParts& parts,
                          const std::vector<Outcome>& verdicts) const {
  // Counted here first: an addition to a counter that all threads share costs
  // more than a block's verdict.
  std::array<std::uint64_t, kLastOutcome + 1> outcomes = {};
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const MappedBlock& mapped = blocks_[i].mapped;
    ++outcomes[static_cast<std::size_t>(verdicts[i])];
    if (verdicts[i] == Outcome::kHit) {
      bytes += mapped.length;
    } else if (verdicts[i] == Outcome::kCorrupt &&
               blocks_[i].outcome == Outcome::kHit) {
      parts.counters->corrupt_blocks.Add();
      // Rule P12: the node looks for itself.
      parts.node->ReportCorrupt(lease_.session, mapped.block.name_space,
                                mapped.block.key, mapped.generation);
    }
  }
  for (std::size_t number = 0; number < outcomes.size(); ++number) {
    if (outcomes[number] == 0) continue;
    parts.counters->view_outcomes[number].Add(outcomes[number]);
  }
  parts.counters->bytes_viewed.Add(bytes);
}

void OpenedViews::LetGo() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Unplace(i, blocks_[i].outcome);
  }
  if (tie_ == nullptr || lease_.id == 0) return;
  tie_->Use([&](const ClientParts& parts) {
    parts.node->ReleaseLater(lease_.session, lease_.id);
  });
  lease_.id = 0;
}

}  // namespace firnkv
