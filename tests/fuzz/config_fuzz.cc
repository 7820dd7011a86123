// A daemon's configuration file (server/base/config.h), with the options of
// both daemons.

#include "proto/base/check.h"
#include "server/base/config.h"
#include "server/catalog/catalog_options.h"
#include "server/node/node_options.h"
#include "tests/fuzz/fuzz_target.h"

namespace firnkv {
namespace {

struct Options {
  Options() {
    Describe(&node, &list);
    Describe(&catalog, &list);
  }
  NodeOptions node;
  CatalogOptions catalog;
  OptionList list;
};

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {RenderYaml(Options().list, "all"),
          "dram: {bytes: 64MiB}\nsessions:\n  uid_map: [1000=alice]\n",
          "dram: &a\n  bytes: 1GiB\nx: *a\n", "- [{}, ~]\n", "a: b: c\n"};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  const std::string_view yaml = FuzzInput(bytes, size).Rest();
  Options options;
  if (!LoadYaml(yaml, "fuzz.yaml", options.list).ok()) return 0;
  // What was taken is what is shown, and can be taken again.
  const std::string shown = RenderYaml(options.list, "all");
  Options again;
  CHECK(LoadYaml(shown, "shown.yaml", again.list).ok());
  CHECK(RenderYaml(again.list, "all") == shown);
  return 0;
}
