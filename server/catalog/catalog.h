// A catalog: owns every part of it; wiring and nothing else.
//
//     Catalog catalog(options, &store, seams, secret);
//     RETURN_IF_ERROR(catalog.Start());
//     server.Serve(catalog.services());
//
// Runs in a process of its own or embedded in a node's, over the same services
// (client/transport/local_channel.h reaches them without a socket).
//
// Threading. Start and Stop: one thread. Services: any thread, between the two.
//
// Ownership. The store and the seams outlive the catalog; of the seams it uses
// clock, executor and random.

#ifndef FIRNKV_SERVER_CATALOG_CATALOG_H_
#define FIRNKV_SERVER_CATALOG_CATALOG_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "client/transport/control_channel.h"
#include "client/transport/seams.h"
#include "proto/base/id.h"
#include "proto/base/token.h"
#include "server/base/metrics.h"
#include "server/catalog/catalog_options.h"
#include "server/catalog/store.h"

namespace firnkv {

class Catalog {
 public:
  Catalog(const CatalogOptions& options, Store* store, const Seams& seams,
          const ClusterSecret& secret);
  ~Catalog();  // Stop().
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  // Reads the administrative state, makes it where the store is empty, begins
  // a new incarnation. Entries are loaded afterwards, in the background: the
  // catalog serves at once, however many there are.
  absl::Status Start();

  // Answers what waits with UNAVAILABLE, and everything later. Idempotent.
  void Stop();

  // CatalogService and AdminService; alive as long as the catalog.
  std::vector<ControlService*> services();

  // After Start.
  ClusterId cluster() const;
  // OK, or why the catalog stopped serving by itself: its store failed. The
  // process should end then, and be started anew.
  absl::Status health() const;

  void Describe(MetricList* list) const;

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_CATALOG_H_
