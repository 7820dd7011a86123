// A control channel to services of the same process: a node to the catalog that
// it embeds, a test to the service that it tests. Calls run as tasks of the
// executor, so that they behave as over a network: never inside StartCall,
// under no lock of the caller, in any order.
//
// Threading. Thread-safe, one mutex, never held over a handler or a reply.
//
// Ownership. Executor and handlers outlive the channel. A handler may answer
// after the channel's end; nobody hears it then.

#ifndef FIRNKV_CLIENT_TRANSPORT_LOCAL_CHANNEL_H_
#define FIRNKV_CLIENT_TRANSPORT_LOCAL_CHANNEL_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/transport/control_channel.h"
#include "proto/base/executor.h"

namespace firnkv {

class LocalChannel : public ControlChannel {
 public:
  LocalChannel(Executor* executor, std::vector<ControlService*> handlers);
  ~LocalChannel() override;

  void StartCall(std::string_view method, std::string request,
                 absl::Duration timeout, ControlReply done) override;

 private:
  struct State;
  ControlService* Find(std::string_view method) const;

  Executor* const executor_;
  const std::vector<ControlService*> handlers_;
  // Shared with the replies that handlers hold, which may outlive the channel.
  const std::shared_ptr<State> state_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_LOCAL_CHANNEL_H_
