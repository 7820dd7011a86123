// Request traces (tools/replay/trace.h): one line, and a whole file.

#include <sstream>

#include "proto/base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tools/replay/trace.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t { kLine, kWhole, kParts };

constexpr TraceOptions kOptions{.block_tokens = 16};

void TryLine(std::string_view line) {
  const auto request = ParseTraceLine(line);
  if (!request.ok()) return;
  CHECK(request->ids.size() <= kMaxTraceIds);
  CHECK(request->ids.size() <= line.size());
  CHECK(request->at >= absl::ZeroDuration());
}

void TryWhole(std::string_view text) {
  std::istringstream in{std::string(text)};
  const auto trace = ReadTrace(in, kOptions);
  if (!trace.ok()) return;
  std::size_t references = 0;
  absl::Duration last;
  for (const TraceRequest& request : trace->requests) {
    CHECK(request.at >= last);
    last = request.at;
    CHECK(request.ids.size() == request.input_tokens / kOptions.block_tokens);
    references += request.ids.size();
  }
  CHECK(trace->references == references && trace->distinct <= references);

  std::ostringstream written;
  WriteTrace(*trace, written);
  std::istringstream again(written.str());
  const auto second = ReadTrace(again, kOptions);
  CHECK(second.ok());
  std::ostringstream rewritten;
  WriteTrace(*second, rewritten);
  CHECK(rewritten.str() == written.str());
  CHECK(second->references == trace->references);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string first =
      R"({"timestamp": 0, "input_length": 50, "output_length": 5, )"
      R"("hash_ids": [0, 14, 15, 16]})";
  const std::string second =
      R"({"more": [{"a": null}, true, -1.5e3, "\u00e9\n"], "timestamp": 27.5, )"
      R"("hash_ids": [0, 14, 18446744073709551615], "input_length": 48, )"
      R"("output_length": 0})";
  return {Seed(kLine, first), Seed(kLine, second),
          Seed(kWhole, first + "\n\n" + second + "\n")};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  const std::uint8_t part = input.U8() % kParts;
  if (part == kLine) {
    TryLine(input.Rest());
  } else {
    TryWhole(input.Rest());
  }
  return 0;
}
