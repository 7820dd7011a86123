// The control channel over real gRPC, from connector to handler: what crosses,
// what does not, and how calls end.

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/grpc_bytes.h"
#include "client/transport/grpc_channel.h"
#include "client/transport/named_thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "proto/node.pb.h"
#include "server/base/grpc_server.h"
#include "tests/client/transport/inbox.h"
#include "tests/client/transport/raw_socket.h"

namespace firnkv {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

using Answer = absl::StatusOr<std::string>;

constexpr char kStatus[] = "/firnkv.v1.NodeService/Status";
constexpr absl::Duration kLong = absl::Seconds(25);

// Hands every call to the test.
class HeldCalls : public ControlService {
 public:
  struct Call {
    std::string method;
    ControlPeer peer;
    std::string request;
    ControlReply reply;
  };

  explicit HeldCalls(std::string service) : service_(std::move(service)) {}

  std::string_view service() const override { return service_; }
  void Handle(std::string_view method, const ControlPeer& peer,
              std::string_view request, ControlReply reply) override {
    calls.Put(Call{std::string(method), peer, std::string(request),
                   std::move(reply)});
  }

  Inbox<Call> calls;

 private:
  const std::string service_;
};

// Answers with what it was asked.
class Echo : public HeldCalls {
 public:
  using HeldCalls::HeldCalls;
  void Handle(std::string_view, const ControlPeer&, std::string_view request,
              ControlReply reply) override {
    std::move(reply)(std::string(request));
  }
};

class GrpcBridgeTest : public testing::Test {
 protected:
  GrpcBridgeTest() {
    // As a handler does by decoding messages: brings the service's descriptor
    // into the program.
    EXPECT_NE(v1::NodeStatusRequest::descriptor(), nullptr);
    std::string name = "/tmp/firnkv-grpc-XXXXXX";
    folder_ = mkdtemp(name.data());
    unix_ = StrCat("unix:", folder_, "/control");
    server_ =
        *GrpcServer::Start({.addresses = {unix_, "127.0.0.1:0"}}, {&handler_});
    tcp_ = server_->addresses()[1];
  }
  ~GrpcBridgeTest() override {
    // The server waits for the answers that it is owed.
    while (!handler_.calls.empty()) handler_.calls.Take();
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start(const std::string& request, absl::Duration timeout = kLong) {
    if (channel_ == nullptr) channel_ = connector_.Connect(unix_);
    channel_->StartCall(kStatus, request, timeout, Into(&answers_));
  }
  static ControlReply Into(Inbox<Answer>* inbox) {
    return [inbox](Answer answer) { inbox->Put(std::move(answer)); };
  }

  std::string folder_;
  std::string unix_;
  std::string tcp_;
  HeldCalls handler_{"firnkv.v1.NodeService"};
  std::unique_ptr<GrpcServer> server_;
  GrpcConnector connector_;
  Inbox<Answer> answers_;
  std::unique_ptr<ControlChannel> channel_;
};

TEST_F(GrpcBridgeTest, BytesCrossUnchangedOverAUnixSocket) {
  const std::string request("re\0quest", 8), response("re\0sponse", 9);
  Start(request);

  HeldCalls::Call call = handler_.calls.Take();
  std::move(call.reply)(response);

  EXPECT_EQ(call.method, kStatus);
  EXPECT_EQ(call.request, request);
  EXPECT_EQ(*answers_.Take(), response);
}

// Rule S3: what the handler decides by.
TEST_F(GrpcBridgeTest, OnlyAPeerOnAUnixSocketIsLocal) {
  const auto remote = connector_.Connect(tcp_);
  Start("");
  const HeldCalls::Call local_call = handler_.calls.Take();
  remote->StartCall(kStatus, "", kLong, Into(&answers_));
  const HeldCalls::Call remote_call = handler_.calls.Take();

  EXPECT_TRUE(local_call.peer.local);
  EXPECT_FALSE(remote_call.peer.local);
  EXPECT_THAT(remote_call.peer.address, HasSubstr("127.0.0.1"));
}

TEST_F(GrpcBridgeTest, MessagesMayBeEmpty) {
  Start("");

  HeldCalls::Call call = handler_.calls.Take();
  std::move(call.reply)(std::string());

  EXPECT_EQ(call.request, "");
  EXPECT_EQ(*answers_.Take(), "");
}

TEST_F(GrpcBridgeTest, TheLargestMessagePassesBothWays) {
  const std::string largest(kMaxControlMessageBytes, 'x');
  Start(largest);

  HeldCalls::Call call = handler_.calls.Take();
  std::move(call.reply)(largest);

  EXPECT_TRUE(call.request == largest);
  EXPECT_TRUE(*answers_.Take() == largest);
}

TEST_F(GrpcBridgeTest, ALargerRequestIsRefusedBeforeItIsSent) {
  Start(std::string(kMaxControlMessageBytes + 1, 'x'));

  ASSERT_FALSE(answers_.empty());
  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kResourceExhausted);
}

TEST_F(GrpcBridgeTest, TheServerRefusesALargerRequestOfOthers) {
  GrpcConnector careless({.max_message_bytes = 4 * kMaxControlMessageBytes});
  channel_ = careless.Connect(unix_);
  Start(std::string(kMaxControlMessageBytes + 1, 'x'));

  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(handler_.calls.empty());
  channel_.reset();
}

TEST_F(GrpcBridgeTest, ALargerAnswerIsRefused) {
  Start("");

  std::move(handler_.calls.Take().reply)(
      std::string(kMaxControlMessageBytes + 1, 'x'));

  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kResourceExhausted);
}

TEST_F(GrpcBridgeTest, AStatusCrossesWithCodeAndMessage) {
  Start("");

  std::move(handler_.calls.Take().reply)(
      absl::FailedPreconditionError("another cluster"));

  EXPECT_EQ(answers_.Take().status(),
            absl::FailedPreconditionError("another cluster"));
}

TEST_F(GrpcBridgeTest, ACallEndsAtItsDeadline) {
  Start("", absl::Milliseconds(50));
  const HeldCalls::Call unanswered = handler_.calls.Take();

  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(GrpcBridgeTest, ACallWhoseTimeIsOverIsNotMade) {
  Start("", absl::ZeroDuration());

  ASSERT_FALSE(answers_.empty());
  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(handler_.calls.empty());
}

TEST_F(GrpcBridgeTest, ADestroyedChannelHasCancelledItsCalls) {
  Start("1");
  Start("2");
  const HeldCalls::Call one = handler_.calls.Take();
  const HeldCalls::Call two = handler_.calls.Take();

  channel_.reset();

  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kCancelled);
}

TEST_F(GrpcBridgeTest, AChannelMayBeDestroyedInItsOwnDone) {
  channel_ = connector_.Connect(unix_);
  channel_->StartCall(kStatus, "1", kLong, [this](Answer answer) {
    channel_.reset();
    answers_.Put(std::move(answer));
  });
  Start("2");
  std::map<std::string, ControlReply> replies;
  for (int i = 0; i < 2; ++i) {
    HeldCalls::Call call = handler_.calls.Take();
    replies[call.request] = std::move(call.reply);
  }

  std::move(replies["1"])(std::string("answer"));

  // The other call's end comes first: before the destructor returned.
  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(*answers_.Take(), "answer");
}

// gRPC's threads were joined by one of themselves, and the process aborted.
TEST_F(GrpcBridgeTest, TheLastChannelOfAProcessNeverEndsOnAThreadOfGrpcs) {
  for (int round = 0; round < 300; ++round) {
    GrpcConnector connector;
    Inbox<Answer> answers;
    std::unique_ptr<ControlChannel> channel = connector.Connect(unix_);
    channel->StartCall(kStatus, "", kLong, Into(&answers));
    HeldCalls::Call call = handler_.calls.Take();

    channel.reset();  // The call is still to be called back for.

    EXPECT_EQ(answers.Take().status().code(), StatusCode::kCancelled);
    std::move(call.reply)(std::string());
  }
}

TEST_F(GrpcBridgeTest, NobodyThereIsUnavailable) {
  channel_ = connector_.Connect(StrCat("unix:", folder_, "/nobody"));
  Start("");

  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kUnavailable);
}

TEST_F(GrpcBridgeTest, AChannelFindsAServerThatCameBack) {
  Start("");
  std::move(handler_.calls.Take().reply)(std::string("first"));
  ASSERT_EQ(*answers_.Take(), "first");

  server_.reset();
  Echo echo("firnkv.v1.NodeService");
  server_ = *GrpcServer::Start({.addresses = {unix_}}, {&echo});
  // Calls fail at once until the backoff is over, at most a second.
  Answer answer = absl::UnavailableError("not called yet");
  for (int i = 0; i < 10000000 && !answer.ok(); ++i) {
    Start("second");
    answer = answers_.Take();
  }

  EXPECT_EQ(*answer, "second");
  server_.reset();
}

TEST_F(GrpcBridgeTest, AMethodThatTheServiceLacksIsUnimplemented) {
  channel_ = connector_.Connect(unix_);
  channel_->StartCall("/firnkv.v1.NodeService/Nothing", "", kLong,
                      Into(&answers_));

  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kUnimplemented);
}

TEST_F(GrpcBridgeTest, ACallThatTheHandlerLetsGoIsUnavailable) {
  Start("");

  { const HeldCalls::Call dropped = handler_.calls.Take(); }

  EXPECT_EQ(answers_.Take().status().code(), StatusCode::kUnavailable);
}

TEST_F(GrpcBridgeTest, ShutdownLetsRunningCallsEndWithinItsGrace) {
  Start("");
  HeldCalls::Call call = handler_.calls.Take();
  Inbox<bool> down;
  auto thread = std::make_unique<NamedThread>();
  ASSERT_EQ(thread->Start("shutdown",
                          [&] {
                            server_->Shutdown(kLong);
                            down.Put(true);
                          }),
            absl::OkStatus());

  std::move(call.reply)(std::string("in time"));

  EXPECT_EQ(*answers_.Take(), "in time");
  EXPECT_TRUE(down.Take());
}

TEST_F(GrpcBridgeTest, AHandlerMayReplyAfterItsCallerHasGone) {
  Start("");
  HeldCalls::Call call = handler_.calls.Take();
  channel_.reset();
  ASSERT_EQ(answers_.Take().status().code(), StatusCode::kCancelled);

  std::move(call.reply)(std::string("too late"));

  Start("next");
  EXPECT_EQ(handler_.calls.Take().request, "next");
}

// Rule S4.
TEST_F(GrpcBridgeTest, AUidHasABoundedNumberOfConnectionsToTheUnixSocket) {
  const std::string path = folder_ + "/capped";
  Echo echo("firnkv.v1.NodeService");
  const auto server =
      *GrpcServer::Start({.addresses = {"unix:" + path},
                          .unix_connections = {.most = 10, .most_a_uid = 2}},
                         {&echo});
  // gRPC speaks first.
  const auto is_served = [](const Descriptor& connection) {
    char first = 0;
    return read(connection.get(), &first, 1) == 1;
  };
  auto one = RawUnixConnect(path, SOCK_STREAM);
  auto two = RawUnixConnect(path, SOCK_STREAM);
  ASSERT_TRUE(is_served(one));
  ASSERT_TRUE(is_served(two));

  EXPECT_FALSE(is_served(RawUnixConnect(path, SOCK_STREAM)));

  // Once gRPC has seen its end, one that is over makes room.
  one.Reset();
  bool served = false;
  for (int i = 0; i < 10000000 && !served; ++i) {
    served = is_served(RawUnixConnect(path, SOCK_STREAM));
  }
  EXPECT_TRUE(served);
}

TEST_F(GrpcBridgeTest, EveryUidMayConnectToTheUnixSocket) {
  struct stat stat = {};
  ASSERT_EQ(lstat((folder_ + "/control").c_str(), &stat), 0);

  EXPECT_EQ(stat.st_mode & 07777, 0666u);
}

TEST_F(GrpcBridgeTest, AnAddressInUseIsRefusedByNameAndReasonAndNoMore) {
  testing::internal::CaptureStderr();
  const absl::Status status =
      GrpcServer::Start({.addresses = {tcp_}}, {&handler_}).status();

  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(tcp_));
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use"));
}

TEST_F(GrpcBridgeTest, ALiveUnixSocketIsNotReplaced) {
  const absl::Status status =
      GrpcServer::Start({.addresses = {unix_}}, {&handler_}).status();

  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  Start("still there");
  EXPECT_EQ(handler_.calls.Take().request, "still there");
}

TEST_F(GrpcBridgeTest, AServiceThatIsNotLinkedIsRefusedByName) {
  HeldCalls stranger("firnkv.v1.NoSuchService");

  const absl::Status status =
      GrpcServer::Start({.addresses = {"127.0.0.1:0"}}, {&stranger}).status();

  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("NoSuchService"));
}

// One message to a bidirectional method of the server, and its answer, as
// grpcurl would do it.
class OneExchange
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  OneExchange(const std::string& address, const std::string& method,
              const std::string& request)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        request_(ToByteBuffer(request)) {
    stub_.PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(),
                                   this);
    StartWrite(&request_);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    std::string bytes;
    if (ok) FromByteBuffer(response_, &bytes).IgnoreError();
    first_.Put(std::move(bytes));
    context_.TryCancel();
  }
  void OnDone(const grpc::Status&) override { done_.Put(true); }

  std::string Run() {
    std::string response = first_.Take();
    done_.Take();
    return response;
  }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  Inbox<std::string> first_;
  Inbox<bool> done_;
};

constexpr char kReflection[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

TEST_F(GrpcBridgeTest, ReflectionListsTheServices) {
  // ServerReflectionRequest{list_services: ""}.
  const std::string request("\x3a\x00", 2);

  const std::string response = OneExchange(tcp_, kReflection, request).Run();

  EXPECT_THAT(response, HasSubstr("firnkv.v1.NodeService"));
  EXPECT_THAT(response, HasSubstr("grpc.health.v1.Health"));
}

TEST_F(GrpcBridgeTest, ReflectionDescribesAService) {
  // ServerReflectionRequest{file_containing_symbol: "firnkv.v1.NodeService"}.
  const std::string symbol = "firnkv.v1.NodeService";
  const std::string request =
      StrCat("\x22", std::string(1, static_cast<char>(symbol.size())), symbol);

  const std::string response = OneExchange(tcp_, kReflection, request).Run();

  EXPECT_THAT(response, HasSubstr("OpenReadRequest"));
}

TEST_F(GrpcBridgeTest, TheHealthServiceSaysWhetherItServes) {
  // HealthCheckRequest{service}; HealthCheckResponse{status: 1 = SERVING}.
  const std::string service = "firnkv.v1.NodeService";
  const std::string request = StrCat(
      "\x0a", std::string(1, static_cast<char>(service.size())), service);
  channel_ = connector_.Connect(tcp_);

  channel_->StartCall("/grpc.health.v1.Health/Check", request, kLong,
                      Into(&answers_));
  EXPECT_EQ(*answers_.Take(), "\x08\x01");

  server_->SetServing(false);
  channel_->StartCall("/grpc.health.v1.Health/Check", request, kLong,
                      Into(&answers_));
  EXPECT_EQ(*answers_.Take(), "\x08\x02");
}

TEST_F(GrpcBridgeTest, ManyCallsAtOnceAllGetTheirOwnAnswer) {
  constexpr int kCalls = 500;
  channel_ = connector_.Connect(unix_);
  std::vector<std::unique_ptr<Inbox<Answer>>> answers;
  for (int i = 0; i < kCalls; ++i) {
    answers.push_back(std::make_unique<Inbox<Answer>>());
    channel_->StartCall(kStatus, StrCat(i), kLong, Into(answers.back().get()));
  }

  for (int i = 0; i < kCalls; ++i) {
    HeldCalls::Call call = handler_.calls.Take();
    std::move(call.reply)(StrCat("answer ", call.request));
  }

  for (int i = 0; i < kCalls; ++i) {
    EXPECT_EQ(*answers[static_cast<std::size_t>(i)]->Take(),
              StrCat("answer ", i));
  }
}

}  // namespace
}  // namespace firnkv
