// A catalog's store in memory, with what a disk does to it: a power cut loses
// the tail that was not synced, a kill of the process loses nothing that was
// logged, and any write may be the last one.
//
//     SimStore store;
//     store.CrashAtWrite(3);         // The third write from now is the last.
//     ... run a catalog over it until its writes fail ...
//     store.PowerCut(&random);       // What was not synced is (partly) gone.
//     ... make a new catalog over it ...
//
// What survives a power cut is a prefix: batches are lost from the end, never
// in the middle and never in part, and a synced batch keeps all before it.
//
// Threading. Thread-safe.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_STORE_H_
#define FIRNKV_TESTS_SUPPORT_SIM_STORE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "server/catalog/store.h"

namespace firnkv {

class SimStore : public Store {
 public:
  absl::Status Apply(absl::Span<const Write> batch,
                     Durability durability) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::optional<std::string>> Get(
      Family family, std::string_view key) const override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::vector<std::optional<std::string>>> MultiGet(
      Family family, absl::Span<const std::string> keys) const override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Scan(
      Family family, std::string_view prefix, std::string_view from,
      absl::FunctionRef<bool(std::string_view key, std::string_view value)>
          each) const override ABSL_LOCKS_EXCLUDED(mutex_);

  // The process that uses the store dies, now: every call fails from now on,
  // until Reopen.
  void Kill() ABSL_LOCKS_EXCLUDED(mutex_);
  // Write number `n` from now (1 is the next) still happens if `lands`, and is
  // answered with a failure either way: nobody learns of it. As Kill from then
  // on.
  enum class LastWrite : std::uint8_t { kLost, kLands };
  void CrashAtWrite(std::uint64_t n, LastWrite last = LastWrite::kLands)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool killed() const ABSL_LOCKS_EXCLUDED(mutex_);

  // After a kill: the store can be used again, with all that was logged.
  void Reopen() ABSL_LOCKS_EXCLUDED(mutex_);
  // Kill and Reopen of the whole machine: of the batches after the last synced
  // one a prefix survives, of a length that `random` decides; none where it is
  // null.
  void PowerCut(Random* random) ABSL_LOCKS_EXCLUDED(mutex_);
  // The disk is lost: an empty store.
  void Wipe() ABSL_LOCKS_EXCLUDED(mutex_);

  // A backup, or a copied directory: everything as it is now, as a store of its
  // own would see it.
  using Families = std::array<std::map<std::string, std::string>, kFamilies>;
  Families Snapshot() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Load(const Families& families) ABSL_LOCKS_EXCLUDED(mutex_);

  std::uint64_t writes() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::uint64_t synced_writes() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Scans begun: seeks of a disk.
  std::uint64_t scans() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Keys in one family.
  std::size_t size(Family family) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static void Play(absl::Span<const Write> batch, Families* families);
  absl::Status Alive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  // What readers see.
  Families now_ ABSL_GUARDED_BY(mutex_);
  // What a power cut leaves: `now_` without `tail_`.
  Families durable_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::vector<Write>> tail_ ABSL_GUARDED_BY(mutex_);
  bool killed_ ABSL_GUARDED_BY(mutex_) = false;
  // 0: no crash is planned.
  std::uint64_t crash_at_ ABSL_GUARDED_BY(mutex_) = 0;
  LastWrite last_write_ ABSL_GUARDED_BY(mutex_) = LastWrite::kLands;
  std::uint64_t writes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t synced_writes_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::uint64_t scans_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_STORE_H_
