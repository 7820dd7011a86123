// The choice among trials, and those that are about blocks (trials.h).

#include "tests/sim/trials.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "server/node/node.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kTrials = 9;

// Trials and the other settings of a schedule, which follow from the seed's low
// bits, come together in all ways.
std::uint64_t TrialOf(std::uint64_t seed) { return seed / 4 % kTrials; }
constexpr std::uint64_t kTrialOfTheGrace = 7;

bool All(const std::vector<Outcome>& outcomes, std::size_t count,
         Outcome wanted) {
  return outcomes.size() == count &&
         std::all_of(outcomes.begin(), outcomes.end(),
                     [wanted](Outcome one) { return one == wanted; });
}

std::string Names(const std::vector<Outcome>& outcomes) {
  std::string text;
  for (const Outcome one : outcomes) {
    absl::StrAppend(&text, " ", std::string(OutcomeName(one)));
  }
  return text.empty() ? " none" : text;
}

}  // namespace

Trials::Trials(const Parts& parts) : parts_(parts) {
  parts.cluster->world()->control()->Watch(
      [this](const SimControl::Seen& seen) { OnCall(seen); });
}

absl::Duration Trials::GraceOf(std::uint64_t seed) {
  // Longer than a lease, short enough to wait for.
  return TrialOf(seed) == kTrialOfTheGrace || seed % 4 == 1
             ? absl::Seconds(12)
             : absl::ZeroDuration();
}

void Trials::Run() {
  static constexpr void (Trials::*kAll[kTrials])() = {
      &Trials::AnotherPlaceReplaces,
      &Trials::AClearIsAtOnce,
      &Trials::AChainElsewhere,
      &Trials::ALeaseIsKept,
      &Trials::ASecondRun,
      &Trials::ADoubledCatalog,
      &Trials::APowerCut,
      &Trials::ANodeComesBackAsItsGraceEnds,
      &Trials::ANodeLeaves};
  parts_.cluster->executor()->Note("trial");
  (this->*kAll[TrialOf(parts_.cluster->executor()->seed())])();
  // Removals come with heartbeats, and are told after them.
  parts_.cluster->RunFor(absl::Seconds(6));
}

void Trials::Violation(std::string_view what, std::string_view how) {
  parts_.oracle->Violation(StrCat(what, ": in ", scene_, ": ", how));
}

bool Trials::Await(std::string_view what,
                   const std::function<bool()>& condition) {
  if (parts_.cluster->RunUntil(condition, absl::Minutes(1))) return true;
  Violation("NEVER", what);
  return false;
}

void Trials::OnCall(const SimControl::Seen& seen) {
  if (to_pause_ == nullptr || to_pause_->process() != seen.caller ||
      seen.method != "/firnkv.v1.NodeService/Reserve") {
    return;
  }
  std::exchange(to_pause_, nullptr)->Pause();
}

bool Trials::Store(SimWorker* writer, std::size_t name_space,
                   const std::vector<PlannedBlock>& blocks) {
  const std::vector<Outcome> outcomes =
      parts_.reckoning->Write(writer, name_space, blocks);
  const bool stored =
      outcomes.size() == blocks.size() &&
      std::all_of(outcomes.begin(), outcomes.end(), [](Outcome one) {
        return one == Outcome::kStored || one == Outcome::kAlreadyThere;
      });
  if (!stored) Violation("NOT STORED", Names(outcomes));
  return stored;
}

// --- Another place.

void Trials::AnotherPlaceReplaces() {
  scene_ = "another place";
  // What was spoilt in memory may be in the way.
  if (parts_.operations->corruption_expected()) return;
  SimWorker* const writer =
      &parts_.cluster->Worker(1 + Someone(parts_.cluster->nodes()), Someone(2));
  const std::vector<PlannedBlock>& chain =
      parts_.keys->chains(KeySpace::kChained)[Someone(5)];
  const auto moved = [](PlannedBlock block) {
    block.place.tokens += 1;
    return block;
  };
  const auto longer = [](PlannedBlock block) {
    block.length += 4000;
    return block;
  };
  const std::vector<PlannedBlock>& singles = parts_.keys->singles();
  ReplaceOne(writer, KeySpace::kChained, chain[1], moved(chain[1]));
  ReplaceOne(writer, KeySpace::kUnchained, singles[2], longer(singles[2]));
  RaceOne(writer, KeySpace::kChained, chain[2], moved(chain[2]));
  RaceOne(writer, KeySpace::kUnchained, singles[3], longer(singles[3]));
  RaceOne(writer, KeySpace::kUnchained, singles[5], longer(singles[5]));
}

void Trials::ExpectResident(SimWorker* worker, std::size_t name_space,
                            const PlannedBlock& block) {
  const BlockId id{worker->name_space(name_space).id, block.key};
  for (int n = 1; n <= parts_.cluster->nodes(); ++n) {
    const SimNode& node = parts_.cluster->Node(n);
    if (node.host() != worker->options().host) continue;
    for (const SlotHeader& header : node.Residents()) {
      if (header.block == id && header.place == block.place &&
          header.length == block.length) {
        return;
      }
    }
  }
  Violation("THE WRONG COPY STAYS", ToHex(block.key).substr(0, 8));
}

void Trials::ReplaceOne(SimWorker* writer, std::size_t name_space,
                        const PlannedBlock& one, const PlannedBlock& other) {
  if (!Store(writer, name_space, {one})) return;
  const std::vector<Outcome> outcomes =
      parts_.reckoning->Write(writer, name_space, {other});
  if (!All(outcomes, 1, Outcome::kStored)) {
    Violation("NOT REPLACED",
              StrCat(ToHex(one.key).substr(0, 8), " is", Names(outcomes)));
  }
  ExpectResident(writer, name_space, other);
}

// Both have their room before either is committed, as chance has it.
void Trials::RaceOne(SimWorker* writer, std::size_t name_space,
                     const PlannedBlock& one, const PlannedBlock& other) {
  const NamespaceId id = writer->name_space(name_space).id;
  // Nobody has it when they begin.
  bool removed = false;
  parts_.operations->Remove(
      writer, name_space, {one}, absl::Seconds(5),
      [&](const std::vector<Outcome>&) { removed = true; });
  if (!Await("the end of a remove", [&] { return removed; })) return;
  std::vector<Outcome> first;
  std::vector<Outcome> second;
  for (const auto& [block, outcomes] :
       {std::pair(&one, &first), std::pair(&other, &second)}) {
    Operations::WritePlan write;
    write.name_space = name_space;
    write.blocks = {*block};
    write.deadline = absl::Seconds(5);
    std::vector<Outcome>* const into = outcomes;
    parts_.operations->Write(
        writer, std::move(write),
        [into](const std::vector<Outcome>& result) { *into = result; });
  }
  if (!Await("the end of two writes",
             [&] { return !first.empty() && !second.empty(); })) {
    return;
  }
  if (!All(first, 1, Outcome::kStored) || !All(second, 1, Outcome::kStored)) {
    Violation("NOT REPLACED", StrCat("two writers of ", ToHex(id).substr(0, 8),
                                     "/", ToHex(one.key).substr(0, 8), " got",
                                     Names(first), Names(second)));
  }
}

// --- A clear.

void Trials::AClearIsAtOnce() {
  scene_ = "a clear";
  const int tenant = Someone(2);
  SimWorker* writer = &parts_.cluster->Worker(1, tenant);
  SimWorker* other = &parts_.cluster->Worker(2, tenant);
  // Of calls that go as frames nobody sees when they come.
  if (writer->options().client.call_frames) std::swap(writer, other);
  const std::vector<PlannedBlock>& chain =
      parts_.keys->chains()[1 + Someone(10)];
  const std::vector<PlannedBlock> before(chain.begin(), chain.begin() + 3);
  if (!Store(writer, KeySpace::kChained, before) ||
      !Store(other, KeySpace::kChained, before)) {
    return;
  }
  ClearUnderAWrite(writer, other);
  // The namespace is empty, and every key can be written.
  AChainElsewhere();
  AStrictClearUnderAView();
  AStrictClearBehindACut();
}

bool Trials::Clear(int tenant, const NamespaceHandle& handle) {
  const std::size_t number = parts_.oracle->BeginClear(handle.id);
  bool answered = false;
  bool cleared = false;
  parts_.cluster->Admin().Clear(
      parts_.cluster->options().tenants[tenant], handle.name,
      SimAdmin::ClearMode::kClear, [&](const SimAdmin::Cleared& answer) {
        answered = true;
        cleared = answer.status.ok();
        if (!cleared) return Violation("NO CLEAR", answer.status.ToString());
        parts_.oracle->EndClear(handle.id, number, answer.epoch);
      });
  return Await("a clear", [&] { return answered; }) && cleared;
}

bool Trials::ReadAfterAClear(SimWorker* reader,
                             const std::vector<PlannedBlock>& blocks) {
  bool opened = false;
  reader->Reopen(KeySpace::kChained, [&](bool worked) { opened = worked; });
  if (!Await("an open", [&] { return opened; })) return false;
  parts_.operations->NoteSeen(*reader, KeySpace::kChained);
  parts_.reckoning->Read(reader, KeySpace::kChained, blocks,
                         ReadWant::kEveryBlock);
  return true;
}

void Trials::ClearUnderAWrite(SimWorker* writer, SimWorker* other) {
  const NamespaceHandle& handle = writer->name_space(KeySpace::kChained);
  const std::vector<PlannedBlock>& chain = parts_.keys->chains()[0];
  std::vector<Outcome> written;
  Operations::WritePlan write;
  write.name_space = KeySpace::kChained;
  write.blocks = {chain[3]};
  write.blocks[0].place.tokens += 2;
  write.deadline = absl::Seconds(15);
  to_pause_ = writer;
  parts_.operations->Write(
      writer, std::move(write),
      [&](const std::vector<Outcome>& result) { written = result; });
  if (!Await("a request for room", [&] { return to_pause_ == nullptr; })) {
    return;
  }
  if (!Clear(Someone(2), handle)) return;
  const std::vector<PlannedBlock>& all =
      parts_.keys->AllBlocks(KeySpace::kChained);
  const auto located = parts_.reckoning->Locate(other, KeySpace::kChained, all,
                                                ReadWant::kEveryBlock);
  if (located.has_value() && located->locations().generations_size() > 0) {
    Violation("CLEARED AND LOCATED",
              StrCat(located->locations().generations_size(), " copies"));
  }
  // Its own node has not heard of the clear; the oracle judges what it says.
  if (!ReadAfterAClear(
          other, std::vector<PlannedBlock>(all.begin(), all.begin() + 8))) {
    return;
  }
  // Now every node has.
  parts_.cluster->RunFor(absl::Seconds(4));
  writer->Resume();
  if (!Await("the end of a write", [&] { return !written.empty(); })) return;
  if (All(written, 1, Outcome::kStored)) {
    Violation("STORED FROM BEFORE A CLEAR", Names(written));
  }
}

void Trials::AChainElsewhere() {
  if (scene_.empty()) scene_ = "a chain elsewhere";
  if (parts_.operations->corruption_expected()) return;
  const int tenant = Someone(2);
  SimWorker* const writer = &parts_.cluster->Worker(1, tenant);
  SimWorker* const reader = &parts_.cluster->Worker(2, tenant);
  // Its first blocks are everybody's, its last ones only its own.
  const std::vector<PlannedBlock>& chain = parts_.keys->chains()[4];
  bool removed = false;
  parts_.operations->Remove(
      reader, KeySpace::kChained, chain, absl::Seconds(5),
      [&](const std::vector<Outcome>&) { removed = true; });
  if (!Await("the end of a remove", [&] { return removed; })) return;
  // Every node has heard of it.
  parts_.cluster->RunFor(absl::Seconds(6));
  const std::size_t run = 2 + Someone(chain.size() - 3);
  if (!Store(writer, KeySpace::kChained,
             std::vector<PlannedBlock>(chain.begin(), chain.begin() + run))) {
    return;
  }
  parts_.reckoning->CheckLeadingRun(reader, KeySpace::kChained, chain);
  std::vector<Outcome> there;
  parts_.operations->Exists(
      reader, KeySpace::kChained, chain, absl::Seconds(5),
      [&](const std::vector<Outcome>& outcomes) { there = outcomes; });
  if (!Await("what exists", [&] { return !there.empty(); })) return;
  for (std::size_t i = 0; i < there.size(); ++i) {
    if ((there[i] == Outcome::kHit) == (i < run)) continue;
    return Violation("EXISTS",
                     StrCat(run, " blocks are there, told are", Names(there)));
  }
}

// --- A lease.

void Trials::Look(SimWorker* worker, const std::vector<PlannedBlock>& blocks,
                  int looks, std::vector<Outcome>* verdicts) {
  Operations::ViewPlan view;
  view.name_space = KeySpace::kStrict;
  view.blocks = blocks;
  view.deadline = absl::Seconds(1);
  view.want = ReadWant::kEveryBlock;
  // Within the node's membership (rule C4).
  view.max_age = absl::Seconds(5);
  view.looks = looks;
  view.held = absl::Milliseconds(4500);
  parts_.operations->View(worker, std::move(view),
                          [verdicts](const std::vector<Outcome>& outcomes) {
                            *verdicts = outcomes;
                          });
  parts_.cluster->RunFor(absl::Milliseconds(20));
}

void Trials::ALeaseIsKept() {
  scene_ = "a lease";
  if (parts_.operations->corruption_expected()) return;
  const int number = 1 + Someone(parts_.cluster->nodes());
  SimNode& node = parts_.cluster->Node(number);
  SimWorker* const worker = &parts_.cluster->Worker(number, Someone(2));
  const std::vector<PlannedBlock>& all =
      parts_.keys->singles(KeySpace::kStrict);
  const std::vector<PlannedBlock> leased(all.begin(), all.begin() + 4);
  if (!Store(worker, KeySpace::kStrict, leased)) return;
  std::vector<Outcome> verdicts;
  Look(worker, leased, 16, &verdicts);
  bool removed = false;
  parts_.operations->Remove(
      worker, KeySpace::kStrict, leased, absl::Seconds(1),
      [&](const std::vector<Outcome>&) { removed = true; });
  if (!Await("the end of a remove", [&] { return removed; })) return;
  // They want the very slots.
  parts_.reckoning->Write(
      worker, KeySpace::kStrict,
      std::vector<PlannedBlock>(all.begin() + 8, all.end()));
  parts_.cluster->RunFor(absl::Seconds(3));
  parts_.reckoning->Write(worker, KeySpace::kStrict, {all[6], all[7]});
  // And now the whole region is wanted.
  node.node()->SetDramTarget(0);
  if (!Await("the end of a view", [&] { return !verdicts.empty(); })) return;
  // In a pool as small as this one of them may have pushed out another before
  // they were opened: that was a miss from the beginning.
  std::erase(verdicts, Outcome::kMiss);
  if (!All(verdicts, verdicts.size(), Outcome::kHit)) {
    Violation("A LEASE WAS NOT KEPT", Names(verdicts));
  }
  parts_.cluster->RunFor(absl::Seconds(2));
  node.node()->SetDramTarget(parts_.cluster->options().pool_bytes);
}

}  // namespace firnkv
