// Numbered batches of a registered node (rules A1, A2, A4): whatever it says,
// the number goes on by one or not at all, and other nodes' entries stand.

#include "tests/fuzz/fuzz_catalog.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace firnkv {
namespace {

constexpr int kMostBatches = 4;

// As it came; else it names the registration, and is its next batch.
constexpr std::uint8_t kAsIs = 1;

std::string Batch(const v1::AnnounceRequest& request, std::uint8_t flags = 0) {
  std::string batch;
  WireWriter out(&batch);
  const std::string bytes = request.SerializeAsString();
  out.U8(flags);
  out.U16(static_cast<std::uint16_t>(bytes.size()));
  out.Bytes(bytes);
  return batch;
}

void Announce(FuzzCatalog* catalog, std::uint8_t flags,
              std::string_view bytes) {
  FuzzCatalog::Member& member = catalog->member();
  v1::AnnounceRequest request;
  if (!request.ParseFromString(std::string(bytes))) return;
  *request.mutable_header() = catalog->HeaderOf(Role::kNode);
  if ((flags & kAsIs) == 0) {
    request.set_node(IdToProto(member.address.node));
    request.set_epoch(static_cast<std::uint64_t>(member.address.epoch));
    request.set_registration(member.registration);
    request.set_number(member.number + 1);
  }
  const auto answer = catalog->CallRaw("CatalogService", "Announce",
                                       request.SerializeAsString());
  if (!answer.ok()) return;
  v1::AnnounceResponse response;
  CHECK(response.ParseFromString(*answer));
  // Only the next one is applied, and the last one answered again.
  CHECK(response.applied() == request.number());
  CHECK(response.applied() == member.number ||
        response.applied() == member.number + 1);
  CHECK(response.refused_size() ==
        static_cast<int>(response.refused_outcomes().size()));
  for (const std::uint32_t index : response.refused()) {
    CHECK(index < request.operations().size());
  }
  member.number = response.applied();
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  FuzzCatalog& catalog = FuzzCatalog::Fresh();
  using Kind = v1::AnnounceRequest;
  const auto events = catalog.Batch(Kind::EVENTS, {1, 4, 5});
  auto withdraw = events;
  withdraw.set_operations(std::string(3, '\2'));
  auto repair = catalog.Batch(Kind::REPAIR, {4});
  repair.add_buckets(1);
  return {Batch(events) + Batch(withdraw),
          Batch(catalog.Batch(Kind::INVENTORY_BEGIN, {})) +
              Batch(catalog.Batch(Kind::INVENTORY_PART, {4, 5})) +
              Batch(catalog.Batch(Kind::INVENTORY_END, {})),
          Batch(events, kAsIs) + Batch(events, kAsIs),
          Batch(catalog.Batch(Kind::INVENTORY_BEGIN, {})) + Batch(events),
          Batch(repair)};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  FuzzCatalog& catalog = FuzzCatalog::Fresh();
  for (int i = 0; i < kMostBatches && !input.empty(); ++i) {
    const std::uint8_t flags = input.U8();
    Announce(&catalog, flags, input.Bytes(input.U16()));
  }
  catalog.CheckUnharmed();
  return 0;
}
