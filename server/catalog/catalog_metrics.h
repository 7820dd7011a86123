// Every metric of the catalog: name, unit, help.

#ifndef FIRNKV_SERVER_CATALOG_CATALOG_METRICS_H_
#define FIRNKV_SERVER_CATALOG_CATALOG_METRICS_H_

#include "server/base/metrics.h"
#include "server/catalog/admin_service.h"
#include "server/catalog/catalog_service.h"
#include "server/catalog/entries.h"
#include "server/catalog/locator.h"
#include "server/catalog/member_service.h"
#include "server/catalog/membership.h"
#include "server/catalog/placer.h"
#include "server/catalog/reaper.h"
#include "server/catalog/registry.h"
#include "server/catalog/removals.h"

namespace firnkv {

// What is read; all outlive the list.
struct CatalogMeters {
  const Entries* entries;
  const Registry* registry;
  const Membership* membership;
  const Removals* removals;
  const Locator* locator;
  const Placer* placer;
  const MemberService* members;
  const Reaper* reaper;
  const CatalogService* catalog_service;
  const AdminService* admin_service;
};

void DescribeCatalogMetrics(const CatalogMeters& meters, MetricList* list);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_CATALOG_METRICS_H_
