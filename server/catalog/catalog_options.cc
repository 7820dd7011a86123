#include "server/catalog/catalog_options.h"

namespace firnkv {

void Describe(CatalogOptions* options, OptionList* list) {
  list->Duration(
      "catalog.lease", &options->membership.lease,
      {.help = "How long a node counts as alive after it was last heard of; "
               "it sends a heartbeat every quarter of it.",
       .least = absl::Seconds(1),
       .most = absl::Minutes(5)});
  list->Duration(
      "catalog.grace", &options->membership.grace,
      {.help = "How long the entries of a node that is not alive are hidden "
               "before they are removed.",
       .least = absl::Seconds(1),
       .most = absl::Hours(24)});
  list->Count("catalog.max_nodes", &options->membership.max_nodes,
              {.help = "Nodes that may be registered; beyond it one whose "
                       "grace is over is forgotten, else the new one refused.",
               .least = 1,
               .most = 65536});
  list->Count("catalog.max_tenants", &options->registry.max_tenants,
              {.help = "Tenants; further ones are refused.",
               .least = 1,
               .most = 65536});
  list->Count("catalog.max_namespaces", &options->registry.max_namespaces,
              {.help = "Namespace versions of all tenants; further ones are "
                       "refused.",
               .least = 1,
               .most = 65536});
  list->Count("catalog.max_versions_a_name",
              &options->registry.max_versions_a_name,
              {.help = "Versions of one namespace name; further ones are "
                       "refused.",
               .least = 1,
               .most = 65536});
  list->Count("catalog.max_index_entries", &options->max_index_entries,
              {.help = "Keys kept in memory, at most 84 bytes each and 24 for "
                       "each further copy; others are looked up on disk.",
               .least = 4096,
               .most = std::uint64_t{1} << 32});
  list->Count("catalog.max_pending_removals",
              &options->removals.max_pending_a_node,
              {.help = "Removals that wait for one node; further ones are "
                       "answered congested.",
               .least = 1,
               .most = 1 << 24});
  list->Count("catalog.reap_step", &options->reaper.step_entries,
              {.help = "Entries that one step of loading or reaping looks at.",
               .least = 16,
               .most = 1 << 20});
  list->Duration("catalog.reap_pause", &options->reaper.pause,
                 {.help = "Pause between two steps of reaping.",
                  .least = absl::ZeroDuration(),
                  .most = absl::Seconds(10)});
}

}  // namespace firnkv
