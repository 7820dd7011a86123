// What announcements do to one entry. Pure: the rules of publish and withdraw
// (A2) without the numbering around them.

#ifndef FIRNKV_SERVER_CATALOG_ENTRY_CHANGE_H_
#define FIRNKV_SERVER_CATALOG_ENTRY_CHANGE_H_

#include "absl/functional/function_ref.h"
#include "proto/base/id.h"
#include "server/catalog/entries.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

// Drops locations whose run will never count again, and all of them where the
// entry is of an older clear epoch than `current` (rule C2).
void DropStale(EntryBatch::Slot* slot, ClearEpoch current,
               absl::FunctionRef<bool(const Run&)> is_stale);

// Drops those copies of `run` that `drop` says.
void DropCopies(EntryBatch::Slot* slot, const Run& run,
                absl::FunctionRef<bool(const Location&)> drop);

// The copy is there. Never replaces a newer generation of the same (node,
// epoch, tier), and changes nothing where exactly this copy is there already: a
// generation has one place in one chain. `slot` has been through DropStale.
void Publish(EntryBatch::Slot* slot, const Location& location,
             ClearEpoch clear_epoch, const ChainPlace& place);

// The copy of exactly this (node, epoch, tier, generation) is gone; any other
// stays.
void Withdraw(EntryBatch::Slot* slot, const Location& location);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_ENTRY_CHANGE_H_
