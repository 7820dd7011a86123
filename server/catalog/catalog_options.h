// Every option of the catalog: those of its parts. Declared for the
// configuration in catalog_options.cc.

#ifndef FIRNKV_SERVER_CATALOG_CATALOG_OPTIONS_H_
#define FIRNKV_SERVER_CATALOG_CATALOG_OPTIONS_H_

#include <cstdint>
#include <string>

#include "server/base/option.h"
#include "server/catalog/membership.h"
#include "server/catalog/placer.h"
#include "server/catalog/reaper.h"
#include "server/catalog/registry.h"
#include "server/catalog/removals.h"

namespace firnkv {

struct CatalogOptions {
  Registry::Options registry;
  Membership::Options membership;
  Removals::Options removals;
  Reaper::Options reaper;
  Placer::Options placer;
  // Entries that stay in memory, of at most 84 bytes each with one copy;
  // further ones are in the store only, and cost a look-up there. 64 million
  // are 5 GiB.
  std::uint64_t max_index_entries = std::uint64_t{64} << 20;
  // Of the software; shown by CatalogStatus.
  std::string version = "unknown";
};

// All but `version`, under "catalog.".
void Describe(CatalogOptions* options, OptionList* list);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_CATALOG_OPTIONS_H_
