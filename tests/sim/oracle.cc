#include "tests/sim/oracle.h"

#include <algorithm>
#include <utility>

#include "proto/base/text.h"
#include "tests/sim/block_content.h"

namespace firnkv {
namespace {

// Far longer than any reservation of a schedule.
constexpr absl::Duration kLongestReservation = absl::Seconds(60);

std::string Name(const BlockId& block) {
  return StrCat(ToHex(block.name_space).substr(0, 8), "/",
                ToHex(block.key).substr(0, 8));
}

}  // namespace

std::uint64_t Oracle::BeginWrite(const BlockId& block, std::uint64_t length) {
  const std::uint64_t salt = next_salt_++;
  versions_[block].push_back(Version{salt, length, INT64_MAX});
  return salt;
}

void Oracle::EndStored(const BlockId& block, std::uint64_t salt) {
  SetStoredAt(block, salt, world_->true_nanos());
}

void Oracle::EndUnknown(const BlockId& block, std::uint64_t salt) {
  SetStoredAt(
      block, salt,
      world_->true_nanos() + absl::ToInt64Nanoseconds(kLongestReservation));
}

void Oracle::SetStoredAt(const BlockId& block, std::uint64_t salt,
                         std::int64_t when) {
  for (Version& version : versions_[block]) {
    if (version.salt == salt) version.stored_at = when;
  }
}

std::size_t Oracle::BeginClear(NamespaceId name_space) {
  std::vector<Clear>& clears = clears_[name_space];
  clears.push_back(Clear{.began = world_->true_nanos()});
  return clears.size();
}

void Oracle::EndClear(NamespaceId name_space, std::size_t number,
                      ClearEpoch epoch) {
  Clear& clear = clears_[name_space][number - 1];
  clear.ended = true;
  clear.epoch = epoch;
}

void Oracle::EndWait(NamespaceId name_space, std::size_t number) {
  clears_[name_space][number - 1].waited_for = world_->true_nanos();
}

std::size_t Oracle::ClearsUpTo(NamespaceId name_space, ClearEpoch epoch) const {
  auto it = clears_.find(name_space);
  if (it == clears_.end()) return 0;
  // A clear that ended raised the epoch above every one that began before it
  // ended, as far as those took effect at all: so only the last one counts.
  for (std::size_t i = it->second.size(); i > 0; --i) {
    if (it->second[i - 1].ended && it->second[i - 1].epoch <= epoch) return i;
  }
  return 0;
}

void Oracle::CheckHit(const BlockId& block, std::uint64_t offset,
                      absl::Span<const std::byte> bytes, const Reader& reader) {
  ++hits_checked_;
  auto it = versions_.find(block);
  if (it != versions_.end()) {
    // The latest first: most reads find it.
    for (std::size_t i = it->second.size(); i > 0; --i) {
      const Version& version = it->second[i - 1];
      if (offset + bytes.size() > version.length) continue;
      if (!BlockContent(block, version.salt).Matches(offset, bytes)) continue;
      CheckCleared(block, version, reader);
      return;
    }
  }
  Violation(StrCat("WRONG BYTES: ", reader.who, " read ", Name(block), " [",
                   offset, ", +", bytes.size(), ") and got ",
                   Recognize(bytes, offset)));
}

void Oracle::CheckCleared(const BlockId& block, const Version& version,
                          const Reader& reader) {
  auto it = clears_.find(block.name_space);
  if (it == clears_.end()) return;
  for (std::size_t i = 0; i < it->second.size(); ++i) {
    const Clear& clear = it->second[i];
    if (version.stored_at >= clear.began) continue;
    const bool seen = i < reader.clears_seen;
    const bool waited_for = clear.waited_for <= reader.began;
    if (clear.ended && (seen || waited_for || reader.quiet)) {
      Violation(StrCat("CLEARED BYTES: ", reader.who, " read ", Name(block),
                       " of before clear ", i + 1,
                       seen         ? ", which it had seen"
                       : waited_for ? ", which somebody had waited for"
                                    : ", long after it"));
      return;
    }
  }
}

std::string Oracle::Recognize(absl::Span<const std::byte> bytes,
                              std::uint64_t offset) const {
  const absl::Span<const std::byte> front =
      bytes.subspan(0, std::min<std::size_t>(bytes.size(), 64));
  const absl::Span<const std::byte> back =
      bytes.subspan(bytes.size() - front.size());
  std::string found;
  for (const auto& [block, versions] : versions_) {
    for (const Version& version : versions) {
      const BlockContent content(block, version.salt);
      if (content.Matches(offset, front)) {
        absl::StrAppend(&found, "; begins as ", Name(block), " salt ",
                        version.salt);
      }
      if (content.Matches(offset + bytes.size() - back.size(), back)) {
        absl::StrAppend(&found, "; ends as ", Name(block), " salt ",
                        version.salt);
      }
    }
  }
  const bool zeros = std::all_of(bytes.begin(), bytes.end(),
                                 [](std::byte b) { return b == std::byte{0}; });
  if (zeros) found += "; all zeros";
  return found.empty() ? "bytes of nobody" : found.substr(2);
}

void Oracle::Violation(std::string what) {
  world_->Note(what);
  violations_.push_back(std::move(what));
}

}  // namespace firnkv
