// State contracts in their canonical encoding (proto/base/contract.h).

#include "proto/base/check.h"
#include "proto/base/contract.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/proto/samples.h"

namespace firnkv {

std::vector<std::string> FuzzSeeds() {
  return {CanonicalEncoding(SampleContract()),
          CanonicalEncoding(SampleContractWithOptions())};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  const std::string_view encoded = FuzzInput(bytes, size).Rest();
  const auto contract = DecodeCanonical(encoded);
  if (!contract.ok()) return 0;
  CHECK(Validate(*contract).ok());
  // Equal contracts have equal bytes, so there is one encoding of each.
  CHECK(CanonicalEncoding(*contract) == encoded);
  CHECK(FirstDifference(*contract, *contract).empty());
  return 0;
}
