// Hosts of a test that can be cut from each other: network namespaces with an
// address each, joined by a bridge. The test's process itself moves into a
// namespace of its own, in which the bridge is, and sees every host; all of it
// goes when the process and its children have ended.
//
// A cut drops what arrives and says nothing, as a dead cable does.
//
// It needs root and the right to make network namespaces. Threading: the test's
// own thread, while it is the only one of the process.

#ifndef FIRNKV_TESTS_PROCESS_HOST_NETWORK_H_
#define FIRNKV_TESTS_PROCESS_HOST_NETWORK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace firnkv {

class HostNetwork {
 public:
  // Fails where this machine does not let us, and says why.
  static absl::StatusOr<std::unique_ptr<HostNetwork>> Make(int hosts);
  HostNetwork(const HostNetwork&) = delete;
  HostNetwork& operator=(const HostNetwork&) = delete;
  ~HostNetwork();

  // Counted from 1.
  std::string address(int host) const;
  std::string namespace_file(int host) const;

  // Neither hears the other any more, on connections that they have too.
  void CutBetween(int one, int other);
  // The same between it and all others.
  void Cut(int host);
  // Ends all cuts.
  void Heal();

 private:
  HostNetwork() = default;
  absl::Status AddHost(int host);
  void Deafen(int host, int to);

  // Open descriptors of the namespaces.
  std::vector<int> namespaces_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_HOST_NETWORK_H_
