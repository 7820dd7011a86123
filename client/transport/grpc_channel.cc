#include "client/transport/grpc_channel.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "client/transport/callback_gate.h"
#include "client/transport/grpc_bytes.h"
#include "client/transport/named_thread.h"
#include "proto/base/mutex.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

int Millis(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

grpc::ChannelArguments ArgumentsFor(const GrpcConnector::Options& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(
      static_cast<int>(options.max_message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // $http_proxy is for the web, not for the nodes of this cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Else two channels to one address share a connection, and its backoff.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   Millis(options.first_backoff));
  // Also how long a connection may take to be made; gRPC's 20 seconds would
  // outlast every deadline.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   Millis(options.longest_backoff));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   Millis(options.longest_backoff));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(options.keepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   Millis(options.keepalive_timeout));
  return arguments;
}

absl::Status Closed() { return absl::CancelledError("the channel was closed"); }

// The calls of one channel. Outlives every call in flight and every Start: the
// connector's Ender destroys it, once neither is left.
class Calls {
 public:
  Calls(const std::string& address, const GrpcConnector::Options& options)
      : max_request_bytes_(options.max_message_bytes),
        stub_(grpc::CreateCustomChannel(address,
                                        grpc::InsecureChannelCredentials(),
                                        ArgumentsFor(options))) {}

  void Start(std::string_view method, const std::string& request,
             absl::Duration timeout, ControlReply done);
  // Ends all with CANCELLED; returns when every `done` has run, but those that
  // this is called from inside of.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when gRPC has called back for every call. After Close, not from a
  // thread of gRPC's.
  void WaitUntilUnused() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
    // Null once Close has taken it. Guarded by the Calls' mutex.
    ControlReply done;
  };

  void Finish(Call* call, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // As Start, while it counts as a user.
  void StartCounted(std::string_view method, const std::string& request,
                    absl::Duration timeout, ControlReply done);
  void CountUser() ABSL_LOCKS_EXCLUDED(mutex_);
  // The last thing that is done with this value.
  void UncountUser() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::size_t max_request_bytes_;
  grpc::GenericStub stub_;

  Mutex mutex_;
  CallbackGate gate_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Of calls whose answer has not come; gRPC calls back once for each.
  absl::flat_hash_set<Call*> in_flight_ ABSL_GUARDED_BY(mutex_);
  // Calls that gRPC has not called back for, and Starts at work.
  std::size_t users_ ABSL_GUARDED_BY(mutex_) = 0;
  CondVar unused_;
};

void Calls::CountUser() {
  MutexLock lock(&mutex_);
  ++users_;
}

void Calls::UncountUser() {
  MutexLock lock(&mutex_);
  if (--users_ == 0) unused_.SignalAll();
}

void Calls::WaitUntilUnused() {
  MutexLock lock(&mutex_);
  while (users_ > 0) unused_.Wait(&mutex_);
}

void Calls::Start(std::string_view method, const std::string& request,
                  absl::Duration timeout, ControlReply done) {
  // A `done` that runs inside may destroy the channel.
  CountUser();
  StartCounted(method, request, timeout, std::move(done));
  UncountUser();
}

void Calls::StartCounted(std::string_view method, const std::string& request,
                         absl::Duration timeout, ControlReply done) {
  if (timeout <= absl::ZeroDuration()) {
    return std::move(done)(absl::DeadlineExceededError(
        StrCat(method, ": the time was over before the call")));
  }
  if (request.size() > max_request_bytes_) {
    return std::move(done)(absl::ResourceExhaustedError(
        StrCat(method, ": the request has ", request.size(),
               " bytes, the limit is ", max_request_bytes_)));
  }
  auto call = std::make_unique<Call>();
  call->request = ToByteBuffer(request);
  call->done = std::move(done);
  // By the monotonic clock: a change of the wall clock must not end calls.
  call->context.set_deadline(gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN)));
  // gRPC's until it calls back, which it always does; Finish owns it then.
  Call* const raw = call.release();
  bool closed = false;
  {
    MutexLock lock(&mutex_);
    closed = closed_;
    if (!closed) {
      in_flight_.insert(raw);
      ++users_;
    }
  }
  if (closed) {
    call.reset(raw);
    return std::move(call->done)(Closed());
  }
  stub_.UnaryCall(&raw->context, std::string(method), grpc::StubOptions(),
                  &raw->request, &raw->response,
                  [this, raw](const grpc::Status& status) {
                    Finish(raw, status);
                    UncountUser();
                  });
}

void Calls::Finish(Call* raw, const grpc::Status& status) {
  const std::unique_ptr<Call> call(raw);
  ControlReply done;
  {
    MutexLock lock(&mutex_);
    in_flight_.erase(raw);
    if (call->done == nullptr) return;
    done = std::exchange(call->done, nullptr);
    gate_.Enter();
  }
  absl::StatusOr<std::string> response = std::string();
  absl::Status outcome = FromGrpcStatus(status);
  if (outcome.ok()) outcome = FromByteBuffer(call->response, &*response);
  if (!outcome.ok()) response = std::move(outcome);
  std::move(done)(std::move(response));
  MutexLock lock(&mutex_);
  gate_.Leave();
}

// Runs what is outstanding here and now, and leaves gRPC to call back later,
// for nobody: when this is called from inside a `done`, gRPC may have queued
// the others behind it on this very thread.
void Calls::Close() {
  std::vector<ControlReply> outstanding;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    // Under the lock, so that none of them is freed before. gRPC does not call
    // back from inside TryCancel, but from a thread of its own, or after the
    // callback that this is in.
    for (Call* const call : in_flight_) {
      outstanding.push_back(std::exchange(call->done, nullptr));
      call->context.TryCancel();
    }
    in_flight_.clear();
  }
  for (ControlReply& done : outstanding) std::move(done)(Closed());
  MutexLock lock(&mutex_);
  while (gate_.OthersRun()) gate_.Wait(&mutex_);
}

}  // namespace

// Ends what is left of closed channels. A gRPC channel must not end on a thread
// of gRPC's: the last one of a process joins those threads, and joining itself
// it frees the queue that it still has to come back from (gRPC 1.51 then aborts
// the process, "prior > 0"). So every channel ends on a thread of its own here,
// started for the first one.
class GrpcConnector::Ender {
 public:
  ~Ender() {
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      changed_.SignalAll();
    }
    thread_.Join();
    // Those for which there was no thread.
    while (EndOne()) {
    }
  }

  void Take(std::unique_ptr<Calls> calls) {
    MutexLock lock(&mutex_);
    ended_.push_back(std::move(calls));
    changed_.SignalAll();
    if (started_) return;
    started_ = true;
    // Where it cannot be started they wait for the destructor.
    thread_.Start("firnkv-grpc-end", [this] { Run(); }).IgnoreError();
  }

 private:
  void Run() {
    while (true) {
      {
        MutexLock lock(&mutex_);
        while (ended_.empty() && !closed_) changed_.Wait(&mutex_);
        if (ended_.empty()) return;
      }
      EndOne();
    }
  }

  // False where there is none.
  bool EndOne() {
    std::unique_ptr<Calls> calls;
    {
      MutexLock lock(&mutex_);
      if (ended_.empty()) return false;
      calls = std::move(ended_.back());
      ended_.pop_back();
    }
    calls->WaitUntilUnused();
    return true;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<Calls>> ended_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Written under the mutex; joined by the destructor, when nobody starts it.
  NamedThread thread_;
};

namespace {

class GrpcChannel : public ControlChannel {
 public:
  // Gets the calls to end them, once they have been closed.
  using End = absl::AnyInvocable<void(std::unique_ptr<Calls>) &&>;

  GrpcChannel(const std::string& address, const GrpcConnector::Options& options,
              End end)
      : calls_(std::make_unique<Calls>(address, options)),
        end_(std::move(end)) {}
  ~GrpcChannel() override {
    calls_->Close();
    std::move(end_)(std::move(calls_));
  }

  void StartCall(std::string_view method, std::string request,
                 absl::Duration timeout, ControlReply done) override {
    calls_->Start(method, request, timeout, std::move(done));
  }

 private:
  std::unique_ptr<Calls> calls_;
  End end_;
};

}  // namespace

GrpcConnector::GrpcConnector(const Options& options)
    : options_(options), ender_(std::make_unique<Ender>()) {}

GrpcConnector::~GrpcConnector() = default;

std::unique_ptr<ControlChannel> GrpcConnector::Connect(
    std::string_view address) {
  return std::make_unique<GrpcChannel>(
      std::string(address), options_,
      [ender = ender_.get()](std::unique_ptr<Calls> calls) {
        ender->Take(std::move(calls));
      });
}

}  // namespace firnkv
