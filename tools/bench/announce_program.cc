// The measuring program of the catalog's announcements: a node that has nothing
// but keys. What it can be told stands in announce_client.h.

#include "proto/base/mutex.h"
#include "tools/bench/announce_client.h"

int main() {
  firnkv::TurnOffDeadlockDetection();
  firnkv::AnnounceClient node;
  firnkv::CommandLoop loop;
  loop.Add("register", [&](const firnkv::Command& command) {
    return node.Register(command);
  });
  loop.Add("announce", [&](const firnkv::Command& command) {
    return node.Announce(command);
  });
  loop.Add("keep",
           [&](const firnkv::Command& command) { return node.Keep(command); });
  return loop.Run();
}
