#include "proto/admin.pb.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/contract_file.h"
#include "tools/firnkv/output.h"

namespace firnkv {
namespace {

struct Options {
  std::string name;
  std::string tenant;
  std::string contract_file;
  // What options say of the contract; empty and zero leave the file's.
  StateContract contract;
  std::vector<std::string> adapters;
  std::uint64_t block_bytes = 0;
  bool unchained = false;
  absl::Duration retention;
  bool strict_clear = false;
};

void Override(const std::string& given, std::string* value) {
  if (!given.empty()) *value = given;
}
void Override(std::uint32_t given, std::uint32_t* value) {
  if (given != 0) *value = given;
}

absl::StatusOr<StateContract> MakeContract(const Options& options) {
  StateContract contract;
  if (!options.contract_file.empty()) {
    ASSIGN_OR_RETURN(contract, ReadContractFile(options.contract_file));
  }
  const StateContract& given = options.contract;
  Override(given.model, &contract.model);
  Override(given.weights_revision, &contract.weights_revision);
  Override(given.tokenizer, &contract.tokenizer);
  Override(given.preprocessing, &contract.preprocessing);
  Override(given.positional, &contract.positional);
  Override(given.kv_dtype, &contract.kv_dtype);
  Override(given.layer_order, &contract.layer_order);
  Override(given.kv_order, &contract.kv_order);
  Override(given.head_grouping, &contract.head_grouping);
  Override(given.page_order, &contract.page_order);
  Override(given.cache_salt, &contract.cache_salt);
  Override(given.block_tokens, &contract.block_tokens);
  Override(given.tensor_parallel, &contract.tensor_parallel);
  Override(given.pipeline_parallel, &contract.pipeline_parallel);
  Override(given.context_parallel, &contract.context_parallel);
  Override(given.layout_version, &contract.layout_version);
  if (!options.adapters.empty()) contract.adapters.clear();
  for (const std::string& text : options.adapters) {
    ASSIGN_OR_RETURN(Adapter adapter, ParseAdapter(text));
    contract.adapters.push_back(std::move(adapter));
  }
  if (const absl::Status status = Validate(contract); !status.ok()) {
    return absl::InvalidArgumentError(StrCat(
        ToStd(status.message()),
        "\n  give it in the file of --contract or as an option: see firnkv "
        "namespace create --help"));
  }
  return contract;
}

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<StateContract> contract = MakeContract(options);
  if (!contract.ok()) return context.Fail(contract.status());
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  v1::CreateNamespaceRequest request;
  request.set_tenant_name(context.TenantName(options.tenant));
  request.set_name(options.name);
  ToProto(*contract, request.mutable_contract());
  request.set_block_bytes(options.block_bytes);
  request.set_chained(!options.unchained);
  request.set_retention_seconds(
      static_cast<std::uint64_t>(absl::ToInt64Seconds(options.retention)));
  request.set_strict_clear(options.strict_clear);
  const auto response = (*catalog)->Call<v1::NamespaceResponse>(
      "AdminService/CreateNamespace", request);
  if (!response.ok()) return context.Fail(response.status());
  Json json = NamespaceJson(response->name_space());
  json.Set("created", response->created());
  return context.Print(
      StrCat(response->created() ? "" : "This version was there already.\n",
             NamespaceText(response->name_space())),
      json);
}

void DeclareContract(Arguments* arguments, Options* options) {
  StateContract* const contract = &options->contract;
  arguments->Text("--contract", &options->contract_file,
                  "YAML or JSON file with the fields below, by their names "
                  "with underscores. Options override it.");
  arguments->Text("--model", &contract->model, "Model.");
  arguments->Text("--weights-revision", &contract->weights_revision,
                  "Immutable revision of its weights.");
  arguments->Text("--tokenizer", &contract->tokenizer,
                  "Tokenizer with its revision.");
  arguments->Text("--preprocessing", &contract->preprocessing,
                  "Templates, image and audio preprocessing; or none.");
  arguments->Text("--positional", &contract->positional,
                  "Positional encoding with its scaling.");
  arguments->Text("--kv-dtype", &contract->kv_dtype,
                  "Effective precision of K and V: bf16, fp8_e4m3.");
  arguments->Text("--layer-order", &contract->layer_order,
                  "Order of dimensions within a block.");
  arguments->Text("--kv-order", &contract->kv_order,
                  "How K and V lie: k-then-v, interleaved.");
  arguments->Text("--head-grouping", &contract->head_grouping,
                  "Heads: 8 kv heads, mla 512+64.");
  arguments->Text("--page-order", &contract->page_order,
                  "Order of tokens inside a block.");
  arguments->Count("--block-tokens", &contract->block_tokens,
                   "Tokens of a block.");
  arguments->Count("--tensor-parallel", &contract->tensor_parallel,
                   "Tensor-parallel size.");
  arguments->Count("--pipeline-parallel", &contract->pipeline_parallel,
                   "Pipeline-parallel size.");
  arguments->Count("--context-parallel", &contract->context_parallel,
                   "Context-parallel size.");
  arguments->Count("--layout-version", &contract->layout_version,
                   "Version of the layout that the engine writes.");
  arguments->Texts("--adapter", &options->adapters,
                   "NAME@REVISION; once for each, in their order.");
  arguments->Text("--cache-salt", &contract->cache_salt,
                  "The engine's own salt.");
}

void Declare(Arguments* arguments, Options* options) {
  arguments->Place("NAME", &options->name, "Its name.");
  arguments->Text("--tenant", &options->tenant,
                  "Whose it is; yours, or for administrators 'default', where "
                  "it is not given.");
  arguments->Size("--block-bytes", &options->block_bytes,
                  "Every block has this size; 0 for any size.");
  arguments->Flag("--unchained", &options->unchained,
                  "Blocks have no parents and positions.");
  arguments->Time("--retention", &options->retention,
                  "Blocks older than this are expired; else they stay until "
                  "evicted.");
  arguments->Flag("--strict-clear", &options->strict_clear,
                  "No read that begins after a clear is served; while a node "
                  "has no catalog, none at all.");
  DeclareContract(arguments, options);
}

}  // namespace

void AddNamespaceCreate(CommandTree* tree) {
  tree->Add<Options>("namespace create",
                     "Make a namespace, or a version of one, for a state "
                     "contract. Every contract has its own version.",
                     Declare, Run);
}

}  // namespace firnkv
