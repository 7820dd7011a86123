// How a component declares its options: once, beside the struct that it reads
// them from. From the declarations come the YAML loader, the flags, the
// environment variables, --print-config, and docs/CONFIG.md.
//
//     void Describe(EvictorOptions* options, OptionList* list) {
//       list->Bytes("dram.bytes", &options->dram_bytes,
//                   {.help = "Target size of the DRAM pool.",
//                    .least = 64 * kMiB, .most = 16 * kTiB});
//     }
//
// The default is the value that the target has when it is described. Names are
// dotted: "dram.bytes" is `dram: {bytes: 1GiB}` in YAML, --dram-bytes as a flag
// and FIRNKV_DRAM_BYTES in the environment.
//
// Threading: none; used at start. Targets outlive the list.

#ifndef FIRNKV_SERVER_BASE_OPTION_H_
#define FIRNKV_SERVER_BASE_OPTION_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace firnkv {

// Whether a new value takes effect in a running daemon.
enum class OptionTakes : std::uint8_t { kRestart, kLive };

struct Option {
  std::string name;
  std::string help;
  // "bytes", "duration", "count", "text", "flag", "list".
  std::string kind;
  std::string default_text;
  // "64MiB to 16TiB"; empty where anything goes.
  std::string bounds_text;
  OptionTakes takes = OptionTakes::kRestart;
  // Parses and stores, or says what is wrong with the value (unit, bounds).
  std::function<absl::Status(std::string_view)> set;
  // A list's: all values at once.
  std::function<absl::Status(const std::vector<std::string>&)> set_list;
  std::function<std::string()> get;
  std::function<std::vector<std::string>()> get_list;
};

class OptionList {
 public:
  struct BytesBounds {
    std::string help;
    std::uint64_t least = 0;
    std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    OptionTakes takes = OptionTakes::kRestart;
  };
  // Values need a unit: "512MiB", "1GiB", "4096B"; binary units only.
  void Bytes(std::string name, std::uint64_t* target, BytesBounds bounds);

  struct DurationBounds {
    std::string help;
    absl::Duration least = absl::ZeroDuration();
    absl::Duration most = absl::InfiniteDuration();
    OptionTakes takes = OptionTakes::kRestart;
  };
  // Values need a unit: "250ms", "10s", "5m".
  void Duration(std::string name, absl::Duration* target,
                DurationBounds bounds);

  struct CountBounds {
    std::string help;
    std::uint64_t least = 0;
    std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    OptionTakes takes = OptionTakes::kRestart;
  };
  // std::size_t is std::uint64_t here.
  void Count(std::string name, std::uint64_t* target, CountBounds bounds);

  struct TextBounds {
    std::string help;
    // Empty: anything up to 4 KiB.
    std::vector<std::string> one_of;
    // Says what is wrong with a value; null: nothing more than that.
    std::function<absl::Status(std::string_view)> check;
    OptionTakes takes = OptionTakes::kRestart;
  };
  void Text(std::string name, std::string* target, TextBounds bounds);

  struct FlagBounds {
    std::string help;
    OptionTakes takes = OptionTakes::kRestart;
  };
  // "true" or "false".
  void Flag(std::string name, bool* target, FlagBounds bounds);

  struct ListBounds {
    std::string help;
    std::size_t most = 1024;
    // Says what is wrong with one value; null: anything.
    std::function<absl::Status(std::string_view)> check;
    OptionTakes takes = OptionTakes::kRestart;
  };
  void List(std::string name, std::vector<std::string>* target,
            ListBounds bounds);

  absl::Span<const Option> options() const { return options_; }
  // Null where there is none.
  const Option* Find(std::string_view name) const;

 private:
  void Add(Option option);
  std::vector<Option> options_;
};

// "512MiB": in the largest unit in which it is whole; what Bytes parses.
std::string FormatBytes(std::uint64_t bytes);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_OPTION_H_
