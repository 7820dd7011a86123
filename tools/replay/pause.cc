#include "tools/replay/pause.h"

#include "proto/base/mutex.h"

namespace firnkv {

void PauseFor(absl::Duration time) {
  Mutex mutex;
  CondVar nobody_signals;
  MutexLock lock(&mutex);
  nobody_signals.WaitFor(&mutex, time);
}

}  // namespace firnkv
