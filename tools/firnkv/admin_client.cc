#include "tools/firnkv/admin_client.h"

#include <optional>

#include "proto/base/mutex.h"
#include "proto/base/request.h"
#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"

namespace firnkv {
namespace {

using Answer = absl::StatusOr<std::string>;

// One answer, waited for. The channel runs its reply by the call's timeout.
class Waiter {
 public:
  void Put(Answer answer) {
    MutexLock lock(&mutex_);
    answer_.emplace(std::move(answer));
    there_.SignalAll();
  }
  Answer Take() {
    MutexLock lock(&mutex_);
    while (!answer_.has_value()) there_.Wait(&mutex_);
    return *std::move(answer_);
  }

 private:
  Mutex mutex_;
  CondVar there_;
  std::optional<Answer> answer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

AdminClient::AdminClient(ControlConnector* connector, Options options)
    : options_(std::move(options)),
      channel_(connector->Connect(options_.address)) {}

void AdminClient::FillHeader(v1::RequestHeader* header) const {
  RequestHeader plain;
  plain.remaining = options_.timeout;
  plain.token = options_.token;
  ToProto(plain, header);
}

absl::StatusOr<std::string> AdminClient::CallEncoded(std::string_view method,
                                                     std::string request) {
  Waiter waiter;
  channel_->StartCall(StrCat("/firnkv.v1.", method), std::move(request),
                      options_.timeout,
                      [&waiter](Answer answer) { waiter.Put(answer); });
  return waiter.Take();
}

absl::Status AdminClient::Unreadable(std::string_view method) const {
  return absl::InternalError(
      StrCat("the answer of ", options_.address, " to ", method,
             " cannot be read: is it a FirnKV of this version?"));
}

absl::StatusOr<ClusterId> AdminClient::Connect(std::string_view service) {
  Handshake ours;
  ours.test_vector = HandshakeTestVector();
  v1::ConnectRequest request;
  ToProto(ours, request.mutable_handshake());
  ASSIGN_OR_RETURN(const v1::ConnectResponse response,
                   Call<v1::ConnectResponse>(StrCat(service, "/Connect"),
                                             std::move(request)));
  ASSIGN_OR_RETURN(const Handshake theirs, FromProto(response.handshake()));
  RETURN_IF_ERROR(Agree(ours, theirs).status());
  return theirs.cluster;
}

}  // namespace firnkv
