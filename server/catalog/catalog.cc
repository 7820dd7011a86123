#include "server/catalog/catalog.h"

#include "proto/base/status.h"
#include "server/catalog/admin_service.h"
#include "server/catalog/announcements.h"
#include "server/catalog/authenticator.h"
#include "server/catalog/catalog_metrics.h"
#include "server/catalog/catalog_service.h"
#include "server/catalog/cluster_state.h"
#include "server/catalog/entries.h"
#include "server/catalog/key_index.h"
#include "server/catalog/locator.h"
#include "server/catalog/member_service.h"
#include "server/catalog/membership.h"
#include "server/catalog/placer.h"
#include "server/catalog/reaper.h"
#include "server/catalog/registry.h"
#include "server/catalog/removals.h"
#include "server/catalog/run_digests.h"
#include "server/catalog/service_call.h"
#include "server/catalog/strand.h"
#include "server/catalog/watched_store.h"

namespace firnkv {

// In the order of what each needs: a part is given only parts above it.
struct Catalog::Parts {
  Parts(const CatalogOptions& options, Store* raw_store, const Seams& seams,
        const ClusterSecret& secret)
      : store(raw_store),
        cluster(&store, seams.random),
        registry(options.registry,
                 {&store, &cluster, seams.clock, seams.random}),
        membership(options.membership, {&store, seams.clock, seams.random}),
        digests(&membership),
        index(options.max_index_entries),
        entries({&store, &cluster, &index, &digests}),
        removals(options.removals),
        locator({&membership, &entries, &removals}),
        placer(options.placer, {&membership, &entries, seams.clock}),
        announcements({&cluster, &registry, &membership, &entries}),
        strand(seams.executor),
        reaper(options.reaper, {seams.executor, &strand, &registry, &membership,
                                &entries, &digests}),
        authenticator(&cluster, seams.clock, secret),
        calls({&store, &authenticator, &strand, seams.clock}),
        members({&cluster, &registry, &membership, &announcements, &entries,
                 &digests, &removals, &reaper}),
        catalog_service({&cluster, &registry, &locator, &placer, &members,
                         &authenticator, &calls}),
        admin_service({&cluster, &registry, &membership, &entries, &reaper,
                       &calls, seams.clock, options.version}) {}

  WatchedStore store;
  ClusterState cluster;
  Registry registry;
  Membership membership;
  RunDigests digests;
  KeyIndex index;
  Entries entries;
  Removals removals;
  Locator locator;
  Placer placer;
  Announcements announcements;
  Strand strand;
  Reaper reaper;
  Authenticator authenticator;
  ServiceCalls calls;
  MemberService members;
  CatalogService catalog_service;
  AdminService admin_service;
};

Catalog::Catalog(const CatalogOptions& options, Store* store,
                 const Seams& seams, const ClusterSecret& secret)
    : parts_(std::make_unique<Parts>(options, store, seams, secret)) {}

Catalog::~Catalog() { Stop(); }

absl::Status Catalog::Start() {
  bool made = false;
  RETURN_IF_ERROR(parts_->cluster.Load(&made));
  RETURN_IF_ERROR(parts_->registry.Load());
  RETURN_IF_ERROR(parts_->membership.Load());
  // Above every number that an earlier incarnation can have told a node.
  parts_->removals.Begin(parts_->cluster.incarnation().incarnation << 32);
  parts_->reaper.Start();
  return absl::OkStatus();
}

void Catalog::Stop() {
  parts_->reaper.Stop();
  parts_->strand.Close();
}

std::vector<ControlService*> Catalog::services() {
  return {&parts_->catalog_service, &parts_->admin_service};
}

ClusterId Catalog::cluster() const { return parts_->cluster.cluster(); }

absl::Status Catalog::health() const { return parts_->store.health(); }

void Catalog::Describe(MetricList* list) const {
  DescribeCatalogMetrics(
      {&parts_->entries, &parts_->registry, &parts_->membership,
       &parts_->removals, &parts_->locator, &parts_->placer, &parts_->members,
       &parts_->reaper, &parts_->catalog_service, &parts_->admin_service},
      list);
}

}  // namespace firnkv
