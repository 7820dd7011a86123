#include "server/tier/memory_limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/bytes.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::string_view kCgroups = "/sys/fs/cgroup";
// Version 1 says "no limit" as the largest multiple of a page.
constexpr std::uint64_t kNoLimit = INT64_MAX / 4096 * 4096;

// nullopt where the file is not there or cannot be read.
std::optional<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file),
                   std::istreambuf_iterator<char>()};
  if (file.bad()) return std::nullopt;
  return text;
}

// Takes everything up to the first `end` off the front of `text`, and `end`.
std::string_view TakeUpTo(char end, std::string_view* text) {
  const std::string_view taken = text->substr(0, text->find(end));
  text->remove_prefix(std::min(taken.size() + 1, text->size()));
  return taken;
}

// A decimal number at the front of `text`; what follows it does not matter.
std::optional<std::uint64_t> ParseNumber(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  std::uint64_t number = 0;
  const auto end =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadWhole(path);
  return text ? ParseNumber(*text) : std::nullopt;
}

// Of the line "name number [unit]".
std::optional<std::uint64_t> FieldOf(std::string_view text,
                                     std::string_view name) {
  while (!text.empty()) {
    std::string_view line = TakeUpTo('\n', &text);
    if (TakeUpTo(' ', &line) == name) return ParseNumber(line);
  }
  return std::nullopt;
}

// Whether the comma-separated `list` names `word`.
bool Names(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (TakeUpTo(',', &list) == word) return true;
  }
  return false;
}

// "/a/b" -> "/a/b", "/a", "": a cgroup and its ancestors up to the root of the
// hierarchy.
std::vector<std::string> Ancestry(std::string_view path) {
  std::vector<std::string> levels;
  while (path.size() > 1 && path.front() == '/') {
    levels.emplace_back(path);
    path = path.substr(0, path.rfind('/'));
  }
  levels.emplace_back();
  return levels;
}

std::uint64_t Left(std::uint64_t limit, std::uint64_t used) {
  return limit > used ? limit - used : 0;
}

}  // namespace

SystemMemoryLimits::SystemMemoryLimits(std::string root)
    : root_(std::move(root)) {}

absl::StatusOr<MemoryLimits::Reading> SystemMemoryLimits::Read() const {
  const std::optional<std::string> meminfo =
      ReadWhole(StrCat(root_, "/proc/meminfo"));
  const std::optional<std::uint64_t> available_kib =
      meminfo ? FieldOf(*meminfo, "MemAvailable:") : std::nullopt;
  if (!available_kib) {
    return absl::FailedPreconditionError(
        StrCat(root_, "/proc/meminfo says no MemAvailable"));
  }
  Reading reading;
  reading.available_bytes = *available_kib * kKiB;
  reading.limited_by = "the machine";

  const auto take = [&reading](const std::optional<Limit>& limit,
                               const std::string& name) {
    if (!limit) return;
    const std::uint64_t left = Left(limit->limit_bytes, limit->used_bytes);
    if (left > reading.available_bytes) return;
    reading.available_bytes = left;
    reading.limit_bytes = limit->limit_bytes;
    reading.limited_by = StrCat(name, limit->which);
  };
  // Lines "number:controllers:path"; version 2 is "0::path".
  const std::string cgroups =
      ReadWhole(StrCat(root_, "/proc/self/cgroup")).value_or("");
  for (std::string_view rest = cgroups; !rest.empty();) {
    std::string_view path = TakeUpTo('\n', &rest);
    const std::string_view number = TakeUpTo(':', &path);
    const std::string_view controllers = TakeUpTo(':', &path);
    for (const std::string& level : Ancestry(path)) {
      const std::string name = level.empty() ? "/" : level;
      if (number == "0" && controllers.empty()) {
        // Where both versions are mounted, version 2 lies beside the
        // controllers.
        for (const std::string_view mount : {"", "/unified"}) {
          const std::string folder = StrCat(root_, kCgroups, mount, level);
          take(ReadVersion2(folder), StrCat("cgroup v2 ", name));
          reading.out_of_memory += OutOfMemoryVersion2(folder);
        }
      } else if (Names(controllers, "memory")) {
        const std::string folder = StrCat(root_, kCgroups, "/memory", level);
        take(ReadVersion1(folder), StrCat("cgroup v1 ", name));
        reading.out_of_memory += OutOfMemoryVersion1(folder);
      }
    }
  }
  return reading;
}

std::optional<SystemMemoryLimits::Limit> SystemMemoryLimits::ReadVersion2(
    std::string_view folder) const {
  // "max", and no file at all at the root, is no limit.
  const std::uint64_t max =
      ReadNumber(StrCat(folder, "/memory.max")).value_or(UINT64_MAX);
  const std::uint64_t high =
      ReadNumber(StrCat(folder, "/memory.high")).value_or(UINT64_MAX);
  const std::optional<std::uint64_t> used =
      ReadNumber(StrCat(folder, "/memory.current"));
  if (std::min(max, high) == UINT64_MAX || !used) return std::nullopt;
  const std::string stat =
      ReadWhole(StrCat(folder, "/memory.stat")).value_or("");
  return Limit{
      .limit_bytes = std::min(max, high),
      .used_bytes = Left(*used, FieldOf(stat, "inactive_file").value_or(0)),
      .which = high < max ? ", memory.high" : ""};
}

std::optional<SystemMemoryLimits::Limit> SystemMemoryLimits::ReadVersion1(
    std::string_view folder) const {
  const std::optional<std::uint64_t> limit =
      ReadNumber(StrCat(folder, "/memory.limit_in_bytes"));
  const std::optional<std::uint64_t> used =
      ReadNumber(StrCat(folder, "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  const std::string stat =
      ReadWhole(StrCat(folder, "/memory.stat")).value_or("");
  // A container cannot see its ancestors, but the least of their limits.
  const std::uint64_t least = std::min(
      *limit, FieldOf(stat, "hierarchical_memory_limit").value_or(*limit));
  if (least >= kNoLimit) return std::nullopt;
  return Limit{.limit_bytes = least,
               .used_bytes = Left(
                   *used, FieldOf(stat, "total_inactive_file").value_or(0)),
               .which = least < *limit ? ", an ancestor of it" : ""};
}

std::uint64_t SystemMemoryLimits::OutOfMemoryVersion2(
    std::string_view folder) const {
  // Not memory.events: that one counts a sibling's failures at its own limit
  // too, in every common ancestor.
  const std::string events =
      ReadWhole(StrCat(folder, "/memory.events.local")).value_or("");
  return FieldOf(events, "oom").value_or(0);
}

std::uint64_t SystemMemoryLimits::OutOfMemoryVersion1(
    std::string_view folder) const {
  const std::string control =
      ReadWhole(StrCat(folder, "/memory.oom_control")).value_or("");
  return FieldOf(control, "oom_kill").value_or(0);
}

}  // namespace firnkv
