#include "tools/replay/request_player.h"

#include <algorithm>
#include <cstring>

#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "tools/replay/block_content.h"

namespace firnkv {
namespace {

std::size_t BatchBlocks(std::uint64_t buffer_bytes, std::uint64_t stride) {
  const std::uint64_t fit = buffer_bytes / stride;
  return std::clamp<std::uint64_t>(fit, 1, kMaxBatchKeys);
}

// So that a hit whose bytes never landed is not taken for one by what an
// earlier read of the same block left here.
void Spoil(absl::Span<std::byte> bytes) {
  for (std::size_t page = 0; page < bytes.size(); page += kPageBytes) {
    bytes[page] = ~bytes[page];
  }
  if (!bytes.empty()) bytes.back() = ~bytes.back();
}

}  // namespace

Chain MakeTraceChain(const TraceRequest& request, std::uint32_t block_tokens) {
  Chain chain({.block_tokens = block_tokens});
  for (const std::uint64_t id : request.ids) {
    char hash[sizeof(id)];
    std::memcpy(hash, &id, sizeof(id));
    chain.Append(std::string_view(hash, sizeof(hash)));
  }
  return chain;
}

RequestPlayer::RequestPlayer(const Options& options, PoolAccess* pool,
                             const Clock* clock)
    : options_(options),
      pool_(*pool),
      clock_(*clock),
      stride_(AlignUp(options.block_bytes, kPageBytes)),
      batch_blocks_(BatchBlocks(options.buffer_bytes, stride_)) {}

absl::Status RequestPlayer::Prepare() {
  ASSIGN_OR_RETURN(buffer_, pool_.AllocateShared(batch_blocks_ * stride_));
  return absl::OkStatus();
}

void RequestPlayer::Play(const Turn& turn, const TraceRequest& request) {
  const BootTime began = clock_.Now();
  const Chain chain = MakeTraceChain(request, options_.block_tokens);
  std::size_t hits = 0;
  std::size_t asked = 0;
  while (asked < chain.size() && hits == asked) {
    const std::size_t end = std::min(chain.size(), asked + batch_blocks_);
    hits += ReadBatch(turn.number, chain, asked, end);
    asked = end;
  }
  tally_.read_outcomes[static_cast<std::size_t>(Outcome::kSkipped)] +=
      chain.size() - asked;
  tally_.hits.Count(request, hits, options_.block_tokens);
  tally_.bytes_recomputed += (chain.size() - hits) * options_.block_bytes;
  for (std::size_t begin = hits; begin < chain.size();) {
    const std::size_t end = std::min(chain.size(), begin + batch_blocks_);
    WriteBatch(turn.wait_for, chain, begin, end);
    begin = end;
  }
  tally_.request.Add(clock_.Now() - began);
}

std::size_t RequestPlayer::ReadBatch(std::size_t number, const Chain& chain,
                                     std::size_t begin, std::size_t end) {
  destinations_.resize(end - begin);
  targets_.assign(end - begin, ReadTarget());
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const absl::Span<std::byte> bytes = BufferOf(i);
    Spoil(bytes);
    destinations_[i] = {.address = bytes.data(), .length = bytes.size()};
    targets_[i].key = chain.block(begin + i).key;
    targets_[i].anchor = chain.block(begin + i).place.anchor;
    targets_[i].destination = absl::MakeConstSpan(&destinations_[i], 1);
  }
  const BootTime before = clock_.Now();
  const ReadReport report = pool_.Read({.name_space = options_.name_space,
                                        .blocks = absl::MakeSpan(targets_),
                                        .deadline = options_.read_deadline});
  tally_.read.Add(clock_.Now() - before);
  if (!CountCall(report.status)) return 0;
  if (report.locate > absl::ZeroDuration()) tally_.locate.Add(report.locate);
  tally_.bytes_mapped += report.bytes_mapped;
  tally_.bytes_remote += report.bytes_remote;
  std::size_t leading = 0;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const Outcome outcome = targets_[i].outcome;
    ++tally_.read_outcomes[static_cast<std::size_t>(outcome)];
    if (outcome != Outcome::kHit) continue;
    leading += leading == i ? 1 : 0;
    Check(number, begin + i, targets_[i].key, BufferOf(i));
  }
  return leading;
}

void RequestPlayer::Check(std::size_t number, std::size_t position,
                          const BlockKey& key,
                          absl::Span<const std::byte> bytes) {
  const BlockId block{.name_space = options_.name_space.id, .key = key};
  WrongBlock wrong{.block = block, .request = number, .position = position};
  wrong.wrong_bytes =
      BlockContent(block).CountWrong(bytes, &wrong.first_wrong_byte);
  if (wrong.wrong_bytes > 0) tally_.CountWrong(wrong);
}

void RequestPlayer::WriteBatch(WriteWait wait_for, const Chain& chain,
                               std::size_t begin, std::size_t end) {
  sources_.resize(end - begin);
  writes_.assign(end - begin, WriteBlock());
  for (std::size_t i = 0; i < writes_.size(); ++i) {
    const Chain::Block& block = chain.block(begin + i);
    const absl::Span<std::byte> bytes = BufferOf(i);
    BlockContent({options_.name_space.id, block.key}).Fill(bytes);
    sources_[i] = {.address = bytes.data(), .length = bytes.size()};
    writes_[i].key = block.key;
    writes_[i].place = block.place;
    writes_[i].source = absl::MakeConstSpan(&sources_[i], 1);
  }
  const BootTime before = clock_.Now();
  const WriteReport report = pool_.Write({.name_space = options_.name_space,
                                          .blocks = absl::MakeSpan(writes_),
                                          .deadline = options_.write_deadline,
                                          .wait_for = wait_for});
  tally_.write.Add(clock_.Now() - before);
  if (!CountCall(report.status)) return;
  tally_.bytes_stored += report.bytes_stored;
  for (const WriteBlock& block : writes_) {
    ++tally_.write_outcomes[static_cast<std::size_t>(block.outcome)];
  }
}

bool RequestPlayer::CountCall(const absl::Status& status) {
  if (status.ok()) return true;
  if (tally_.failed_calls++ == 0) tally_.first_failure = status.ToString();
  return false;
}

}  // namespace firnkv
