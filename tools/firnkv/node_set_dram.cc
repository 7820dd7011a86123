// How large a node's DRAM pool shall be, while it runs.

#include <algorithm>

#include "proto/base/text.h"
#include "proto/node.pb.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"
#include "tools/firnkv/progress_bar.h"
#include "tools/firnkv/units.h"
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(200);

struct Options {
  std::string size;
  std::string node;
  bool wait = false;
};

using Status = absl::StatusOr<v1::NodeStatusResponse>;

Status Ask(AdminClient* node) {
  return node->Call<v1::NodeStatusResponse>("NodeService/Status",
                                            v1::NodeStatusRequest());
}

// Until no more is mapped than the target allows, or the context's timeout is
// over.
Status AwaitTarget(Context& context, AdminClient* node) {
  Surroundings& world = context.world();
  const BootTime until = world.clock->Now() + context.timeout();
  Status status = Ask(node);
  if (!status.ok()) return status;
  const std::uint64_t above =
      status->dram_mapped_bytes() -
      std::min(status->dram_mapped_bytes(), status->dram_target_bytes());
  ProgressBar bar("give back bytes", above,
                  world.err_is_terminal ? ProgressBar::Style::kMoving
                                        : ProgressBar::Style::kLines,
                  world.err, world.clock);
  while (status.ok() &&
         status->dram_mapped_bytes() > status->dram_target_bytes()) {
    const std::uint64_t left =
        status->dram_mapped_bytes() - status->dram_target_bytes();
    bar.Show(above - std::min(above, left));
    if (world.clock->Now() >= until) break;
    world.pause(kBetweenLooks);
    status = Ask(node);
  }
  bar.End();
  return status;
}

std::string Text(const std::string& address,
                 const v1::NodeStatusResponse& status) {
  const auto size = [](std::uint64_t bytes) {
    return FormatSize(static_cast<double>(bytes));
  };
  std::string text = StrCat(
      "the node at ", address, " has a DRAM target of ",
      size(status.dram_target_bytes()),
      " until it restarts: dram.bytes in its configuration is unchanged\n  ",
      size(status.dram_mapped_bytes()), " mapped, ",
      size(status.dram_used_bytes()), " of it in blocks\n");
  if (status.dram_retiring_bytes() > 0) {
    StrAppend(&text, "  ", size(status.dram_retiring_bytes()),
              " being given back: once leases, transfers and reservations in "
              "them have ended and sessions have unmapped them\n");
  }
  return text;
}

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<std::uint64_t> bytes = ParseSize(options.size);
  if (!bytes.ok()) {
    context.Fail(bytes.status());
    return ExitCode::kUsage;
  }
  const std::string address =
      options.node.empty() ? StrCat("unix:", context.socket(), ".control")
                           : options.node;
  const auto node = context.NodeAt(address);
  if (!node.ok()) return context.Fail(node.status());
  v1::SetDramRequest request;
  request.set_dram_bytes(*bytes);
  const auto set =
      (*node)->Call<v1::SetDramResponse>("NodeService/SetDram", request);
  const Status status = !set.ok()      ? Status(set.status())
                        : options.wait ? AwaitTarget(context, node->get())
                                       : Ask(node->get());
  if (!status.ok()) {
    return context.Fail(absl::Status(
        status.status().code(),
        StrCat("node at ", address, ": ", ToStd(status.status().message()))));
  }
  const bool done = !options.wait ||
                    status->dram_mapped_bytes() <= status->dram_target_bytes();
  return context.Print(
      Text(address, *status),
      Json::Object()
          .Set("node", address)
          .Set("dram_target_bytes", status->dram_target_bytes())
          .Set("dram_mapped_bytes", status->dram_mapped_bytes())
          .Set("dram_retiring_bytes", status->dram_retiring_bytes())
          .Set("dram_used_bytes", status->dram_used_bytes())
          .Set("persistent", false),
      done ? ExitCode::kOk : ExitCode::kPartial);
}

}  // namespace

void AddNodeSetDram(CommandTree* tree) {
  tree->Add<Options>(
      "node set-dram",
      "Set the size of a node's DRAM pool, until it restarts "
      "(administrators).",
      [](Arguments* arguments, Options* options) {
        arguments->Place("SIZE", &options->size,
                         "4GiB, 512MiB: at least a region, at most what the "
                         "machine and the cgroup leave.");
        arguments->Text("--node", &options->node,
                        "Its control address (see node ls); else the local "
                        "node.");
        arguments->Flag("--wait", &options->wait,
                        "Return once no more is mapped than that; exit 3 where "
                        "it takes longer than --timeout.");
      },
      Run);
}

}  // namespace firnkv
