// The CLI in a test: arguments in, exit code and both outputs out, with
// services that answer as a test says, and no local node.

#ifndef FIRNKV_TESTS_TOOLS_FIRNKV_CLI_TEST_SUPPORT_H_
#define FIRNKV_TESTS_TOOLS_FIRNKV_CLI_TEST_SUPPORT_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/request.h"
#include "proto/base/text.h"
#include "proto/base/token.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "tests/support/manual_clock.h"
#include "tools/firnkv/run.h"
#include "tools/firnkv/surroundings.h"

namespace firnkv {

// Every address leads here.
class ScriptedControl : public ControlConnector {
 public:
  using Serve = std::function<absl::StatusOr<std::string>(
      const std::string& address, const std::string& request)>;

  std::unique_ptr<ControlChannel> Connect(std::string_view address) override {
    addresses.emplace_back(address);
    return std::make_unique<Channel>(this, std::string(address));
  }

  // `method` is "AdminService/ListNodes".
  template <typename Request, typename Response>
  void On(const std::string& method,
          std::function<absl::StatusOr<Response>(const Request&)> serve) {
    methods[method] =
        [serve](const std::string&,
                const std::string& bytes) -> absl::StatusOr<std::string> {
      Request request;
      EXPECT_TRUE(request.ParseFromString(bytes));
      absl::StatusOr<Response> response = serve(request);
      if (!response.ok()) return response.status();
      return response->SerializeAsString();
    };
  }

  std::vector<std::string> addresses;
  std::map<std::string, Serve> methods;
  std::map<std::string, int> calls;

 private:
  class Channel : public ControlChannel {
   public:
    Channel(ScriptedControl* owner, std::string address)
        : owner_(*owner), address_(std::move(address)) {}
    void StartCall(std::string_view method, std::string request, absl::Duration,
                   ControlReply done) override {
      const std::string prefix = "/firnkv.v1.";
      const std::string name(method.substr(prefix.size()));
      ++owner_.calls[name];
      const auto serve = owner_.methods.find(name);
      if (serve == owner_.methods.end()) {
        std::move(done)(absl::UnavailableError("connection refused"));
        return;
      }
      std::move(done)(serve->second(address_, request));
    }

   private:
    ScriptedControl& owner_;
    const std::string address_;
  };
};

class CliTest : public testing::Test {
 protected:
  CliTest() {
    std::string path = testing::TempDir() + "firnkv_cli_XXXXXX";
    folder_ = mkdtemp(path.data());
    secret_.bytes[0] = 7;
    secret_file_ = WriteFile("cluster.secret", ToHex(secret_) + "\n", 0600);
    environment_ = {{"FIRNKV_CLI_SECRET_FILE", secret_file_},
                    {"FIRNKV_CLI_SOCKET", folder_ + "/node.sock"}};
    cluster_.bytes[5] = 9;
    control_.On<v1::ConnectRequest, v1::ConnectResponse>(
        "CatalogService/Connect",
        [this](
            const v1::ConnectRequest&) -> absl::StatusOr<v1::ConnectResponse> {
          v1::ConnectResponse response;
          Handshake handshake;
          handshake.cluster = cluster_;
          handshake.test_vector = HandshakeTestVector();
          ToProto(handshake, response.mutable_handshake());
          return response;
        });
    world_.out = &out_;
    world_.err = &err_;
    world_.in = &in_;
    world_.clock = &clock_;
    world_.random = &random_;
    world_.control = &control_;
    world_.pause = [this](absl::Duration time) { clock_.Advance(time); };
    world_.connect = [](ClientOptions) {
      return absl::UnavailableError("nobody listens");
    };
    world_.environment =
        [this](const char* name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      if (found == environment_.end()) return std::nullopt;
      return found->second;
    };
  }
  ~CliTest() override {
    EXPECT_EQ(std::system(("rm -rf '" + folder_ + "'").c_str()), 0);
  }

  int Run(const std::vector<std::string>& arguments) {
    out_.str("");
    err_.str("");
    return static_cast<int>(RunFirnkv(arguments, &world_));
  }

  std::string WriteFile(const std::string& name, const std::string& text,
                        unsigned mode = 0644) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string ReadFile(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

  std::string folder_;
  ClusterSecret secret_;
  std::string secret_file_;
  ClusterId cluster_;
  std::map<std::string, std::string> environment_;
  ScriptedControl control_;
  ManualClock clock_;
  SeededRandom random_{1};
  std::ostringstream out_;
  std::ostringstream err_;
  std::istringstream in_;
  Surroundings world_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_TOOLS_FIRNKV_CLI_TEST_SUPPORT_H_
