// docs/PROTOCOL.md against the code: its tables of test vectors, outcome
// numbers and bounds are read and compared.

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/contract.h"
#include "proto/base/frame.h"
#include "proto/base/id.h"
#include "proto/base/limits.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "proto/base/session_frame.h"
#include "proto/base/slot_header.h"
#include "proto/base/text.h"
#include "proto/base/token.h"
#include "proto/base/write_frame.h"
#include "tests/format/golden_file.h"

namespace firnkv {
namespace {

using Row = std::vector<std::string>;

// Rows of the table under the heading `title`, without its head; cells without
// spaces around them and without backquotes.
std::vector<Row> TableUnder(const std::string& title) {
  std::ifstream in("docs/PROTOCOL.md");
  EXPECT_TRUE(in) << "docs/PROTOCOL.md cannot be read";
  std::vector<Row> rows;
  bool here = false;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] == '#') {
      here = line.substr(line.find_first_not_of("# ")) == title;
    }
    if (!here || line.empty() || line[0] != '|') continue;
    line.erase(std::remove(line.begin(), line.end(), '`'), line.end());
    Row row;
    for (absl::string_view cell : absl::StrSplit(line, '|')) {
      row.emplace_back(absl::StripAsciiWhitespace(cell));
    }
    rows.emplace_back(row.begin() + 1, row.end() - 1);
  }
  EXPECT_GT(rows.size(), 2u) << "no table under '" << title << "'";
  rows.erase(rows.begin(),
             rows.begin() + std::min<std::size_t>(2, rows.size()));
  return rows;
}

TEST(ProtocolDocument, ItsKeyVectorsAreTheRecipes) {
  for (const Row& row : TableUnder("Test vectors of keys and anchors")) {
    ASSERT_EQ(row.size(), 3u);
    const std::optional<std::string> hash =
        FromHex(row[0] == "(empty)" ? "" : row[0]);
    ASSERT_TRUE(hash) << row[0];

    if (row[1] == "none (anchor)") {
      EXPECT_EQ(ToHex(MakeAnchor(*hash)), row[2]);
      continue;
    }
    unsigned index = 0;
    unsigned count = 0;
    ASSERT_EQ(std::sscanf(row[1].c_str(), "%u of %u", &index, &count), 2);
    const Shard shard{.count = static_cast<std::uint16_t>(count),
                      .index = static_cast<std::uint16_t>(index)};
    EXPECT_EQ(ToHex(MakeBlockKey(*hash, shard)), row[2]) << row[0];
  }
}

TEST(ProtocolDocument, ItsAnchorPositionsAreTheRecipes) {
  for (const Row& row : TableUnder("Anchor positions")) {
    ASSERT_EQ(row.size(), 2u);
    EXPECT_EQ(AnchorPosition(std::stoul(row[0])), std::stoul(row[1]));
  }
}

TEST(ProtocolDocument, ItsDigestsAreThoseOfTheGoldenContracts) {
  const GoldenFile golden("contract.hex");
  for (const Row& row : TableUnder("Test vectors of contracts")) {
    ASSERT_EQ(row.size(), 2u);
    EXPECT_EQ(row[1], golden.Hex("digest of " + row[0]));
  }
}

TEST(ProtocolDocument, ItListsEveryOutcomeWithItsNumber) {
  const std::vector<Row> rows = TableUnder("Outcome numbers");

  ASSERT_EQ(rows.size(), kLastOutcome);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto number = static_cast<std::uint8_t>(i + 1);
    EXPECT_EQ(rows[i][0], std::to_string(number));
    EXPECT_EQ(rows[i][1], OutcomeName(Outcome{number}));
    EXPECT_EQ(rows[i][2], OutcomeLabel(Outcome{number}));
  }
}

// As the formats write them.
TEST(ProtocolDocument, ItsVersionsAreThoseOfTheCode) {
  std::string header;
  AppendSlotHeader({}, &header);
  const auto at = [](const std::string& bytes, std::size_t offset) {
    return std::to_string(static_cast<unsigned char>(bytes.at(offset)));
  };
  const std::vector<std::pair<std::string, std::string>> ours = {
      {"protocol", StrCat(kOldestProtocolVersion, " to ", kProtocolVersion)},
      {"framing of the stream", at(EncodeLead({}), 4)},
      {"call frames", std::to_string(kCallFrames)},
      {"layout of mapped memory", std::to_string(kMappedLayoutVersion)},
      {"contract encoding", at(CanonicalEncoding({}), 22)},
      {"slot header encoding", at(header, 4)},
      {"token", at(MintToken({}, {}), 0)},
  };
  std::vector<std::pair<std::string, std::string>> documented;
  for (const Row& row : TableUnder("Versions")) {
    documented.emplace_back(row[0], row[1]);
  }

  EXPECT_EQ(documented, ours);
}

TEST(ProtocolDocument, ItsBoundsAreThoseOfTheCode) {
  const std::vector<std::pair<std::string, std::uint64_t>> ours = {
      {"piece", kPieceBytes},
      {"page", kPageBytes},
      {"largest block", kLargestBlockBytes},
      {"keys in a batch", kMaxBatchKeys},
      {"extents of a block", kMaxExtents},
      {"control message", kMaxControlMessageBytes},
      {"session message", kMaxSessionMessageBytes},
      {"entries of an announcement", kMaxAnnouncementEntries},
      {"frame body", kMaxFrameBodyBytes},
      {"frame lead", kFrameLeadBytes},
      {"blocks in a reserve frame", kMaxReserveBlocks},
      {"name", kMaxNameBytes},
      {"token", kMaxTokenBytes},
      {"reason", kMaxReasonBytes},
      {"text of a contract", kMaxContractTextBytes},
      {"adapters of a contract", kMaxContractAdapters},
      {"longest deadline, seconds",
       static_cast<std::uint64_t>(absl::ToInt64Seconds(kLongestDeadline))},
      {"token life, seconds",
       static_cast<std::uint64_t>(absl::ToInt64Seconds(kTokenLife))},
      {"token leniency, seconds",
       static_cast<std::uint64_t>(absl::ToInt64Seconds(kTokenSkew))},
  };
  std::vector<std::pair<std::string, std::uint64_t>> documented;
  for (const Row& row : TableUnder("Bounds")) {
    documented.emplace_back(row[0], std::stoull(row[1]));
  }

  EXPECT_EQ(documented, ours);
}

}  // namespace
}  // namespace firnkv
