// A store that remembers its first failed write. After one the catalog knows no
// longer what is on disk, so it stops serving (store.h) until it is started
// anew.
//
// Threading. As the store that it forwards to, which must outlive it.

#ifndef FIRNKV_SERVER_CATALOG_WATCHED_STORE_H_
#define FIRNKV_SERVER_CATALOG_WATCHED_STORE_H_

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "server/catalog/store.h"

namespace firnkv {

class WatchedStore : public Store {
 public:
  explicit WatchedStore(Store* store) : store_(store) {}

  // OK, or how the first write that failed did; never OK again then, and no
  // further write is tried.
  absl::Status health() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return health_;
  }

  absl::Status Apply(absl::Span<const Write> batch,
                     Durability durability) override
      ABSL_LOCKS_EXCLUDED(mutex_) {
    if (absl::Status broken = health(); !broken.ok()) return broken;
    absl::Status status = store_->Apply(batch, durability);
    if (!status.ok()) {
      status = absl::UnavailableError(std::string("catalog store failed: ") +
                                      std::string(status.message()));
      MutexLock lock(&mutex_);
      if (health_.ok()) health_ = status;
    }
    return status;
  }
  absl::StatusOr<std::optional<std::string>> Get(
      Family family, std::string_view key) const override {
    return store_->Get(family, key);
  }
  absl::StatusOr<std::vector<std::optional<std::string>>> MultiGet(
      Family family, absl::Span<const std::string> keys) const override {
    return store_->MultiGet(family, keys);
  }
  absl::Status Scan(
      Family family, std::string_view prefix, std::string_view from,
      absl::FunctionRef<bool(std::string_view key, std::string_view value)>
          each) const override {
    return store_->Scan(family, prefix, from, each);
  }

 private:
  Store* const store_;
  mutable Mutex mutex_;
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_WATCHED_STORE_H_
