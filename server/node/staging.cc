#include "server/node/staging.h"

#include <utility>

#include "absl/status/status.h"
#include "proto/base/check.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

// One accepted piece of memory. Its end, when the last copy out of it has
// stopped, unmaps it and gives its share of the caps back.
class Staging::Mapped {
 public:
  Mapped(Staging* owner, SessionId session, TenantId tenant,
         std::unique_ptr<MemoryMapping> mapping)
      : owner_(owner),
        session_(session),
        tenant_(tenant),
        mapping_(std::move(mapping)) {}
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    const std::uint64_t size = bytes().size();
    mapping_.reset();
    owner_->Refund(session_, tenant_, size);
  }

  absl::Span<const std::byte> bytes() const { return mapping_->bytes(); }

 private:
  Staging* const owner_;
  const SessionId session_;
  const TenantId tenant_;
  std::unique_ptr<MemoryMapping> mapping_;
};

Staging::~Staging() {
  {
    absl::flat_hash_map<SessionId, SessionState> sessions;
    {
      MutexLock lock(&mutex_);
      sessions.swap(sessions_);
      // What is charged stays so until it is unmapped, right here.
      for (auto& [session, state] : sessions) {
        sessions_[session].use = state.use;
      }
    }
  }
  MutexLock lock(&mutex_);
  CHECK(mapped_bytes_ == 0);
}

absl::Status Staging::Charge(SessionId session, TenantId tenant,
                             std::uint64_t bytes) {
  const auto over = [bytes](const Use& use, std::uint64_t max_bytes,
                            std::size_t max_count) {
    return use.count >= max_count || bytes > max_bytes ||
           use.bytes > max_bytes - bytes;
  };
  MutexLock lock(&mutex_);
  const auto state = sessions_.find(session);
  const Use own = state == sessions_.end() ? Use{} : state->second.use;
  if (over(own, options_.max_bytes_a_session, options_.max_count_a_session)) {
    return absl::ResourceExhaustedError(
        StrCat("staging of the session: ", own.count, " with ", own.bytes,
               " bytes; at most ", options_.max_count_a_session, " with ",
               options_.max_bytes_a_session));
  }
  const auto all = tenants_.find(tenant);
  const Use theirs = all == tenants_.end() ? Use{} : all->second;
  if (over(theirs, options_.max_bytes_a_tenant, options_.max_count_a_tenant)) {
    return absl::ResourceExhaustedError(
        StrCat("staging of the tenant: ", theirs.count, " with ", theirs.bytes,
               " bytes; at most ", options_.max_count_a_tenant, " with ",
               options_.max_bytes_a_tenant));
  }
  for (Use* use : {&sessions_[session].use, &tenants_[tenant]}) {
    use->bytes += bytes;
    ++use->count;
  }
  mapped_bytes_ += bytes;
  return absl::OkStatus();
}

void Staging::Refund(SessionId session, TenantId tenant, std::uint64_t bytes) {
  MutexLock lock(&mutex_);
  mapped_bytes_ -= bytes;
  const auto all = tenants_.find(tenant);
  CHECK(all != tenants_.end() && all->second.count > 0);
  all->second.bytes -= bytes;
  if (--all->second.count == 0) tenants_.erase(all);
  const auto state = sessions_.find(session);
  CHECK(state != sessions_.end() && state->second.use.count > 0);
  state->second.use.bytes -= bytes;
  if (--state->second.use.count == 0 && state->second.stagings.empty()) {
    sessions_.erase(state);
  }
}

absl::Status Staging::Add(SessionId session, TenantId tenant, std::uint64_t id,
                          std::uint64_t bytes,
                          std::shared_ptr<SharedMemory> memory) {
  if (id == 0) return absl::InvalidArgumentError("staging 0 names none");
  if (memory == nullptr || bytes == 0 || memory->bytes() != bytes) {
    return absl::InvalidArgumentError(
        StrCat("staging ", id, " was said to have ", bytes, " bytes and has ",
               memory == nullptr ? 0 : memory->bytes()));
  }
  RETURN_IF_ERROR(Annotate(memory->CheckStagingSeals(), "staging"));
  // Charged first: what is mapped is always within the caps.
  RETURN_IF_ERROR(Charge(session, tenant, bytes));
  absl::StatusOr<std::unique_ptr<MemoryMapping>> mapping =
      memory->Map(MapAccess::kRead);
  if (!mapping.ok()) {
    Refund(session, tenant, bytes);
    return absl::ResourceExhaustedError(
        StrCat("staging ", id, ": ", ToStd(mapping.status().message())));
  }
  CHECK((*mapping)->bytes().size() == bytes);
  // Shared with copies in flight.
  auto mapped =
      std::make_shared<Mapped>(this, session, tenant, *std::move(mapping));
  MutexLock lock(&mutex_);
  if (!sessions_[session].stagings.try_emplace(id, mapped).second) {
    return absl::InvalidArgumentError(
        StrCat("staging ", id, " is there already"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StagingRange> Staging::Resolve(SessionId session,
                                              std::uint64_t id,
                                              std::uint64_t offset,
                                              std::uint64_t length) const {
  std::shared_ptr<Mapped> mapped;  // Shared: as in the table.
  {
    MutexLock lock(&mutex_);
    const auto state = sessions_.find(session);
    if (state != sessions_.end()) {
      const auto it = state->second.stagings.find(id);
      if (it != state->second.stagings.end()) mapped = it->second;
    }
  }
  if (mapped == nullptr) {
    return absl::InvalidArgumentError(StrCat("there is no staging ", id));
  }
  const absl::Span<const std::byte> bytes = mapped->bytes();
  if (offset > bytes.size() || length > bytes.size() - offset) {
    return absl::InvalidArgumentError(StrCat("staging ", id, " has ",
                                             bytes.size(), " bytes; ", offset,
                                             " + ", length, " is beyond"));
  }
  return StagingRange{.bytes = bytes.subspan(offset, length),
                      .keeps_mapped = std::move(mapped)};
}

void Staging::Drop(SessionId session, std::uint64_t id) {
  std::shared_ptr<Mapped> dropped;  // Unmapped after the lock, if at all.
  MutexLock lock(&mutex_);
  const auto state = sessions_.find(session);
  if (state == sessions_.end()) return;
  const auto it = state->second.stagings.find(id);
  if (it == state->second.stagings.end()) return;
  dropped = std::move(it->second);
  state->second.stagings.erase(it);
}

void Staging::EndSession(SessionId session) {
  absl::flat_hash_map<std::uint64_t, std::shared_ptr<Mapped>> dropped;
  MutexLock lock(&mutex_);
  const auto state = sessions_.find(session);
  if (state != sessions_.end()) dropped.swap(state->second.stagings);
}

std::uint64_t Staging::mapped_bytes() const {
  MutexLock lock(&mutex_);
  return mapped_bytes_;
}

}  // namespace firnkv
