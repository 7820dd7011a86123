#include "tests/sim/header_check.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "proto/base/bytes.h"
#include "proto/base/checksum.h"
#include "proto/base/text.h"

namespace firnkv {

void HeaderCheck::Start() { Later(); }

void HeaderCheck::Later() {
  SimExecutor* world = cluster_->executor();
  world->root()->PostAfter(
      world->Between(absl::Milliseconds(10), absl::Milliseconds(600) * pace_),
      [this] {
        if (stopped_) return;
        CheckNode(1 + static_cast<int>(cluster_->executor()->random()->Below(
                          cluster_->nodes())));
        Later();
      });
}

void HeaderCheck::Check() {
  for (int n = 1; n <= cluster_->nodes(); ++n) CheckNode(n);
}

void HeaderCheck::CheckNode(int n) {
  const SimNode& node = cluster_->Node(n);
  if (!node.running()) return;
  for (const SimMemory::Named& table :
       node.machine()->memory()->header_tables()) {
    CheckTable(n, table);
  }
}

void HeaderCheck::CheckTable(int node, const SimMemory::Named& table) {
  HeaderTableLead lead;
  std::memcpy(&lead, table.bytes.data(), sizeof(lead));
  const RegionId id{.epoch = NodeEpoch{lead.region_epoch},
                    .serial = lead.region_serial};
  const auto headers = HeaderTableReader::Open(table.bytes, id);
  if (!headers) return;  // Not yet written.
  const std::string name = StrCat("firnkv-region-", id.serial);
  const auto regions = cluster_->Node(node).machine()->memory()->regions();
  const auto region = std::find_if(
      regions.begin(), regions.end(),
      [&](const SimMemory::Named& one) { return one.name == name; });
  if (region == regions.end()) return;  // Given back; its table is yet to go.
  for (std::uint32_t page = 0; page < lead.pages; ++page) {
    const std::optional<SlotHeader> header = headers->Read(page);
    if (!header) continue;
    CheckHeader(StrCat("node", node, " ", name, " page ", page), id.epoch,
                *header,
                absl::MakeConstSpan(region->bytes)
                    .subspan(page * kPageBytes, header->length));
  }
}

void HeaderCheck::CheckHeader(const std::string& where, NodeEpoch epoch,
                              const SlotHeader& header,
                              absl::Span<const std::byte> bytes) {
  ++headers_checked_;
  const std::pair<BlockId, std::uint32_t> content(header.block,
                                                  header.pieces[0]);
  const auto known =
      contents_.try_emplace({epoch, header.generation}, content).first;
  if (known->second != content) {
    oracle_->Violation(
        StrCat("ONE GENERATION, TWO CONTENTS: ", where, ": generation ",
               static_cast<std::uint64_t>(header.generation), " stands for ",
               ToHex(header.block.key).substr(0, 8), ", and stood for ",
               ToHex(known->second.first.key).substr(0, 8)));
  }
  if (operations_->corruption_expected()) return;
  if (PieceChecksums(bytes) != header.pieces) {
    oracle_->Violation(StrCat("A HEADER THAT LIES: ", where, ": ",
                              ToHex(header.block.key).substr(0, 8),
                              " of generation ",
                              static_cast<std::uint64_t>(header.generation)));
  }
}

}  // namespace firnkv
