#include "client/client.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "client/blocking.h"
#include "client/catalog_client.h"
#include "client/clear_epochs.h"
#include "client/client_core.h"
#include "client/completion_queue.h"
#include "client/counters.h"
#include "client/frame_calls.h"
#include "client/lookup_operation.h"
#include "client/namespace_operation.h"
#include "client/open_views_operation.h"
#include "client/read_operation.h"
#include "client/remote_write_operation.h"
#include "client/write_operation.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::string_view kForked = "this process is a fork of the Client's";

// Every block of a call that is not made.
template <typename Request>
void RefuseAll(const Request& request) {
  for (auto& block : request.blocks) block.outcome = Outcome::kUnavailable;
}

// A Client that is being made: shared by the end of the waiting and its timer,
// of which the first one wins.
struct Creation {
  Mutex mutex;
  std::unique_ptr<Client> client ABSL_GUARDED_BY(mutex);
  Client::CreateDone done ABSL_GUARDED_BY(mutex);
  TimerId timer ABSL_GUARDED_BY(mutex) = TimerId::kNone;
};

void EndCreation(const std::shared_ptr<Creation>& creation, Executor* executor,
                 const absl::Status& status) {
  std::unique_ptr<Client> client;
  Client::CreateDone done;
  TimerId timer = TimerId::kNone;
  {
    MutexLock lock(&creation->mutex);
    if (creation->client == nullptr) return;
    client = std::move(creation->client);
    done = std::move(creation->done);
    timer = creation->timer;
  }
  executor->Cancel(timer);
  if (status.ok()) return std::move(done)(std::move(client));
  client.reset();
  std::move(done)(status);
}

}  // namespace

// --- Made and ended.

Client::Client(std::unique_ptr<Core> core) : core_(std::move(core)) {}

Client::~Client() {
  if (core_ != nullptr && core_->forked()) {
    // The parent's: locks of it may be held for ever here (rule S6).
    (void)core_.release();
    (void)machine_.release();
    return;
  }
  Close();
}

void Client::Close() {
  if (!core_->forked()) core_->Close();
}

void Client::StartCreate(ClientOptions options, const Seams& seams,
                         CreateDone done) {
  if (absl::Status status = Validate(options); !status.ok()) {
    return std::move(done)(status);
  }
  const bool wait = options.wait_for_node && !options.socket_path.empty();
  const absl::Duration timeout = options.connect_timeout;
  auto core = std::make_unique<Core>(std::move(options), seams);
  Core* const raw = core.get();
  // Shared: see Creation.
  auto creation = std::make_shared<Creation>();
  {
    MutexLock lock(&creation->mutex);
    creation->client.reset(new Client(std::move(core)));
    creation->done = std::move(done);
  }
  Executor* const executor = seams.executor;
  if (!wait) {
    raw->Start();
    return EndCreation(creation, executor, absl::OkStatus());
  }
  {
    MutexLock lock(&creation->mutex);
    creation->timer = executor->PostAt(
        seams.clock->Now() + timeout, [creation, executor, raw] {
          const absl::Status why = raw->session()->refusal();
          EndCreation(creation, executor,
                      absl::UnavailableError(StrCat(
                          "no session with the local node in time; last: ",
                          why.ToString())));
        });
  }
  raw->session()->WhenLive([creation, executor](const absl::Status& status) {
    // As a task: the Client may end there, which no callback of its own allows.
    executor->Post([creation, executor, status] {
      EndCreation(creation, executor, status);
    });
  });
  raw->Start();
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options,
                                                       const Seams& seams) {
  Blocking<absl::StatusOr<std::unique_ptr<Client>>> created;
  StartCreate(std::move(options), seams,
              [&](absl::StatusOr<std::unique_ptr<Client>> client) {
                created.Set(std::move(client));
              });
  return created.Wait();
}

// --- Namespaces.

void Client::StartOpenNamespace(
    const OpenNamespaceRequest& request,
    absl::AnyInvocable<void(absl::StatusOr<NamespaceHandle>) &&> done) {
  if (core_->forked()) {
    return std::move(done)(absl::UnavailableError(ToAbsl(kForked)));
  }
  NamespaceOperation::Start(core_->parts(), request, std::move(done));
}

absl::StatusOr<NamespaceHandle> Client::OpenNamespace(
    const OpenNamespaceRequest& request) {
  Blocking<absl::StatusOr<NamespaceHandle>> opened;
  StartOpenNamespace(request, [&](absl::StatusOr<NamespaceHandle> handle) {
    opened.Set(std::move(handle));
  });
  return opened.Wait();
}

// --- Blocks.

void Client::StartRead(const ReadRequest& request, ReadDone done) {
  if (!core_->usable()) {
    RefuseAll(request);
    std::move(done.on_outcome)(ReadReport());
    return std::move(done.on_buffers_free)();
  }
  ReadOperation::Start(core_->parts(), request, std::move(done));
}

void Client::StartOpenViews(const OpenViewsRequest& request, OpenViewsDone done,
                            CallSite opened_at) {
  if (!core_->usable()) {
    return std::move(done)(OpenViewsOperation::Refuse(
        request.keys.size(), Outcome::kUnavailable, absl::OkStatus()));
  }
  OpenViewsOperation::Start(core_->parts(), request, opened_at,
                            std::move(done));
}

void Client::StartWrite(const WriteRequest& request, WriteDone done) {
  if (!core_->usable()) {
    RefuseAll(request);
    std::move(done.on_outcome)(WriteReport());
    return std::move(done.on_buffers_free)();
  }
  if (core_->parts().options->socket_path.empty()) {
    return RemoteWriteOperation::Start(core_->parts(), request,
                                       std::move(done));
  }
  WriteOperation::Start(core_->parts(), request, std::move(done));
}

void Client::StartExists(const ExistsRequest& request, ExistsDone done) {
  if (!core_->usable()) {
    RefuseAll(request);
    return std::move(done)(ExistsReport());
  }
  ExistsOperation::Start(core_->parts(), request, std::move(done));
}

void Client::StartRemove(const RemoveRequest& request, RemoveDone done) {
  if (!core_->usable()) {
    RefuseAll(request);
    return std::move(done)(RemoveReport());
  }
  RemoveOperation::Start(core_->parts(), request, std::move(done));
}

ReadReport Client::Read(const ReadRequest& request) {
  ReadReport report;
  WaitingThread free(core_->frames());
  StartRead(request,
            {.on_outcome = [&](const ReadReport& told) { report = told; },
             .on_buffers_free = [&] { free.Finish(); }});
  free.Wait();
  return report;
}

ViewBatch Client::OpenViews(const OpenViewsRequest& request,
                            CallSite opened_at) {
  ViewBatch opened;
  WaitingThread done(core_->frames());
  StartOpenViews(
      request,
      [&](ViewBatch batch) {
        opened = std::move(batch);
        done.Finish();
      },
      opened_at);
  done.Wait();
  return opened;
}

WriteReport Client::Write(const WriteRequest& request) {
  WriteReport report;
  WaitingThread free(core_->frames());
  StartWrite(request,
             {.on_outcome = [&](const WriteReport& told) { report = told; },
              .on_buffers_free = [&] { free.Finish(); }});
  free.Wait();
  return report;
}

ExistsReport Client::Exists(const ExistsRequest& request) {
  Blocking<ExistsReport> done;
  StartExists(request, [&](const ExistsReport& report) { done.Set(report); });
  return done.Wait();
}

RemoveReport Client::Remove(const RemoveRequest& request) {
  Blocking<RemoveReport> done;
  StartRemove(request, [&](const RemoveReport& report) { done.Set(report); });
  return done.Wait();
}

// --- Submitted.

namespace {

// Of an operation that ends with a report and then gives its buffers back: the
// report is kept for the second of the two.
template <typename Report, typename Done>
Done Completing(CompletionQueue* queue, CompletionId id) {
  // Shared by the two ends.
  const auto report = std::make_shared<Report>();
  return Done{.on_outcome = [report](const Report& told) { *report = told; },
              .on_buffers_free =
                  [queue, id, report] {
                    queue->Finish({.id = id, .result = *report});
                  }};
}

}  // namespace

absl::StatusOr<CompletionId> Client::SubmitRead(const ReadRequest& request) {
  if (core_->forked()) return absl::UnavailableError(ToAbsl(kForked));
  CompletionQueue* const queue = core_->completions();
  ASSIGN_OR_RETURN(const CompletionId id, queue->Begin());
  StartRead(request, Completing<ReadReport, ReadDone>(queue, id));
  return id;
}

absl::StatusOr<CompletionId> Client::SubmitWrite(const WriteRequest& request) {
  if (core_->forked()) return absl::UnavailableError(ToAbsl(kForked));
  CompletionQueue* const queue = core_->completions();
  ASSIGN_OR_RETURN(const CompletionId id, queue->Begin());
  StartWrite(request, Completing<WriteReport, WriteDone>(queue, id));
  return id;
}

absl::StatusOr<CompletionId> Client::SubmitOpenViews(
    const OpenViewsRequest& request, CallSite opened_at) {
  if (core_->forked()) return absl::UnavailableError(ToAbsl(kForked));
  CompletionQueue* const queue = core_->completions();
  ASSIGN_OR_RETURN(const CompletionId id, queue->Begin());
  StartOpenViews(
      request,
      [queue, id](ViewBatch batch) {
        queue->Finish({.id = id, .result = std::move(batch)});
      },
      opened_at);
  return id;
}

absl::StatusOr<CompletionId> Client::SubmitExists(
    const ExistsRequest& request) {
  if (core_->forked()) return absl::UnavailableError(ToAbsl(kForked));
  CompletionQueue* const queue = core_->completions();
  ASSIGN_OR_RETURN(const CompletionId id, queue->Begin());
  StartExists(request, [queue, id](const ExistsReport& report) {
    queue->Finish({.id = id, .result = report});
  });
  return id;
}

std::vector<Completion> Client::DrainCompletions(std::size_t most) {
  // A child that drained would clear its parent's signal.
  if (core_->forked()) return {};
  return core_->completions()->Drain(most);
}

absl::StatusOr<int> Client::CompletionFd() {
  if (core_->forked()) return absl::UnavailableError(ToAbsl(kForked));
  return core_->completions()->Fd();
}

// --- Shared memory, and about.

absl::StatusOr<absl::Span<std::byte>> Client::AllocateShared(
    std::size_t bytes) {
  if (core_->forked()) return absl::UnavailableError(ToAbsl(kForked));
  return core_->parts().staging->AllocateShared(bytes);
}

void Client::FreeShared(std::byte* address) {
  if (!core_->forked()) core_->parts().staging->FreeShared(address);
}

ClientStats Client::Stats() const {
  return Snapshot(*core_->parts().counters, core_->parts().streams->counters());
}

Client::About Client::Describe() const {
  if (core_->forked()) return About();
  return core_->Describe();
}

}  // namespace firnkv
