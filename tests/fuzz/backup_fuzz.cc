// Backups (server/catalog/backup.h): the blob as it comes, and with right
// lengths and checksums over whatever records.

#include "proto/base/check.h"
#include "proto/base/sha256.h"
#include "server/catalog/backup.h"
#include "tests/fuzz/catalog_samples.h"
#include "tests/fuzz/fuzz_target.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t { kBlob, kBody, kRecords, kParts };

constexpr std::size_t kLeadBytes = 15 + 2 + 8;
constexpr std::size_t kDigestBytes = 32;

BackupState SampleState() {
  BackupState state;
  state.cluster = SampleCluster();
  state.tenants = {SampleTenant()};
  state.namespaces = {SampleNamespace()};
  return state;
}

// Everything but the body is as it must be.
std::string BlobOf(std::string_view body) {
  std::string blob = EncodeBackup(SampleState()).substr(0, kLeadBytes - 8);
  WireWriter(&blob).U64(body.size());
  blob += body;
  const Sha256Bytes digest = Sha256(blob);
  blob.append(digest.begin(), digest.end());
  return blob;
}

// A body of records with right checksums: u16 size and bytes of each.
std::string BodyOf(FuzzInput input) {
  std::string body;
  WireWriter out(&body);
  const auto record = [&] {
    const std::string value = WithCrc(input.Bytes(input.U16()));
    out.U32(static_cast<std::uint32_t>(value.size()));
    out.Bytes(value);
  };
  record();
  for (int list = 0; list < 2; ++list) {
    const std::uint8_t count = input.U8() % 8;
    out.U32(count);
    for (std::uint8_t i = 0; i < count; ++i) record();
  }
  return body;
}

void Try(const std::string& blob) {
  const auto state = DecodeBackup(blob);
  if (!state.ok()) return;
  CHECK(!state->cluster.cluster.IsZero());
  const auto again = DecodeBackup(EncodeBackup(*state));
  CHECK(again.ok() && *again == *state);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string blob = EncodeBackup(SampleState());
  std::string records;
  WireWriter out(&records);
  const auto put = [&out](const auto& record) {
    const std::string value = WithoutCrc(Encode(record));
    out.U16(static_cast<std::uint16_t>(value.size()));
    out.Bytes(value);
  };
  put(SampleCluster());
  out.U8(1);
  put(SampleTenant());
  out.U8(1);
  put(SampleNamespace());
  return {Seed(kBlob, blob),
          Seed(kBody, blob.substr(kLeadBytes,
                                  blob.size() - kLeadBytes - kDigestBytes)),
          Seed(kRecords, records)};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  switch (input.U8() % kParts) {
    case kBlob:
      Try(std::string(input.Rest()));
      break;
    case kBody:
      Try(BlobOf(input.Rest()));
      break;
    case kRecords:
      Try(BlobOf(BodyOf(input)));
      break;
  }
  return 0;
}
