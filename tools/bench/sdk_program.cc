// The measuring program of our side: a worker's process with the public SDK.
// What it can be told stands in sdk_worker.h.

#include "proto/base/mutex.h"
#include "tools/bench/sdk_worker.h"

int main() {
  firnkv::TurnOffDeadlockDetection();
  firnkv::SdkWorker worker;
  firnkv::CommandLoop loop;
  using Method = absl::StatusOr<firnkv::Counts> (firnkv::SdkWorker::*)(
      const firnkv::Command&);
  const auto add = [&](const char* verb, Method method) {
    loop.Add(verb, [&worker, method](const firnkv::Command& command) {
      return (worker.*method)(command);
    });
  };
  add("connect", &firnkv::SdkWorker::Connect);
  add("close", &firnkv::SdkWorker::Close);
  add("open", &firnkv::SdkWorker::Open);
  add("fill", &firnkv::SdkWorker::Fill);
  add("keys", &firnkv::SdkWorker::Keys);
  add("read", &firnkv::SdkWorker::Read);
  add("paced", &firnkv::SdkWorker::Paced);
  add("views", &firnkv::SdkWorker::Views);
  add("exists", &firnkv::SdkWorker::Exists);
  add("write", &firnkv::SdkWorker::Write);
  add("write_odd", &firnkv::SdkWorker::WriteOdd);
  add("stats", &firnkv::SdkWorker::Stats);
  return loop.Run();
}
