// Random announcements of three nodes, with lost answers, repeated and skipped
// batches, restarts, inventories, leases and graces that end, registrations
// that are kept, comparisons and repairs, clears and power cuts, against a
// reference that keeps nothing but what the rules say. The seed is printed on
// failure.

#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/catalog/entry_change.h"
#include "server/catalog/stale_runs.h"
#include "tests/server/catalog/catalog_fixture.h"

namespace firnkv {
namespace {

constexpr int kNodes = 3;
constexpr std::uint64_t kKeys = 12;

class AnnouncementsModelTest : public CatalogFixture,
                               public testing::WithParamInterface<int> {
 protected:
  struct Event {
    int name_space = 0;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    Said said;
  };
  // One node, as itself knows it: the truth about its copies, the events that
  // the catalog has not confirmed, and its registration.
  struct ModelNode {
    std::uint8_t number = 0;
    std::uint64_t epoch = 0;
    std::uint64_t registered_epoch = 0;
    std::uint64_t generation = 0;
    Member member;
    bool registered = false;
    // By (namespace, key): generation and clear epoch.
    std::map<std::pair<int, std::uint64_t>,
             std::pair<std::uint64_t, ClearEpoch>>
        copies;
    // In order; the first `sent` of them are a batch without an answer.
    std::vector<Event> events;
    std::size_t sent = 0;
  };

  std::uint64_t Below(std::uint64_t bound) { return dice_.Below(bound); }
  NamespaceFacts Facts(int ns, ClearEpoch epoch) {
    NamespaceFacts facts = namespaces_[static_cast<std::size_t>(ns)];
    facts.clear_epoch = epoch;
    return facts;
  }
  ClearEpoch Current(int ns) {
    return life_->registry
        .Describe(namespaces_[static_cast<std::size_t>(ns)].name_space)
        ->clear_epoch;
  }

  void Begin() {
    namespaces_ = {MakeNamespace("granite"), MakeNamespace("granite", "other")};
    for (int i = 0; i < kNodes; ++i) {
      ModelNode node;
      node.number = static_cast<std::uint8_t>(i + 1);
      node.epoch = 100 * static_cast<std::uint64_t>(i + 1);
      nodes_.push_back(node);
    }
  }

  // The node writes or evicts something.
  void Happen(ModelNode* node) {
    const int ns = static_cast<int>(Below(2));
    const std::uint64_t key = Below(kKeys);
    const auto at = std::make_pair(ns, key);
    const auto it = node->copies.find(at);
    if (it != node->copies.end()) {
      node->events.push_back(
          {ns,
           it->second.second,
           {nullptr, key, it->second.first, EntryOperation::kWithdraw}});
      node->copies.erase(it);
      if (Below(2) == 0) return;
    }
    // Mostly it knows of the last clear, sometimes not yet.
    ClearEpoch epoch = Current(ns);
    if (epoch > ClearEpoch{1} && Below(5) == 0) {
      epoch = ClearEpoch{static_cast<std::uint64_t>(epoch) - 1};
    }
    node->copies[at] = {++node->generation, epoch};
    node->events.push_back({ns, epoch, {nullptr, key, node->generation}});
  }

  // What the node has of the present clear epochs, where `wanted` says so.
  std::vector<Said> Truth(const ModelNode& node,
                          const std::set<std::uint32_t>* wanted = nullptr) {
    std::vector<Said> truth;
    for (const auto& [at, copy] : node.copies) {
      if (copy.second != Current(at.first)) continue;
      if (wanted != nullptr && !wanted->contains(CopyBucket(Key(at.second)))) {
        continue;
      }
      now_[at.first] = Facts(at.first, copy.second);
      truth.push_back({&now_[at.first], at.second, copy.first});
    }
    return truth;
  }
  BucketSums TruthSums(const ModelNode& node) {
    BucketSums sums;
    for (const Said& one : Truth(node)) {
      sums.Add({.name_space = one.name_space->name_space, .key = Key(one.key)},
               one.tier, Generation{one.generation});
    }
    return sums;
  }

  // Registers, and tells the catalog what it does not have. False: it has to be
  // done again.
  bool Reregister(ModelNode* node, bool finish) {
    node->registered = false;
    const auto member =
        TryRegister(node->number, node->epoch, node->registered_epoch);
    if (!member.ok()) return false;
    node->registered_epoch = node->epoch;
    // The answer may be lost.
    if (!finish && Below(4) == 0) return false;
    const Member before = node->member;
    node->member = *member;
    node->sent = 0;
    if (!member->kept) return Inventory(node, finish);
    ++kept_;
    // Rule A1: up to what is there. The node knows whether that is all.
    const bool lost = member->kept_registration != before.registration ||
                      member->kept_applied < before.number;
    node->registered = true;
    if (!SendEvents(node) || !lost) return node->registered;
    ++losses_;
    return Mend(node);
  }

  bool Inventory(ModelNode* node, bool finish) {
    if (!Send(&node->member, BatchKind::kInventoryBegin, {}).ok()) return false;
    for (const auto& [at, copy] : node->copies) {
      const NamespaceFacts facts = Facts(at.first, copy.second);
      if (!Send(&node->member, BatchKind::kInventoryPart,
                {{&facts, at.second, copy.first}})
               .ok()) {
        return false;
      }
      if (!finish && Below(4) == 0) return false;
    }
    if (!Send(&node->member, BatchKind::kInventoryEnd, {}).ok()) return false;
    node->events.clear();
    node->registered = true;
    return true;
  }

  // Rule A5: compares, and repairs what differs.
  bool Mend(ModelNode* node) {
    LoadIndex();
    const BucketSums ours = TruthSums(*node);
    const BucketSums theirs = Digests(node->member);
    std::set<std::uint32_t> different;
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const std::uint32_t bucket = CopyBucket(Key(key));
      if (ours.Bucket(bucket) != theirs.Bucket(bucket)) {
        different.insert(bucket);
      }
    }
    if (different.empty()) return true;
    ++repairs_;
    const auto applied =
        Send(&node->member, BatchKind::kRepair, Truth(*node, &different),
             {different.begin(), different.end()});
    // The lease is over, or batches were lost.
    if (!applied.ok()) {
      node->registered = false;
      return false;
    }
    EXPECT_EQ(Digests(node->member), TruthSums(*node));
    return true;
  }

  // Sends what has happened, first again what had no answer. False: the
  // registration is over.
  bool SendEvents(ModelNode* node) {
    while (!node->events.empty()) {
      const std::size_t count =
          node->sent == 0 ? node->events.size() : node->sent;
      std::vector<NamespaceFacts> facts;
      std::vector<Said> said;
      facts.reserve(count);
      for (std::size_t i = 0; i < count; ++i) {
        const Event& event = node->events[i];
        facts.push_back(Facts(event.name_space, event.clear_epoch));
        said.push_back(event.said);
        said.back().name_space = &facts.back();
      }
      Member before = node->member;
      if (!Send(&node->member, said).ok()) {
        node->registered = false;
        return false;
      }
      if (Below(3) == 0) {
        const auto again = Send(&before, said);
        EXPECT_OK(again);
        EXPECT_EQ(before.number, node->member.number);
      }
      if (Below(6) == 0) {
        // A number that does not follow is refused, and changes nothing.
        Member skipped = node->member;
        skipped.number += 1 + Below(3);
        EXPECT_FALSE(Send(&skipped, said).ok());
      }
      node->events.erase(
          node->events.begin(),
          node->events.begin() + static_cast<std::ptrdiff_t>(count));
      node->sent = 0;
    }
    return true;
  }

  void Announce(ModelNode* node) {
    if (!node->registered) {
      Reregister(node, /*finish=*/false);
    } else if (!node->events.empty() && Below(5) == 0) {
      LoseAnswer(node);
    } else if (SendEvents(node) && Below(8) == 0) {
      Mend(node);
    }
  }

  // A batch is applied, and the node does not learn of it.
  void LoseAnswer(ModelNode* node) {
    if (node->sent != 0) return;
    const Member before = node->member;
    std::vector<Event> all = node->events;
    if (!SendEvents(node)) return;
    node->member = before;
    node->events = std::move(all);
    node->sent = node->events.size();
  }

  void Fault() {
    switch (Below(7)) {
      case 0:
        Restart();
        break;
      case 1:
        store_.PowerCut(&dice_);
        Restart();
        break;
      case 2: {
        ModelNode& node = nodes_[Below(kNodes)];
        // The next run of the node, with nothing in it.
        node.epoch += 1;
        node.copies.clear();
        node.events.clear();
        node.sent = 0;
        node.registered = false;
        break;
      }
      case 3:
        Clear(namespaces_[Below(2)]);
        break;
      case 4:
        if (Below(2) == 0) LoadIndex();
        ReapSome();
        break;
      case 5:
        // Everybody's lease ends, nobody's grace.
        Pass(life_->membership.lease() + absl::Minutes(1));
        break;
      case 6:
        // And the grace; one may come back before its turn.
        Pass(life_->membership.lease() + absl::Minutes(15));
        if (Below(2) == 0) Reregister(&nodes_[Below(kNodes)], false);
        for (const Membership::Overdue& one : overdue_) {
          ASSERT_OK(life_->membership.Reap(one));
        }
        break;
    }
  }

  void ReapSome() {
    StaleRuns stale(&life_->membership);
    std::string cursor;
    std::vector<BlockId> all;
    while (*life_->entries.Walk(
        &cursor, 8, [&](const BlockId& block, const KeyIndex::Entry&) {
          all.push_back(block);
        })) {
    }
    auto batch = life_->entries.Load(all);
    ASSERT_OK(batch);
    for (EntryBatch::Slot& slot : batch->slots()) {
      DropStale(&slot,
                life_->registry.Describe(slot.block.name_space)->clear_epoch,
                stale);
    }
    ASSERT_OK(life_->entries.Commit(*std::move(batch), {}));
  }

  // Everything has been told: the catalog says exactly what the nodes have.
  void ExpectAgreement() {
    for (int ns = 0; ns < 2; ++ns) {
      for (std::uint64_t key = 0; key < kKeys; ++key) {
        std::set<std::pair<NodeId, std::uint64_t>> truth;
        for (const ModelNode& node : nodes_) {
          const auto it = node.copies.find({ns, key});
          if (it != node.copies.end() && it->second.second == Current(ns)) {
            truth.insert({Node(node.number), it->second.first});
          }
        }
        std::set<std::pair<NodeId, std::uint64_t>> told;
        const Locator::Answer answer =
            Locate(namespaces_[static_cast<std::size_t>(ns)], {key});
        for (const Locator::Copy& copy : answer.copies) {
          told.insert({answer.nodes[copy.node].node,
                       static_cast<std::uint64_t>(copy.generation)});
        }
        ASSERT_EQ(told, truth) << "namespace " << ns << ", key " << key;
      }
    }
    // Rule A5: and once what was cleared is gone, it has counted right.
    LoadIndex();
    ReapSome();
    life_->digests.DropStale();
    for (const ModelNode& node : nodes_) {
      ASSERT_EQ(Digests(node.member), TruthSums(node)) << int{node.number};
    }
  }

  SeededRandom dice_{static_cast<std::uint64_t>(GetParam())};
  std::vector<NamespaceFacts> namespaces_;
  // What Truth's answers point to.
  std::map<int, NamespaceFacts> now_;
  std::vector<ModelNode> nodes_;
  int kept_ = 0;
  int losses_ = 0;
  int repairs_ = 0;
};

// Rules A1, A2, A3, A4, A5, C1, C2.
TEST_P(AnnouncementsModelTest, AfterQuietCatalogAndNodesAgree) {
  Begin();
  for (int step = 0; step < 400; ++step) {
    ModelNode& node = nodes_[Below(kNodes)];
    if (Below(12) == 0) {
      Fault();
    } else if (Below(2) == 0) {
      Announce(&node);
    } else {
      Happen(&node);
    }
    if (step % 100 != 99) continue;
    for (ModelNode& one : nodes_) {
      if (!one.registered || !KeepAlive(one.member).ok() || !SendEvents(&one)) {
        ASSERT_TRUE(Reregister(&one, /*finish=*/true));
      }
      ASSERT_TRUE(SendEvents(&one));
    }
    ExpectAgreement();
    if (HasFatalFailure()) return;
  }
  RecordProperty("kept", kept_);
  RecordProperty("losses", losses_);
  RecordProperty("repairs", repairs_);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnnouncementsModelTest, testing::Range(1, 101));

}  // namespace
}  // namespace firnkv
