// What both services of the catalog do with every call: bounds, decoding, the
// caller's token, its turn, its deadline, the answer, and what is counted. A
// method is left with plain work: request and caller in, response or status
// out.
//
// Knows of protobuf only that a message parses and serializes itself.
//
// Threading. Thread-safe. A method runs on the calling thread or on the strand,
// as it says, and never under a lock.

#ifndef FIRNKV_SERVER_CATALOG_SERVICE_CALL_H_
#define FIRNKV_SERVER_CATALOG_SERVICE_CALL_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/control_channel.h"
#include "proto/base/counter.h"
#include "proto/base/limits.h"
#include "proto/base/request.h"
#include "proto/base/text.h"
#include "proto/base/token.h"
#include "proto/convert.h"
#include "server/catalog/authenticator.h"
#include "server/catalog/strand.h"
#include "server/catalog/watched_store.h"

namespace firnkv {

// What is counted of one method.
struct CallStats {
  Counter calls;
  Counter failures;
  LatencyHistogram took;
};

enum class RunsOn : std::uint8_t {
  // Reads, and what has a mutex of its own.
  kCaller,
  // Whatever changes registrations, namespaces or entries.
  kStrand,
};

class ServiceCalls {
 public:
  // All outlive it.
  struct Parts {
    const WatchedStore* store;
    const Authenticator* authenticator;
    Strand* strand;
    const Clock* clock;
  };
  explicit ServiceCalls(const Parts& parts) : parts_(parts) {}

  // `serve` is absl::StatusOr<Response>(const TokenClaims&, const Request&).
  template <typename Request, typename Serve>
  void Run(RunsOn where, std::string_view bytes, CallStats* stats,
           ControlReply reply, Serve serve) const {
    const BootTime began = parts_.clock->Now();
    stats->calls.Add();
    Request request;
    absl::StatusOr<RequestHeader> header = Open(bytes, &request);
    absl::StatusOr<TokenClaims> caller =
        header.ok() ? parts_.authenticator->Check(*header) : header.status();
    if (!caller.ok()) {
      Answer(caller.status(), began, stats, std::move(reply));
      return;
    }
    if (where == RunsOn::kCaller) {
      Answer(Encoded(serve(*caller, request)), began, stats, std::move(reply));
      return;
    }
    const BootTime deadline = began + header->remaining;
    parts_.strand->Post([this, began, deadline, stats, caller = *caller,
                         request = std::move(request), serve = std::move(serve),
                         reply = std::move(reply)](absl::Status turn) mutable {
      if (turn.ok() && parts_.clock->Now() >= deadline) {
        turn = absl::DeadlineExceededError("the catalog was too busy");
      }
      Answer(turn.ok() ? Encoded(serve(caller, request)) : turn, began, stats,
             std::move(reply));
    });
  }

 private:
  template <typename Request>
  absl::StatusOr<RequestHeader> Open(std::string_view bytes,
                                     Request* request) const {
    if (absl::Status broken = parts_.store->health(); !broken.ok()) {
      return broken;
    }
    if (bytes.size() > kMaxControlMessageBytes ||
        !request->ParseFromArray(bytes.data(),
                                 static_cast<int>(bytes.size()))) {
      return absl::InvalidArgumentError(
          StrCat("a message of ", bytes.size(), " bytes is no request of ",
                 "this method, or is over ", kMaxControlMessageBytes));
    }
    return FromProto(request->header());
  }

  template <typename Response>
  static absl::StatusOr<std::string> Encoded(
      const absl::StatusOr<Response>& response) {
    if (!response.ok()) return response.status();
    std::string bytes = response->SerializeAsString();
    if (bytes.size() > kMaxControlMessageBytes) {
      return absl::ResourceExhaustedError(
          StrCat("the answer has ", bytes.size(), " bytes, of at most ",
                 kMaxControlMessageBytes, "; ask for less"));
    }
    return bytes;
  }

  void Answer(absl::StatusOr<std::string> answer, BootTime began,
              CallStats* stats, ControlReply reply) const {
    if (!answer.ok()) stats->failures.Add();
    stats->took.Add(parts_.clock->Now() - began);
    std::move(reply)(std::move(answer));
  }

  const Parts parts_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_SERVICE_CALL_H_
