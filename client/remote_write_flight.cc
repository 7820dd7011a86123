// One window of a remote write: from its reservation to the last outcome.

#include <algorithm>
#include <utility>

#include "client/clear_epochs.h"
#include "client/counters.h"
#include "client/location_cache.h"
#include "client/remote_write_operation.h"
#include "client/retry.h"
#include "client/write_batch.h"
#include "proto/base/status.h"

namespace firnkv {

void RemoteWriteOperation::StartFlight(const FlightRef& flight) {
  const NodeAddress& node = flight->node();
  if (!parts_.router->Begin(node.node, flight->indexes().size())) {
    parts_.counters->breaker_skips.Add(flight->indexes().size());
    {
      MutexLock lock(&mutex_);
      Leave(*flight);
      // Nothing was asked: it costs no retry.
      for (const std::size_t i : flight->indexes()) {
        if (!over_ && !blocks_[i].ended) TryElsewhere(i, node.node, true);
      }
    }
    return FreeIfQuiet();
  }
  const StreamWrite write = WriteOf(*flight);
  if (write.blocks.empty()) return OnFlightEnd(*flight, StreamEnd::kCancelled);
  parts_.retries->Earn(1);
  const StreamTransport::Ticket ticket = parts_.streams->StartWrite(
      {.address = node.stream_address, .node = node.node, .epoch = node.epoch},
      write, flight);
  bool over = false;
  {
    MutexLock lock(&mutex_);
    if (!flights_.contains(flight->number())) return;  // It has ended already.
    flight->ticket = ticket;
    over = over_;
    if (flight->eager) {
      for (std::uint32_t n = 0; n < flight->indexes().size(); ++n) {
        flight->to_send.push_back(n);
      }
    }
  }
  if (over) return parts_.streams->Cancel(ticket, parts_.options->buffer_grace);
  SendBlocks(flight);
}

StreamWrite RemoteWriteOperation::WriteOf(const Flight& flight) {
  StreamWrite write;
  write.name_space = request_.name_space.id;
  write.clear_epoch = parts_.epochs->Highest(request_.name_space);
  write.deadline = deadline_;
  write.reserve_for = parts_.options->reservation;
  write.wait_for = static_cast<std::uint32_t>(request_.wait_for);
  write.session_state = static_cast<std::uint32_t>(request_.hint.session);
  write.conversation = request_.hint.conversation;
  write.traffic = request_.traffic;
  write.trace = request_.trace;
  MutexLock lock(&mutex_);
  if (over_) return write;
  for (const std::size_t i : flight.indexes()) {
    write.blocks.push_back({.key = request_.blocks[i].key,
                            .place = request_.blocks[i].place,
                            .length = blocks_[i].length});
  }
  return write;
}

void RemoteWriteOperation::Flight::OnReserved(const ReservedBody& body) {
  FlightRef self;
  {
    MutexLock lock(&write_->mutex_);
    answered = true;
    const auto it = write_->flights_.find(number_);
    if (it != write_->flights_.end()) self = it->second;
  }
  if (self != nullptr) write_->OnReserved(self, body);
}

void RemoteWriteOperation::Flight::OnWritten(std::uint32_t index,
                                             Outcome outcome,
                                             absl::Duration retry_after) {
  write_->OnWritten(*this, index, outcome, retry_after);
}

void RemoteWriteOperation::Flight::OnEnd(StreamEnd end, const absl::Status&) {
  write_->OnFlightEnd(*this, end);
}

void RemoteWriteOperation::OnReserved(const FlightRef& flight,
                                      const ReservedBody& body) {
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    if (absl::IsInvalidArgument(body.status)) status_ = body.status;
    for (std::uint32_t n = 0; n < flight->indexes().size(); ++n) {
      const std::size_t i = flight->indexes()[n];
      if (!body.status.ok()) {
        EndBlock(i, OutcomeOf(body.status));
        continue;
      }
      const Outcome outcome = body.outcomes[n];
      if (outcome == Outcome::kStored) {
        if (!flight->eager) flight->to_send.push_back(n);
      } else if (outcome == Outcome::kUnavailable) {
        // It drains, or has not met its catalog: another one may take it.
        TryElsewhere(i, flight->node().node, parts_.retries->Spend());
      } else {
        if (outcome == Outcome::kCongested) {
          retry_after_ = std::max(retry_after_, body.retry_after);
        }
        EndBlock(i, outcome);
      }
    }
  }
  SendBlocks(flight);
  Advance();
}

// The ticket and the node's answer come in any order; whoever is second finds
// both here.
void RemoteWriteOperation::SendBlocks(const FlightRef& flight) {
  std::vector<std::uint32_t> blocks;
  std::uint64_t bytes = 0;
  {
    MutexLock lock(&mutex_);
    if (over_ || !flight->ticket || flight->to_send.empty()) return;
    blocks.swap(flight->to_send);
    for (const std::uint32_t n : blocks) {
      bytes += blocks_[flight->indexes()[n]].length;
    }
  }
  if (bytes <= kInlineBytes) return SendEach(flight, blocks);
  parts_.seams->executor->Post(parts_.scope->Wrap(
      [self = shared_from_this(), flight, blocks = std::move(blocks)] {
        self->SendEach(flight, blocks);
      }));
}

void RemoteWriteOperation::SendEach(const FlightRef& flight,
                                    const std::vector<std::uint32_t>& blocks) {
  {
    MutexLock lock(&mutex_);
    // From now on the buffers are read.
    if (over_) return;
    ++readers_;
  }
  for (const std::uint32_t n : blocks) {
    const std::size_t i = flight->indexes()[n];
    StreamBlock block;
    block.index = n;
    std::uint64_t length = 0;
    StreamTransport::Ticket ticket;
    {
      MutexLock lock(&mutex_);
      if (over_) break;
      // An eager one that the node does not want.
      if (blocks_[i].ended || blocks_[i].flight != flight->number()) continue;
      length = blocks_[i].length;
      ticket = *flight->ticket;
    }
    const absl::Span<const ConstBuffer> source = request_.blocks[i].source;
    block.pieces = StagePieces(source, length, nullptr);
    for (const ConstBuffer& buffer : source) {
      block.bytes.emplace_back(buffer.address, buffer.length);
    }
    if (!StreamTransport::SendBlock(ticket, std::move(block))) break;
  }
  {
    MutexLock lock(&mutex_);
    --readers_;
  }
  FreeIfQuiet();
}

void RemoteWriteOperation::OnWritten(const Flight& flight, std::uint32_t index,
                                     Outcome outcome,
                                     absl::Duration retry_after) {
  const std::size_t i = flight.indexes()[index];
  BlockId id{request_.name_space.id, {}};
  std::uint64_t length = 0;
  {
    MutexLock lock(&mutex_);
    if (over_ || blocks_[i].ended || blocks_[i].flight != flight.number()) {
      return;
    }
    if (outcome == Outcome::kCongested) {
      retry_after_ = std::max(retry_after_, retry_after);
    }
    EndBlock(i, outcome);
    id.key = request_.blocks[i].key;
    length = blocks_[i].length;
  }
  if (IsThere(outcome)) {
    const NodeAddress& node = flight.node();
    // The catalog may hear of it later than the writer wants to read it.
    parts_.locations->Learn(id,
                            {KnownLocation{.node = node.node,
                                           .epoch = node.epoch,
                                           .generation = Generation::kNone,
                                           .length = length}},
                            parts_.seams->clock->Now());
  }
  Advance();
}

// --- Its end.

void RemoteWriteOperation::Leave(const Flight& flight) {
  --queues_.at(flight.node().node).in_flight;
  flights_.erase(flight.number());
}

void RemoteWriteOperation::OnFlightEnd(const Flight& flight, StreamEnd end) {
  Router::Verdict verdict = Router::Verdict::kFailed;
  bool over = false;
  {
    MutexLock lock(&mutex_);
    switch (end) {
      case StreamEnd::kServed:
      case StreamEnd::kRefused:
      case StreamEnd::kOtherRun:
      case StreamEnd::kTooOld:
        verdict = Router::Verdict::kServed;
        break;
      case StreamEnd::kCancelled:
        // Given up for other reasons than that node's silence.
        if (!timed_out_ || flight.answered) verdict = Router::Verdict::kUnknown;
        break;
      case StreamEnd::kUnreachable:
      case StreamEnd::kBroken:
        break;
    }
    over = over_;
    if (!over) EndFlightBlocks(flight, end);
    Leave(flight);
  }
  parts_.router->End(flight.node().node, flight.indexes().size(), verdict);
  if (over) return FreeIfQuiet();
  Advance();
}

void RemoteWriteOperation::EndFlightBlocks(const Flight& flight,
                                           StreamEnd end) {
  // One retry for all blocks of a request: it is one request again.
  std::optional<bool> paid;
  for (const std::size_t i : flight.indexes()) {
    if (blocks_[i].ended || blocks_[i].flight != flight.number()) continue;
    switch (end) {
      case StreamEnd::kRefused:
        EndBlock(i, Outcome::kDenied);
        break;
      case StreamEnd::kTooOld:
        // Nothing was asked: it costs no retry.
        TryElsewhere(i, flight.node().node, true);
        break;
      case StreamEnd::kServed:
      case StreamEnd::kUnreachable:
      case StreamEnd::kBroken:
      case StreamEnd::kOtherRun:
      case StreamEnd::kCancelled:
        if (!paid) paid = parts_.retries->Spend();
        TryElsewhere(i, flight.node().node, *paid);
        break;
    }
  }
}

}  // namespace firnkv
