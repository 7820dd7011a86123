#include "tools/firnkv/progress_bar.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "proto/base/text.h"
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

constexpr std::size_t kCells = 30;
constexpr absl::Duration kBetween = absl::Milliseconds(100);

}  // namespace

ProgressBar::ProgressBar(std::string what, std::uint64_t all, Style style,
                         std::ostream* out, const Clock* clock)
    : what_(std::move(what)),
      all_(std::max<std::uint64_t>(all, 1)),
      style_(style),
      out_(*out),
      clock_(*clock),
      began_(clock->Now()),
      next_(began_) {}

std::string ProgressBar::Line(std::uint64_t done) const {
  const std::size_t cells = kCells * done / all_;
  std::string line =
      StrCat(what_, "  [", std::string(cells, '#'),
             std::string(kCells - cells, '.'), "]  ", 100 * done / all_, " %  ",
             FormatCount(done), " of ", FormatCount(all_));
  const absl::Duration so_far = clock_.Now() - began_;
  if (done > 0 && done < all_) {
    const absl::Duration left =
        so_far * (static_cast<double>(all_ - done) / static_cast<double>(done));
    StrAppend(&line, "  ", absl::ToInt64Seconds(left), " s left");
  }
  return line;
}

bool ProgressBar::IsTime(std::uint64_t done) {
  if (style_ == Style::kLines) {
    const std::uint64_t tenth = 10 * done / all_;
    if (tenth < next_tenth_) return false;
    next_tenth_ = tenth + 1;
    return true;
  }
  const BootTime now = clock_.Now();
  if (done < all_ && now < next_) return false;
  next_ = now + kBetween;
  return true;
}

void ProgressBar::Show(std::uint64_t done) {
  done = std::min(done, all_);
  if (!IsTime(done)) return;
  if (style_ == Style::kLines) {
    out_ << Line(done) << '\n' << std::flush;
    return;
  }
  drawn_ = true;
  // Over the line before, and to its end.
  out_ << '\r' << Line(done) << "\x1b[K" << std::flush;
}

void ProgressBar::End() {
  if (std::exchange(drawn_, false)) out_ << '\n' << std::flush;
}

}  // namespace firnkv
