// Where one block is, and if it is nowhere, why: what the catalog knows, and
// what the local node has.

#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "proto/admin.pb.h"
#include "proto/base/outcome.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

struct Options {
  std::string name;
  std::string key;
  std::string tenant;
  std::uint32_t version = 0;
  std::string hash;
  std::optional<std::uint64_t> trace_id;
};

absl::StatusOr<BlockKey> KeyOf(const Options& options) {
  const int given = (options.key.empty() ? 0 : 1) +
                    (options.hash.empty() ? 0 : 1) +
                    (options.trace_id.has_value() ? 1 : 0);
  if (given != 1) {
    return absl::InvalidArgumentError(
        "which key? Give KEY (64 hex digits), --hash or --trace-id");
  }
  if (!options.hash.empty()) return MakeBlockKey(options.hash, Shard());
  if (options.trace_id.has_value()) {
    char hash[sizeof(std::uint64_t)];
    std::memcpy(hash, &*options.trace_id, sizeof(hash));
    return MakeBlockKey(std::string_view(hash, sizeof(hash)), Shard());
  }
  const auto key = BlockKey::FromBytes(
      FromHex(absl::AsciiStrToLower(options.key)).value_or(""));
  if (!key.has_value()) {
    return absl::InvalidArgumentError(
        StrCat("key '", options.key, "' is not 64 hex digits"));
  }
  return *key;
}

// Of the copies that the catalog knows, how many could be read now.
int ReadableCopies(const v1::ExplainKeyResponse& response) {
  int readable = 0;
  for (int i = 0; i < response.node_states_size(); ++i) {
    const bool current =
        i >= response.clear_epochs_size() ||
        response.clear_epochs(i) >= response.facts().clear_epoch();
    if (response.node_states(i) == "alive" && current) ++readable;
  }
  return readable;
}

std::string Verdict(const v1::ExplainKeyResponse& response) {
  if (ReadableCopies(response) > 0) return "a hit";
  if (response.known()) {
    for (int i = 0; i < response.clear_epochs_size(); ++i) {
      if (response.clear_epochs(i) < response.facts().clear_epoch()) {
        return "a miss: its namespace was cleared after it was written";
      }
    }
    return "a miss: nodes that had it are away; it is back with them, if they "
           "have not restarted";
  }
  std::string why =
      "a miss: the catalog knows no copy. It was never written under this "
      "contract, or was evicted everywhere";
  if (response.facts().clear_epoch() > 1) why += ", or was cleared";
  return why + ", or its node has not announced it yet";
}

// What the local node says; empty where there is none, or it is another
// tenant's.
std::string AskLocal(Context& context, const v1::NamespaceFacts& facts,
                     const BlockKey& key) {
  if (!context.names_socket()) return "";
  const absl::StatusOr<Client*> client = context.LocalClient();
  if (!client.ok()) return "";
  const auto plain = FromProto(facts);
  if (!plain.ok() || (*client)->Describe().tenant != plain->tenant) return "";
  NamespaceHandle handle;
  handle.id = plain->name_space;
  handle.name = plain->name;
  handle.version = plain->version;
  handle.digest = plain->digest;
  handle.block_bytes = plain->block_bytes;
  handle.chained = plain->chained;
  handle.clear_epoch = plain->clear_epoch;
  ExistsTarget target{.key = key, .anchor = key};
  const ExistsReport report =
      (*client)->Exists({.name_space = handle,
                         .blocks = absl::MakeSpan(&target, 1),
                         .deadline = context.timeout()});
  if (!report.status.ok()) return OneLine(report.status);
  return std::string(OutcomeLabel(target.outcome));
}

std::string Text(const BlockKey& key, const v1::ExplainKeyResponse& response,
                 const std::string& local) {
  const v1::NamespaceFacts& facts = response.facts();
  std::string text = StrCat(
      "key ", ToHex(key), "\nnamespace ", facts.name(), " version ",
      facts.version(), " of tenant ", facts.tenant_name(), ", clear epoch ",
      facts.clear_epoch(), "\n", "reading it is ", Verdict(response), "\n");
  if (!local.empty()) StrAppend(&text, "asked for it here: ", local, "\n");
  if (!response.known()) return text;
  const v1::BlockColumns& block = response.block();
  if (block.positions_size() == 1 && block.tokens_size() == 1 &&
      block.first_tokens_size() == 1) {
    StrAppend(&text, "position ", block.positions(0), " of its chain, tokens ",
              block.first_tokens(0), " to ",
              std::uint64_t{block.first_tokens(0)} + block.tokens(0),
              ", parent ", ToHex(block.parents()), "\n");
  }
  StrAppend(&text, "last changed by the catalog's sequence ",
            response.sequence(), "\n");
  TextTable table({"NODE", "STATE", "TIER", ">BYTES", ">GENERATION",
                   ">CLEAR EPOCH", "STREAM"});
  const v1::LocationColumns& places = response.locations();
  for (int i = 0; i < places.node_indexes_size(); ++i) {
    const int node = static_cast<int>(places.node_indexes(i));
    if (node >= response.nodes_size() || i >= places.tiers_size() ||
        i >= places.lengths_size() || i >= places.generations_size()) {
      break;
    }
    table.Add(
        {ShortHex(response.nodes(node).node()),
         node < response.node_states_size() ? response.node_states(node) : "",
         TierName(places.tiers(i)), FormatCount(places.lengths(i)),
         StrCat(places.generations(i)),
         i < response.clear_epochs_size() ? StrCat(response.clear_epochs(i))
                                          : "",
         response.nodes(node).stream_address()});
  }
  return text + table.Text();
}

Json ToJson(const BlockKey& key, const v1::ExplainKeyResponse& response,
            const std::string& local) {
  Json copies = Json::Array();
  const v1::LocationColumns& places = response.locations();
  for (int i = 0; i < places.node_indexes_size(); ++i) {
    const int node = static_cast<int>(places.node_indexes(i));
    if (node >= response.nodes_size()) break;
    Json copy = Json::Object();
    copy.Set("node", ToHex(response.nodes(node).node()))
        .Set("stream_address", response.nodes(node).stream_address());
    if (node < response.node_states_size()) {
      copy.Set("state", response.node_states(node));
    }
    if (i < places.tiers_size()) copy.Set("tier", TierName(places.tiers(i)));
    if (i < places.lengths_size()) copy.Set("bytes", places.lengths(i));
    if (i < places.generations_size()) {
      copy.Set("generation", StrCat(places.generations(i)));
    }
    if (i < response.clear_epochs_size()) {
      copy.Set("clear_epoch", response.clear_epochs(i));
    }
    copies.Append(std::move(copy));
  }
  return Json::Object()
      .Set("key", ToHex(key))
      .Set("namespace", response.facts().name())
      .Set("version", response.facts().version())
      .Set("clear_epoch", response.facts().clear_epoch())
      .Set("known", response.known())
      .Set("hit", ReadableCopies(response) > 0)
      .Set("verdict", Verdict(response))
      .Set("sequence", response.sequence())
      .Set("local", local.empty() ? Json() : Json(local))
      .Set("copies", std::move(copies));
}

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<BlockKey> key = KeyOf(options);
  if (!key.ok()) {
    context.Fail(key.status());
    return ExitCode::kUsage;
  }
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  v1::ExplainKeyRequest request;
  request.set_tenant_name(context.TenantName(options.tenant));
  request.set_name(options.name);
  request.set_version(options.version);
  request.set_key(IdToProto(*key));
  const auto response = (*catalog)->Call<v1::ExplainKeyResponse>(
      "AdminService/ExplainKey", request);
  if (!response.ok()) return context.Fail(response.status());
  const std::string local = AskLocal(context, response->facts(), *key);
  return context.Print(
      Text(*key, *response, local), ToJson(*key, *response, local),
      ReadableCopies(*response) > 0 ? ExitCode::kOk : ExitCode::kPartial);
}

}  // namespace

void AddKeyExplain(CommandTree* tree) {
  tree->Add<Options>(
      "key explain",
      "Where a block is, who has it, and if nobody has, why. Exit 3 for a "
      "miss.",
      [](Arguments* arguments, Options* options) {
        arguments->Place("NAMESPACE", &options->name, "Its namespace.");
        arguments->MaybePlace("KEY", &options->key, "Its key: 64 hex digits.");
        arguments->Text("--hash", &options->hash,
                        "Instead: the engine's textual hash of the block.");
        arguments->Count("--trace-id", &options->trace_id,
                         "Instead: its hash_id in a replayed trace.");
        arguments->Text("--tenant", &options->tenant,
                        "Whose; yours, or for administrators 'default'.");
        arguments->Count("--version-number", &options->version,
                         "Of the namespace; 0 is the newest.");
      },
      Run);
}

}  // namespace firnkv
