#include "proto/base/text.h"
#include "proto/node.pb.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"

namespace firnkv {
namespace {

struct Options {
  std::string address;
};

ExitCode Run(Context& context, const Options& options) {
  const auto node = context.NodeAt(options.address);
  if (!node.ok()) return context.Fail(node.status());
  const auto response =
      (*node)->Call<v1::DrainResponse>("NodeService/Drain", v1::DrainRequest());
  if (!response.ok()) {
    return context.Fail(absl::Status(
        response.status().code(),
        StrCat("node at ", options.address, ": ",
               ToStd(response.status().message()),
               "\n  addresses are the CONTROL column of firnkv node ls")));
  }
  return context.Print(
      StrCat(
          "the node at ", options.address,
          " drains: it takes no new sessions and ends when its calls have\n"),
      Json::Object().Set("draining", options.address));
}

}  // namespace

void AddNodeDrain(CommandTree* tree) {
  tree->Add<Options>(
      "node drain",
      "Tell a node to finish what it does and to end (administrators).",
      [](Arguments* arguments, Options* options) {
        arguments->Place("ADDRESS", &options->address,
                         "Its control address: see node ls.");
      },
      Run);
}

}  // namespace firnkv
