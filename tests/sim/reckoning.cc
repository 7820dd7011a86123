#include "tests/sim/reckoning.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "server/node/node.h"

namespace firnkv {

void Reckoning::CheckNothingIsLeftOver() {
  for (int n = 1; n <= cluster_->nodes(); ++n) {
    const PoolSnapshot pool = cluster_->Node(n).Snapshot();
    auto none = [&](const char* what, std::uint64_t count) {
      if (count == 0) return;
      oracle_->Violation(
          StrCat("LEFT OVER: node", n, " has ", count, " ", what));
    };
    none("reserved slots", pool.reserved_slots);
    none("retiring slots", pool.retiring_slots);
    none("leases", pool.leases);
    none("holds", pool.holds);
    none("waiting batches", pool.waiting_batches);
    const std::uint64_t sum = pool.free_slot_bytes + pool.reserved_bytes +
                              pool.resident_bytes + pool.retiring_bytes +
                              pool.unused_unit_bytes + pool.slab_rest_bytes;
    if (sum != pool.live_region_bytes) {
      oracle_->Violation(StrCat("LOST SLOTS: node", n, ": parts make ", sum,
                                " of ", pool.live_region_bytes, " bytes"));
    }
    if (pool.region_bytes > pool.target_bytes) {
      oracle_->Violation(StrCat("OVER TARGET: node", n, ": ", pool.region_bytes,
                                " of ", pool.target_bytes));
    }
    // Those of before a clear take memory, and nobody can read them.
    if (pool.blocks != cluster_->Node(n).Residents().size()) {
      oracle_->Violation(StrCat("CLEARED COPIES STAY: node", n, " has ",
                                pool.blocks, " blocks, and serves ",
                                cluster_->Node(n).Residents().size()));
    }
    ExpectZero(n, "firnkv_node_copy_queue_bytes", "LEFT OVER");
    ExpectZero(n, "firnkv_node_reservations", "LEFT OVER");
    // Rule A5: what nobody has lost needs no repair. (A registration that was
    // kept repairs at once, also what a clear is about to mend.)
    if (oracle_->catalog_losses() > 0 ||
        ValueOf(n, "firnkv_node_resumed_registrations_total") > 0) {
      continue;
    }
    ExpectZero(n, "firnkv_node_different_buckets_total",
               "REPAIRED, AND NOTHING WAS LOST");
  }
}

double Reckoning::ValueOf(int node, std::string_view name) {
  const SimNode& asked = cluster_->Node(node);
  Described& known = described_[node];
  if (known.life != asked.life()) {
    known = {.life = asked.life(), .list = {}};
    asked.node()->DescribeMetrics(&known.list);
  }
  for (const Metric& metric : known.list.metrics()) {
    if (metric.name != name) continue;
    if (const auto* counter = std::get_if<const Counter*>(&metric.read)) {
      return static_cast<double>((*counter)->value());
    }
    return std::get<std::function<double()>>(metric.read)();
  }
  oracle_->Violation(StrCat("NO METRIC: ", name));
  return 0;
}

void Reckoning::ExpectZero(int node, std::string_view name,
                           std::string_view otherwise) {
  const double value = ValueOf(node, name);
  if (value == 0) return;
  oracle_->Violation(StrCat(otherwise, ": node", node, ": ", name, " is ",
                            static_cast<std::uint64_t>(value)));
}

void Reckoning::CheckNobodyFellBack() {
  for (int n = 1; n <= cluster_->nodes(); ++n) {
    if (!cluster_->Node(n).fell_back()) continue;
    oracle_->Violation(StrCat("FELL BACK: node", n,
                              " follows an older catalog than it has seen"));
  }
}

Reckoning::Places Reckoning::CopiesOnNodes() {
  Places places;
  for (int n = 1; n <= cluster_->nodes(); ++n) {
    for (const SlotHeader& header : cluster_->Node(n).Residents()) {
      places.push_back(
          {header.block, static_cast<std::size_t>(n), header.generation});
    }
  }
  std::sort(places.begin(), places.end());
  return places;
}

std::optional<v1::LocateResponse> Reckoning::Locate(
    SimWorker* worker, std::size_t name_space,
    const std::vector<PlannedBlock>& blocks, ReadWant want) {
  const NamespaceHandle& handle = worker->name_space(name_space);
  v1::LocateRequest request;
  RequestHeader header{.remaining = absl::Seconds(2)};
  header.token = worker->client()->Describe().token;
  ToProto(header, request.mutable_header());
  request.set_name_space(IdToProto(handle.id));
  std::vector<BlockKey> keys;
  std::vector<BlockKey> anchors;
  for (const PlannedBlock& block : blocks) {
    keys.push_back(block.key);
    anchors.push_back(block.place.anchor);
  }
  request.set_keys(KeysToProto(keys));
  request.set_anchors(KeysToProto(anchors));
  request.set_leading_run(want == ReadWant::kLeadingRun);
  std::optional<absl::StatusOr<std::string>> answer;
  const auto channel =
      worker->machine()->seams().control->Connect(SimCatalog::kAddress);
  channel->StartCall("/firnkv.v1.CatalogService/Locate",
                     request.SerializeAsString(), absl::Seconds(2),
                     [&](absl::StatusOr<std::string> response) {
                       answer = std::move(response);
                     });
  cluster_->RunUntil([&] { return answer.has_value(); });
  v1::LocateResponse response;
  if (!answer.has_value() || !answer->ok() ||
      !response.ParseFromString(**answer)) {
    oracle_->Violation(StrCat(
        "NO ANSWER: Locate: ",
        answer.has_value() ? answer->status().ToString() : "none at all"));
    return std::nullopt;
  }
  return response;
}

bool Reckoning::AddPlaces(int tenant, std::size_t name_space, Places* places) {
  SimWorker& worker = cluster_->Worker(1, tenant);
  const std::vector<PlannedBlock>& blocks = keys_->AllBlocks(name_space);
  const auto located =
      Locate(&worker, name_space, blocks, ReadWant::kEveryBlock);
  if (!located.has_value()) return false;
  const v1::LocateResponse& response = *located;
  std::map<std::string, std::size_t> numbers;
  for (int n = 1; n <= cluster_->nodes(); ++n) {
    numbers[IdToProto(cluster_->Node(n).id())] = static_cast<std::size_t>(n);
  }
  int hit = 0;
  int at = 0;
  for (std::size_t i = 0; i < response.outcomes().size(); ++i) {
    if (static_cast<Outcome>(response.outcomes()[i]) != Outcome::kHit) continue;
    const std::uint32_t many = response.location_counts(hit++);
    for (std::uint32_t j = 0; j < many; ++j, ++at) {
      const int node = static_cast<int>(response.locations().node_indexes(at));
      places->push_back(
          {BlockId{worker.name_space(name_space).id, blocks[i].key},
           numbers[response.nodes(node).node()],
           static_cast<Generation>(response.locations().generations(at))});
    }
  }
  return true;
}

bool Reckoning::CopiesInIndex(Places* places) {
  for (int tenant = 0; tenant < cluster_->tenants(); ++tenant) {
    for (std::size_t i = 0; i < cluster_->options().name_spaces.size(); ++i) {
      if (!AddPlaces(tenant, i, places)) return false;
    }
  }
  std::sort(places->begin(), places->end());
  return true;
}

std::string Reckoning::Name(const Place& place) const {
  return StrCat(ToHex(place.block.name_space).substr(0, 8), "/",
                ToHex(place.block.key).substr(0, 8), " generation ",
                static_cast<std::uint64_t>(place.generation), " on node",
                place.node);
}

void Reckoning::CheckIndexNamesNothingOf(int node) {
  Places index;
  if (!CopiesInIndex(&index)) return;
  for (const Place& place : index) {
    if (place.node != static_cast<std::size_t>(node)) continue;
    oracle_->Violation(StrCat("A NODE THAT LEFT IS NAMED: ", Name(place)));
    return;
  }
}

void Reckoning::CheckIndexAndNodesAgree() {
  Places index;
  if (!CopiesInIndex(&index)) return;
  const Places nodes = CopiesOnNodes();
  std::vector<Place> only_index;
  std::vector<Place> only_nodes;
  std::set_difference(index.begin(), index.end(), nodes.begin(), nodes.end(),
                      std::back_inserter(only_index));
  std::set_difference(nodes.begin(), nodes.end(), index.begin(), index.end(),
                      std::back_inserter(only_nodes));
  if (!only_index.empty()) {
    oracle_->Violation(StrCat("ONLY IN THE INDEX: ", only_index.size(),
                              " copies, such as ", Name(only_index[0])));
  }
  if (!only_nodes.empty()) {
    oracle_->Violation(StrCat("ONLY ON NODES: ", only_nodes.size(),
                              " copies, such as ", Name(only_nodes[0])));
  }
}

void Reckoning::CheckLeadingRuns() {
  const std::uint64_t seed = cluster_->executor()->seed();
  for (int tenant = 0; tenant < cluster_->tenants(); ++tenant) {
    for (const std::size_t name_space :
         {KeySpace::kChained, KeySpace::kDrafts}) {
      const auto& chains = keys_->chains(name_space);
      for (std::size_t i = seed % 3; i < chains.size(); i += 3) {
        SimWorker& worker = cluster_->Worker(
            1 + static_cast<int>((seed + i) % cluster_->nodes()), tenant);
        CheckLeadingRun(&worker, name_space, chains[i]);
      }
    }
  }
}

std::size_t Reckoning::LeadingRun(NamespaceId name_space,
                                  const std::vector<PlannedBlock>& chain) {
  absl::flat_hash_set<BlockKey> there;
  for (int n = 1; n <= cluster_->nodes(); ++n) {
    for (const SlotHeader& header : cluster_->Node(n).Residents()) {
      if (header.block.name_space == name_space) {
        there.insert(header.block.key);
      }
    }
  }
  std::size_t run = 0;
  while (run < chain.size() && there.contains(chain[run].key)) ++run;
  return run;
}

void Reckoning::CheckLeadingRun(SimWorker* worker, std::size_t name_space,
                                const std::vector<PlannedBlock>& chain) {
  const NamespaceId id = worker->name_space(name_space).id;
  // What the last read led to has been promoted, in the place of others, and
  // the catalog knows.
  cluster_->RunFor(absl::Milliseconds(100));
  std::size_t run = LeadingRun(id, chain);
  auto exact = [&](const std::vector<Outcome>& outcomes) {
    bool all = outcomes.size() == chain.size();
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const Outcome right = i < run    ? Outcome::kHit
                            : i == run ? Outcome::kMiss
                                       : Outcome::kSkipped;
      all = all && outcomes[i] == right;
    }
    return all;
  };
  auto complain = [&](const char* who, const std::vector<Outcome>& outcomes) {
    std::string text =
        StrCat("LEADING RUN: ", who, " of ", worker->options().name, ": ", run,
               " of ", chain.size(), " are there, says");
    for (const Outcome one : outcomes) {
      absl::StrAppend(&text, " ", std::string(OutcomeName(one)));
    }
    oracle_->Violation(std::move(text));
  };
  const auto located = Locate(worker, name_space, chain, ReadWant::kLeadingRun);
  if (!located.has_value()) return;
  std::vector<Outcome> outcomes;
  for (const char outcome : located->outcomes()) {
    outcomes.push_back(static_cast<Outcome>(outcome));
  }
  if (!exact(outcomes)) complain("Locate", outcomes);
  // What a bit flip spoilt is found by its first reader.
  if (operations_->corruption_expected()) return;
  // Where a node was away, the client's first read of it is a probe, and as
  // long as a part of the locations is remembered (5 s) that may be all.
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    outcomes = Read(worker, name_space, chain, ReadWant::kLeadingRun);
    if (exact(outcomes)) return;
    cluster_->RunFor(absl::Seconds(6));
    run = LeadingRun(id, chain);
  }
  complain("a read", outcomes);
}

bool Reckoning::AnotherLengthIsThere(SimWorker* reader, std::size_t name_space,
                                     const PlannedBlock& block) {
  const BlockId id{reader->name_space(name_space).id, block.key};
  for (int n = 1; n <= cluster_->nodes(); ++n) {
    for (const SlotHeader& header : cluster_->Node(n).Residents()) {
      if (header.block == id && header.length != block.length) return true;
    }
  }
  return false;
}

// For people: the copies of the key, and how full the nodes are.
std::string Reckoning::WhoHas(const BlockKey& key) {
  std::string text = "copies:";
  for (int n = 1; n <= cluster_->nodes(); ++n) {
    for (const SlotHeader& header : cluster_->Node(n).Residents()) {
      if (header.block.key != key) continue;
      text += StrCat(" node", n, " namespace ",
                     ToHex(header.block.name_space).substr(0, 8), " ",
                     header.length, " bytes;");
    }
    const PoolSnapshot pool = cluster_->Node(n).Snapshot();
    text += StrCat(" node", n, " has ", pool.regions, " regions, ",
                   pool.region_bytes, " of ", pool.target_bytes, " bytes, ",
                   pool.free_slot_bytes, " free, ", pool.reserved_bytes,
                   " reserved, ", pool.resident_bytes, " resident, ",
                   pool.retiring_bytes, " retiring, ", pool.unused_unit_bytes,
                   " in no slab, ", pool.leased_slots, " leased slots, ",
                   pool.holds, " holds;");
  }
  return text;
}

std::vector<Outcome> Reckoning::Write(SimWorker* writer, std::size_t name_space,
                                      const std::vector<PlannedBlock>& blocks) {
  std::vector<Outcome> outcomes;
  Operations::WritePlan write;
  write.name_space = name_space;
  write.blocks = blocks;
  write.deadline = absl::Seconds(5);
  write.wait_for = WriteWait::kPublished;
  operations_->Write(
      writer, std::move(write),
      [&](const std::vector<Outcome>& result) { outcomes = result; });
  cluster_->RunUntil([&] { return !outcomes.empty(); }, absl::Seconds(10));
  return outcomes;
}

std::vector<Outcome> Reckoning::Read(SimWorker* reader, std::size_t name_space,
                                     const std::vector<PlannedBlock>& blocks,
                                     ReadWant want) {
  std::vector<Outcome> outcomes;
  Operations::ReadPlan read;
  read.name_space = name_space;
  read.blocks = blocks;
  read.deadline = absl::Seconds(5);
  read.want = want;
  read.quiet = true;
  operations_->Read(
      reader, std::move(read),
      [&](const std::vector<Outcome>& result) { outcomes = result; });
  cluster_->RunUntil([&] { return !outcomes.empty(); }, absl::Seconds(10));
  return outcomes;
}

void Reckoning::WriteAndReadBack(SimWorker* writer, SimWorker* reader,
                                 std::size_t name_space,
                                 const std::vector<PlannedBlock>& blocks) {
  const std::vector<Outcome> written = Write(writer, name_space, blocks);
  const std::vector<Outcome> read =
      Read(reader, name_space, blocks, ReadWant::kEveryBlock);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i < read.size() && read[i] == Outcome::kHit) continue;
    if (i < read.size() && read[i] == Outcome::kWrongSize &&
        AnotherLengthIsThere(reader, name_space, blocks[i])) {
      // The reader's own node has what somebody once took the block to be.
      continue;
    }
    WriteAndReadAlone(writer, reader, name_space, blocks[i]);
  }
}

// The rest of a batch may push a block out of a pool this small, the first
// reader of what a bit flip spoilt finds that, and a reader whose other node
// was away until now leaves it alone for a while yet: but then it must work.
void Reckoning::WriteAndReadAlone(SimWorker* writer, SimWorker* reader,
                                  std::size_t name_space,
                                  const PlannedBlock& block) {
  std::vector<Outcome> written;
  std::vector<Outcome> read;
  for (int i = 0; i < (operations_->corruption_expected() ? 4 : 2); ++i) {
    // Longer than Router::kPace, and a read that sets off the probe before.
    if (!read.empty() && read[0] == Outcome::kUnavailable) {
      cluster_->RunFor(absl::Seconds(2));
      Read(reader, name_space, {block}, ReadWant::kEveryBlock);
      cluster_->RunFor(absl::Milliseconds(100));
    }
    written = Write(writer, name_space, {block});
    read = Read(reader, name_space, {block}, ReadWant::kEveryBlock);
    if (!read.empty() && read[0] == Outcome::kHit) return;
    if (!read.empty() && read[0] == Outcome::kWrongSize &&
        AnotherLengthIsThere(reader, name_space, block)) {
      return;
    }
  }
  oracle_->Violation(StrCat(
      "CANNOT BE WRITTEN OR READ: ", ToHex(block.key).substr(0, 8), " by ",
      writer->options().name, ": ",
      written.empty() ? "no end" : OutcomeName(written[0]), "; by ",
      reader->options().name, ": ",
      read.empty() ? "no end" : OutcomeName(read[0]), "; ", WhoHas(block.key)));
}

void Reckoning::CheckEveryKeyCanBeWritten() {
  // Small batches, so that what was written is still there when it is read.
  constexpr std::size_t kBatch = 8;
  constexpr std::size_t kShares = 16;
  int turn = 0;
  for (int tenant = 0; tenant < cluster_->tenants(); ++tenant) {
    for (std::size_t i = 0; i < cluster_->options().name_spaces.size(); ++i) {
      const std::vector<PlannedBlock>& all = keys_->AllBlocks(i);
      // Some of the keys in each schedule, each key in some.
      for (std::size_t at = cluster_->executor()->seed() % kShares * kBatch;
           at < all.size(); at += kShares * kBatch) {
        const std::vector<PlannedBlock> blocks(
            all.begin() + at, all.begin() + std::min(all.size(), at + kBatch));
        const int from = 1 + turn % cluster_->nodes();
        const int to = 1 + (turn + turn / 3) % cluster_->nodes();
        ++turn;
        WriteAndReadBack(&cluster_->Worker(from, tenant),
                         &cluster_->Worker(to, tenant), i, blocks);
      }
    }
  }
}

void Reckoning::CheckWorkersGiveEverythingBack() {
  for (const auto& worker : cluster_->workers()) {
    SimMemory* memory = worker->machine()->memory();
    worker->Stop();
    cluster_->RunFor(absl::Seconds(3));
    if (memory->bytes_made() != 0) {
      oracle_->Violation(StrCat("LEFT OVER: ", memory->bytes_made(),
                                " bytes of memory of ",
                                worker->options().name));
    }
  }
  for (int n = 1; n <= cluster_->nodes(); ++n) {
    const PoolSnapshot pool = cluster_->Node(n).Snapshot();
    if (pool.mapped_after_retirement_bytes != 0) {
      oracle_->Violation(
          StrCat("LEFT OVER: node", n, " counts mappings of nobody"));
    }
    ExpectZero(n, "firnkv_node_sessions", "LEFT OVER");
    ExpectZero(n, "firnkv_node_staging_bytes", "LEFT OVER");
  }
}

}  // namespace firnkv
