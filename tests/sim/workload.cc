#include "tests/sim/workload.h"

#include <algorithm>
#include <set>
#include <utility>

namespace firnkv {

void Workload::Drive(SimWorker* worker, int streams) {
  workers_.push_back(worker);
  worker->set_on_ready([this, worker, streams] {
    for (int i = 0; i < streams; ++i) Next(worker, worker->life());
  });
}

void Workload::Next(SimWorker* worker, std::uint64_t life) {
  if (stopped_ || life != worker->life() || !worker->ready()) return;
  // Bursts and pauses, as requests come.
  const absl::Duration think = Below(3) == 0
                                   ? absl::Milliseconds(1 + Below(400))
                                   : absl::Microseconds(1 + Below(3000));
  worker->process()->PostAfter(think * pace_, [this, worker, life] {
    if (stopped_ || life != worker->life() || !worker->ready()) return;
    Request(worker, [this, worker, life] { Next(worker, life); });
  });
}

void Workload::Request(SimWorker* worker, std::function<void()> go_on) {
  const std::uint64_t what = Below(100);
  auto done = [go_on](const std::vector<Outcome>&) { go_on(); };
  if (what < 45) {
    EngineRequest(worker, std::move(go_on));
  } else if (what < 58) {
    RandomRead(worker, std::move(go_on));
  } else if (what < 65) {
    RandomViews(worker, std::move(go_on));
  } else if (what < 85) {
    RandomWrite(worker, std::move(go_on));
  } else if (what < 91) {
    const std::size_t name_space = SomeNameSpace();
    operations_->Exists(worker, name_space, SomeBlocks(name_space),
                        SomeDeadline(), done);
  } else if (what < 95) {
    const std::size_t name_space = SomeNameSpace();
    operations_->Remove(worker, name_space, SomeBlocks(name_space),
                        SomeDeadline(), done);
  } else {
    Reopen(worker, std::move(go_on));
  }
}

void Workload::EngineRequest(SimWorker* worker, std::function<void()> go_on) {
  const std::size_t name_space =
      Below(5) == 0 ? KeySpace::kDrafts : KeySpace::kChained;
  const auto& chains = keys_->chains(name_space);
  const std::vector<PlannedBlock>& chain = chains[Below(chains.size())];
  const std::size_t blocks = 1 + Below(chain.size());
  const std::vector<PlannedBlock> wanted(chain.begin(), chain.begin() + blocks);
  Operations::ReadPlan read;
  read.name_space = name_space;
  read.blocks = wanted;
  read.deadline = SomeDeadline();
  operations_->Read(
      worker, std::move(read),
      [this, worker, wanted, name_space,
       go_on = std::move(go_on)](const std::vector<Outcome>& outcomes) {
        std::size_t hits = 0;
        while (hits < outcomes.size() && outcomes[hits] == Outcome::kHit) {
          ++hits;
        }
        if (stopped_ || hits == wanted.size() || Below(4) == 0) {
          go_on();
          return;
        }
        Operations::WritePlan write;
        write.name_space = name_space;
        write.blocks.assign(wanted.begin() + hits, wanted.end());
        write.deadline = SomeDeadline();
        write.wait_for =
            Below(4) == 0 ? WriteWait::kPublished : WriteWait::kLocal;
        write.shared = Below(3) == 0;
        operations_->Write(worker, std::move(write),
                           [go_on](const std::vector<Outcome>&) { go_on(); });
      });
}

void Workload::RandomRead(SimWorker* worker, std::function<void()> go_on) {
  Operations::ReadPlan read;
  read.name_space = SomeNameSpace();
  read.blocks = SomeBlocks(read.name_space);
  read.deadline = SomeDeadline();
  read.want = Below(4) == 0 ? ReadWant::kLeadingRun : ReadWant::kEveryBlock;
  read.ranges = Below(3) == 0;
  if (Below(2) == 0) RaceAgainst(worker, read.name_space, read.blocks);
  operations_->Read(worker, std::move(read),
                    [go_on](const std::vector<Outcome>&) { go_on(); });
}

void Workload::RandomViews(SimWorker* worker, std::function<void()> go_on) {
  Operations::ViewPlan view;
  view.name_space = SomeNameSpace();
  view.blocks = SomeBlocks(view.name_space);
  view.deadline = SomeDeadline();
  view.want = Below(4) == 0 ? ReadWant::kEveryBlock : ReadWant::kLeadingRun;
  view.max_age = absl::Milliseconds(1 + Below(5000));
  view.looks = 1 + static_cast<int>(Below(4));
  view.held = Below(3) == 0 ? absl::Milliseconds(Below(4000))
                            : absl::Microseconds(Below(3000));
  if (Below(2) == 0) RaceAgainst(worker, view.name_space, view.blocks);
  operations_->View(worker, std::move(view),
                    [go_on](const std::vector<Outcome>&) { go_on(); });
}

void Workload::RaceAgainst(SimWorker* reader, std::size_t name_space,
                           const std::vector<PlannedBlock>& blocks) {
  SimWorker* const other = workers_[Below(workers_.size())];
  if (!other->ready() || other->options().uid != reader->options().uid) return;
  const std::uint64_t life = other->life();
  other->process()->PostAfter(
      absl::Microseconds(Below(3000)), [this, other, life, name_space, blocks] {
        if (stopped_ || life != other->life() || !other->ready()) return;
        operations_->Remove(
            other, name_space, blocks, absl::Seconds(1),
            [this, other, name_space, blocks](const std::vector<Outcome>&) {
              if (stopped_ || !other->ready()) return;
              Operations::WritePlan write;
              write.name_space = name_space;
              write.deadline = absl::Seconds(1);
              const auto& all = KeySpace::IsChained(name_space)
                                    ? keys_->chains(name_space)[0]
                                    : keys_->singles(name_space);
              for (const PlannedBlock& block : all) {
                if (block.length == blocks[0].length &&
                    block.key != blocks[0].key) {
                  write.blocks.push_back(block);
                }
              }
              if (write.blocks.empty()) return;
              operations_->Write(other, std::move(write), nullptr);
            });
      });
}

void Workload::RandomWrite(SimWorker* worker, std::function<void()> go_on) {
  Operations::WritePlan write;
  write.name_space = SomeNameSpace();
  write.blocks = SomeBlocks(write.name_space);
  for (PlannedBlock& block : write.blocks) {
    // Another writer's idea of the block: the old copy must give way (rule
    // P14).
    if (Below(20) != 0) continue;
    if (KeySpace::IsChained(write.name_space)) {
      block.place.tokens += 1 + Below(3);
    } else if (write.name_space == KeySpace::kUnchained) {
      block.length += 1 + Below(9000);
    }
  }
  write.deadline = SomeDeadline();
  write.wait_for = Below(4) == 0 ? WriteWait::kPublished : WriteWait::kLocal;
  write.shared = Below(3) == 0;
  if (write.shared && Below(4) == 0) {
    write.blocks.resize(1);
    write.scribble = true;
  }
  operations_->Write(worker, std::move(write),
                     [go_on](const std::vector<Outcome>&) { go_on(); });
}

void Workload::Reopen(SimWorker* worker, std::function<void()> go_on) {
  const std::size_t index = Below(KeySpace::kNameSpaces);
  worker->Reopen(index, [this, worker, index, go_on](bool worked) {
    if (worked) operations_->NoteSeen(*worker, index);
    go_on();
  });
}

std::size_t Workload::SomeNameSpace() {
  // Files most often: of all sizes, they push each other out.
  switch (Below(10)) {
    case 0:
    case 1:
    case 2:
      return KeySpace::kChained;
    case 3:
      return KeySpace::kDrafts;
    case 4:
    case 5:
      return KeySpace::kStrict;
    default:
      return KeySpace::kUnchained;
  }
}

std::vector<PlannedBlock> Workload::SomeBlocks(std::size_t name_space) {
  return KeySpace::IsChained(name_space)
             ? SomeOfAChain(keys_->chains(name_space))
             : SomeSingles(keys_->singles(name_space));
}

std::vector<PlannedBlock> Workload::SomeSingles(
    const std::vector<PlannedBlock>& singles) {
  std::vector<PlannedBlock> some;
  std::set<std::uint64_t> taken;
  const std::size_t many = 1 + Below(Below(4) == 0 ? 10 : 3);
  for (std::size_t i = 0; i < many; ++i) {
    const std::uint64_t at = Below(singles.size());
    if (taken.insert(at).second) some.push_back(singles[at]);
  }
  return some;
}

std::vector<PlannedBlock> Workload::SomeOfAChain(
    const std::vector<std::vector<PlannedBlock>>& chains) {
  const std::vector<PlannedBlock>& chain = chains[Below(chains.size())];
  const std::size_t first = Below(chain.size());
  const std::size_t many = 1 + Below(chain.size() - first);
  return std::vector<PlannedBlock>(chain.begin() + first,
                                   chain.begin() + first + many);
}

absl::Duration Workload::SomeDeadline() {
  switch (Below(8)) {
    case 0:
      return absl::Microseconds(50 + Below(2000));
    case 1:
      return absl::Seconds(5);
    default:
      return absl::Milliseconds(20 + Below(1000));
  }
}

}  // namespace firnkv
