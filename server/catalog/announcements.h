// Applies what nodes say of their copies: numbered batches, inventories and
// repairs (rules A1, A2, A4, A5).
//
// A batch is applied whole or refused whole. It must be of the node's present
// registration and epoch, and its number one more than the last applied; the
// check and the store write are one step of the strand, and the number stands
// in the same store batch as the entries, so that neither a crash nor a race
// can part them. The last batch repeated is answered as before: its answer was
// lost. One bad entry never refuses its batch: it is named in the answer.
//
// An inventory is BEGIN, PARTs and END. Its copies are recorded under a serial
// of its own, later events under the same one; at END older serials cease to
// count, which removes in one step what the inventory did not name. Until END
// both count. Events before the first END of a registration, or between BEGIN
// and END, are refused: the node holds them back.
//
// A registration of a run that was a member before, and whose inventory had
// ended, begins with that inventory (membership.h): events at once.
//
// A repair names buckets (proto/base/copy_digest.h) and all copies that the run
// has there. What else the catalog has of this run in them goes, in the same
// store batch; what others have there stays. It needs an inventory that has
// ended, and a catalog that has read its store: UNAVAILABLE until then.
//
// Threading. On the strand only.

#ifndef FIRNKV_SERVER_CATALOG_ANNOUNCEMENTS_H_
#define FIRNKV_SERVER_CATALOG_ANNOUNCEMENTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/id.h"
#include "server/catalog/cluster_state.h"
#include "server/catalog/entries.h"
#include "server/catalog/membership.h"
#include "server/catalog/registry.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

// Numbers are wire format.
enum class BatchKind : std::uint8_t {
  kEvents = 0,
  kInventoryBegin = 1,
  kInventoryPart = 2,
  kInventoryEnd = 3,
  kRepair = 4,
};

enum class EntryOperation : std::uint8_t { kPublish = 1, kWithdraw = 2 };

struct AnnouncedCopy {
  EntryOperation operation = EntryOperation::kPublish;
  // Into AnnouncedBatch::namespaces.
  std::uint32_t name_space = 0;
  BlockKey key;
  ChainPlace place;
  std::uint64_t length = 0;
  Generation generation = Generation::kNone;
  std::uint8_t tier = 0;
};

struct AnnouncedNamespace {
  NamespaceId name_space;
  // Of the copies.
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
};

struct AnnouncedBatch {
  NodeId node;
  NodeEpoch epoch = NodeEpoch::kNone;
  RegistrationId registration;
  std::uint64_t number = 0;
  BatchKind kind = BatchKind::kEvents;
  std::vector<AnnouncedNamespace> namespaces;
  std::vector<AnnouncedCopy> copies;
  // Of a repair: rising.
  std::vector<std::uint32_t> buckets;
};

// INVALID_ARGUMENT unless indexes, tiers and operations are possible: what the
// service checks before it posts a batch to the strand. Inventories and repairs
// have no withdrawals, BEGIN and END no copies; a repair names 1 to
// kMaxRepairBuckets buckets and no copy outside them, others none.
absl::Status CheckBatch(const AnnouncedBatch& batch);

class Announcements {
 public:
  // All outlive it.
  struct Parts {
    ClusterState* cluster;
    Registry* registry;
    Membership* membership;
    Entries* entries;
  };
  explicit Announcements(const Parts& parts) : parts_(parts) {}

  struct Applied {
    std::uint64_t applied = 0;
    // kCleared: of an older clear epoch. kDenied: no such namespace here.
    // kUnavailable: of a clear epoch that this catalog does not know (rule A9).
    // kWrongSize: not the length that the namespace declares, or none at all.
    std::vector<RefusedEntry> refused;
    // An inventory ended: what it did not name is stale now.
    bool inventory_ended = false;
  };

  // NOT_FOUND, ABORTED, FAILED_PRECONDITION: as catalog.proto says.
  // UNAVAILABLE: see above. `batch` has passed CheckBatch.
  absl::StatusOr<Applied> Apply(const AnnouncedBatch& batch);

 private:
  // What of a batch is asked of others before it is judged.
  struct Named {
    // In the order of AnnouncedBatch::namespaces; null: there is none here.
    std::vector<std::optional<NamespaceFacts>> facts;
    // In the order of AnnouncedBatch::copies.
    std::vector<BlockId> blocks;
    // kUnset: it is taken. Withdrawals are.
    std::vector<Outcome> outcomes;
  };

  // How the record of the announcer goes on with this batch.
  absl::StatusOr<AppliedRecord> Follow(const AppliedRecord& now,
                                       const AnnouncedBatch& batch);
  Named NamedBy(const AnnouncedBatch& batch) const;
  // Drops from `entries` what the run has in blocks `there`, unless `named`
  // takes exactly this copy.
  static void DropUnnamed(const AnnouncedBatch& batch, const Run& run,
                          const std::vector<BlockId>& there, const Named& named,
                          EntryBatch* entries);
  // The outcome with which a copy is refused; kUnset if it is taken.
  Outcome Judge(const AnnouncedCopy& copy, const NamespaceFacts* facts,
                ClearEpoch clear_epoch) const;

  const Parts parts_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_ANNOUNCEMENTS_H_
