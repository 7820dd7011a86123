#include "client/open_views_operation.h"

#include <algorithm>
#include <utility>

#include "client/clear_epochs.h"
#include "client/counters.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// What to ask for, so that the holder's 7/8 of it are `age`; a millisecond more
// since the wire has whole ones.
absl::Duration LeaseFor(absl::Duration age) {
  return age * kLeaseHolderDenominator / kLeaseHolderNumerator +
         absl::Milliseconds(1);
}

}  // namespace

void OpenViewsOperation::Start(const ClientParts& parts,
                               const OpenViewsRequest& request,
                               CallSite opened_at, OpenViewsDone done) {
  // Shared: see the class.
  const auto operation = std::make_shared<OpenViewsOperation>(
      parts, request, opened_at, std::move(done));
  operation->Begin();
}

ViewBatch OpenViewsOperation::Refuse(std::size_t keys, Outcome outcome,
                                     absl::Status status) {
  auto opened = std::make_unique<OpenedViews>(nullptr, keys, CallSite());
  for (OpenedViews::Block& block : opened->blocks()) block.outcome = outcome;
  opened->report().status = std::move(status);
  return ViewBatch(std::move(opened));
}

OpenViewsOperation::OpenViewsOperation(const ClientParts& parts,
                                       const OpenViewsRequest& request,
                                       CallSite opened_at, OpenViewsDone done)
    : parts_(parts),
      name_space_(request.name_space),
      keys_(request.keys.begin(), request.keys.end()),
      leading_(request.want == ReadWant::kLeadingRun),
      max_age_(request.max_age),
      started_(parts.seams->clock->Now()),
      deadline_(request.deadline),
      context_{.deadline = started_ + request.deadline,
               .traffic = request.traffic,
               .trace = request.trace},
      done_(std::move(done)),
      // Shared with the Client, which may end first.
      opened_(
          std::make_unique<OpenedViews>(parts.views, keys_.size(), opened_at)),
      serials_(keys_.size()) {}

absl::Status OpenViewsOperation::Validate() const {
  if (max_age_ <= absl::ZeroDuration() || max_age_ > kLongestViewAge) {
    return absl::InvalidArgumentError(
        StrCat("a max_age of ", absl::FormatDuration(max_age_),
               "; it must be positive and at most ",
               absl::FormatDuration(kLongestViewAge)));
  }
  return CheckBatch(parts_, "an opening of views", deadline_, keys_);
}

void OpenViewsOperation::Begin() {
  absl::Status status = Validate();
  Outcome outcome = Outcome::kSkipped;
  if (status.ok() && !parts_.operations->Add(shared_from_this())) {
    outcome = Outcome::kCancelled;
    status = absl::CancelledError("the Client was closed");
  }
  if (!status.ok()) {
    OpenViewsDone done;
    {
      MutexLock lock(&mutex_);
      over_ = true;
      done = std::move(done_);
    }
    return std::move(done)(Refuse(keys_.size(), outcome, std::move(status)));
  }
  {
    MutexLock lock(&mutex_);
    clear_epoch_ = parts_.epochs->Highest(name_space_);
    timer_ = parts_.seams->executor->PostAt(
        context_.deadline, parts_.scope->Wrap([self = shared_from_this()] {
          self->End(Outcome::kTimedOut);
        }));
  }
  Ask();
}

void OpenViewsOperation::Ask() {
  if (keys_.empty()) return End(Outcome::kSkipped);
  const Session::Welcome welcome = parts_.session->welcome();
  if (welcome == nullptr) return End(Outcome::kUnavailable);
  if (!welcome->mapping) {
    {
      MutexLock lock(&mutex_);
      status_ = absl::FailedPreconditionError(
          "this session maps nothing, so it has no views: read instead");
    }
    return End(Outcome::kUnavailable);
  }
  NodeClient::OpenReadCall call;
  call.name_space = name_space_.id;
  call.keys = keys_;
  call.leading_run = leading_;
  call.for_view = true;
  call.lease = LeaseFor(max_age_);
  {
    MutexLock lock(&mutex_);
    call.clear_epoch = clear_epoch_;
  }
  parts_.node->StartOpenRead(
      context_, call,
      [self = shared_from_this(), welcome,
       asked_at = parts_.seams->clock->Now()](
          absl::StatusOr<NodeClient::OpenReadAnswer> answer) {
        self->OnOpened(asked_at, *welcome, std::move(answer));
      });
}

void OpenViewsOperation::OnOpened(
    BootTime asked_at, const SessionWelcome& welcome,
    absl::StatusOr<NodeClient::OpenReadAnswer> answer) {
  if (!answer.ok()) return End(OutcomeOf(answer.status()));
  parts_.epochs->Learn(name_space_.id, answer->clear_epoch);
  bool late = false;
  bool mapping = false;
  {
    MutexLock lock(&mutex_);
    late = over_;
    if (!late) {
      // Believed for less than it was granted, from before it was (rule A7).
      opened_->set_lease(
          {.session = answer->session,
           .id = answer->lease,
           .believed_until = std::min(asked_at + HolderTerm(answer->lease_time),
                                      started_ + max_age_),
           .verify = welcome.verify_views});
      opened_->report().retry_after = answer->retry_after;
      // Another session began just before the call: nothing is known of it.
      if (answer->session == welcome.session) {
        for (std::size_t i = 0; i < keys_.size(); ++i) {
          TakeGrant(i, answer->grants[i]);
        }
      }
      regions_left_ = regions_.size();
      mapping = regions_left_ > 0;
    }
  }
  if (late) {
    if (answer->lease == 0) return;
    return parts_.node->ReleaseLater(answer->session, answer->lease);
  }
  if (!mapping) return End(Outcome::kUnavailable);
  MapRegions();
}

void OpenViewsOperation::TakeGrant(std::size_t index,
                                   const NodeClient::Grant& grant) {
  OpenedViews::Block& block = opened_->blocks()[index];
  if (grant.outcome != Outcome::kHit) {
    // That it is not where a location said is an affair of remote reads.
    block.outcome = grant.outcome == Outcome::kStaleLocation ? Outcome::kMiss
                                                             : grant.outcome;
    return;
  }
  block.mapped.block = {name_space_.id, keys_[index]};
  block.mapped.digest = name_space_.digest;
  block.mapped.clear_epoch = clear_epoch_;
  block.mapped.generation = grant.generation;
  block.mapped.length = grant.length;
  for (const Extent& extent : grant.extents) {
    block.mapped.extents.push_back(
        {.region = nullptr, .offset = extent.offset, .length = extent.length});
    serials_[index].push_back(extent.memory);
    regions_.try_emplace(extent.memory);
  }
}

void OpenViewsOperation::MapRegions() {
  std::vector<std::uint64_t> serials;
  SessionId session;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    session = opened_->lease().session;
    for (const auto& [serial, region] : regions_) serials.push_back(serial);
  }
  for (const std::uint64_t serial : serials) {
    parts_.session->StartRegion(
        session, serial,
        [self = shared_from_this(),
         serial](absl::StatusOr<std::shared_ptr<const MappedRegion>> region) {
          self->OnRegion(serial, std::move(region));
        });
  }
}

void OpenViewsOperation::OnRegion(
    std::uint64_t serial,
    absl::StatusOr<std::shared_ptr<const MappedRegion>> region) {
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    if (region.ok()) regions_[serial] = *std::move(region);
    if (--regions_left_ > 0) return;
    PlaceBlocks();
  }
  End(Outcome::kUnavailable);
}

void OpenViewsOperation::PlaceBlocks() {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    MappedBlock& mapped = opened_->blocks()[i].mapped;
    for (std::size_t n = 0; n < serials_[i].size(); ++n) {
      mapped.extents[n].region = regions_.at(serials_[i][n]);
    }
    PrefetchHeader(mapped);
  }
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (serials_[i].empty()) continue;
    const MappedBlock& mapped = opened_->blocks()[i].mapped;
    const bool whole = std::all_of(mapped.extents.begin(), mapped.extents.end(),
                                   [](const MappedBlock::Extent& extent) {
                                     return extent.region != nullptr;
                                   });
    if (whole) {
      opened_->Place(i);
    } else {
      opened_->Unplace(i, Outcome::kUnavailable);
    }
  }
}

void OpenViewsOperation::Cancel() { End(Outcome::kCancelled); }

void OpenViewsOperation::End(Outcome rest) {
  OpenViewsDone done;
  std::unique_ptr<OpenedViews> opened;
  TimerId timer = TimerId::kNone;
  // Unmapped without the lock.
  std::map<std::uint64_t, std::shared_ptr<const MappedRegion>> regions;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    over_ = true;
    Settle(rest);
    opened = std::move(opened_);
    regions.swap(regions_);
    done = std::move(done_);
    timer = timer_;
  }
  parts_.seams->executor->Cancel(timer);
  parts_.counters->open_views.Add(opened->report().took);
  // Leases of what came to nothing.
  if (opened->report().hits == 0) opened->LetGo();
  std::move(done)(ViewBatch(std::move(opened)));
  parts_.operations->Remove(this);
}

void OpenViewsOperation::Settle(Outcome rest) {
  const BootTime now = parts_.seams->clock->Now();
  ViewReport& report = opened_->report();
  report.status = status_;
  report.took = now - started_;
  bool run = true;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const OpenedViews::Block& block = opened_->blocks()[i];
    // kUnset: nobody has decided it.
    if (block.outcome == Outcome::kUnset) opened_->Unplace(i, rest);
    if (leading_ && !run && rest != Outcome::kCancelled) {
      opened_->Unplace(i, Outcome::kSkipped);
    }
    const bool hit = block.outcome == Outcome::kHit;
    run = run && hit;
    if (!hit) continue;
    if (run) ++report.leading_hits;
    ++report.hits;
    report.bytes += block.mapped.length;
  }
  if (report.hits > 0) {
    report.good_for = opened_->lease().believed_until - now;
  }
}

}  // namespace firnkv
