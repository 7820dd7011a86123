#include "client/transport/connection_writes.h"

#include <algorithm>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

absl::Status Nonsense(std::string_view what) {
  return absl::InternalError(StrCat("the node sent ", what));
}

std::string MakeFrame(FrameType type, std::uint64_t id, const std::string& body,
                      std::uint64_t payload_bytes) {
  return EncodeLead({.type = type,
                     .request = id,
                     .body_bytes = static_cast<std::uint32_t>(body.size()),
                     .payload_bytes = payload_bytes}) +
         body;
}

}  // namespace

bool ConnectionWrites::Add(std::uint64_t id, StreamWrite write,
                           std::shared_ptr<StreamWriteSink> sink) {
  MutexLock lock(&mutex_);
  if (over_) return false;
  highest_ = id;
  load_.fetch_add(write.blocks.size(), std::memory_order_relaxed);
  Write& added = writes_[id];
  added.request = std::move(write);
  added.sink = std::move(sink);
  turns_.push_back({FrameType::kReserve, id});
  return true;
}

void ConnectionWrites::EndIfTooOld() {
  std::vector<Ended> ended;
  {
    MutexLock lock(&mutex_);
    if (protocol_ == 0 || protocol_ >= kProtocolOfStreamWrites) return;
    ended = EndEach(
        StreamEnd::kTooOld,
        absl::UnavailableError(StrCat("the node speaks protocol version ",
                                      protocol_, ", which has no writes")));
  }
  for (const Ended& one : ended) one.sink->OnEnd(one.end, one.why);
}

bool ConnectionWrites::AddBlock(std::uint64_t id, StreamBlock block) {
  MutexLock lock(&mutex_);
  const auto it = writes_.find(id);
  if (it == writes_.end() || it->second.end) return false;
  std::erase_if(block.bytes, [](const auto& part) { return part.empty(); });
  it->second.blocks.push_back(std::move(block));
  turns_.push_back({FrameType::kWrite, id});
  return true;
}

void ConnectionWrites::Cancel(std::uint64_t id) {
  std::optional<Ended> ended;
  {
    MutexLock lock(&mutex_);
    const auto it = writes_.find(id);
    if (it == writes_.end() || it->second.end) return;
    if (it->second.reserve_sent) turns_.push_back({FrameType::kCancel, id});
    ended =
        End(id, StreamEnd::kCancelled, absl::CancelledError("by the writer"));
  }
  Tell(ended);
}

void ConnectionWrites::EndAll(StreamEnd end, const absl::Status& why) {
  std::vector<Ended> ended;
  {
    MutexLock lock(&mutex_);
    over_ = true;
    ended = EndEach(end, why);
  }
  for (const Ended& one : ended) one.sink->OnEnd(one.end, one.why);
}

std::vector<ConnectionWrites::Ended> ConnectionWrites::EndEach(
    StreamEnd end, const absl::Status& why) {
  turns_.clear();
  std::vector<std::uint64_t> ids;
  for (const auto& [id, write] : writes_) {
    if (!write.end) ids.push_back(id);
  }
  std::vector<Ended> ended;
  for (const std::uint64_t id : ids) {
    std::optional<Ended> one = End(id, end, why);
    if (one) ended.push_back(*std::move(one));
  }
  return ended;
}

bool ConnectionWrites::Has(std::uint64_t id) const {
  MutexLock lock(&mutex_);
  return writes_.contains(id);
}

// --- Ends.

std::shared_ptr<StreamWriteSink> ConnectionWrites::Enter(std::uint64_t id) {
  const auto it = writes_.find(id);
  if (it == writes_.end() || it->second.end) return nullptr;
  ++it->second.users;
  return it->second.sink;
}

void ConnectionWrites::Leave(std::uint64_t id) {
  std::optional<Ended> ended;
  {
    MutexLock lock(&mutex_);
    Write& write = writes_.at(id);
    if (--write.users == 0 && write.end) ended = TakeOut(id);
  }
  Tell(ended);
}

std::optional<ConnectionWrites::Ended> ConnectionWrites::End(std::uint64_t id,
                                                             StreamEnd end,
                                                             absl::Status why) {
  Write& write = writes_.at(id);
  write.end = end;
  write.why = std::move(why);
  write.blocks.clear();
  if (write.users > 0) return std::nullopt;
  return TakeOut(id);
}

std::optional<ConnectionWrites::Ended> ConnectionWrites::TakeOut(
    std::uint64_t id) {
  const auto it = writes_.find(id);
  load_.fetch_sub(it->second.request.blocks.size(), std::memory_order_relaxed);
  Ended ended{std::move(it->second.sink), *it->second.end,
              std::move(it->second.why)};
  writes_.erase(it);
  return ended;
}

void ConnectionWrites::Tell(const std::optional<Ended>& ended) {
  if (ended) ended->sink->OnEnd(ended->end, ended->why);
}

// --- Sending.

std::optional<ConnectionWrites::Outgoing> ConnectionWrites::TakeNext(
    BootTime now) {
  MutexLock lock(&mutex_);
  if (protocol_ == 0) return std::nullopt;
  while (!turns_.empty()) {
    const Turn turn = turns_.front();
    turns_.pop_front();
    Outgoing outgoing;
    if (turn.type == FrameType::kCancel) {
      outgoing.frame = MakeFrame(FrameType::kCancel, turn.id, {}, 0);
      return outgoing;
    }
    const auto it = writes_.find(turn.id);
    if (it == writes_.end() || it->second.end) continue;
    Write& write = it->second;
    if (turn.type == FrameType::kReserve) {
      write.reserve_sent = true;
      outgoing.frame = EncodeReserveFrame(turn.id, write.request, now);
      return outgoing;
    }
    StreamBlock block = std::move(write.blocks.front());
    write.blocks.pop_front();
    const ReserveBody::Block& reserved = write.request.blocks[block.index];
    outgoing.frame = MakeFrame(FrameType::kWrite, turn.id,
                               EncodeWrite({.index = block.index,
                                            .key = reserved.key,
                                            .pieces = std::move(block.pieces)}),
                               reserved.length);
    outgoing.payload = std::move(block.bytes);
    outgoing.id = turn.id;
    outgoing.index = block.index;
    ++write.users;
    return outgoing;
  }
  return std::nullopt;
}

std::string ConnectionWrites::EncodeReserveFrame(std::uint64_t id,
                                                 const StreamWrite& write,
                                                 BootTime now) {
  ReserveBody body;
  body.header.protocol = kProtocolOfStreamWrites;
  // At least something: a request whose time is over is cancelled by its
  // writer, not here.
  body.header.remaining =
      std::clamp(write.deadline - now, absl::Duration(absl::Microseconds(1)),
                 absl::Duration(kLongestDeadline));
  body.header.traffic = write.traffic;
  body.header.trace = write.trace;
  body.name_space = write.name_space;
  body.clear_epoch = write.clear_epoch;
  body.reserve_for = write.reserve_for;
  body.wait_for = write.wait_for;
  body.session_state = write.session_state;
  body.conversation = write.conversation;
  body.blocks = write.blocks;
  return MakeFrame(FrameType::kReserve, id, EncodeReserve(body), 0);
}

void ConnectionWrites::Sent(const Outgoing& outgoing) {
  if (outgoing.id == 0) return;
  std::shared_ptr<StreamWriteSink> sink;
  {
    MutexLock lock(&mutex_);
    const Write& write = writes_.at(outgoing.id);
    // One that is over hears only of that.
    if (!write.end) sink = write.sink;
  }
  if (sink != nullptr) sink->OnSent(outgoing.index);
  Leave(outgoing.id);
}

// --- Receiving.

void ConnectionWrites::OnGreeted(std::uint32_t protocol) {
  {
    MutexLock lock(&mutex_);
    protocol_ = protocol;
  }
  EndIfTooOld();
}

absl::Status ConnectionWrites::OnFrame(const FrameLead& lead,
                                       std::string_view body) {
  {
    MutexLock lock(&mutex_);
    if (lead.request == 0 || lead.request > highest_) {
      return Nonsense("an answer to a write that nobody asked for");
    }
  }
  if (lead.type == FrameType::kReserved) return OnReserved(lead.request, body);
  if (lead.type == FrameType::kWritten) return OnWritten(lead.request, body);
  std::optional<Ended> ended;
  {
    MutexLock lock(&mutex_);
    const auto it = writes_.find(lead.request);
    if (it == writes_.end() || it->second.end) return absl::OkStatus();
    ended = End(lead.request, StreamEnd::kServed, absl::OkStatus());
  }
  Tell(ended);
  return absl::OkStatus();
}

absl::Status ConnectionWrites::OnReserved(std::uint64_t id,
                                          std::string_view body) {
  ASSIGN_OR_RETURN(const ReservedBody reserved, DecodeReserved(body));
  std::shared_ptr<StreamWriteSink> sink;
  {
    MutexLock lock(&mutex_);
    const auto it = writes_.find(id);
    if (it == writes_.end() || it->second.end) return absl::OkStatus();
    Write& write = it->second;
    if (write.reserved || !write.reserve_sent) {
      return Nonsense("a reservation twice, or before it was asked for");
    }
    if (reserved.status.ok() &&
        reserved.outcomes.size() != write.request.blocks.size()) {
      return Nonsense("a reservation of another size");
    }
    write.reserved = true;
    sink = Enter(id);
  }
  sink->OnReserved(reserved);
  Leave(id);
  return absl::OkStatus();
}

absl::Status ConnectionWrites::OnWritten(std::uint64_t id,
                                         std::string_view body) {
  ASSIGN_OR_RETURN(const WrittenBody written, DecodeWritten(body));
  std::shared_ptr<StreamWriteSink> sink;
  {
    MutexLock lock(&mutex_);
    const auto it = writes_.find(id);
    if (it == writes_.end() || it->second.end) return absl::OkStatus();
    if (!it->second.reserved) return Nonsense("outcomes of nothing reserved");
    for (const WrittenBody::Block& block : written.blocks) {
      if (block.index >= it->second.request.blocks.size()) {
        return Nonsense(StrCat("an outcome of block ", block.index));
      }
    }
    sink = Enter(id);
  }
  for (const WrittenBody::Block& block : written.blocks) {
    sink->OnWritten(block.index, block.outcome, written.retry_after);
  }
  Leave(id);
  return absl::OkStatus();
}

}  // namespace firnkv
