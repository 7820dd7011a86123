// State contracts as an operator writes them (tools/firnkv/contract_file.h).

#include "proto/base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tools/firnkv/contract_file.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t { kFile, kAdapter, kParts };

constexpr char kContract[] = R"(model: meta-llama/Llama-3.1-8B
weights_revision: d04e592bb4f6aa9cfee91e2e20afa771667e1d4b
tokenizer: llama-3.1@d04e592b
preprocessing: none
positional: rope theta=500000
kv_dtype: bf16
layer_order: layers,kv,tokens,heads,dim
kv_order: k-then-v
head_grouping: 8 kv heads
page_order: ascending
block_tokens: 16
tensor_parallel: 2
pipeline_parallel: 1
context_parallel: 1
layout_version: 1
adapters: [{name: sql, revision: 7}, {name: "x", revision: 'y'}]
cache_salt: "s"
)";

void TryFile(const std::string& text) {
  const auto contract = ParseContract(text);
  if (!contract.ok() || !Validate(*contract).ok()) return;
  const auto again = DecodeCanonical(CanonicalEncoding(*contract));
  CHECK(again.ok() && *again == *contract);
}

void TryAdapter(const std::string& text) {
  const auto adapter = ParseAdapter(text);
  if (adapter.ok()) CHECK(adapter->name + "@" + adapter->revision == text);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {Seed(kFile, kContract),
          Seed(kFile, R"({"model": "m", "adapters": []})"),
          Seed(kAdapter, "sql@r7@x")};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  const std::uint8_t part = input.U8() % kParts;
  const std::string text(input.Rest());
  if (part == kFile) {
    TryFile(text);
  } else {
    TryAdapter(text);
  }
  return 0;
}
