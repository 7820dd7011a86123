// The command line itself: what it takes, what it refuses, who it talks to.

#include "gmock/gmock.h"
#include "proto/admin.pb.h"
#include "tests/tools/firnkv/cli_test_support.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class UsageTest : public CliTest {
 protected:
  UsageTest() {
    control_.On<v1::ListTenantsRequest, v1::ListTenantsResponse>(
        "AdminService/ListTenants",
        [this](const v1::ListTenantsRequest& request)
            -> absl::StatusOr<v1::ListTenantsResponse> {
          token_ = request.header().token();
          remaining_micros_ = request.header().remaining_micros();
          v1::ListTenantsResponse response;
          response.add_tenants()->set_name("default");
          return response;
        });
  }
  std::string token_;
  std::uint64_t remaining_micros_ = 0;
};

TEST_F(UsageTest, HelpNamesEveryCommand) {
  EXPECT_EQ(Run({"--help"}), 0);

  for (const char* name :
       {"status", "tenant", "namespace", "node", "key", "catalog", "put", "get",
        "replay", "trace", "--secret-file", "Exit codes"}) {
    EXPECT_THAT(out(), HasSubstr(name));
  }
}

TEST_F(UsageTest, EveryCommandHasItsHelp) {
  const std::vector<std::vector<std::string>> commands = {
      {"status"},
      {"tenant", "create"},
      {"tenant", "ls"},
      {"tenant", "show"},
      {"tenant", "token"},
      {"namespace", "create"},
      {"namespace", "ls"},
      {"namespace", "show"},
      {"namespace", "clear"},
      {"node", "ls"},
      {"node", "drain"},
      {"key", "explain"},
      {"catalog", "backup"},
      {"catalog", "restore"},
      {"catalog", "accept-restore"},
      {"put"},
      {"get"},
      {"replay"},
      {"trace", "generate"}};

  for (std::vector<std::string> command : commands) {
    command.push_back("--help");
    EXPECT_EQ(Run(command), 0) << command[0];
    EXPECT_THAT(out(), HasSubstr(command[command.size() - 2]));
    EXPECT_EQ(control_.addresses.size(), 0u);
  }
}

TEST_F(UsageTest, NoCommandIsWrongUsage) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_THAT(err(), HasSubstr("subcommand is required"));
}

TEST_F(UsageTest, AnUnknownCommandIsNamedWithTheOneThatMayBeMeant) {
  EXPECT_EQ(Run({"statsu"}), 2);
  EXPECT_THAT(err(), HasSubstr("no command 'statsu'; did you mean status?"));
  EXPECT_EQ(Run({"namespace", "list"}), 2);
  EXPECT_THAT(err(), HasSubstr("no command 'list'; did you mean ls?"));
  EXPECT_THAT(err(), HasSubstr("firnkv namespace --help"));
  EXPECT_EQ(Run({"--json", "defragment"}), 2);
  EXPECT_THAT(err(), HasSubstr("no command 'defragment'\n"));
}

TEST_F(UsageTest, TheHelpOfACommandNamesTheOptionsOfAll) {
  EXPECT_EQ(Run({"node", "ls", "--help"}), 0);
  EXPECT_THAT(out(), HasSubstr("--json"));
}

// Once, the names of those before it were lost with it.
TEST_F(UsageTest, AFileThatCannotBePutIsFoundBeforeAnyIs) {
  EXPECT_EQ(Run({"put", secret_file_, folder_}), 1);
  EXPECT_THAT(err(), HasSubstr(folder_ + ": it is no file"));
  EXPECT_EQ(Run({"put", secret_file_, folder_ + "/nothing"}), 1);
  EXPECT_THAT(err(), HasSubstr(folder_ + "/nothing: cannot be read: No such"));
}

TEST_F(UsageTest, AnUnknownCommandOptionOrUnitIsWrongUsage) {
  EXPECT_EQ(Run({"tenants"}), 2);
  EXPECT_EQ(Run({"tenant"}), 2);
  EXPECT_EQ(Run({"tenant", "ls", "--nothing"}), 2);
  EXPECT_THAT(err(), HasSubstr("--nothing"));
  EXPECT_EQ(Run({"tenant", "create"}), 2);
  EXPECT_THAT(err(), HasSubstr("NAME"));
  EXPECT_EQ(Run({"tenant", "ls", "--timeout", "5"}), 2);
  EXPECT_THAT(err(), HasSubstr("'5' is no time: 250ms"));
  EXPECT_EQ(Run({"replay", "x", "--block-bytes", "64kB"}), 2);
  EXPECT_THAT(err(), HasSubstr("'64kB' is no size: 4096, 64KiB"));
  EXPECT_TRUE(control_.calls.empty());
}

TEST_F(UsageTest, GlobalOptionsStandBeforeAndBehindTheCommand) {
  EXPECT_EQ(Run({"--catalog", "a:1", "tenant", "ls"}), 0);
  EXPECT_EQ(Run({"tenant", "ls", "--catalog", "b:2", "--json"}), 0);

  EXPECT_THAT(control_.addresses, ElementsAre("a:1", "b:2"));
  EXPECT_THAT(out(), HasSubstr("\"tenants\": ["));
}

TEST_F(UsageTest, TheTimeoutIsTheRequestsDeadline) {
  EXPECT_EQ(Run({"tenant", "ls", "--timeout", "1500ms"}), 0);

  EXPECT_EQ(remaining_micros_, 1'500'000u);
}

TEST_F(UsageTest, TheEnvironmentNamesTheCatalogWhereNoOptionDoes) {
  environment_["FIRNKV_CLI_CATALOG"] = "c:3";

  EXPECT_EQ(Run({"tenant", "ls"}), 0);
  EXPECT_EQ(Run({"tenant", "ls", "--catalog", "d:4"}), 0);

  EXPECT_THAT(control_.addresses, ElementsAre("c:3", "d:4"));
}

TEST_F(UsageTest, WithoutANodeTheCatalogIsOnThisHost) {
  EXPECT_EQ(Run({"tenant", "ls"}), 0);

  EXPECT_THAT(control_.addresses, ElementsAre("127.0.0.1:7400"));
}

TEST_F(UsageTest, TheSecretMakesAnAdministratorsTokenOfThisCluster) {
  ASSERT_EQ(Run({"tenant", "ls"}), 0);

  const auto claims =
      CheckToken(token_, cluster_, secret_, 0, clock_.WallNow());
  ASSERT_TRUE(claims.ok()) << claims.status();
  EXPECT_EQ(claims->role, Role::kAdmin);
  EXPECT_TRUE(claims->tenant.IsZero());
}

TEST_F(UsageTest, ATokenFileIsUsedAsItIs) {
  const std::string file = WriteFile("token", ToHex("some token") + "\n", 0600);

  ASSERT_EQ(Run({"tenant", "ls", "--token-file", file}), 0);

  EXPECT_EQ(token_, "some token");
  EXPECT_EQ(control_.calls["CatalogService/Connect"], 0);
}

TEST_F(UsageTest, ASecretThatOthersMayReadIsRefused) {
  chmod(secret_file_.c_str(), 0644);

  EXPECT_EQ(Run({"tenant", "ls"}), 1);
  EXPECT_THAT(err(), HasSubstr("chmod 600"));
}

TEST_F(UsageTest, AFileThatIsNoSecretIsRefused) {
  const std::string file = WriteFile("short", "abcd\n", 0600);

  EXPECT_EQ(Run({"tenant", "ls", "--secret-file", file}), 1);
  EXPECT_THAT(err(), HasSubstr("it must be 64 hex digits"));
}

TEST_F(UsageTest, WithoutSecretAndNodeItSaysHowToSayWhoYouAre) {
  environment_.erase("FIRNKV_CLI_SECRET_FILE");

  EXPECT_EQ(Run({"tenant", "ls"}), 1);
  EXPECT_THAT(err(), HasSubstr("--secret-file"));
  EXPECT_THAT(err(), HasSubstr("run it beside a node"));
  // Nobody was asked who could have refused.
  EXPECT_THAT(err(), HasSubstr(folder_ + "/node.sock: nobody listens"));
  EXPECT_THAT(err(), Not(HasSubstr("does not accept")));
}

TEST_F(UsageTest, ACatalogThatDoesNotAnswerIsNamedWithWhatToDo) {
  control_.methods.clear();

  EXPECT_EQ(Run({"tenant", "ls", "--catalog", "far:1"}), 1);
  EXPECT_THAT(err(), HasSubstr("connection refused"));
  EXPECT_THAT(err(), HasSubstr("no answer of the catalog at far:1"));
  EXPECT_THAT(err(), HasSubstr("--catalog HOST:PORT"));
}

TEST_F(UsageTest, ANodeThatDoesNotAnswerIsNamedWithWhatToDo) {
  EXPECT_EQ(Run({"put", secret_file_}), 1);

  EXPECT_THAT(err(), HasSubstr(folder_ + "/node.sock"));
  EXPECT_THAT(err(), HasSubstr("is firnkv-node running on this host?"));
}

TEST_F(UsageTest, AnotherRecipeIsRefused) {
  control_.On<v1::ConnectRequest, v1::ConnectResponse>(
      "CatalogService/Connect",
      [this](const v1::ConnectRequest&) -> absl::StatusOr<v1::ConnectResponse> {
        v1::ConnectResponse response;
        Handshake handshake;
        handshake.cluster = cluster_;
        handshake.test_vector.bytes[0] = 1;
        ToProto(handshake, response.mutable_handshake());
        return response;
      });

  EXPECT_EQ(Run({"tenant", "ls"}), 1);
}

TEST_F(UsageTest, AFailureInJsonIsJsonToo) {
  control_.methods.erase("AdminService/ListTenants");

  EXPECT_EQ(Run({"tenant", "ls", "--json"}), 1);
  EXPECT_THAT(out(), HasSubstr("\"code\": \"UNAVAILABLE\""));
}

TEST_F(UsageTest, AnAnswerThatIsNoMessageIsSaid) {
  control_.methods["AdminService/ListTenants"] = [](const std::string&,
                                                    const std::string&) {
    return std::string("\xff\xff\xff");
  };

  EXPECT_EQ(Run({"tenant", "ls"}), 1);
  EXPECT_THAT(err(), HasSubstr("cannot be read"));
}

TEST_F(UsageTest, ARoleThatMayNotIsToldWhoMay) {
  control_.On<v1::CreateTenantRequest, v1::TenantResponse>(
      "AdminService/CreateTenant",
      [](const v1::CreateTenantRequest&) -> absl::StatusOr<v1::TenantResponse> {
        return absl::PermissionDeniedError("the token's role may not");
      });

  EXPECT_EQ(Run({"tenant", "create", "a"}), 1);
  EXPECT_THAT(err(), HasSubstr("an administrator gives --secret-file"));
}

TEST_F(UsageTest, NothingSecretIsPrinted) {
  Run({"tenant", "ls", "--json"});

  EXPECT_THAT(out() + err(), Not(HasSubstr(ToHex(secret_))));
}

}  // namespace
}  // namespace firnkv
