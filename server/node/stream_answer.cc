#include "server/node/stream_answer.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "proto/base/check.h"
#include "server/node/catalog_link.h"

namespace firnkv {

std::string MakeFrame(FrameType type, std::uint64_t request,
                      const std::string& body, std::uint64_t payload_bytes) {
  return EncodeLead({.type = type,
                     .request = request,
                     .body_bytes = static_cast<std::uint32_t>(body.size()),
                     .payload_bytes = payload_bytes}) +
         body;
}

void OutgoingFrames::Append(const std::string& frame,
                            absl::Span<const std::byte> payload, Hold hold) {
  if (!pieces_.empty() && pieces_.back().payload.empty()) {
    pieces_.back().bytes += frame.size();
  } else {
    pieces_.push_back({text_.size(), frame.size(), {}});
  }
  text_ += frame;
  if (payload.empty()) return;
  pieces_.push_back({0, 0, payload});
  holds_.push_back(std::move(hold));
}

std::vector<absl::Span<const std::byte>> OutgoingFrames::Pieces() const {
  const auto* const text = reinterpret_cast<const std::byte*>(text_.data());
  std::vector<absl::Span<const std::byte>> pieces;
  pieces.reserve(pieces_.size());
  for (const Piece& piece : pieces_) {
    pieces.push_back(piece.payload.empty()
                         ? absl::MakeSpan(text + piece.begin, piece.bytes)
                         : piece.payload);
  }
  return pieces;
}

StreamAnswer::StreamAnswer(const Options& options, const Parts& parts,
                           std::uint64_t request, ReadBody body,
                           BootTime started, BootTime deadline)
    : options_(options),
      parts_(parts),
      request_(request),
      body_(std::move(body)),
      started_(started),
      deadline_(deadline) {
  parts_.busy->fetch_add(1, std::memory_order_relaxed);
}

StreamAnswer::~StreamAnswer() {
  parts_.busy->fetch_sub(1, std::memory_order_relaxed);
}

void StreamAnswer::Resolve(NamespaceCache::Answer answer) {
  if (resolved_) return;
  name_space_ = std::move(answer);
  resolved_ = true;
}

bool StreamAnswer::Fill(BootTime now, bool cancelled, OutgoingFrames* frames) {
  if (!cancelled) {
    const auto* const refused = std::get_if<Outcome>(&name_space_);
    if (refused != nullptr) {
      FillRest(*refused, frames);
    } else if (now >= deadline_) {
      FillRest(Outcome::kTimedOut, frames);
    } else {
      FillFromPool(std::get<PoolNamespace>(name_space_), frames);
      if (run_over_) FillRest(Outcome::kSkipped, frames);
    }
    if (next_ < body_.keys.size()) return false;
  }
  frames->Append(MakeFrame(FrameType::kReadEnd, request_, {}), {}, {});
  return true;
}

void StreamAnswer::FillFromPool(const PoolNamespace& name_space,
                                OutgoingFrames* frames) {
  std::vector<HeldRequest::Key> keys;
  const std::size_t last =
      std::min(body_.keys.size(), next_ + options_.send_keys);
  for (std::size_t i = next_; i < last; ++i) {
    keys.push_back({body_.keys[i].key, body_.keys[i].room});
  }
  if (keys.empty()) return;
  HeldAnswer answer =
      parts_.pool->OpenHeld({.name_space = &name_space,
                             .keys = keys,
                             .span = body_.leading_run ? ReadSpan::kLeadingRun
                                                       : ReadSpan::kEveryBlock,
                             .max_bytes = options_.send_bytes});
  CHECK(answer.decided > 0 && answer.decided <= keys.size());
  // Remote readers come because the catalog named this node.
  const bool missed = std::any_of(
      answer.blocks.begin(), answer.blocks.end(),
      [](const HeldBlock& one) { return one.outcome == Outcome::kMiss; });
  if (missed && parts_.link != nullptr) parts_.link->OnRemoteMiss();
  for (std::size_t i = 0; i < answer.decided && !run_over_; ++i) {
    run_over_ = body_.leading_run && answer.blocks[i].outcome != Outcome::kHit;
    AppendBlock(std::move(answer.blocks[i]), frames);
  }
}

void StreamAnswer::FillRest(Outcome outcome, OutgoingFrames* frames) {
  while (next_ < body_.keys.size()) {
    HeldBlock block;
    block.outcome = outcome;
    AppendBlock(std::move(block), frames);
  }
}

void StreamAnswer::AppendBlock(HeldBlock block, OutgoingFrames* frames) {
  const bool hit = block.outcome == Outcome::kHit;
  CHECK(!hit || block.bytes.size() == block.header.length);
  const bool congested = block.outcome == Outcome::kCongested;
  const std::string body = EncodeBlock(
      {.index = static_cast<std::uint32_t>(next_),
       .outcome = block.outcome,
       .retry_after = congested ? options_.retry_after : absl::ZeroDuration(),
       .header = hit ? std::move(block.header) : SlotHeader{}});
  if (!hit) block.bytes = {};
  frames->Append(
      MakeFrame(FrameType::kBlock, request_, body, block.bytes.size()),
      block.bytes, std::move(block.hold));
  parts_.metrics->stream_bytes.Add(block.bytes.size());
  parts_.metrics->CountOutcome(&parts_.metrics->stream_reads, block.outcome);
  ++next_;
}

}  // namespace firnkv
