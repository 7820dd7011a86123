// A node's planned end: what it moves to others is shown as it goes, and that
// the cluster has forgotten it is looked at, not believed.

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "proto/admin.pb.h"
#include "proto/base/bytes.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/text.h"
#include "proto/node.pb.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"
#include "tools/firnkv/progress_bar.h"
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
// How long the node holds back an answer while it moves.
constexpr absl::Duration kBetweenReports = absl::Milliseconds(200);
// Beyond the node's own deadline: it ends itself by force ten seconds later.
constexpr absl::Duration kPatience = absl::Seconds(15);

struct Options {
  std::string node;
  absl::Duration deadline = absl::Seconds(60);
  std::uint64_t budget = 4 * kGiB;
  bool no_move = false;
  bool no_wait = false;
};

// Which node, which run of it, and how to speak with it.
struct Target {
  std::string address;
  std::string id;
  std::uint64_t epoch = 0;
  std::unique_ptr<AdminClient> client;
};

using Report = absl::StatusOr<v1::DrainResponse>;
using Nodes = absl::StatusOr<v1::ListNodesResponse>;

Nodes ListNodes(Context& context) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return catalog.status();
  return (*catalog)->Call<v1::ListNodesResponse>("AdminService/ListNodes",
                                                 v1::ListNodesRequest());
}

// The control address of the node whose id begins so.
absl::StatusOr<std::string> AddressOf(Context& context,
                                      const std::string& prefix) {
  const Nodes nodes = ListNodes(context);
  if (!nodes.ok()) return nodes.status();
  std::vector<const v1::NodeRow*> found;
  for (const v1::NodeRow& row : nodes->nodes()) {
    if (absl::StartsWith(ToHex(row.address().node()),
                         absl::AsciiStrToLower(prefix))) {
      found.push_back(&row);
    }
  }
  if (found.empty()) {
    return absl::NotFoundError(
        StrCat("no node's id begins with ", prefix,
               "\n  firnkv node ls lists ids and control addresses"));
  }
  if (found.size() > 1) {
    return absl::InvalidArgumentError(
        StrCat(found.size(), " nodes have ids that begin with ", prefix,
               "\n  give more digits of it, or the control address: firnkv "
               "node ls lists them"));
  }
  if (found[0]->state() != "alive") {
    return absl::FailedPreconditionError(
        StrCat("node ", prefix, " is ", found[0]->state(),
               ": it does not answer the catalog\n  if it runs, name its "
               "control address: ",
               found[0]->address().control_address()));
  }
  return found[0]->address().control_address();
}

absl::Status Said(const Target& target, const absl::Status& status) {
  return absl::Status(
      status.code(),
      StrCat("node at ", target.address, ": ", ToStd(status.message()),
             "\n  addresses are the CONTROL column of firnkv node ls"));
}

absl::StatusOr<Target> Find(Context& context, const Options& options) {
  Target target;
  target.address = options.node;
  if (options.node.find(':') == std::string::npos) {
    ASSIGN_OR_RETURN(target.address, AddressOf(context, options.node));
  }
  ASSIGN_OR_RETURN(target.client, context.NodeAt(target.address));
  const auto status = target.client->Call<v1::NodeStatusResponse>(
      "NodeService/Status", v1::NodeStatusRequest());
  if (!status.ok()) return Said(target, status.status());
  target.id = status->node();
  target.epoch = status->epoch();
  return target;
}

Report Drain(const Target& target, const v1::DrainRequest& request) {
  return target.client->Call<v1::DrainResponse>("NodeService/Drain", request);
}

// What is known of its end.
struct Ending {
  // The last report that came.
  v1::DrainResponse report;
  // It answers no more.
  bool ended = false;
  // The catalog lists this run no more; nullopt: the catalog does not answer.
  std::optional<bool> forgotten;
  bool interrupted = false;
};

// Follows the moves to their end, or to the node's.
void WatchMoves(Context& context, const Target& target, BootTime until,
                Ending* ending) {
  Surroundings& world = context.world();
  v1::DrainRequest look;
  look.set_report_only(true);
  look.set_wait_millis(
      static_cast<std::uint32_t>(absl::ToInt64Milliseconds(kBetweenReports)));
  std::unique_ptr<ProgressBar> bar;
  while (ending->report.drain() == "moving" && world.clock->Now() < until) {
    if (world.interrupted()) {
      ending->interrupted = true;
      break;
    }
    const Report report = Drain(target, look);
    if (!report.ok()) {
      ending->ended = true;
      break;
    }
    ending->report = *report;
    if (report->planned_bytes() == 0) continue;
    if (bar == nullptr) {
      bar = std::make_unique<ProgressBar>("move bytes", report->planned_bytes(),
                                          world.err_is_terminal
                                              ? ProgressBar::Style::kMoving
                                              : ProgressBar::Style::kLines,
                                          world.err, world.clock);
    }
    bar->Show(report->moved_bytes());
  }
  if (bar != nullptr) bar->End();
}

std::optional<bool> IsForgotten(Context& context, const Target& target) {
  const Nodes nodes = ListNodes(context);
  if (!nodes.ok()) return std::nullopt;
  return std::none_of(nodes->nodes().begin(), nodes->nodes().end(),
                      [&target](const v1::NodeRow& row) {
                        return row.address().node() == target.id &&
                               row.address().epoch() == target.epoch;
                      });
}

// Until it answers no more, and the catalog has forgotten it. A catalog that
// went with it, embedded, cannot be asked.
void AwaitEnd(Context& context, const Target& target, BootTime until,
              Ending* ending) {
  Surroundings& world = context.world();
  v1::DrainRequest look;
  look.set_report_only(true);
  while (!ending->interrupted) {
    if (!ending->ended) {
      const Report report = Drain(target, look);
      if (report.ok()) ending->report = *report;
      ending->ended = !report.ok();
    }
    if (ending->ended) {
      ending->forgotten = IsForgotten(context, target);
      if (ending->forgotten.value_or(true)) return;
    }
    if (world.clock->Now() >= until) return;
    ending->interrupted = world.interrupted();
    world.pause(kBetweenLooks);
  }
}

std::string Size(std::uint64_t bytes) {
  return FormatSize(static_cast<double>(bytes));
}

bool IsMoved(Outcome outcome) {
  return outcome == Outcome::kStored || outcome == Outcome::kAlreadyThere;
}

std::string MovesText(const v1::DrainResponse& report) {
  std::string text;
  if (report.planned_blocks() > 0) {
    StrAppend(&text, "  moved    ", CountOf(report.moved_blocks(), "block"),
              ", ", Size(report.moved_bytes()), " of ",
              Size(report.planned_bytes()), " planned\n");
  }
  if (report.left_blocks() > 0) {
    StrAppend(&text, "  left     ", CountOf(report.left_blocks(), "block"),
              " that no other node took");
    std::string_view between = ": ";
    for (int i = 1; i < report.outcomes_size() && i <= kLastOutcome; ++i) {
      const auto outcome = static_cast<Outcome>(i);
      if (report.outcomes(i) == 0 || IsMoved(outcome)) continue;
      StrAppend(&text, between, FormatCount(report.outcomes(i)), " ",
                OutcomeLabel(outcome));
      between = ", ";
    }
    StrAppend(&text, "\n");
  }
  if (!report.trouble().empty()) {
    StrAppend(&text, "  because  ", report.trouble(), "\n");
  }
  return text;
}

std::string EndText(const Target& target, const Ending& ending) {
  const std::string name =
      StrCat("node ", ShortHex(target.id), " at ", target.address);
  if (!ending.ended) {
    return StrCat(name,
                  ending.interrupted ? " goes on draining"
                                     : " still answers, past its deadline",
                  ": firnkv node ls shows it until it has ended\n");
  }
  if (!ending.forgotten.has_value()) {
    return StrCat(name,
                  " has ended; the catalog does not answer, and has ended too "
                  "if it was this node's own\n");
  }
  if (*ending.forgotten) {
    return StrCat(name, " has ended, and the catalog has forgotten it\n");
  }
  return StrCat(name,
                " has ended, but the catalog still lists it: it did not hear "
                "of the end, and forgets the node after its lease and grace\n");
}

Json ToJson(const Target& target, const Ending& ending) {
  const v1::DrainResponse& report = ending.report;
  Json outcomes = Json::Object();
  for (int i = 1; i < report.outcomes_size() && i <= kLastOutcome; ++i) {
    if (report.outcomes(i) == 0) continue;
    outcomes.Set(OutcomeLabel(static_cast<Outcome>(i)), report.outcomes(i));
  }
  return Json::Object()
      .Set("draining", target.address)
      .Set("node", ToHex(target.id))
      .Set("ended", ending.ended)
      .Set("forgotten", ending.forgotten.value_or(false))
      .Set("planned_bytes", report.planned_bytes())
      .Set("planned_blocks", report.planned_blocks())
      .Set("moved_bytes", report.moved_bytes())
      .Set("moved_blocks", report.moved_blocks())
      .Set("left_blocks", report.left_blocks())
      .Set("outcomes", std::move(outcomes))
      .Set("trouble", report.trouble());
}

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<Target> target = Find(context, options);
  if (!target.ok()) return context.Fail(target.status());
  v1::DrainRequest request;
  request.set_deadline_millis(
      static_cast<std::uint32_t>(absl::ToInt64Milliseconds(options.deadline)));
  request.set_move_bytes(options.no_move ? 0 : options.budget);
  const Report begun = Drain(*target, request);
  if (!begun.ok()) return context.Fail(Said(*target, begun.status()));
  Ending ending{.report = *begun};
  if (options.no_wait) {
    return context.Print(
        StrCat("node ", ShortHex(target->id), " at ", target->address,
               " drains: it takes no new blocks and ends within ",
               absl::FormatDuration(options.deadline), "\n"),
        ToJson(*target, ending));
  }
  context.world().watch_interrupts();
  const BootTime until =
      context.world().clock->Now() + options.deadline + kPatience;
  WatchMoves(context, *target, until, &ending);
  AwaitEnd(context, *target, until, &ending);
  const bool done = ending.ended && ending.forgotten.value_or(true);
  return context.Print(
      StrCat(EndText(*target, ending), MovesText(ending.report)),
      ToJson(*target, ending), done ? ExitCode::kOk : ExitCode::kPartial);
}

// What the protocol can say, and a node would wait for.
absl::Status Check(const Options& options) {
  if (options.deadline > absl::Hours(24)) {
    return absl::InvalidArgumentError("--deadline is at most 24h");
  }
  return absl::OkStatus();
}

ExitCode CheckAndRun(Context& context, const Options& options) {
  const absl::Status wrong = Check(options);
  if (wrong.ok()) return Run(context, options);
  context.Fail(wrong);
  return ExitCode::kUsage;
}

}  // namespace

void AddNodeDrain(CommandTree* tree) {
  tree->Add<Options>(
      "node drain",
      "Have a node's hottest blocks taken by other nodes, and the node end "
      "(administrators).",
      [](Arguments* arguments, Options* options) {
        arguments->Place("NODE", &options->node,
                         "Its control address, or how its id begins: see node "
                         "ls.");
        arguments->Time("--deadline", &options->deadline,
                        "When it has ended at the latest, whatever is still "
                        "under way.");
        arguments->Size("--budget", &options->budget,
                        "How much of the hottest chains other nodes take.");
        arguments->Flag("--no-move", &options->no_move,
                        "Move nothing: end as on SIGTERM.");
        arguments->Flag("--no-wait", &options->no_wait,
                        "Return once the node has begun. Otherwise exit 3 "
                        "where the node has not ended, or the catalog still "
                        "lists it.");
      },
      CheckAndRun);
}

}  // namespace firnkv
