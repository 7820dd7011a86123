#include "proto/base/checksum.h"

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/limits.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

absl::Span<const std::byte> Bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string RandomText(std::size_t size, std::uint64_t seed) {
  std::string text(size, '\0');
  SeededRandom random(seed);
  random.Fill({reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  return text;
}

// By the definition, a bit at a time.
std::uint32_t SlowCrc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ (crc % 2 == 0 ? 0 : 0x82f63b78);
    }
  }
  return ~crc;
}

// RFC 3720, appendix B.4.
TEST(Crc32c, HasTheValuesOfTheIscsiStandard) {
  std::string counting;
  for (char c = 0; c < 32; ++c) counting.push_back(c);

  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(Bytes(counting)), 0x46dd794eu);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32c, AgreesWithTheDefinitionAtEveryLengthAndAlignment) {
  const std::string text = RandomText(600, 1);

  for (std::size_t size = 0; size < 500; ++size) {
    const std::string_view part(text.data() + size % 17, size);
    ASSERT_EQ(Crc32c(Bytes(part)), SlowCrc32c(part)) << size;
  }
}

TEST(Crc32c, OfTwoPartsIsThatOfTheWhole) {
  const std::string text = RandomText(1'000, 2);

  for (const std::size_t cut : {0, 1, 7, 64, 999, 1'000}) {
    const std::uint32_t first = Crc32c(Bytes(text).first(cut));
    EXPECT_EQ(Crc32c(Bytes(text).subspan(cut), first), Crc32c(Bytes(text)));
  }
}

TEST(CopyWithCrc32c, CopiesAndGivesTheChecksumOfWhatLanded) {
  for (const std::size_t size : {0, 1, 8'191, 8'192, 8'193, 65'536, 100'000}) {
    const std::string from = RandomText(size, size);
    std::string to(size + 1, '!');

    const std::uint32_t crc =
        CopyWithCrc32c(reinterpret_cast<std::byte*>(to.data()), Bytes(from));

    EXPECT_EQ(crc, Crc32c(Bytes(from)));
    EXPECT_EQ(to, from + "!");
  }
}

TEST(CopyWithCrc32c, GoesOnFromAnEarlierCopy) {
  const std::string from = RandomText(20'000, 3);
  std::string to(from.size(), '\0');
  auto* const target = reinterpret_cast<std::byte*>(to.data());

  const std::uint32_t first = CopyWithCrc32c(target, Bytes(from).first(12'345));
  const std::uint32_t both =
      CopyWithCrc32c(target + 12'345, Bytes(from).subspan(12'345), first);

  EXPECT_EQ(both, Crc32c(Bytes(from)));
}

TEST(PieceChecksums, HasOneForEachBegunPiece) {
  const std::string text = RandomText(kPieceBytes + 1, 4);

  EXPECT_THAT(PieceChecksums({}), IsEmpty());
  EXPECT_THAT(PieceChecksums(Bytes(text).first(1)),
              ElementsAre(Crc32c(Bytes(text).first(1))));
  EXPECT_THAT(PieceChecksums(Bytes(text).first(kPieceBytes)),
              ElementsAre(Crc32c(Bytes(text).first(kPieceBytes))));
  EXPECT_THAT(PieceChecksums(Bytes(text)),
              ElementsAre(Crc32c(Bytes(text).first(kPieceBytes)),
                          Crc32c(Bytes(text).subspan(kPieceBytes))));
}

}  // namespace
}  // namespace firnkv
