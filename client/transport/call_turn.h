// Who goes on after an asynchronous call. Without it each completion that runs
// inside its call would add to the stack.
//
// Threading. Any thread; see the proof.

#ifndef FIRNKV_CLIENT_TRANSPORT_CALL_TURN_H_
#define FIRNKV_CLIENT_TRANSPORT_CALL_TURN_H_

#include <atomic>

namespace firnkv {

// Which of two goes on: the caller, if the completion ran inside the call, else
// the completion.
//
// Proof: both call Second once. exchange() orders the two; exactly the later
// one gets true, and by acquire and release it sees all the earlier one did.
class CallTurn {
 public:
  void Begin() { taken_.store(false, std::memory_order_relaxed); }
  bool Second() { return taken_.exchange(true, std::memory_order_acq_rel); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_CALL_TURN_H_
