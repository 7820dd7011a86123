// The Client: one worker's way into the pool. Thin: no configuration file, no
// global state, no signal handler, no thread left after Close, no abort.
//
//     firnkv::ClientOptions options;                  // options.h
//     auto client = firnkv::Client::Connect(options);
//     auto granite = (*client)->OpenNamespace({.name = "granite", ...});
//     (*client)->Read({...});                         // read.h
//     (*client)->OpenViews({...});                    // view.h
//     (*client)->Write({...});                        // write.h
//
// Every call is a batch, has a deadline, and comes in forms of one
// implementation: with a callback, blocking, and submitted, to be drained once
// a descriptor says so (completion.h). Outcomes by block stand in the caller's
// own structs beside their buffers.
//
// A node that goes away is looked for in the background; calls are kUnavailable
// or served from elsewhere meanwhile. An invariant of the SDK's own that turns
// out broken poisons the Client: one log line, every later call kUnavailable.
//
// Threading. All methods may be called from any thread; blocking ones never
// from a callback of the Client, and the destructor neither. In a forked child
// every call is kUnavailable and every destructor does nothing (rule S6).
//
// Ownership. The caller owns the Client; spans and buffers of a request stay
// the caller's and alive until the request's last callback. Batches of views
// may outlive the Client.

#ifndef FIRNKV_CLIENT_CLIENT_H_
#define FIRNKV_CLIENT_CLIENT_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/completion.h"
#include "client/lookup.h"
#include "client/namespace.h"
#include "client/options.h"
#include "client/read.h"
#include "client/stats.h"
#include "client/view.h"
#include "client/write.h"
#include "proto/base/id.h"

namespace firnkv {

struct Seams;

class Client {
 public:
  // Over the real machine; in the library firnkv_client_os (connect.cc).
  // INVALID_ARGUMENT for options, UNAVAILABLE where there is no node within
  // connect_timeout, PERMISSION_DENIED or UNAUTHENTICATED where it does not
  // serve this caller, FAILED_PRECONDITION for another cluster or protocol.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(ClientOptions options);

  // The same over seams that outlive the Client.
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options,
                                                        const Seams& seams);

  // As Create, without blocking. `done` runs exactly once.
  using CreateDone =
      absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<Client>>) &&>;
  static void StartCreate(ClientOptions options, const Seams& seams,
                          CreateDone done);

  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  // Close().
  ~Client();

  // What is outstanding ends with kCancelled, its callbacks have run on return;
  // so are later calls. Idempotent.
  void Close();

  // --- Namespaces. Needs the catalog; what was opened works without it.
  absl::StatusOr<NamespaceHandle> OpenNamespace(
      const OpenNamespaceRequest& request);
  void StartOpenNamespace(
      const OpenNamespaceRequest& request,
      absl::AnyInvocable<void(absl::StatusOr<NamespaceHandle>) &&> done);

  // --- Blocks. Returns after both ends of the operation: at most
  // request.deadline plus ClientOptions::buffer_grace.
  ReadReport Read(const ReadRequest& request);
  WriteReport Write(const WriteRequest& request);
  ExistsReport Exists(const ExistsRequest& request);
  RemoveReport Remove(const RemoveRequest& request);

  // Blocks where they lie, without a copy (view.h).
  ViewBatch OpenViews(const OpenViewsRequest& request,
                      CallSite opened_at = CallSite::Here());
  void StartOpenViews(const OpenViewsRequest& request, OpenViewsDone done,
                      CallSite opened_at = CallSite::Here());

  // Each callback runs exactly once, on a client thread or inside the call,
  // under no lock; it must not block and may start another operation.
  void StartRead(const ReadRequest& request, ReadDone done);
  void StartWrite(const WriteRequest& request, WriteDone done);
  void StartExists(const ExistsRequest& request, ExistsDone done);
  void StartRemove(const RemoveRequest& request, RemoveDone done);

  // --- The same, submitted now and drained later (completion.h). Never blocks.
  // RESOURCE_EXHAUSTED: too much is not drained; UNAVAILABLE: a forked child.
  // Whatever else happens to an operation is its result.
  absl::StatusOr<CompletionId> SubmitRead(const ReadRequest& request);
  absl::StatusOr<CompletionId> SubmitWrite(const WriteRequest& request);
  absl::StatusOr<CompletionId> SubmitOpenViews(
      const OpenViewsRequest& request, CallSite opened_at = CallSite::Here());
  absl::StatusOr<CompletionId> SubmitExists(const ExistsRequest& request);
  // What has finished, in that order, at most so many. Another thread's drain
  // gets others.
  std::vector<Completion> DrainCompletions(std::size_t most = kMaxUndrained);
  // Readable while something can be drained; the Client's, to be waited on and
  // neither read nor closed. RESOURCE_EXHAUSTED where there are no
  // descriptors; one can drain without it.
  absl::StatusOr<int> CompletionFd();

  // --- Shared memory. Writes from it cost the SDK no copy; it is as good as
  // any for reads. Page-aligned, zeroed, the caller's until FreeShared or the
  // Client's end. RESOURCE_EXHAUSTED over shared_bytes.
  absl::StatusOr<absl::Span<std::byte>> AllocateShared(std::size_t bytes);
  // `address` is the begin of what AllocateShared gave. A write still in flight
  // keeps the range from being given out again, not its bytes from changing.
  void FreeShared(std::byte* address);

  // --- About.
  ClientStats Stats() const;
  // Of the local session; zero and empty while there is none.
  struct About {
    bool session = false;
    NodeId node;
    ClusterId cluster;
    TenantId tenant;
    std::string tenant_name;
    std::string catalog_address;
    Labels labels;
    // Local blocks are read from mapped memory.
    bool mapping = false;
    std::uint64_t largest_block_bytes = 0;
    // For other calls of this tenant (the CLI); never logged.
    std::string token;
  };
  About Describe() const;

 private:
  // Everything a Client is made of (client_core.h).
  class Core;
  // What the real seams are made of (connect.cc).
  class Machine {
   public:
    virtual ~Machine() = default;
  };
  class RealMachine;

  explicit Client(std::unique_ptr<Core> core);

  // Null over given seams. Outlives core_.
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Core> core_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_CLIENT_H_
