// Commands that ask the catalog: what goes out for which arguments, and what
// is printed of the answer.

#include <sys/stat.h>

#include "gmock/gmock.h"
#include "proto/admin.pb.h"
#include "proto/catalog.pb.h"
#include "proto/node.pb.h"
#include "tests/support/matchers.h"
#include "tests/tools/firnkv/cli_test_support.h"
#include "tools/firnkv/secret_file.h"

namespace firnkv {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kContract[] =
    "model: llama\n"
    "weights_revision: abc\n"
    "tokenizer: t1\n"
    "preprocessing: none\n"
    "positional: rope\n"
    "kv_dtype: bf16\n"
    "layer_order: layers,kv,heads,tokens,dim\n"
    "kv_order: k-then-v\n"
    "head_grouping: 8 kv heads\n"
    "page_order: ascending\n"
    "block_tokens: 16\n"
    "tensor_parallel: 1\n"
    "pipeline_parallel: 1\n"
    "context_parallel: 1\n"
    "layout_version: 1\n"
    "adapters:\n"
    "- {name: sql, revision: '7'}\n";

class AdministrationTest : public CliTest {
 protected:
  AdministrationTest() {
    control_.On<v1::CreateNamespaceRequest, v1::NamespaceResponse>(
        "AdminService/CreateNamespace",
        [this](const v1::CreateNamespaceRequest& request)
            -> absl::StatusOr<v1::NamespaceResponse> {
          create_ = request;
          v1::NamespaceResponse response;
          response.set_created(true);
          auto* const row = response.mutable_name_space();
          *row->mutable_contract() = request.contract();
          row->mutable_facts()->set_name(request.name());
          row->mutable_facts()->set_version(3);
          return response;
        });
    control_.On<v1::ClearNamespaceRequest, v1::ClearNamespaceResponse>(
        "AdminService/ClearNamespace",
        [this](const v1::ClearNamespaceRequest& request)
            -> absl::StatusOr<v1::ClearNamespaceResponse> {
          clears_.push_back(request);
          v1::ClearNamespaceResponse response;
          response.add_cleared()->set_name(request.name());
          if (clears_.size() < nodes_confirm_at_) {
            response.add_pending_nodes("0123");
            response.add_pending_reasons("sleeps");
          }
          return response;
        });
    control_.On<v1::MintTokenRequest, v1::MintTokenResponse>(
        "CatalogService/MintToken",
        [this](const v1::MintTokenRequest& request)
            -> absl::StatusOr<v1::MintTokenResponse> {
          mint_ = request;
          v1::MintTokenResponse response;
          response.set_token("token");
          return response;
        });
    control_.On<v1::BackupRequest, v1::BackupResponse>(
        "AdminService/Backup",
        [](const v1::BackupRequest&) -> absl::StatusOr<v1::BackupResponse> {
          v1::BackupResponse response;
          response.set_state(std::string("state\0bytes", 11));
          return response;
        });
    control_.On<v1::RestoreRequest, v1::RestoreResponse>(
        "AdminService/Restore",
        [this](const v1::RestoreRequest& request)
            -> absl::StatusOr<v1::RestoreResponse> {
          restored_ = request.state();
          v1::RestoreResponse response;
          response.set_tenants(2);
          return response;
        });
  }

  v1::CreateNamespaceRequest create_;
  v1::MintTokenRequest mint_;
  std::vector<v1::ClearNamespaceRequest> clears_;
  std::size_t nodes_confirm_at_ = 1;
  std::string restored_;
};

TEST_F(AdministrationTest, ATokenIsPrintedOrGoesToAFileOfItsOwners) {
  ASSERT_EQ(Run({"tenant", "token", "red"}), 0) << err();
  EXPECT_EQ(out(), "746f6b656e\n");
  EXPECT_EQ(mint_.tenant_name(), "red");
  EXPECT_EQ(mint_.role(), 1u);
  EXPECT_EQ(mint_.life_seconds(), 3600u);

  const std::string file = WriteFile("token", "an older one");
  EXPECT_EQ(Run({"tenant", "token", "red", "--out", file}), 1);
  ASSERT_EQ(Run({"tenant", "token", "red", "--life", "12h", "--out", file,
                 "--force"}),
            0)
      << err();

  EXPECT_EQ(mint_.life_seconds(), 12u * 3600);
  struct stat about;
  ASSERT_EQ(stat(file.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_THAT(ReadTokenFile(file), IsOkAndHolds("token"));
}

TEST_F(AdministrationTest, ANamespaceIsMadeOfAContractFile) {
  const std::string file = WriteFile("contract.yaml", kContract);

  ASSERT_EQ(
      Run({"namespace", "create", "granite", "--contract", file,
           "--block-bytes", "2MiB", "--retention", "1h", "--strict-clear"}),
      0)
      << err();

  EXPECT_EQ(create_.name(), "granite");
  // An administrator who names nobody means the tenant that is always there.
  EXPECT_EQ(create_.tenant_name(), "default");
  EXPECT_EQ(create_.contract().model(), "llama");
  EXPECT_EQ(create_.contract().block_tokens(), 16u);
  EXPECT_EQ(create_.contract().adapters(0).revision(), "7");
  EXPECT_EQ(create_.block_bytes(), 2u << 20);
  EXPECT_TRUE(create_.chained());
  EXPECT_EQ(create_.retention_seconds(), 3600u);
  EXPECT_TRUE(create_.strict_clear());
  EXPECT_THAT(out(), HasSubstr("version 3"));
}

TEST_F(AdministrationTest, AContractFileMayBeJson) {
  const std::string file = WriteFile(
      "contract.json",
      "{\"model\": \"m\", \"weights_revision\": \"1\", \"tokenizer\": \"t\", "
      "\"preprocessing\": \"none\", \"positional\": \"rope\", \"kv_dtype\": "
      "\"bf16\", \"layer_order\": \"l\", \"kv_order\": \"k\", "
      "\"head_grouping\": \"8\", \"page_order\": \"p\", \"block_tokens\": 16, "
      "\"tensor_parallel\": 1, \"pipeline_parallel\": 1, "
      "\"context_parallel\": 1, \"layout_version\": 1}");

  EXPECT_EQ(Run({"namespace", "create", "a", "--contract", file}), 0) << err();
  EXPECT_EQ(create_.contract().model(), "m");
}

TEST_F(AdministrationTest, OptionsOverrideTheContractFile) {
  const std::string file = WriteFile("contract.yaml", kContract);

  ASSERT_EQ(Run({"namespace", "create", "a", "--contract", file, "--kv-dtype",
                 "fp8_e4m3", "--tensor-parallel", "8", "--adapter", "x@2",
                 "--adapter", "y@3", "--tenant", "red", "--unchained"}),
            0)
      << err();

  EXPECT_EQ(create_.contract().kv_dtype(), "fp8_e4m3");
  EXPECT_EQ(create_.contract().tensor_parallel(), 8u);
  ASSERT_EQ(create_.contract().adapters_size(), 2);
  EXPECT_EQ(create_.contract().adapters(1).name(), "y");
  EXPECT_EQ(create_.tenant_name(), "red");
  EXPECT_FALSE(create_.chained());
}

TEST_F(AdministrationTest, AMissingFieldOfAContractIsRefusedByName) {
  std::string text = kContract;
  text.erase(text.find("weights_revision"), 22);
  const std::string file = WriteFile("contract.yaml", text);

  EXPECT_EQ(Run({"namespace", "create", "a", "--contract", file}), 1);
  EXPECT_THAT(err(), HasSubstr("weights_revision"));
  EXPECT_EQ(control_.calls["AdminService/CreateNamespace"], 0);
}

TEST_F(AdministrationTest, AnUnknownFieldOfAContractIsRefusedWithItsLine) {
  const std::string file =
      WriteFile("contract.yaml", std::string(kContract) + "modle: x\n");

  EXPECT_EQ(Run({"namespace", "create", "a", "--contract", file}), 1);
  EXPECT_THAT(err(), HasSubstr("line 18: a state contract has no field "
                               "'modle'"));
}

TEST_F(AdministrationTest, AContractThatIsNoYamlIsRefusedWithItsLine) {
  const std::string file = WriteFile("contract.yaml", "model: x\n  y: [\n");

  EXPECT_EQ(Run({"namespace", "create", "a", "--contract", file}), 1);
  EXPECT_THAT(err(), HasSubstr("contract.yaml: line 2"));
}

TEST_F(AdministrationTest, AClearAsksFirst) {
  world_.in_is_terminal = true;
  in_.str("n\n");

  EXPECT_EQ(Run({"namespace", "clear", "a"}), 1);
  EXPECT_THAT(err(), HasSubstr("Clear it? [y/N]"));
  EXPECT_TRUE(clears_.empty());
}

TEST_F(AdministrationTest, AClearThatIsConfirmedIsDone) {
  world_.in_is_terminal = true;
  in_.str("yes\n");

  EXPECT_EQ(Run({"namespace", "clear", "a", "--version-number", "2"}), 0);
  ASSERT_EQ(clears_.size(), 1u);
  EXPECT_EQ(clears_[0].version(), 2u);
  EXPECT_FALSE(clears_[0].report_only());
}

TEST_F(AdministrationTest, AClearWithNobodyToAskNeedsTheOption) {
  EXPECT_EQ(Run({"namespace", "clear", "a"}), 2);
  EXPECT_THAT(err(), HasSubstr("give --yes"));
  EXPECT_TRUE(clears_.empty());

  EXPECT_EQ(Run({"namespace", "clear", "a", "--yes"}), 0);
  EXPECT_EQ(clears_.size(), 1u);
}

// Rule C4.
TEST_F(AdministrationTest, AClearCanWaitForTheNodes) {
  nodes_confirm_at_ = 4;

  EXPECT_EQ(Run({"namespace", "clear", "a", "--yes", "--wait"}), 0);
  ASSERT_EQ(clears_.size(), 4u);
  EXPECT_FALSE(clears_[0].report_only());
  EXPECT_TRUE(clears_[1].report_only());
  EXPECT_TRUE(clears_[3].report_only());
  EXPECT_THAT(out(), HasSubstr("every node has confirmed it"));
  EXPECT_THAT(err(), HasSubstr("0 of 1"));
  EXPECT_THAT(err(), HasSubstr("1 of 1"));
}

TEST_F(AdministrationTest, AClearThatDoesNotWaitIsDone) {
  nodes_confirm_at_ = 1'000'000;

  EXPECT_EQ(Run({"namespace", "clear", "a", "--yes"}), 0);
  EXPECT_EQ(clears_.size(), 1u);
  EXPECT_THAT(out(), HasSubstr("pending: node 0123 sleeps"));
}

TEST_F(AdministrationTest, NodesThatNeverConfirmAreSaidWithTheReason) {
  nodes_confirm_at_ = 1'000'000;

  EXPECT_EQ(
      Run({"namespace", "clear", "a", "--yes", "--wait", "--timeout", "2s"}),
      3);
  EXPECT_THAT(out(), HasSubstr("pending: node 0123 sleeps"));
  EXPECT_EQ(clears_.size(), 11u);
}

TEST_F(AdministrationTest, TheWaitMaySayForHowLong) {
  nodes_confirm_at_ = 1'000'000;

  EXPECT_EQ(Run({"namespace", "clear", "--wait=1s", "a", "--yes", "--json"}),
            3);
  EXPECT_EQ(clears_.size(), 6u);
  EXPECT_EQ(clears_[0].name(), "a");
  EXPECT_THAT(out(), HasSubstr("\"reason\": \"sleeps\""));

  EXPECT_EQ(Run({"namespace", "clear", "a", "--yes", "--wait=soon"}), 2);
  EXPECT_EQ(clears_.size(), 6u);
}

TEST_F(AdministrationTest, AnInterruptEndsTheWaitAndUndoesNothing) {
  nodes_confirm_at_ = 1'000'000;
  world_.interrupted = [this] { return clears_.size() == 3; };

  EXPECT_EQ(Run({"namespace", "clear", "a", "--yes", "--wait=1h"}), 3);
  EXPECT_EQ(clears_.size(), 3u);
  EXPECT_THAT(out(), HasSubstr("--report-only --wait"));
}

TEST_F(AdministrationTest, AWaitIsTakenUpWithoutAnotherClear) {
  nodes_confirm_at_ = 3;

  EXPECT_EQ(Run({"namespace", "clear", "a", "--report-only"}), 3);
  EXPECT_EQ(Run({"namespace", "clear", "a", "--report-only", "--wait"}), 0);
  ASSERT_EQ(clears_.size(), 3u);
  for (const v1::ClearNamespaceRequest& one : clears_) {
    EXPECT_TRUE(one.report_only());
  }
}

TEST_F(AdministrationTest, AWaitOutlivesACatalogThatIsAwayForAWhile) {
  nodes_confirm_at_ = 2;
  const auto serve = control_.methods.at("AdminService/ClearNamespace");
  int calls = 0;
  control_.methods["AdminService/ClearNamespace"] =
      [&](const std::string& address,
          const std::string& request) -> absl::StatusOr<std::string> {
    ++calls;
    if (calls > 1 && calls < 4) return absl::UnavailableError("it restarts");
    return serve(address, request);
  };

  EXPECT_EQ(Run({"namespace", "clear", "a", "--yes", "--wait"}), 0) << err();
  EXPECT_EQ(clears_.size(), 2u);
}

TEST_F(AdministrationTest, ABackupIsItsOwnersAlone) {
  const std::string file = folder_ + "/backup";

  ASSERT_EQ(Run({"catalog", "backup", file}), 0) << err();

  EXPECT_EQ(ReadFile(file), std::string("state\0bytes", 11));
  struct stat about;
  ASSERT_EQ(stat(file.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
}

TEST_F(AdministrationTest, ABackupReplacesNoFileUnlessForced) {
  const std::string file = WriteFile("backup", "older");

  EXPECT_EQ(Run({"catalog", "backup", file}), 1);
  EXPECT_THAT(err(), HasSubstr("--force"));
  EXPECT_EQ(ReadFile(file), "older");

  EXPECT_EQ(Run({"catalog", "backup", file, "--force"}), 0);
  EXPECT_NE(ReadFile(file), "older");
}

TEST_F(AdministrationTest, AFailedBackupLeavesNoFile) {
  control_.methods.erase("AdminService/Backup");
  const std::string file = folder_ + "/backup";

  EXPECT_EQ(Run({"catalog", "backup", file}), 1);
  EXPECT_NE(access(file.c_str(), F_OK), 0);
}

TEST_F(AdministrationTest, ARestoreSendsTheFile) {
  const std::string file = WriteFile("backup", "the state");

  EXPECT_EQ(Run({"catalog", "restore", file}), 0) << err();
  EXPECT_EQ(restored_, "the state");
  EXPECT_THAT(out(), HasSubstr("2 tenants"));
}

TEST_F(AdministrationTest, ARestoreOfNothingSaysSo) {
  EXPECT_EQ(Run({"catalog", "restore", folder_ + "/missing"}), 1);
  EXPECT_THAT(err(), HasSubstr("missing"));
}

TEST_F(AdministrationTest, AcceptingARestoreAsksFirst) {
  EXPECT_EQ(Run({"catalog", "accept-restore"}), 2);
  EXPECT_EQ(control_.calls["AdminService/AcceptRestore"], 0);
}

TEST_F(AdministrationTest, ATraceIsGeneratedTheSameTwice) {
  const std::string a = folder_ + "/a";
  const std::string b = folder_ + "/b";

  ASSERT_EQ(Run({"trace", "generate", a, "--seed", "3"}), 0) << err();
  ASSERT_EQ(Run({"trace", "generate", b, "--seed", "3"}), 0) << err();

  EXPECT_EQ(ReadFile(a), ReadFile(b));
  EXPECT_THAT(ReadFile(a), HasSubstr("hash_ids"));
}

TEST_F(AdministrationTest, AReplayOfABadTraceNamesItsLine) {
  const std::string file = WriteFile("trace", "{}\n");

  EXPECT_EQ(Run({"replay", file}), 1);
  EXPECT_THAT(err(), HasSubstr("line 1: no field \"timestamp\""));
}

TEST_F(AdministrationTest, AReplayRefusesImpossibleOptions) {
  EXPECT_EQ(Run({"replay", "x", "--block-bytes", "1GiB"}), 2);
  EXPECT_EQ(Run({"replay", "x", "--block-tokens", "0"}), 2);
  EXPECT_EQ(Run({"replay", "x", "--speed", "-1"}), 2);
  EXPECT_EQ(Run({"replay", "x", "--workers", "1000"}), 2);
}

}  // namespace
}  // namespace firnkv
