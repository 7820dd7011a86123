#include "client/retry.h"

#include <algorithm>

namespace firnkv {

absl::Duration Backoff::Next(Random* random) {
  delay_ = delay_ == absl::ZeroDuration() ? options_.first
                                          : std::min(delay_ * 2, options_.most);
  const std::int64_t half = absl::ToInt64Nanoseconds(delay_) / 2;
  const std::uint64_t more =
      half > 0 ? random->Below(static_cast<std::uint64_t>(half) + 1) : 0;
  return absl::Nanoseconds(half) +
         absl::Nanoseconds(static_cast<std::int64_t>(more));
}

bool Breaker::MayAsk(BootTime now) {
  if (!WouldAsk(now)) return false;
  if (!closed()) probing_ = true;
  return true;
}

bool Breaker::TakeProbe(BootTime now) { return !closed() && MayAsk(now); }

void Breaker::Succeeded() {
  failures_ = 0;
  probing_ = false;
  backoff_.Reset();
}

void Breaker::Failed(BootTime now, Random* random) {
  probing_ = false;
  failures_ = std::min(failures_ + 1, kFailures);
  if (failures_ == kFailures && now >= open_until_) {
    open_until_ = now + backoff_.Next(random);
  }
}

void Breaker::FailedForSure(BootTime now, Random* random) {
  failures_ = kFailures;
  Failed(now, random);
}

void RetryBudget::Earn(std::int64_t tries) {
  MutexLock lock(&mutex_);
  purse_ = std::min(purse_ + tries * kEarnedPerTry, kMost * kCostOfRetry);
}

bool RetryBudget::Spend() {
  MutexLock lock(&mutex_);
  if (purse_ < kCostOfRetry) return false;
  purse_ -= kCostOfRetry;
  return true;
}

}  // namespace firnkv
