// firnkv_placement TRACE [NODES [PERCENT]]: what placement costs against one
// cache of the same size, by the product's own placement and eviction code.
// Eight nodes that have room for 10 % of the trace's blocks, if not said
// otherwise. Prints one JSON object a line: name, value, unit.

#include <charconv>
#include <cstdio>
#include <string_view>

#include "tools/replay/placement_simulator.h"
#include "tools/replay/trace.h"

namespace firnkv {
namespace {

void Print(const char* name, double value, const char* unit) {
  std::printf("{\"name\": \"%s\", \"value\": %.4f, \"unit\": \"%s\"}\n", name,
              value, unit);
}

bool TakeNumber(std::string_view text, std::size_t* value) {
  const auto result =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() &&
         *value > 0;
}

int Run(int argc, char** argv) {
  std::size_t nodes = 8;
  std::size_t percent = 10;
  if (argc < 2 || argc > 4 || (argc > 2 && !TakeNumber(argv[2], &nodes)) ||
      (argc > 3 && !TakeNumber(argv[3], &percent)) || percent > 100) {
    std::fprintf(stderr, "usage: firnkv_placement TRACE [NODES [PERCENT]]\n");
    return 2;
  }
  constexpr std::uint32_t kBlockTokens = 512;
  const auto trace = ReadTraceFile(argv[1], {.block_tokens = kBlockTokens});
  if (!trace.ok()) {
    std::fprintf(stderr, "%s\n", trace.status().ToString().c_str());
    return 1;
  }
  const PlacementFigures figures = SimulatePlacement(
      *trace, nodes, static_cast<double>(percent) / 100, kBlockTokens);
  Print("placement_loss", figures.loss_points, "points");
  Print("placement_balance", figures.balance, "ratio");
  Print("placement_resident_balance", figures.resident_balance, "ratio");
  Print("placement_saved_one_node", figures.saved_by_one, "percent");
  Print("placement_saved", figures.saved_by_all, "percent");
  Print("placement_nodes_a_request", figures.nodes_a_request, "nodes");
  return 0;
}

}  // namespace
}  // namespace firnkv

int main(int argc, char** argv) { return firnkv::Run(argc, argv); }
