// The streams that a thread in a blocking call receives from itself: those over
// which it asked for something. The answer then wakes this thread and no other.
//
// Threading. Wake from any thread; all else from the thread that made it.
//
// Ownership. Keeps what it was lent until the streams have ended, or its own
// end.

#ifndef FIRNKV_CLIENT_TRANSPORT_LENT_STREAMS_H_
#define FIRNKV_CLIENT_TRANSPORT_LENT_STREAMS_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "client/transport/byte_stream.h"

namespace firnkv {

class LentStreams {
 public:
  // The calling thread's from now on, until its end; then the one before is
  // again: a callback of one blocking call may make another.
  LentStreams();
  ~LentStreams();
  LentStreams(const LentStreams&) = delete;
  LentStreams& operator=(const LentStreams&) = delete;

  // Of the calling thread; null: it is in no blocking call.
  static LentStreams* Here();

  // False where the machine has no descriptor to wake this thread by: then
  // nothing is to be added.
  bool usable();
  // `of` only names it, for Has. `on_returned` runs once it is given back.
  void Add(const void* of, std::unique_ptr<LentStream> stream,
           absl::AnyInvocable<void() &&> on_returned);
  bool Has(const void* of) const;
  bool empty() const { return streams_.empty(); }
  void GiveBack();

  // Waits until something arrives or Wake, and receives it: `done`s run here.
  // What has ended is given back.
  void Receive();
  // Ends the Receive that runs; else the next one returns at once.
  void Wake() const;

 private:
  struct Lent {
    const void* of = nullptr;
    std::unique_ptr<LentStream> stream;
    absl::AnyInvocable<void() &&> on_returned;
  };
  // Shared with a Receive that runs: a `done` in it may give back.
  using Shared = std::shared_ptr<Lent>;
  void Drop(const Shared& one);

  LentStreams* const outer_;
  // This thread's eventfd; -1: not asked for yet, or there is none.
  int waker_ = -1;
  std::vector<Shared> streams_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_LENT_STREAMS_H_
