// How far a long piece of work is: one moving line on a terminal, elsewhere a
// line every tenth of it.
//
//     replay  [##########..........]  52 %  910 of 1,750  12 s left
//
// Threading: none.

#ifndef FIRNKV_TOOLS_FIRNKV_PROGRESS_BAR_H_
#define FIRNKV_TOOLS_FIRNKV_PROGRESS_BAR_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "proto/base/clock.h"

namespace firnkv {

class ProgressBar {
 public:
  enum class Style : std::uint8_t { kMoving, kLines };

  // Both outlive it.
  ProgressBar(std::string what, std::uint64_t all, Style style,
              std::ostream* out, const Clock* clock);

  // A moving one is drawn at most ten times a second, and always at its end.
  void Show(std::uint64_t done);
  // Ends the line, once anything was drawn.
  void End();

 private:
  std::string Line(std::uint64_t done) const;
  bool IsTime(std::uint64_t done);

  const std::string what_;
  const std::uint64_t all_;
  const Style style_;
  std::ostream& out_;
  const Clock& clock_;
  const BootTime began_;
  // When to draw again, of a moving one; of the other, at which tenth.
  BootTime next_;
  std::uint64_t next_tenth_ = 0;
  bool drawn_ = false;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_PROGRESS_BAR_H_
