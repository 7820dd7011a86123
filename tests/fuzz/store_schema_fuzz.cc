// The catalog's stored records (server/catalog/store_schema.h), with a right
// checksum over whatever fields.

#include "proto/base/check.h"
#include "server/catalog/store_schema.h"
#include "tests/fuzz/catalog_samples.h"
#include "tests/fuzz/fuzz_target.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t {
  kCluster,
  kTenant,
  kNamespace,
  kNode,
  kApplied,
  kEntry,
  kKey,
  kParts,
};

// What is taken is what would be written: no record has two encodings.
template <typename Record>
void Try(absl::StatusOr<Record> (*decode)(std::string_view),
         std::string_view value) {
  const absl::StatusOr<Record> record = decode(value);
  if (!record.ok()) {
    CHECK(absl::IsDataLoss(record.status()) ||
          absl::IsFailedPrecondition(record.status()));
    return;
  }
  CHECK(Encode(*record) == value);
}

void TryKey(std::string_view bytes) {
  const std::optional<BlockId> block = DecodeEntryKey(bytes);
  if (block) CHECK(EntryKey(*block) == bytes);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const auto seed = [](Part part, const auto& record) {
    return Seed(part, WithoutCrc(Encode(record)));
  };
  return {seed(kCluster, SampleCluster()),
          seed(kTenant, SampleTenant()),
          seed(kNamespace, SampleNamespace()),
          seed(kNode, SampleNode()),
          seed(kApplied, SampleApplied()),
          seed(kEntry, SampleEntry()),
          Seed(kKey, EntryKey({CountingId<NamespaceId>(0x10),
                               CountingId<BlockKey>(0x20)}))};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  const std::uint8_t part = input.U8() % kParts;
  const std::string_view rest = input.Rest();
  const std::string value = WithCrc(rest);
  switch (part) {
    case kCluster:
      Try(DecodeCluster, value);
      break;
    case kTenant:
      Try(DecodeTenant, value);
      break;
    case kNamespace:
      Try(DecodeNamespace, value);
      break;
    case kNode:
      Try(DecodeNode, value);
      break;
    case kApplied:
      Try(DecodeApplied, value);
      break;
    case kEntry:
      Try(DecodeEntry, value);
      break;
    case kKey:
      TryKey(rest);
      break;
  }
  return 0;
}
