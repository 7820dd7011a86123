#include "server/catalog/catalog_metrics.h"

#include <algorithm>
#include <string>

namespace firnkv {
namespace {

// One method's calls, failures and time.
void AddMethod(std::string_view method, const CallStats& stats,
               MetricList* list) {
  const MetricLabels labels = {{"method", std::string(method)}};
  list->AddCounter("firnkv_catalog_calls_total", "Calls, by method.",
                   &stats.calls, labels);
  list->AddCounter("firnkv_catalog_call_failures_total",
                   "Calls answered with a status other than OK, by method.",
                   &stats.failures, labels);
  list->AddHistogram("firnkv_catalog_call_seconds",
                     "Time from a call's arrival to its answer, by method.",
                     &stats.took, labels);
}

void AddIndex(const CatalogMeters& meters, MetricList* list) {
  const KeyIndex* const index = &meters.entries->index();
  list->AddGauge(
      "firnkv_catalog_index_entries", "Keys in the index in memory.",
      [index] { return static_cast<double>(index->totals().entries); });
  list->AddGauge(
      "firnkv_catalog_index_locations", "Locations in the index in memory.",
      [index] { return static_cast<double>(index->totals().locations); });
  list->AddGauge(
      "firnkv_catalog_index_bytes", "Memory of the index in bytes.",
      [index] { return static_cast<double>(index->totals().bytes); });
  list->AddGauge("firnkv_catalog_index_whole",
                 "1 once everything in the store is in memory too.",
                 [index] { return index->whole() ? 1.0 : 0.0; });
  list->AddCounter("firnkv_catalog_damaged_entries_total",
                   "Entries in the store that failed their checksum.",
                   &meters.entries->damaged());
  list->AddCounter("firnkv_catalog_reaped_locations_total",
                   "Locations removed because they no longer counted.",
                   &meters.reaper->reaped());
}

void AddPlaced(const CatalogMeters& meters, MetricList* list) {
  const Placer::Counters& placed = meters.placer->counters();
  list->AddCounter("firnkv_catalog_placed_blocks_total",
                   "Blocks of remote writers that were given a node.",
                   &placed.blocks);
  list->AddCounter("firnkv_catalog_placed_known_blocks_total",
                   "Of those, blocks that stood at their node already.",
                   &placed.known);
  list->AddCounter("firnkv_catalog_placed_beside_parent_total",
                   "Of those, blocks that went to their parent's node.",
                   &placed.followed);
}

void AddNodes(const CatalogMeters& meters, MetricList* list) {
  const Membership* const membership = meters.membership;
  const auto count = [membership](NodeLife life) {
    const auto rows = membership->List();
    return static_cast<double>(std::count_if(
        rows.begin(), rows.end(),
        [life](const Membership::Row& row) { return row.life == life; }));
  };
  constexpr char kHelp[] = "Nodes, by state.";
  const std::pair<const char*, NodeLife> states[] = {
      {"awaited", NodeLife::kAwaited},
      {"alive", NodeLife::kAlive},
      {"expired", NodeLife::kExpired},
      {"reaped", NodeLife::kReaped}};
  for (const auto& state : states) {
    const NodeLife life = state.second;
    list->AddGauge("firnkv_catalog_nodes", kHelp,
                   [count, life] { return count(life); },
                   {{"state", state.first}});
  }
}

}  // namespace

void DescribeCatalogMetrics(const CatalogMeters& meters, MetricList* list) {
  for (std::size_t i = 0; i < CatalogService::kMethods; ++i) {
    AddMethod(CatalogService::MethodName(i), meters.catalog_service->stats(i),
              list);
  }
  for (std::size_t i = 0; i < AdminService::kMethods; ++i) {
    AddMethod(AdminService::MethodName(i), meters.admin_service->stats(i),
              list);
  }
  AddIndex(meters, list);
  AddNodes(meters, list);
  const Registry* const registry = meters.registry;
  list->AddGauge(
      "firnkv_catalog_namespaces", "Namespace versions.",
      [registry] { return static_cast<double>(registry->namespaces()); });
  const Removals* const removals = meters.removals;
  list->AddGauge(
      "firnkv_catalog_pending_removals",
      "Copies whose removal their nodes have not confirmed.",
      [removals] { return static_cast<double>(removals->pending()); });
  const Locator::Counters& located = meters.locator->counters();
  constexpr char kLocated[] = "Keys asked for, by outcome.";
  list->AddCounter("firnkv_catalog_located_keys_total", kLocated, &located.hits,
                   {{"outcome", "hit"}});
  list->AddCounter("firnkv_catalog_located_keys_total", kLocated,
                   &located.misses, {{"outcome", "miss"}});
  list->AddCounter("firnkv_catalog_located_keys_total", kLocated,
                   &located.unavailable, {{"outcome", "unavailable"}});
  list->AddCounter("firnkv_catalog_located_keys_total", kLocated,
                   &located.skipped, {{"outcome", "skipped"}});
  AddPlaced(meters, list);
  const MemberService::Counters& members = meters.members->counters();
  list->AddCounter("firnkv_catalog_announced_batches_total",
                   "Announcement batches applied.", &members.batches);
  list->AddCounter("firnkv_catalog_announced_entries_total",
                   "Entries of announcement batches applied.",
                   &members.entries);
  list->AddCounter("firnkv_catalog_refused_batches_total",
                   "Announcement batches refused whole.",
                   &members.refused_batches);
  list->AddCounter("firnkv_catalog_refused_entries_total",
                   "Entries refused within batches that were applied.",
                   &members.refused_entries);
  list->AddCounter("firnkv_catalog_registrations_total",
                   "Registrations of nodes.", &members.registrations);
  list->AddCounter("firnkv_catalog_kept_registrations_total",
                   "Registrations of nodes that came back to what they had "
                   "announced, without an inventory.",
                   &members.kept_registrations);
  list->AddCounter("firnkv_catalog_unregistrations_total",
                   "Nodes that ended by themselves and were forgotten at once.",
                   &members.unregistrations);
  list->AddCounter("firnkv_catalog_digest_compares_total",
                   "Comparisons of a node's digests with the catalog's.",
                   &members.compares);
  list->AddCounter("firnkv_catalog_different_buckets_total",
                   "Buckets whose digests differed.",
                   &members.different_buckets);
  list->AddCounter("firnkv_catalog_repaired_buckets_total",
                   "Buckets named by repairs that were applied.",
                   &members.repaired_buckets);
  list->AddCounter("firnkv_catalog_inventories_total",
                   "Full inventories of nodes that have ended.",
                   &members.inventories);
}

}  // namespace firnkv
