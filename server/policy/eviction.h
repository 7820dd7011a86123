// Which blocks leave when room is needed. Pure decisions: no I/O, no clock, no
// threads, no randomness, so that what the replay tool and the planner compute
// with this code is what the node does.
//
// Inputs are events, each with the time at which it happened: a block was
// stored, a run of blocks was touched by one request, a block left, a client
// said something about a conversation. Outputs are victims for an exact number
// of bytes.
//
// Does not know: slots, regions, tenants, leases, keys. The caller numbers its
// blocks (small numbers: state is an array over them) and says of each in which
// *group* it is: a set of blocks among which victims may be asked for (in the
// node, one slot class of one tenant).
//
// A number may be named as a parent before its block is stored and after it
// left: children remember it. It may be given to another block once the block
// is not present and HasChildren() says no.
//
// Threading. None: the owner's mutex protects it.
//
// Implemented by leaf_first_lru.h, and by its model in
// tests/server/policy/leaf_first_lru_test.cc.

#ifndef FIRNKV_SERVER_POLICY_EVICTION_H_
#define FIRNKV_SERVER_POLICY_EVICTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"

namespace firnkv {

// The caller's name for a block, dense from 0.
enum class BlockNumber : std::uint32_t { kNone = UINT32_MAX };

// Dense from 0 too.
enum class EvictionGroup : std::uint32_t {};

// How recently a block was stored or touched; comparable across groups. Smaller
// is colder. Never zero for a present block, and never kWarmest.
enum class Warmth : std::uint64_t { kNone = 0, kWarmest = UINT64_MAX };

class EvictionPolicy {
 public:
  struct Stored {
    BootTime at;
    BlockNumber block = BlockNumber::kNone;
    // kNone at position 0 and in namespaces without chains.
    BlockNumber parent = BlockNumber::kNone;
    // In its chain. A parent whose position is not less than its child's is no
    // parent: a hostile writer's circle of parents could never leave.
    std::uint32_t position = 0;
    // At most UINT32_MAX.
    std::uint64_t bytes = 0;
    EvictionGroup group{};
  };

  // What a client knows of the conversation to which a run belongs.
  enum class ConversationState : std::uint8_t { kUnknown, kWillReturn, kEnded };
  struct Hint {
    BootTime at;
    ConversationState state = ConversationState::kUnknown;
    // The conversation's blocks that are here, in chain order.
    absl::Span<const BlockNumber> run;
  };

  // What is to become free: at least `bytes`, by blocks colder than `below`
  // alone.
  struct Room {
    // Implicit: most who need room take it from whatever is coldest.
    Room(std::uint64_t wanted, Warmth colder_than = Warmth::kWarmest)
        : bytes(wanted), below(colder_than) {}
    std::uint64_t bytes = 0;
    Warmth below = Warmth::kWarmest;
  };

  // True: this block cannot leave now (it is leased, say).
  using Skip = absl::FunctionRef<bool(BlockNumber)>;

  virtual ~EvictionPolicy() = default;

  // The block is here from now on. It must not be present.
  virtual void OnStored(const Stored& event) = 0;

  // One request used these present blocks, in chain order. Blocks of one run
  // count as touched together, the last one of them first: where something of
  // the run has to go, it is the tail.
  virtual void OnTouched(BootTime at, absl::Span<const BlockNumber> run) = 0;

  // The block left for a reason of the caller's (removed, cleared, corrupt);
  // victims have left already. It must be present. Its children stay.
  virtual void OnEvicted(BootTime at, BlockNumber block) = 0;

  virtual void OnHint(const Hint& hint) = 0;

  // Appends victims of `group` in the order in which they leave, a child always
  // before its parent, until they make up at least `room.bytes`: one fewer
  // would not. Each has left when this returns; the caller must let it go.
  // Blocks that `skip` names stay, and so do their ancestors; and so does
  // everything from the first on that is not colder than `room.below`. Returns
  // the bytes, fewer than wanted only if nothing else of the group can leave.
  virtual std::uint64_t TakeVictims(EvictionGroup group, Room room, Skip skip,
                                    std::vector<BlockNumber>* victims) = 0;

  // As TakeVictims, over all groups of `groups` in one common order.
  virtual std::uint64_t TakeVictimsOf(absl::Span<const EvictionGroup> groups,
                                      Room room, Skip skip,
                                      std::vector<BlockNumber>* victims) = 0;

  // Of the next victim of `group`, were nothing skipped; kNone if it has none.
  virtual Warmth ColdestOf(EvictionGroup group) = 0;
  // kNone unless the block is present.
  virtual Warmth WarmthOf(BlockNumber block) const = 0;
  // What is stored or touched next gets: all that is here is colder.
  virtual Warmth NextWarmth() const = 0;

  virtual bool HasChildren(BlockNumber block) const = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_POLICY_EVICTION_H_
