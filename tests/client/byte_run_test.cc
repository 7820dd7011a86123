#include "client/transport/byte_run.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

std::vector<std::byte> Some(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 7 % 251);
  return bytes;
}

// The same memory in pieces of `part` bytes.
ByteRun Cut(std::vector<std::byte>* bytes, std::size_t part) {
  ByteRun run;
  for (std::size_t at = 0; at < bytes->size(); at += part) {
    run.push_back(absl::MakeSpan(*bytes).subspan(at, part));
  }
  return run;
}

TEST(ByteRunTest, ChecksumsMatchHoweverTheMemoryIsCut) {
  std::vector<std::byte> bytes = Some(3 * kPieceBytes + 5);
  const auto checksums = PieceChecksums(bytes);

  for (const std::size_t part : {std::size_t{1000}, std::size_t{kPieceBytes},
                                 std::size_t{kPieceBytes - 1}, bytes.size()}) {
    EXPECT_TRUE(PiecesMatch(Cut(&bytes, part), bytes.size(), checksums));
  }
}

TEST(ByteRunTest, AnyOtherByteIsFound) {
  std::vector<std::byte> bytes = Some(kPieceBytes + 5);
  const auto checksums = PieceChecksums(bytes);

  for (const std::size_t at : {std::size_t{0}, std::size_t{kPieceBytes - 1},
                               std::size_t{kPieceBytes}, bytes.size() - 1}) {
    bytes[at] ^= std::byte{1};
    EXPECT_FALSE(PiecesMatch(Cut(&bytes, 999), bytes.size(), checksums));
    bytes[at] ^= std::byte{1};
  }
}

TEST(ByteRunTest, TooFewOrTooManyChecksumsMatchNothing) {
  std::vector<std::byte> bytes = Some(kPieceBytes + 5);
  auto checksums = PieceChecksums(bytes);
  checksums.push_back(0);
  EXPECT_FALSE(PiecesMatch(Cut(&bytes, 999), bytes.size(), checksums));

  checksums.resize(1);
  EXPECT_FALSE(PiecesMatch(Cut(&bytes, 999), bytes.size(), checksums));
}

TEST(ByteRunTest, ARunThatIsTooShortMatchesNothing) {
  std::vector<std::byte> bytes = Some(kPieceBytes);
  const auto checksums = PieceChecksums(bytes);

  EXPECT_FALSE(
      PiecesMatch({absl::MakeSpan(bytes).first(10)}, kPieceBytes, checksums));
}

TEST(ByteRunTest, EmptyPiecesAreWalkedOver) {
  std::vector<std::byte> bytes = Some(100);
  const ByteRun run = {{},
                       absl::MakeSpan(bytes).first(40),
                       {},
                       absl::MakeSpan(bytes).subspan(40),
                       {}};

  EXPECT_EQ(RunBytes(run), 100u);
  EXPECT_TRUE(PiecesMatch(run, 100, PieceChecksums(bytes)));
}

}  // namespace
}  // namespace firnkv
