// Everything a Client is made of: wiring, and the order in which it ends.
//
// Threading. Any thread. Ownership: the Client's.

#ifndef FIRNKV_CLIENT_CLIENT_CORE_H_
#define FIRNKV_CLIENT_CLIENT_CORE_H_

#include <sys/types.h>

#include <atomic>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "client/catalog_client.h"
#include "client/clear_epochs.h"
#include "client/client.h"
#include "client/completion_queue.h"
#include "client/counters.h"
#include "client/location_cache.h"
#include "client/node_client.h"
#include "client/opened_views.h"
#include "client/operation.h"
#include "client/options.h"
#include "client/peer_probes.h"
#include "client/remote_reads.h"
#include "client/retry.h"
#include "client/router.h"
#include "client/session.h"
#include "client/staging.h"
#include "client/transport/seams.h"
#include "client/transport/stream_transport.h"
#include "proto/base/executor.h"

namespace firnkv {

class Client::Core {
 public:
  // `options` are valid.
  Core(ClientOptions options, const Seams& seams);
  ~Core();  // Close().

  void Start();
  void Close();

  // This process is a fork of the one that made it (rule S6). Takes no lock.
  bool forked() const;
  // Neither that nor poisoned.
  bool usable() const { return !forked() && !poison_.broken(); }
  const ClientParts& parts() const { return parts_; }
  Session* session() { return &session_; }
  // By which blocking calls wait; null in a forked child (rule S6).
  FrameCalls* frames() { return forked() ? nullptr : node_.frames(); }
  CompletionQueue* completions() { return &completions_; }
  About Describe() const;

 private:
  void OnSession(const Session::Welcome& welcome);
  StreamCredentials Credentials() const;
  // What this Client shows wherever it asks for something.
  std::string Token() const;
  void Log(std::string_view line) const;

  const ClientOptions options_;
  const Seams seams_;
  const pid_t pid_;
  ClientCounters counters_;
  Poison poison_;
  TaskScope scope_;
  // Outlives what finishes into it.
  CompletionQueue completions_;
  BounceMemory bounce_;
  ClearEpochs epochs_;
  RetryBudget retries_;
  Router router_;
  LocationCache locations_;
  NodeClient node_;
  Session session_;
  CatalogClient catalog_;
  StagingPool staging_;
  StreamTransport streams_;
  PeerProbes probes_;
  RemoteReads remote_reads_;
  // Destroyed before what operations refer to: one that never ended (the
  // process is dying) gives its staging back even so.
  OperationSet operations_;
  ClientParts parts_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_CLIENT_CORE_H_
