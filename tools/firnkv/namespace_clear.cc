#include <algorithm>
#include <optional>

#include "proto/admin.pb.h"
#include "proto/base/text.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"
#include "tools/firnkv/progress_bar.h"

namespace firnkv {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(200);

struct Options {
  std::string name;
  std::string tenant;
  std::uint32_t version = 0;
  bool yes = false;
  bool report_only = false;
  // Null: does not wait. Zero: for --timeout.
  std::optional<absl::Duration> wait;
};

using Response = absl::StatusOr<v1::ClearNamespaceResponse>;

Response Call(AdminClient* catalog, const v1::ClearNamespaceRequest& request) {
  return catalog->Call<v1::ClearNamespaceResponse>(
      "AdminService/ClearNamespace", request);
}

bool IsDone(const v1::ClearNamespaceResponse& response) {
  return response.pending_nodes().empty();
}

// What became of the wait.
struct Waited {
  // The last answer that came.
  v1::ClearNamespaceResponse response;
  // OK, or why the catalog could not be asked at the end.
  absl::Status status;
};

// Until every node has confirmed, somebody interrupts, or the time is over. A
// catalog that does not answer for a while is asked again: it restarts with all
// that was cleared.
Waited WaitForNodes(Context& context, AdminClient* catalog,
                    v1::ClearNamespaceRequest request, absl::Duration time,
                    v1::ClearNamespaceResponse response) {
  request.set_report_only(true);
  Surroundings& world = context.world();
  world.watch_interrupts();
  const BootTime until = world.clock->Now() + time;
  const auto all = static_cast<std::uint64_t>(response.pending_nodes_size());
  ProgressBar bar("nodes that confirmed", all,
                  world.err_is_terminal ? ProgressBar::Style::kMoving
                                        : ProgressBar::Style::kLines,
                  world.err, world.clock);
  Waited waited{.response = std::move(response), .status = absl::OkStatus()};
  while (!IsDone(waited.response)) {
    const auto left =
        static_cast<std::uint64_t>(waited.response.pending_nodes_size());
    bar.Show(all - std::min(all, left));
    if (world.interrupted() || world.clock->Now() >= until) break;
    world.pause(kBetweenLooks);
    Response look = Call(catalog, request);
    waited.status = look.status();
    if (look.ok()) waited.response = *std::move(look);
  }
  if (IsDone(waited.response) && all > 0) bar.Show(all);
  bar.End();
  return waited;
}

std::string ReasonOf(const v1::ClearNamespaceResponse& response, int node) {
  return node < response.pending_reasons_size() ? response.pending_reasons(node)
                                                : "has not confirmed it yet";
}

std::string Text(const v1::ClearNamespaceResponse& response,
                 const Options& options) {
  std::string text;
  for (const v1::NamespaceFacts& facts : response.cleared()) {
    StrAppend(&text, options.report_only ? "" : "cleared: ", facts.name(),
              " version ", facts.version(),
              options.report_only ? " is" : ", now", " at clear epoch ",
              facts.clear_epoch(), "\n");
  }
  for (int i = 0; i < response.pending_nodes_size(); ++i) {
    StrAppend(&text, "pending: node ", response.pending_nodes(i), " ",
              ReasonOf(response, i), "\n");
  }
  if (!IsDone(response)) {
    StrAppend(&text, "to go on waiting: firnkv namespace clear ", options.name,
              " --report-only --wait=1m\n");
  } else if (options.report_only || options.wait.has_value()) {
    StrAppend(&text, "every node has confirmed it\n");
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
  Json nodes = Json::Array();
  Json pending = Json::Array();
  for (int i = 0; i < response.pending_nodes_size(); ++i) {
    nodes.Append(response.pending_nodes(i));
    pending.Append(Json::Object()
                       .Set("node", response.pending_nodes(i))
                       .Set("reason", ReasonOf(response, i)));
  }
  return Json::Object()
      .Set("cleared", std::move(cleared))
      .Set("pending_nodes", std::move(nodes))
      .Set("pending", std::move(pending));
}

// OK: go on.
absl::Status AskFirst(Context& context, const Options& options) {
  const std::string what = options.version == 0
                               ? "all versions"
                               : StrCat("version ", options.version);
  absl::StatusOr<bool> confirmed =
      context.Confirm(StrCat("Every block of ", options.name, " (", what,
                             ") will be gone, everywhere. Clear it?"),
                      "--yes");
  if (!confirmed.ok()) return confirmed.status();
  if (!*confirmed) return absl::CancelledError("nothing was cleared");
  return absl::OkStatus();
}

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  v1::ClearNamespaceRequest request;
  request.set_tenant_name(context.TenantName(options.tenant));
  request.set_name(options.name);
  request.set_version(options.version);
  request.set_report_only(options.report_only);
  if (!options.yes && !options.report_only) {
    const absl::Status asked = AskFirst(context, options);
    if (!asked.ok()) {
      const ExitCode failed = context.Fail(asked);
      return absl::IsCancelled(asked) ? failed : ExitCode::kUsage;
    }
  }
  Response response = Call(*catalog, request);
  if (!response.ok()) return context.Fail(response.status());
  Waited waited{.response = *std::move(response), .status = absl::OkStatus()};
  if (options.wait.has_value()) {
    waited =
        WaitForNodes(context, *catalog, request,
                     *options.wait == absl::ZeroDuration() ? context.timeout()
                                                           : *options.wait,
                     std::move(waited.response));
  }
  const bool done = IsDone(waited.response);
  if (!done && !waited.status.ok()) {
    *context.world().err << "firnkv: the catalog no longer answers ("
                         << OneLine(waited.status)
                         << "); what follows is the last that it said\n";
  }
  const bool asked_for_all = options.wait.has_value() || options.report_only;
  return context.Print(
      Text(waited.response, options), ToJson(waited.response),
      done || !asked_for_all ? ExitCode::kOk : ExitCode::kPartial);
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
        arguments->FlagOrTime(
            "--wait", &options->wait,
            "Return once every node has confirmed it, and no read of a strict "
            "namespace that was granted before goes on; exit 3 where that "
            "takes longer than --wait=TIME, else --timeout.");
        arguments->Flag(
            "--report-only", &options->report_only,
            "Clear nothing: say who has not confirmed the last "
            "clear, or wait for it. Exit 3 while somebody has not.");
      },
      Run);
}

}  // namespace firnkv
