#include "client/remote_write_operation.h"

#include <algorithm>
#include <utility>

#include "client/clear_epochs.h"
#include "client/counters.h"
#include "client/location_cache.h"
#include "client/retry.h"
#include "client/write_batch.h"
#include "proto/base/write_frame.h"

namespace firnkv {

void RemoteWriteOperation::Start(const ClientParts& parts,
                                 const WriteRequest& request, WriteDone done) {
  // Shared: see the class.
  const auto operation =
      std::make_shared<RemoteWriteOperation>(parts, request, std::move(done));
  operation->Begin();
}

RemoteWriteOperation::RemoteWriteOperation(const ClientParts& parts,
                                           const WriteRequest& request,
                                           WriteDone done)
    : parts_(parts),
      request_(request),
      started_(parts.seams->clock->Now()),
      deadline_(started_ + request.deadline),
      done_(std::move(done)) {}

void RemoteWriteOperation::Begin() {
  if (!BeginWrite(parts_, request_, shared_from_this(), [this] {
        MutexLock lock(&mutex_);
        return std::move(done_);
      })) {
    return;
  }
  Indexes indexes;
  {
    MutexLock lock(&mutex_);
    blocks_.resize(request_.blocks.size());
    open_ = blocks_.size();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      blocks_[i].length = LengthOf(request_.blocks[i]);
      if (IsWrongSize(request_, blocks_[i].length)) {
        EndBlock(i, Outcome::kWrongSize);
      } else {
        indexes.push_back(i);
      }
    }
    timer_ = parts_.seams->executor->PostAt(
        deadline_, parts_.scope->Wrap([self = shared_from_this()] {
          {
            MutexLock timeout_lock(&self->mutex_);
            self->timed_out_ = true;
          }
          self->End(Outcome::kTimedOut);
        }));
  }
  if (indexes.empty()) return End(Outcome::kUnavailable);
  Place(indexes);
}

// --- Place.

void RemoteWriteOperation::Place(const Indexes& indexes) {
  CatalogClient::PlaceCall call;
  call.name_space = request_.name_space.id;
  call.clear_epoch = parts_.epochs->Highest(request_.name_space);
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    for (const std::size_t i : indexes) {
      const WriteBlock& block = request_.blocks[i];
      call.blocks.push_back({.key = block.key,
                             .parent = block.place.parent,
                             .anchor = block.place.anchor,
                             .length = blocks_[i].length});
      for (const NodeId& node : blocks_[i].tried) {
        if (std::find(call.excluded.begin(), call.excluded.end(), node) ==
            call.excluded.end()) {
          call.excluded.push_back(node);
        }
      }
    }
  }
  parts_.catalog->StartPlace(
      CallContext{.deadline = deadline_,
                  .traffic = request_.traffic,
                  .trace = request_.trace},
      call,
      [self = shared_from_this(),
       indexes](const absl::StatusOr<CatalogClient::PlaceAnswer>& answer) {
        self->OnPlaced(indexes, answer);
      });
}

void RemoteWriteOperation::OnPlaced(
    const Indexes& indexes,
    const absl::StatusOr<CatalogClient::PlaceAnswer>& answer) {
  if (answer.ok()) {
    parts_.router->Learn(answer->nodes);
    parts_.epochs->Learn(request_.name_space.id, answer->clear_epoch);
  }
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    if (!answer.ok() && absl::IsInvalidArgument(answer.status())) {
      status_ = answer.status();
    }
    for (std::size_t n = 0; n < indexes.size(); ++n) {
      if (answer.ok()) {
        Enqueue(answer->nodes[answer->places[n]], indexes[n]);
      } else {
        EndBlock(indexes[n], OutcomeOf(answer.status()));
      }
    }
  }
  Advance();
}

void RemoteWriteOperation::Enqueue(const NodeAddress& node, std::size_t index) {
  Queue& queue = queues_[node.node];
  queue.address = node;
  std::uint64_t bytes = blocks_[index].length;
  if (!queue.windows.empty()) {
    for (const std::size_t i : queue.windows.back()) bytes += blocks_[i].length;
  }
  if (queue.windows.empty() || bytes > kWindowBytes ||
      queue.windows.back().size() == kMaxReserveBlocks) {
    queue.windows.emplace_back();
  }
  queue.windows.back().push_back(index);
}

void RemoteWriteOperation::Advance() {
  for (;;) {
    FlightRef flight;
    Indexes homeless;
    bool ended = false;
    {
      MutexLock lock(&mutex_);
      if (over_) return;
      homeless.swap(homeless_);
      flight = NextFlight();
      ended = open_ == 0;
    }
    if (ended) return End(Outcome::kUnavailable);
    if (!homeless.empty()) Place(homeless);
    if (flight != nullptr) StartFlight(flight);
    if (homeless.empty() && flight == nullptr) return;
  }
}

RemoteWriteOperation::FlightRef RemoteWriteOperation::NextFlight() {
  for (auto& [node, queue] : queues_) {
    if (queue.windows.empty() || queue.in_flight >= kWindowsInFlight) continue;
    // Shared: see Flight.
    auto flight = std::make_shared<Flight>(shared_from_this(), next_flight_++,
                                           queue.address,
                                           std::move(queue.windows.front()));
    queue.windows.pop_front();
    ++queue.in_flight;
    std::uint64_t bytes = 0;
    for (const std::size_t i : flight->indexes()) {
      blocks_[i].flight = flight->number();
      bytes += blocks_[i].length;
    }
    flight->eager = bytes <= kEagerBytes;
    flights_.emplace(flight->number(), flight);
    return flight;
  }
  return nullptr;
}

// --- The end.

void RemoteWriteOperation::Cancel() { End(Outcome::kCancelled); }

void RemoteWriteOperation::End(Outcome rest) {
  absl::AnyInvocable<void(const WriteReport&) &&> on_outcome;
  WriteReport report;
  TimerId timer = TimerId::kNone;
  std::vector<StreamTransport::Ticket> tickets;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    over_ = true;
    report = Settle(rest);
    for (const auto& [number, flight] : flights_) {
      if (flight->ticket) tickets.push_back(*flight->ticket);
    }
    on_outcome = std::move(done_.on_outcome);
    timer = timer_;
  }
  parts_.seams->executor->Cancel(timer);
  std::move(on_outcome)(report);
  for (const StreamTransport::Ticket& ticket : tickets) {
    parts_.streams->Cancel(ticket, parts_.options->buffer_grace);
  }
  {
    MutexLock lock(&mutex_);
    told_ = true;
  }
  FreeIfQuiet();
}

WriteReport RemoteWriteOperation::Settle(Outcome rest) {
  WriteReport report;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i].ended) EndBlock(i, rest);
    TellOutcome(parts_, blocks_[i].outcome, blocks_[i].length,
                &request_.blocks[i], &report);
  }
  report.status = status_;
  report.retry_after = retry_after_;
  report.took = parts_.seams->clock->Now() - started_;
  parts_.counters->bytes_stored.Add(report.bytes_stored);
  parts_.counters->write.Add(report.took);
  return report;
}

void RemoteWriteOperation::EndBlock(std::size_t index, Outcome outcome) {
  blocks_[index].ended = true;
  blocks_[index].outcome = outcome;
  --open_;
}

void RemoteWriteOperation::TryElsewhere(std::size_t index, NodeId node,
                                        bool paid) {
  Block& block = blocks_[index];
  block.flight = 0;
  block.tried.push_back(node);
  if (!paid || block.tried.size() >= kMostPlacements) {
    return EndBlock(index, Outcome::kUnavailable);
  }
  homeless_.push_back(index);
}

void RemoteWriteOperation::FreeIfQuiet() {
  WriteDone done;
  {
    MutexLock lock(&mutex_);
    if (!told_ || freed_ || !flights_.empty() || readers_ > 0) return;
    freed_ = true;
    done = std::move(done_);
  }
  std::move(done.on_buffers_free)();
  parts_.operations->Remove(this);
}

}  // namespace firnkv
