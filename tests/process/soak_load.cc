#include "tests/process/soak_load.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/text.h"
#include "tools/replay/block_content.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kBlockTokens = 16;
constexpr int kBlocksAChain = 24;
constexpr std::uint64_t kSharedSourceBytes = 8 * kMiB;
constexpr int kPauseMillis = 5;
constexpr absl::Duration kViewAge = absl::Milliseconds(200);
constexpr std::uint64_t kLongLookMillis = 600;

// An operation may end this much late: so long may a process on a busy machine
// wait for a processor, several times during one operation. Whatever is stuck
// is so for much longer, or for ever.
constexpr absl::Duration kScheduling = absl::Seconds(2);

constexpr absl::Duration kUsualDeadline = absl::Seconds(2);
// Once all is quiet.
constexpr absl::Duration kPatientDeadline = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(20);

// One in kLargestEvery chains begins with a block of kLargestBytes.
constexpr std::uint64_t kLargestEvery = 256;
constexpr std::uint64_t kLargestBytes = 16 * kMiB;

struct SizeShare {
  std::uint64_t bytes;
  // How many of 10,000 blocks are of this size.
  std::uint64_t share;
};
constexpr SizeShare kSizes[] = {
    {4 * kKiB, 1000},  {8 * kKiB, 1400},  {16 * kKiB, 2000}, {32 * kKiB, 3400},
    {64 * kKiB, 1400}, {128 * kKiB, 500}, {256 * kKiB, 200}, {512 * kKiB, 60},
    {1 * kMiB, 20},    {2 * kMiB, 10},    {4 * kMiB, 6},     {8 * kMiB, 4}};

std::uint64_t WordOf(const BlockKey& key, std::size_t number) {
  std::uint64_t word;
  std::memcpy(&word, key.bytes.data() + 8 * number, sizeof(word));
  return word;
}

// So that a hit that wrote nothing is not taken for what was there before.
void Spoil(absl::Span<std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += kPageBytes) {
    bytes[i] = static_cast<std::byte>(static_cast<int>(bytes[i]) + 1);
  }
}

}  // namespace

std::uint64_t SoakBlockBytes(const BlockKey& key) {
  std::uint64_t place = WordOf(key, 0) % 10000;
  std::uint64_t bytes = 0;
  for (const SizeShare& one : kSizes) {
    bytes = one.bytes;
    if (place < one.share) break;
    place -= one.share;
  }
  // One in four is not whole pages.
  const std::uint64_t word = WordOf(key, 1);
  if (word % 4 != 0 || bytes == kSizes[0].bytes) return bytes;
  return bytes - (word >> 8) % kPageBytes;
}

class SoakLoad::Timed {
 public:
  Timed(SoakLoad* load, absl::Duration deadline)
      : load_(*load),
        stopped_before_(load_.page_->stopped_nanos.load()),
        due_(load_.clock_.Now() + deadline + load_.options_.grace) {
    load_.page_->due_nanos = due_.nanos();
  }
  ~Timed() {
    SoakPage& page = *load_.page_;
    page.due_nanos = 0;
    ++page.operations;
    const absl::Duration stopped =
        absl::Nanoseconds(page.stopped_nanos.load() - stopped_before_);
    const absl::Duration over = load_.clock_.Now() - due_ - stopped;
    if (over <= absl::ZeroDuration()) return;
    page.longest_over_nanos = std::max(page.longest_over_nanos.load(),
                                       absl::ToInt64Nanoseconds(over));
    if (over > kScheduling) ++page.late;
  }

 private:
  SoakLoad& load_;
  const std::int64_t stopped_before_;
  const BootTime due_;
};

SoakLoad::SoakLoad(const Options& options, Client* client, SoakPage* page)
    : options_(options),
      client_(client),
      page_(page),
      random_(options.seed),
      stream_blocks_(client->Stats().stream_blocks) {
  absl::StatusOr<absl::Span<std::byte>> shared =
      client_->AllocateShared(kSharedSourceBytes);
  if (shared.ok()) shared_source_ = *shared;
}

const SoakLoad::Plan& SoakLoad::PlanOf(std::uint64_t chain) {
  const auto found = plans_.find(chain);
  if (found != plans_.end()) return found->second;
  Chain made({.block_tokens = kBlockTokens, .shard = {}});
  Plan plan;
  for (int i = 0; i < kBlocksAChain; ++i) {
    const Chain::Block& block =
        made.Append(StrCat("soak chain ", chain, " block ", i));
    const bool largest = i == 0 && chain % kLargestEvery == 5;
    plan.sizes.push_back(largest ? kLargestBytes : SoakBlockBytes(block.key));
    plan.bytes += plan.sizes.back();
  }
  plan.blocks = made.blocks();
  return plans_.emplace(chain, std::move(plan)).first->second;
}

// A little more than half of another node's: a few of those are missing.
std::uint64_t SoakLoad::PickChain() {
  const auto nodes = static_cast<std::uint64_t>(options_.nodes);
  const auto here = static_cast<std::uint64_t>(options_.here - 1);
  const std::uint64_t row = random_.Below(options_.chains / nodes);
  if (nodes == 1 || random_.Below(100) < 45) return row * nodes + here;
  return row * nodes + (here + 1 + random_.Below(nodes - 1)) % nodes;
}

absl::Duration SoakLoad::PickDeadline() {
  switch (random_.Below(32)) {
    case 0:
      return absl::Milliseconds(1 + random_.Below(10));
    case 1:
      return absl::Milliseconds(50);
    default:
      return kUsualDeadline;
  }
}

void SoakLoad::Round() {
  const std::uint64_t chain = PickChain();
  const Plan& plan = PlanOf(chain);
  const ReadWant want =
      OneIn(3) ? ReadWant::kEveryBlock : ReadWant::kLeadingRun;
  const bool ours = chain % static_cast<std::uint64_t>(options_.nodes) ==
                    static_cast<std::uint64_t>(options_.here - 1);
  if (ours && OneIn(4)) return LookAtViews(plan, PickDeadline());
  const std::vector<Outcome> found = Read(plan, want, PickDeadline());
  // Now and then there are two copies.
  if (ours || OneIn(16)) Write(plan, found, PickDeadline());
  // Where nobody answers, others get the processor.
  if (!client_->Describe().session) poll(nullptr, 0, kPauseMillis);
}

std::vector<Outcome> SoakLoad::Read(const Plan& plan, ReadWant want,
                                    absl::Duration deadline) {
  if (landing_.size() < plan.bytes) landing_.resize(plan.bytes);
  Spoil(absl::MakeSpan(landing_).subspan(0, plan.bytes));
  const std::size_t count = plan.blocks.size();
  // Two pieces a block: the second one is mostly empty.
  std::vector<Buffer> buffers(2 * count);
  std::vector<ReadTarget> targets(count);
  const bool scattered = OneIn(8);
  std::byte* to = landing_.data();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bytes = plan.sizes[i];
    const std::size_t first = scattered ? 1 + random_.Below(bytes - 1) : bytes;
    buffers[2 * i] = {.address = to, .length = first};
    buffers[2 * i + 1] = {.address = to + first, .length = bytes - first};
    targets[i].key = plan.blocks[i].key;
    targets[i].anchor = plan.blocks[i].place.anchor;
    targets[i].destination =
        absl::MakeConstSpan(&buffers[2 * i], scattered ? 2 : 1);
    to += bytes;
  }
  ReadReport report;
  {
    const Timed timed(this, deadline);
    report = client_->Read({.name_space = options_.name_space,
                            .blocks = absl::MakeSpan(targets),
                            .deadline = deadline,
                            .want = want,
                            .trace = {}});
  }
  if (!report.status.ok()) ++page_->refused;
  to = landing_.data();
  std::vector<Outcome> found;
  for (std::size_t i = 0; i < count; ++i) {
    found.push_back(targets[i].outcome);
    if (found.back() == Outcome::kCorrupt) ++page_->corrupt;
    if (found.back() == Outcome::kHit) {
      const auto landed =
          absl::MakeConstSpan(to, static_cast<std::size_t>(plan.sizes[i]));
      const BlockKey& key = plan.blocks[i].key;
      NoteHit(key, landed.size(), CountWrong(key, landed));
    }
    to += plan.sizes[i];
  }
  // Which of them came over the stream, the Client counts.
  const std::uint64_t blocks = client_->Stats().stream_blocks;
  const std::uint64_t came = blocks - std::exchange(stream_blocks_, blocks);
  if (report.bytes_remote > 0) {
    page_->remote_hits += std::min<std::uint64_t>(came, report.hits);
  }
  return found;
}

std::size_t SoakLoad::CountWrong(const BlockKey& key,
                                 absl::Span<const std::byte> bytes) {
  return BlockContent({options_.name_space.id, key}).CountWrong(bytes, nullptr);
}

void SoakLoad::NoteHit(const BlockKey& key, std::size_t bytes,
                       std::size_t wrong) {
  ++page_->hits;
  page_->hit_bytes += bytes;
  if (wrong == 0) return;
  ++page_->wrong;
  std::fprintf(stderr, "wrong: %zu of %zu bytes of block %s\n", wrong, bytes,
               ToHex(key).c_str());
}

void SoakLoad::LookAtViews(const Plan& plan, absl::Duration deadline) {
  std::vector<BlockKey> keys;
  for (const Chain::Block& block : plan.blocks) keys.push_back(block.key);
  ViewBatch views;
  {
    const Timed timed(this, deadline);
    views = client_->OpenViews({.name_space = options_.name_space,
                                .keys = keys,
                                .deadline = deadline,
                                .want = ReadWant::kEveryBlock,
                                .max_age = kViewAge,
                                .trace = {}});
  }
  // Now and then for longer than they are good for.
  if (OneIn(16)) {
    poll(nullptr, 0, static_cast<int>(random_.Below(kLongLookMillis)));
  }
  std::vector<std::size_t> wrong(views.size());
  std::vector<std::size_t> bytes(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    bytes[i] = views.length(i);
    // Every block lies in one piece.
    for (const absl::Span<const std::byte> span : views.spans(i)) {
      wrong[i] += CountWrong(keys[i], span);
    }
  }
  const std::vector<Outcome> verdicts = std::move(views).Close();
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i] == Outcome::kCorrupt) ++page_->corrupt;
    if (verdicts[i] != Outcome::kHit) continue;
    ++page_->view_hits;
    // One of another length would be another block.
    const bool whole = bytes[i] == plan.sizes[i];
    NoteHit(keys[i], bytes[i], whole ? wrong[i] : bytes[i] + 1);
  }
}

std::vector<Outcome> SoakLoad::Write(const Plan& plan,
                                     const std::vector<Outcome>& found,
                                     absl::Duration deadline) {
  std::vector<std::size_t> missing;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == Outcome::kHit) continue;
    missing.push_back(i);
    bytes += plan.sizes[i];
  }
  if (missing.empty()) return {};
  absl::Span<std::byte> source = shared_source_;
  if (bytes > source.size() || OneIn(2)) {
    if (private_source_.size() < bytes) private_source_.resize(bytes);
    source = absl::MakeSpan(private_source_);
  }
  std::vector<ConstBuffer> buffers(missing.size());
  std::vector<WriteBlock> wanted(missing.size());
  for (std::size_t i = 0; i < missing.size(); ++i) {
    const Chain::Block& block = plan.blocks[missing[i]];
    const std::size_t length = plan.sizes[missing[i]];
    BlockContent({options_.name_space.id, block.key})
        .Fill(source.subspan(0, length));
    buffers[i] = {.address = source.data(), .length = length};
    wanted[i].key = block.key;
    wanted[i].place = block.place;
    wanted[i].source = absl::MakeConstSpan(&buffers[i], 1);
    source.remove_prefix(length);
  }
  WriteReport report;
  {
    const Timed timed(this, deadline);
    report = client_->Write(
        {.name_space = options_.name_space,
         .blocks = absl::MakeSpan(wanted),
         .deadline = deadline,
         .wait_for = OneIn(8) ? WriteWait::kPublished : WriteWait::kLocal,
         .hint = {},
         .trace = {}});
  }
  if (!report.status.ok()) ++page_->refused;
  page_->stored += report.stored;
  std::vector<Outcome> outcomes;
  for (const WriteBlock& block : wanted) outcomes.push_back(block.outcome);
  return outcomes;
}

std::map<std::string, std::int64_t> SoakLoad::WriteToTheEnd() {
  const Plan& plan = PlanOf(PickChain());
  std::map<std::string, std::int64_t> counts;
  const auto count = [&counts](const char* what,
                               const std::vector<Outcome>& outcomes) {
    for (const Outcome outcome : outcomes) {
      ++counts[StrCat(what, OutcomeLabel(outcome))];
    }
  };
  std::vector<Outcome> written;
  const BootTime until = clock_.Now() + kPatience;
  do {
    const std::vector<Outcome> found =
        Read(plan, ReadWant::kEveryBlock, kPatientDeadline);
    counts.clear();
    count("read_", found);
    count("write_", written);
    if (counts["read_hit"] == kBlocksAChain) break;
    written = Write(plan, found, kPatientDeadline);
    poll(nullptr, 0, kPauseMillis);
  } while (clock_.Now() < until);
  counts["missing"] = kBlocksAChain - counts["read_hit"];
  return counts;
}

}  // namespace firnkv
