#include "client/view.h"

#include <utility>

#include "client/opened_views.h"

namespace firnkv {
namespace {

const ViewReport& EmptyReport() {
  static const ViewReport* const kEmpty = new ViewReport;
  return *kEmpty;
}

// Not even freed in a forked child: locks of the parent may be held for ever
// there (rule S6).
void End(std::unique_ptr<OpenedViews> opened) {
  if (opened != nullptr && opened->forked()) (void)opened.release();
}

}  // namespace

ViewBatch::ViewBatch() = default;
ViewBatch::ViewBatch(std::unique_ptr<OpenedViews> opened)
    : opened_(std::move(opened)) {}
ViewBatch::ViewBatch(ViewBatch&& other) noexcept = default;
ViewBatch& ViewBatch::operator=(ViewBatch&& other) noexcept {
  // `other` may be this.
  std::unique_ptr<OpenedViews> opened = std::move(other.opened_);
  End(std::move(opened_));
  opened_ = std::move(opened);
  return *this;
}
ViewBatch::~ViewBatch() { End(std::move(opened_)); }

std::size_t ViewBatch::size() const {
  return opened_ == nullptr ? 0 : opened_->blocks().size();
}

const ViewReport& ViewBatch::report() const {
  return opened_ == nullptr ? EmptyReport() : opened_->report();
}

Outcome ViewBatch::outcome(std::size_t index) const {
  if (index >= size()) return Outcome::kUnavailable;
  return opened_->blocks()[index].outcome;
}

absl::Span<const absl::Span<const std::byte>> ViewBatch::spans(
    std::size_t index) const {
  if (index >= size()) return {};
  return opened_->blocks()[index].spans;
}

std::uint64_t ViewBatch::length(std::size_t index) const {
  if (outcome(index) != Outcome::kHit) return 0;
  return opened_->blocks()[index].mapped.length;
}

std::vector<Outcome> ViewBatch::Close() && {
  std::unique_ptr<OpenedViews> opened = std::move(opened_);
  if (opened == nullptr) return {};
  if (!opened->forked()) return opened->Close();
  std::vector<Outcome> verdicts;
  for (const OpenedViews::Block& block : opened->blocks()) {
    verdicts.push_back(block.outcome == Outcome::kHit ? Outcome::kUnavailable
                                                      : block.outcome);
  }
  End(std::move(opened));
  return verdicts;
}

}  // namespace firnkv
