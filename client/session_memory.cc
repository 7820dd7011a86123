// The half of Session that is about memory: regions mapped in, staging handed
// out. What begins and ends a session stands in session.cc.

#include <utility>

#include "client/session.h"
#include "proto/base/text.h"

namespace firnkv {

// --- Regions.

void Session::StartRegion(SessionId session, std::uint64_t region,
                          RegionDone done) {
  absl::StatusOr<std::shared_ptr<const MappedRegion>> now =
      absl::UnavailableError("the session has ended");
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kLive && welcome_->session == session) {
      if (!welcome_->mapping) {
        now = absl::FailedPreconditionError("this session maps nothing");
      } else if (Region& entry = regions_[region]; entry.mapped != nullptr) {
        now = entry.mapped;
      } else {
        entry.waiting.push_back(std::move(done));
        if (entry.waiting.size() == 1) {
          wanted_.push_back({region, DescriptorOf::kRegion});
          AskNextDescriptor();
        }
        now = absl::StatusOr<std::shared_ptr<const MappedRegion>>(nullptr);
      }
    }
  }
  if (now.ok() && *now == nullptr) return Flush();
  std::move(done)(std::move(now));
}

void Session::AskNextDescriptor() {
  if (asked_ || wanted_.empty()) return;
  asked_ = wanted_.front();
  wanted_.pop_front();
  ++asked_number_;
  Queue(EncodeDescriptorWanted(asked_->region, asked_->what), nullptr);
  SetTimer(kDescriptorTimeout, asked_number_, &Session::OnDescriptorTimeout);
}

// The protocol has stopped: only another session can go on.
void Session::OnDescriptorTimeout(std::uint64_t number) {
  std::uint64_t serial = 0;
  {
    MutexLock lock(&mutex_);
    if (!asked_ || asked_number_ != number) return;
    serial = serial_;
  }
  Lose(serial, absl::UnavailableError("a descriptor has not come"));
}

absl::Status Session::OnDescriptor(
    const DescriptorIs& message,
    absl::StatusOr<std::unique_ptr<MemoryMapping>> mapping,
    Afterwards* afterwards) {
  if (!asked_ || asked_->region != message.region ||
      asked_->what != message.what) {
    return absl::InternalError("the node sent a descriptor that nobody wanted");
  }
  Queue(EncodeDescriptorTaken(message.region, message.what), nullptr);
  asked_.reset();
  if (mapping.ok() && (*mapping)->bytes().size() != message.bytes) {
    mapping = absl::InternalError("memory of another size than was said");
  }
  if (!mapping.ok()) {
    Queue(EncodeRegionUnmapped(message.region), nullptr);
    FailRegion(message.region, mapping.status(), afterwards);
  } else if (message.what == DescriptorOf::kRegion) {
    regions_[message.region].payload = *std::move(mapping);
    wanted_.push_front({message.region, DescriptorOf::kHeaderTable});
  } else {
    OnTable(message.region, *std::move(mapping), afterwards);
  }
  AskNextDescriptor();
  return absl::OkStatus();
}

void Session::OnTable(std::uint64_t region,
                      std::unique_ptr<MemoryMapping> table,
                      Afterwards* afterwards) {
  const auto it = regions_.find(region);
  if (it == regions_.end() || it->second.payload == nullptr) return;
  Region& entry = it->second;
  auto opened = MappedRegion::Open(
      RegionId{welcome_->epoch, region}, std::move(entry.payload),
      std::move(table),
      // Views may keep it mapped for longer than there is a session to tell.
      scope_.Wrap(
          [this, serial = serial_, region] { OnUnmapped(serial, region); }));
  if (!opened.ok()) {
    Queue(EncodeRegionUnmapped(region), nullptr);
    return FailRegion(region, opened.status(), afterwards);
  }
  parts_.counters->regions_mapped.Add();
  // Shared: see MappedRegion.
  const std::shared_ptr<const MappedRegion> mapped = *std::move(opened);
  for (RegionDone& done : entry.waiting) {
    afterwards->push_back([done = std::move(done), mapped]() mutable {
      std::move(done)(std::move(mapped));
    });
  }
  entry.waiting.clear();
  // Retired while it was being mapped: those who wait get it, nobody later. The
  // last of them unmaps it, never under the lock.
  if (entry.retired) {
    afterwards->push_back([mapped] {});
    regions_.erase(it);
  } else {
    entry.mapped = mapped;
  }
}

void Session::FailRegion(std::uint64_t region, const absl::Status& why,
                         Afterwards* afterwards) {
  const auto it = regions_.find(region);
  if (it == regions_.end()) return;
  if (asked_ && asked_->region == region) asked_.reset();
  for (RegionDone& done : it->second.waiting) {
    afterwards->push_back(
        [done = std::move(done), why]() mutable { std::move(done)(why); });
  }
  // Unmapped without the lock.
  afterwards->push_back([mapped = std::move(it->second.mapped),
                         payload = std::move(it->second.payload)] {});
  regions_.erase(it);
}

void Session::OnRetired(std::uint64_t region, Afterwards* afterwards) {
  const auto it = regions_.find(region);
  if (it == regions_.end()) return;
  if (it->second.mapped == nullptr) {
    it->second.retired = true;
    return;
  }
  // The last copy under way unmaps it; here, if there is none.
  afterwards->push_back([mapped = std::move(it->second.mapped)] {});
  regions_.erase(it);
}

void Session::OnUnmapped(std::uint64_t serial, std::uint64_t region) {
  {
    MutexLock lock(&mutex_);
    if (serial != serial_ || state_ != State::kLive) return;
    Queue(EncodeRegionUnmapped(region), nullptr);
  }
  Flush();
}

// --- Staging.

std::uint64_t Session::AddStaging(std::shared_ptr<SharedMemory> memory) {
  std::uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    id = next_staging_++;
    Staging& staging = stagings_[id];
    staging.memory = std::move(memory);
    if (state_ == State::kLive) {
      Queue(EncodeAddStaging(id, staging.memory->bytes()), staging.memory);
    }
  }
  Flush();
  return id;
}

void Session::WhenAccepted(
    std::uint64_t staging,
    absl::AnyInvocable<void(const absl::Status&) &&> done) {
  absl::Status now = absl::UnavailableError("there is no session");
  {
    MutexLock lock(&mutex_);
    const auto it = stagings_.find(staging);
    if (state_ == State::kLive && it != stagings_.end()) {
      switch (it->second.answer) {
        case Staging::Answer::kNone:
          return it->second.waiting.push_back(std::move(done));
        case Staging::Answer::kAccepted:
          now = absl::OkStatus();
          break;
        case Staging::Answer::kRefused:
          now = absl::ResourceExhaustedError(it->second.reason);
          break;
      }
    }
  }
  std::move(done)(now);
}

void Session::OnStagingAnswer(std::uint64_t staging, Staging::Answer answer,
                              std::string reason, Afterwards* afterwards) {
  const auto it = stagings_.find(staging);
  if (it == stagings_.end()) return;
  it->second.answer = answer;
  it->second.reason = std::move(reason);
  const absl::Status status =
      answer == Staging::Answer::kAccepted
          ? absl::OkStatus()
          : absl::ResourceExhaustedError(it->second.reason);
  for (auto& done : it->second.waiting) {
    afterwards->push_back([done = std::move(done), status]() mutable {
      std::move(done)(status);
    });
  }
  it->second.waiting.clear();
}

}  // namespace firnkv
