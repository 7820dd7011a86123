// What a node remembers from one run to the next: who it is, the epoch of its
// last registered run (rule A6), the cluster it belongs to, and the highest
// catalog incarnation it has ever seen (rule A9).
//
// Does not know: the catalog, registrations, or who else might use the data
// directory; its lock is taken by the binary before the state is opened, and
// that lock is what entitles a run to name its predecessor's epoch.
//
// Threading. Used by one caller at a time (catalog_link.h). Save blocks until
// the state is on disk: tens of microseconds to a disk's sync, at a
// registration and when the catalog's incarnation advanced, never on the data
// path.
//
// Implementations: FileNodeState here, a plain value in tests.

#ifndef FIRNKV_SERVER_NODE_NODE_STATE_H_
#define FIRNKV_SERVER_NODE_NODE_STATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/id.h"
#include "proto/base/node_address.h"
#include "proto/base/random.h"

namespace firnkv {

// Rule A9: OK if `now` may follow `seen`; FAILED_PRECONDITION with the reason
// if it is lower, or has another random id for the same incarnation: then the
// catalog was restored from a backup, or its directory copied.
absl::Status CheckIncarnation(const Incarnation& seen, const Incarnation& now);

struct NodeMemory {
  NodeId node;
  // Zero until the node has met a cluster.
  ClusterId cluster;
  // The last run that was registered.
  NodeEpoch registered_epoch = NodeEpoch::kNone;
  // The last run that tried to register. Differs from the above where a run
  // died between asking and writing down the answer: either may be what the
  // catalog knows as our predecessor.
  NodeEpoch attempted_epoch = NodeEpoch::kNone;
  Incarnation seen;
  friend bool operator==(const NodeMemory&, const NodeMemory&) = default;
};

// A line a field, "name value", and a checksum line at the end: a file that an
// operator can read. The decoder refuses what is torn, unknown or repeated.
std::string EncodeNodeMemory(const NodeMemory& memory);
absl::StatusOr<NodeMemory> DecodeNodeMemory(std::string_view text);

class NodeState {
 public:
  virtual ~NodeState() = default;
  virtual const NodeMemory& memory() const = 0;
  // On disk on return; on failure memory() is as before.
  virtual absl::Status Save(const NodeMemory& memory) = 0;
};

class FileNodeState : public NodeState {
 public:
  // Reads `path`; where there is no file, begins with a new random node id and
  // writes it. DATA_LOSS where the file is torn: a node must not forget
  // silently what it has seen of the catalog.
  static absl::StatusOr<std::unique_ptr<FileNodeState>> Open(std::string path,
                                                             Random* random);

  const NodeMemory& memory() const override { return memory_; }
  // Writes a new file beside the old one, syncs it, and renames it over: a
  // crash leaves the old state or the new one.
  absl::Status Save(const NodeMemory& memory) override;

 private:
  FileNodeState(std::string path, const NodeMemory& memory)
      : path_(std::move(path)), memory_(memory) {}

  const std::string path_;
  NodeMemory memory_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_STATE_H_
