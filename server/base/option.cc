#include "server/base/option.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr Unit kUnits[] = {{"TiB", kGiB * 1024},
                           {"GiB", kGiB},
                           {"MiB", kMiB},
                           {"KiB", kKiB},
                           {"B", 1}};

absl::StatusOr<std::uint64_t> ParseBytes(std::string_view text) {
  const auto digits = std::find_if_not(
      text.begin(), text.end(),
      [](unsigned char c) { return std::isdigit(c) || c == '.'; });
  const std::string_view number =
      text.substr(0, static_cast<std::size_t>(digits - text.begin()));
  const std::string_view unit = text.substr(number.size());
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    double value = 0;
    if (!absl::SimpleAtod(ToAbsl(number), &value)) break;
    const double bytes = value * static_cast<double>(known.bytes);
    if (bytes > 9e18) break;
    return static_cast<std::uint64_t>(bytes);
  }
  return absl::InvalidArgumentError(
      StrCat("'", text,
             "' is not a size; write a number and one of B, KiB, MiB, "
             "GiB, TiB, like 512MiB"));
}

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  absl::Duration value;
  if (absl::ParseDuration(ToAbsl(text), &value)) return value;
  return absl::InvalidArgumentError(StrCat(
      "'", text,
      "' is not a duration; write a number and one of ms, s, m, h, like 10s"));
}

// `text` is what `value` was read from.
template <typename T>
absl::Status Within(const T& value, const T& least, const T& most,
                    std::string_view text, const std::string& bounds) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::OutOfRangeError(
      StrCat("'", text, "' is out of bounds; it must be ", bounds));
}

std::string Bounds(const std::string& least, const std::string& most,
                   bool bounded) {
  return bounded ? StrCat(least, " to ", most) : StrCat("at least ", least);
}

}  // namespace

void OptionList::Bytes(std::string name, std::uint64_t* target,
                       BytesBounds bounds) {
  Option option;
  option.name = std::move(name);
  option.kind = "bytes";
  option.takes = bounds.takes;
  option.default_text = FormatBytes(*target);
  option.bounds_text =
      Bounds(FormatBytes(bounds.least), FormatBytes(bounds.most),
             bounds.most != std::numeric_limits<std::int64_t>::max());
  option.set = [target, least = bounds.least, most = bounds.most,
                text = option.bounds_text](std::string_view value) {
    ASSIGN_OR_RETURN(const std::uint64_t bytes, ParseBytes(value));
    RETURN_IF_ERROR(Within(bytes, least, most, value, text));
    *target = bytes;
    return absl::OkStatus();
  };
  option.get = [target] { return FormatBytes(*target); };
  option.help = std::move(bounds.help);
  Add(std::move(option));
}

void OptionList::Duration(std::string name, absl::Duration* target,
                          DurationBounds bounds) {
  Option option;
  option.name = std::move(name);
  option.kind = "duration";
  option.takes = bounds.takes;
  option.default_text = absl::FormatDuration(*target);
  option.bounds_text = Bounds(absl::FormatDuration(bounds.least),
                              absl::FormatDuration(bounds.most),
                              bounds.most != absl::InfiniteDuration());
  option.set = [target, least = bounds.least, most = bounds.most,
                text = option.bounds_text](std::string_view value) {
    ASSIGN_OR_RETURN(const absl::Duration duration, ParseDuration(value));
    RETURN_IF_ERROR(Within(duration, least, most, value, text));
    *target = duration;
    return absl::OkStatus();
  };
  option.get = [target] { return absl::FormatDuration(*target); };
  option.help = std::move(bounds.help);
  Add(std::move(option));
}

void OptionList::Count(std::string name, std::uint64_t* target,
                       CountBounds bounds) {
  Option option;
  option.name = std::move(name);
  option.kind = "count";
  option.takes = bounds.takes;
  option.default_text = StrCat(*target);
  option.bounds_text =
      Bounds(StrCat(bounds.least), StrCat(bounds.most),
             bounds.most != std::numeric_limits<std::int64_t>::max());
  option.set = [target, least = bounds.least, most = bounds.most,
                text = option.bounds_text](std::string_view value) {
    std::uint64_t count = 0;
    if (!absl::SimpleAtoi(ToAbsl(value), &count)) {
      return absl::InvalidArgumentError(
          StrCat("'", value, "' is not a whole number"));
    }
    RETURN_IF_ERROR(Within(count, least, most, value, text));
    *target = count;
    return absl::OkStatus();
  };
  option.get = [target] { return StrCat(*target); };
  option.help = std::move(bounds.help);
  Add(std::move(option));
}

void OptionList::Text(std::string name, std::string* target,
                      TextBounds bounds) {
  Option option;
  option.name = std::move(name);
  option.kind = "text";
  option.takes = bounds.takes;
  option.default_text = *target;
  option.bounds_text =
      bounds.one_of.empty()
          ? ""
          : StrCat("one of ", absl::StrJoin(bounds.one_of, ", "));
  option.set = [target, one_of = std::move(bounds.one_of),
                check = std::move(bounds.check),
                text = option.bounds_text](std::string_view value) {
    if (value.size() > kMaxTextBytes) {
      return absl::OutOfRangeError(
          StrCat("is longer than ", kMaxTextBytes, " bytes"));
    }
    if (!one_of.empty() &&
        std::find(one_of.begin(), one_of.end(), value) == one_of.end()) {
      return absl::InvalidArgumentError(StrCat("'", value, "' is not ", text));
    }
    if (check != nullptr) RETURN_IF_ERROR(check(value));
    *target = std::string(value);
    return absl::OkStatus();
  };
  option.get = [target] { return *target; };
  option.help = std::move(bounds.help);
  Add(std::move(option));
}

void OptionList::Flag(std::string name, bool* target, FlagBounds bounds) {
  Option option;
  option.name = std::move(name);
  option.kind = "flag";
  option.takes = bounds.takes;
  option.default_text = *target ? "true" : "false";
  option.set = [target](std::string_view value) {
    if (value != "true" && value != "false") {
      return absl::InvalidArgumentError(
          StrCat("'", value, "' is not true or false"));
    }
    *target = value == "true";
    return absl::OkStatus();
  };
  option.get = [target]() -> std::string { return *target ? "true" : "false"; };
  option.help = std::move(bounds.help);
  Add(std::move(option));
}

void OptionList::List(std::string name, std::vector<std::string>* target,
                      ListBounds bounds) {
  Option option;
  option.name = std::move(name);
  option.kind = "list";
  option.takes = bounds.takes;
  option.default_text = StrCat("[", absl::StrJoin(*target, ", "), "]");
  option.bounds_text = StrCat("at most ", bounds.most, " values");
  option.set_list = [target, most = bounds.most,
                     check = std::move(bounds.check)](
                        const std::vector<std::string>& values) {
    if (values.size() > most) {
      return absl::OutOfRangeError(
          StrCat("has ", values.size(), " values, at most ", most));
    }
    for (const std::string& value : values) {
      if (check != nullptr) RETURN_IF_ERROR(check(value));
    }
    *target = values;
    return absl::OkStatus();
  };
  // Flags and the environment give a list as one comma-separated value.
  option.set = [set_list = option.set_list](std::string_view value) {
    return set_list(value.empty() ? std::vector<std::string>()
                                  : std::vector<std::string>(
                                        absl::StrSplit(ToAbsl(value), ',')));
  };
  option.get_list = [target] { return *target; };
  option.get = [target] {
    return StrCat("[", absl::StrJoin(*target, ", "), "]");
  };
  option.help = std::move(bounds.help);
  Add(std::move(option));
}

const Option* OptionList::Find(std::string_view name) const {
  for (const Option& option : options_) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

void OptionList::Add(Option option) {
  CHECK(Find(option.name) == nullptr);
  CHECK(!option.help.empty());
  options_.push_back(std::move(option));
}

std::string FormatBytes(std::uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes >= unit.bytes && bytes % unit.bytes == 0) {
      return StrCat(bytes / unit.bytes, unit.name);
    }
  }
  return StrCat(bytes, "B");
}

}  // namespace firnkv
