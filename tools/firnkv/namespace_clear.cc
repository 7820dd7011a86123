#include "proto/admin.pb.h"
#include "proto/base/text.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"

namespace firnkv {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(200);

struct Options {
  std::string name;
  std::string tenant;
  std::uint32_t version = 0;
  bool yes = false;
  bool wait = false;
};

using Response = absl::StatusOr<v1::ClearNamespaceResponse>;

Response Call(AdminClient* catalog, const v1::ClearNamespaceRequest& request) {
  return catalog->Call<v1::ClearNamespaceResponse>(
      "AdminService/ClearNamespace", request);
}

// Until every node has confirmed, or the context's timeout is over.
Response WaitForNodes(Context& context, AdminClient* catalog,
                      v1::ClearNamespaceRequest request, Response response) {
  request.set_report_only(true);
  Surroundings& world = context.world();
  const BootTime until = world.clock->Now() + context.timeout();
  while (response.ok() && !response->pending_nodes().empty() &&
         world.clock->Now() < until) {
    world.pause(kBetweenLooks);
    response = Call(catalog, request);
  }
  return response;
}

std::string Text(const v1::ClearNamespaceResponse& response) {
  std::string text;
  for (const v1::NamespaceFacts& facts : response.cleared()) {
    StrAppend(&text, "cleared: ", facts.name(), " version ", facts.version(),
              ", now at clear epoch ", facts.clear_epoch(), "\n");
  }
  for (const std::string& node : response.pending_nodes()) {
    StrAppend(&text, "pending: node ", node,
              " has not confirmed it yet; what it has is refused once it "
              "does, or once its lease is over\n");
  }
  return text;
}

Json ToJson(const v1::ClearNamespaceResponse& response) {
  Json cleared = Json::Array();
  for (const v1::NamespaceFacts& facts : response.cleared()) {
    cleared.Append(Json::Object()
                       .Set("name", facts.name())
                       .Set("version", facts.version())
                       .Set("clear_epoch", facts.clear_epoch()));
  }
  Json pending = Json::Array();
  for (const std::string& node : response.pending_nodes()) {
    pending.Append(node);
  }
  return Json::Object()
      .Set("cleared", std::move(cleared))
      .Set("pending_nodes", std::move(pending));
}

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  v1::ClearNamespaceRequest request;
  request.set_tenant_name(context.TenantName(options.tenant));
  request.set_name(options.name);
  request.set_version(options.version);
  if (!options.yes) {
    const std::string what = options.version == 0
                                 ? "all versions"
                                 : StrCat("version ", options.version);
    const absl::StatusOr<bool> confirmed =
        context.Confirm(StrCat("Every block of ", options.name, " (", what,
                               ") will be gone, everywhere. Clear it?"),
                        "--yes");
    if (!confirmed.ok()) {
      context.Fail(confirmed.status());
      return ExitCode::kUsage;
    }
    if (!*confirmed) {
      return context.Fail(absl::CancelledError("nothing was cleared"));
    }
  }
  Response response = Call(*catalog, request);
  if (options.wait) {
    response = WaitForNodes(context, *catalog, request, std::move(response));
  }
  if (!response.ok()) return context.Fail(response.status());
  const bool done = !options.wait || response->pending_nodes().empty();
  return context.Print(Text(*response), ToJson(*response),
                       done ? ExitCode::kOk : ExitCode::kPartial);
}

}  // namespace

void AddNamespaceClear(CommandTree* tree) {
  tree->Add<Options>(
      "namespace clear",
      "Make every block of a namespace gone, everywhere (administrators).",
      [](Arguments* arguments, Options* options) {
        arguments->Place("NAME", &options->name, "Its name.");
        arguments->Text("--tenant", &options->tenant,
                        "Whose; for administrators 'default'.");
        arguments->Count("--version-number", &options->version,
                         "Which version; 0 is all of them.");
        arguments->Flag("--yes", &options->yes, "Do not ask.");
        arguments->Flag("--wait", &options->wait,
                        "Return once every node has confirmed it; exit 3 "
                        "where some have not within --timeout.");
      },
      Run);
}

}  // namespace firnkv
