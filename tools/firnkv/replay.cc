// Plays a trace against a live cluster: connects workers to nodes, runs
// tools/replay, asks the nodes what they did meanwhile, and reports.

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/node.pb.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"
#include "tools/firnkv/progress_bar.h"
#include "tools/firnkv/safe_file.h"
#include "tools/replay/cache_simulator.h"
#include "tools/replay/client_access.h"
#include "tools/replay/replay_report.h"
#include "tools/replay/replayer.h"
#include "tools/replay/trace.h"

namespace firnkv {
namespace {

// Threads of the process, and Clients of the nodes.
constexpr std::uint64_t kMaxWorkers = 256;

struct Options {
  std::string trace;
  std::vector<std::string> nodes;
  std::uint64_t workers = 0;
  bool affinity = false;
  double speed = 1;
  absl::Duration first = absl::InfiniteDuration();
  std::uint64_t requests = kMaxTraceRequests;
  std::uint64_t block_bytes = 64 * kKiB;
  std::uint32_t block_tokens = 512;
  std::uint64_t buffer_bytes = 64 * kMiB;
  std::string name_space = "replay";
  bool cold = false;
  absl::Duration read_deadline = absl::Seconds(5);
  absl::Duration write_deadline = absl::Seconds(10);
  std::string wait = "local";
  std::optional<std::uint64_t> lru_blocks;
  std::uint64_t queue = 2;
  bool progress = false;
  bool no_progress = false;
  std::string report_file;
};

// Everybody's Client, and what they share.
struct Workers {
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<ClientAccess> access;
  NamespaceHandle name_space;
};

// Of all nodes that the workers use, added up.
struct NodesStatus {
  std::uint64_t evictions = 0;
  std::uint64_t dram_target_bytes = 0;
};

absl::Status Check(const Options& options) {
  if (options.block_bytes == 0 || options.block_bytes > kLargestBlockBytes) {
    return absl::InvalidArgumentError(
        StrCat("--block-bytes must be from 1 to ", kLargestBlockBytes));
  }
  if (options.block_tokens == 0) {
    return absl::InvalidArgumentError("--block-tokens must not be 0");
  }
  if (!(options.speed >= 0 && options.speed <= 1e6)) {
    return absl::InvalidArgumentError(
        "--speed must be from 0 (as fast as it goes) to a million");
  }
  if (options.workers > kMaxWorkers) {
    return absl::InvalidArgumentError(
        StrCat("--workers must be at most ", kMaxWorkers));
  }
  return absl::OkStatus();
}

std::vector<std::string> SocketsOf(const Context& context,
                                   const Options& options) {
  if (!options.nodes.empty()) return options.nodes;
  return {context.socket()};
}

OpenNamespaceRequest NamespaceOf(Context& context, const Options& options) {
  OpenNamespaceRequest request;
  request.name = options.name_space;
  request.block_bytes = options.block_bytes;
  request.deadline = context.timeout();
  StateContract& contract = request.contract;
  contract.model = "replay";
  contract.weights_revision = "1";
  contract.tokenizer = "none";
  contract.preprocessing = "none";
  contract.positional = "none";
  contract.kv_dtype = "bytes";
  contract.layer_order = "none";
  contract.kv_order = "none";
  contract.head_grouping = "none";
  contract.page_order = "none";
  contract.block_tokens = options.block_tokens;
  contract.tensor_parallel = 1;
  contract.pipeline_parallel = 1;
  contract.context_parallel = 1;
  contract.layout_version = 1;
  // Every size of blocks has a version of its own, a cold run one that nobody
  // has seen before.
  contract.cache_salt = StrCat("block bytes ", options.block_bytes);
  if (options.cold) {
    StrAppend(&contract.cache_salt, ", run ", context.world().random->Next64());
  }
  return request;
}

absl::StatusOr<Workers> ConnectWorkers(Context& context,
                                       const Options& options) {
  const std::vector<std::string> sockets = SocketsOf(context, options);
  const std::uint64_t count =
      options.workers == 0 ? sockets.size() : options.workers;
  Workers workers;
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                     context.ConnectClient(sockets[i % sockets.size()]));
    if (i == 0) {
      ASSIGN_OR_RETURN(workers.name_space,
                       client->OpenNamespace(NamespaceOf(context, options)));
    }
    workers.clients.push_back(std::move(client));
  }
  for (const auto& client : workers.clients) {
    workers.access.emplace_back(client.get());
  }
  return workers;
}

absl::StatusOr<NodesStatus> AskNodes(Context& context, const Options& options) {
  NodesStatus sum;
  for (const std::string& socket : SocketsOf(context, options)) {
    ASSIGN_OR_RETURN(const auto node,
                     context.NodeAt(StrCat("unix:", socket, ".control")));
    ASSIGN_OR_RETURN(const auto status,
                     node->Call<v1::NodeStatusResponse>(
                         "NodeService/Status", v1::NodeStatusRequest()));
    sum.evictions += status.evictions();
    sum.dram_target_bytes += status.dram_target_bytes();
  }
  return sum;
}

// Fills what the report says of the nodes and of the cache to compare with.
void ReportNodes(const Options& options, const Trace& trace,
                 const absl::StatusOr<NodesStatus>& before,
                 const absl::StatusOr<NodesStatus>& after,
                 ReplayReport* report) {
  if (before.ok() && after.ok()) {
    report->evictions = after->evictions - before->evictions;
    report->lru_blocks =
        after->dram_target_bytes / AlignUp(options.block_bytes, kPageBytes);
  } else {
    const absl::Status& why = before.ok() ? after.status() : before.status();
    report->evictions_unknown = OneLine(why);
    report->lru_unknown = StrCat("the nodes' sizes are not known (",
                                 OneLine(why), "); or give --lru-blocks");
  }
  if (options.lru_blocks.has_value()) report->lru_blocks = options.lru_blocks;
  if (report->lru_blocks.has_value()) {
    report->lru =
        SimulateCache(trace, *report->lru_blocks, options.block_tokens);
  }
  report->endless =
      SimulateCache(trace, CacheSimulator::kEndless, options.block_tokens);
}

Replayer::Options ReplayerOptions(const Options& options,
                                  const NamespaceHandle& name_space) {
  Replayer::Options replayer;
  replayer.player.name_space = name_space;
  replayer.player.block_bytes = options.block_bytes;
  replayer.player.block_tokens = options.block_tokens;
  replayer.player.read_deadline = options.read_deadline;
  replayer.player.write_deadline = options.write_deadline;
  replayer.player.buffer_bytes = options.buffer_bytes;
  replayer.wait_for =
      options.wait == "published" ? WriteWait::kPublished : WriteWait::kLocal;
  replayer.routing = options.affinity ? Routing::kAffinity : Routing::kInTurn;
  replayer.speed = options.speed;
  replayer.queue = options.queue;
  return replayer;
}

absl::StatusOr<Replayer::Result> Play(Context& context, const Options& options,
                                      const Trace& trace, Workers* workers) {
  Surroundings& world = context.world();
  std::vector<PoolAccess*> access;
  for (ClientAccess& one : workers->access) access.push_back(&one);
  const bool progress =
      options.progress || (world.err_is_terminal && !options.no_progress);
  ProgressBar bar("replay", trace.requests.size(),
                  world.err_is_terminal ? ProgressBar::Style::kMoving
                                        : ProgressBar::Style::kLines,
                  world.err, world.clock);
  Replayer* running = nullptr;
  Replayer::Options replayer_options =
      ReplayerOptions(options, workers->name_space);
  replayer_options.pause = world.pause;
  replayer_options.progress = [&](std::size_t played) {
    if (world.interrupted()) running->Stop();
    if (progress) bar.Show(played);
  };
  Replayer replayer(std::move(replayer_options), &trace, std::move(access),
                    world.clock);
  running = &replayer;
  absl::StatusOr<Replayer::Result> result = replayer.Run();
  bar.End();
  return result;
}

absl::Status StoreReport(const Options& options, const Json& json) {
  if (options.report_file.empty()) return absl::OkStatus();
  SafeFile file(options.report_file,
                {.mode = 0644, .overwrite = Overwrite::kReplace});
  RETURN_IF_ERROR(file.Open());
  RETURN_IF_ERROR(file.Write(json.Text()));
  return file.Commit();
}

absl::StatusOr<ReplayReport> Replay(Context& context, const Options& options,
                                    const Trace& trace) {
  ASSIGN_OR_RETURN(Workers workers, ConnectWorkers(context, options));
  ReplayReport report;
  report.trace_name = options.trace;
  report.trace_requests = trace.requests.size();
  report.trace_distinct = trace.distinct;
  report.namespace_name =
      StrCat(workers.name_space.name, " version ", workers.name_space.version);
  report.block_bytes = options.block_bytes;
  report.block_tokens = options.block_tokens;
  report.workers = workers.clients.size();
  report.nodes = SocketsOf(context, options).size();
  report.routing = options.affinity ? Routing::kAffinity : Routing::kInTurn;
  report.speed = options.speed;
  const auto before = AskNodes(context, options);
  ASSIGN_OR_RETURN(Replayer::Result result,
                   Play(context, options, trace, &workers));
  const auto after = AskNodes(context, options);
  report.took = result.took;
  report.tally = std::move(result.tally);
  for (const ClientAccess& one : workers.access) {
    report.client_stats.push_back(one.Stats());
  }
  ReportNodes(options, trace, before, after, &report);
  return report;
}

ExitCode Run(Context& context, const Options& options) {
  if (const absl::Status status = Check(options); !status.ok()) {
    context.Fail(status);
    return ExitCode::kUsage;
  }
  const absl::StatusOr<Trace> trace =
      ReadTraceFile(options.trace, {.block_tokens = options.block_tokens,
                                    .first = options.first,
                                    .most_requests = options.requests});
  if (!trace.ok()) return context.Fail(trace.status());
  context.world().watch_interrupts();
  const absl::StatusOr<ReplayReport> report = Replay(context, options, *trace);
  if (!report.ok()) return context.Fail(report.status());
  const Json json = ReportJson(*report);
  if (const absl::Status status = StoreReport(options, json); !status.ok()) {
    return context.Fail(status);
  }
  if (!Passed(*report)) {
    // Also where nobody reads standard output.
    *context.world().err << "firnkv: THE REPLAY FAILED: "
                         << report->tally.wrong_bytes << " wrong bytes in "
                         << report->tally.wrong_blocks << " blocks, "
                         << report->tally.failed_calls << " failed calls\n";
    return context.Print(ReportText(*report), json, ExitCode::kFailure);
  }
  const bool whole = report->tally.hits.requests == report->trace_requests;
  return context.Print(ReportText(*report), json,
                       whole ? ExitCode::kOk : ExitCode::kPartial);
}

void DeclareCalls(Arguments* arguments, Options* options) {
  arguments->Time("--deadline", &options->read_deadline, "Of a read.");
  arguments->Time("--write-deadline", &options->write_deadline, "Of a write.");
  arguments->OneOf("--wait", &options->wait, {"local", "published"},
                   "What a write waits for.");
  arguments->Size("--buffer-bytes", &options->buffer_bytes,
                  "Shared memory of a worker; what one call has at most.");
  arguments->Count("--queue", &options->queue,
                   "Requests that wait for one worker.");
  arguments->Count("--lru-blocks", &options->lru_blocks,
                   "Compare with a leaf-first LRU of so many blocks; else of "
                   "the size that the nodes report.");
  arguments->Flag("--progress", &options->progress,
                  "Show progress also where standard error is no terminal.");
  arguments->Flag("--no-progress", &options->no_progress, "Never show it.");
  arguments->Text("--report", &options->report_file,
                  "Write the report to this file too, in JSON.");
}

void Declare(Arguments* arguments, Options* options) {
  arguments->Place("TRACE", &options->trace,
                   "Requests as JSON lines: timestamp, input_length, "
                   "output_length, hash_ids.");
  arguments->Texts("--node", &options->nodes,
                   "Session socket of a node; once for each. Workers are "
                   "spread over them.");
  arguments->Count("--workers", &options->workers,
                   "How many; 0 is one a node.");
  arguments->Flag("--affinity", &options->affinity,
                  "A request goes to the worker that had its longest prefix "
                  "beyond the first block, else in turn.");
  arguments->Real("--speed", &options->speed,
                  "1: at recorded times; 10: ten times as fast; 0: as fast as "
                  "it goes.");
  arguments->Time("--first", &options->first,
                  "Only requests that arrive before this.");
  arguments->Count("--requests", &options->requests, "At most so many.");
  arguments->Size("--block-bytes", &options->block_bytes, "Of every block.");
  arguments->Count("--block-tokens", &options->block_tokens,
                   "Of every block: what a hash_id of the trace stands for.");
  arguments->Text("--namespace", &options->name_space,
                  "Where to; made where it is missing.");
  arguments->Flag("--cold", &options->cold,
                  "In a version of the namespace that has never been used.");
  DeclareCalls(arguments, options);
}

}  // namespace

void AddReplay(CommandTree* tree) {
  tree->Add<Options>(
      "replay",
      "Play a request trace: read each prompt's blocks, verify every byte, "
      "write back what is missing. Exit 1 where any byte was wrong, 3 where "
      "it was stopped.",
      Declare, Run);
}

}  // namespace firnkv
