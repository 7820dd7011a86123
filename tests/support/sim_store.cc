#include "tests/support/sim_store.h"

#include <algorithm>
#include <utility>

namespace firnkv {
namespace {

std::size_t Index(Family family) { return static_cast<std::size_t>(family); }

}  // namespace

void SimStore::Play(absl::Span<const Write> batch, Families* families) {
  for (const Write& write : batch) {
    auto& family = (*families)[Index(write.family)];
    if (write.value.has_value()) {
      family[write.key] = *write.value;
    } else {
      family.erase(write.key);
    }
  }
}

absl::Status SimStore::Alive() const {
  if (killed_) return absl::UnavailableError("sim store: killed");
  return absl::OkStatus();
}

absl::Status SimStore::Apply(absl::Span<const Write> batch,
                             Durability durability) {
  MutexLock lock(&mutex_);
  if (absl::Status alive = Alive(); !alive.ok()) return alive;
  const bool last = crash_at_ != 0 && --crash_at_ == 0;
  if (last) killed_ = true;
  if (last && last_write_ == LastWrite::kLost) return Alive();

  ++writes_;
  Play(batch, &now_);
  tail_.emplace_back(batch.begin(), batch.end());
  if (durability == Durability::kSynced) {
    ++synced_writes_;
    for (const std::vector<Write>& logged : tail_) Play(logged, &durable_);
    tail_.clear();
  }
  return Alive();
}

absl::StatusOr<std::optional<std::string>> SimStore::Get(
    Family family, std::string_view key) const {
  MutexLock lock(&mutex_);
  if (absl::Status alive = Alive(); !alive.ok()) return alive;
  const auto& map = now_[Index(family)];
  const auto it = map.find(std::string(key));
  if (it == map.end()) return std::optional<std::string>();
  return std::optional<std::string>(it->second);
}

absl::StatusOr<std::vector<std::optional<std::string>>> SimStore::MultiGet(
    Family family, absl::Span<const std::string> keys) const {
  std::vector<std::optional<std::string>> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) {
    absl::StatusOr<std::optional<std::string>> value = Get(family, key);
    if (!value.ok()) return value.status();
    values.push_back(*std::move(value));
  }
  return values;
}

absl::Status SimStore::Scan(
    Family family, std::string_view prefix, std::string_view from,
    absl::FunctionRef<bool(std::string_view key, std::string_view value)> each)
    const {
  // A few at a time, so that `each` never runs under the lock.
  constexpr std::size_t kChunk = 64;
  std::string next(std::max(prefix, from));
  {
    MutexLock lock(&mutex_);
    ++scans_;
  }
  while (true) {
    std::vector<std::pair<std::string, std::string>> chunk;
    {
      MutexLock lock(&mutex_);
      if (absl::Status alive = Alive(); !alive.ok()) return alive;
      const auto& map = now_[Index(family)];
      for (auto it = map.lower_bound(next);
           it != map.end() && chunk.size() < kChunk; ++it) {
        if (it->first.compare(0, prefix.size(), prefix) != 0) break;
        chunk.emplace_back(*it);
      }
    }
    for (const auto& one : chunk) {
      if (!each(one.first, one.second)) return absl::OkStatus();
    }
    if (chunk.size() < kChunk) return absl::OkStatus();
    next = chunk.back().first + '\0';
  }
}

void SimStore::Kill() {
  MutexLock lock(&mutex_);
  killed_ = true;
}

void SimStore::CrashAtWrite(std::uint64_t n, LastWrite last) {
  MutexLock lock(&mutex_);
  crash_at_ = n;
  last_write_ = last;
}

bool SimStore::killed() const {
  MutexLock lock(&mutex_);
  return killed_;
}

void SimStore::Reopen() {
  MutexLock lock(&mutex_);
  killed_ = false;
  crash_at_ = 0;
}

void SimStore::PowerCut(Random* random) {
  MutexLock lock(&mutex_);
  const std::size_t kept =
      random == nullptr || tail_.empty()
          ? 0
          : static_cast<std::size_t>(random->Below(tail_.size() + 1));
  for (std::size_t i = 0; i < kept; ++i) Play(tail_[i], &durable_);
  tail_.clear();
  now_ = durable_;
  killed_ = false;
  crash_at_ = 0;
}

void SimStore::Wipe() { Load(Families{}); }

SimStore::Families SimStore::Snapshot() const {
  MutexLock lock(&mutex_);
  return now_;
}

void SimStore::Load(const Families& families) {
  MutexLock lock(&mutex_);
  now_ = families;
  durable_ = families;
  tail_.clear();
  killed_ = false;
  crash_at_ = 0;
}

std::uint64_t SimStore::writes() const {
  MutexLock lock(&mutex_);
  return writes_;
}

std::uint64_t SimStore::scans() const {
  MutexLock lock(&mutex_);
  return scans_;
}

std::uint64_t SimStore::synced_writes() const {
  MutexLock lock(&mutex_);
  return synced_writes_;
}

std::size_t SimStore::size(Family family) const {
  MutexLock lock(&mutex_);
  return now_[Index(family)].size();
}

}  // namespace firnkv
