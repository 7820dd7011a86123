#include "tools/firnkv/file_blocks.h"

#include <set>

#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

std::string NameOf(const FileManifest& manifest, const std::string& file) {
  FileNamer namer(manifest);
  for (std::uint64_t i = 0; i < manifest.pieces(); ++i) {
    namer.Add(std::string_view(file).substr(i * manifest.block_bytes,
                                            manifest.PieceBytes(i)));
  }
  return namer.Name();
}

TEST(FileBlocksTest, TheLastPieceIsShorter) {
  const FileManifest manifest{.file_bytes = 2500, .block_bytes = 1000};

  EXPECT_EQ(manifest.pieces(), 3u);
  EXPECT_EQ(manifest.PieceBytes(1), 1000u);
  EXPECT_EQ(manifest.PieceBytes(2), 500u);
}

TEST(FileBlocksTest, AnEmptyFileIsItsManifestAlone) {
  const FileManifest manifest{.file_bytes = 0, .block_bytes = 1000};

  EXPECT_EQ(manifest.pieces(), 0u);
  EXPECT_EQ(MakeFileChain("x", 0).size(), 1u);
}

TEST(FileBlocksTest, AManifestComesBackAsItWas) {
  const std::string bytes =
      EncodeManifest({.file_bytes = 2500, .block_bytes = 1000});

  ASSERT_OK_AND_ASSIGN(const FileManifest manifest, DecodeManifest(bytes));

  EXPECT_EQ(bytes.size(), kFileManifestBytes);
  EXPECT_EQ(manifest.file_bytes, 2500u);
  EXPECT_EQ(manifest.block_bytes, 1000u);
}

TEST(FileBlocksTest, EverySpoiltManifestIsRefusedOrBounded) {
  const std::string bytes =
      EncodeManifest({.file_bytes = 2500, .block_bytes = 1000});
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_THAT(DecodeManifest(bytes.substr(0, i)),
                StatusIs(absl::StatusCode::kInvalidArgument));
    std::string spoilt = bytes;
    spoilt[i] = '\xff';
    const auto manifest = DecodeManifest(spoilt);
    if (!manifest.ok()) continue;
    EXPECT_LE(manifest->pieces(), kMaxFilePieces);
  }
}

TEST(FileBlocksTest, AnyChangedByteChangesTheName) {
  const FileManifest manifest{.file_bytes = 25, .block_bytes = 10};
  std::set<std::string> names = {NameOf(manifest, std::string(25, 'a'))};

  for (std::size_t i = 0; i < 25; ++i) {
    std::string file(25, 'a');
    file[i] = 'b';
    names.insert(NameOf(manifest, file));
  }

  EXPECT_EQ(names.size(), 26u);
}

TEST(FileBlocksTest, OtherBlocksAreAnotherName) {
  const std::string file(30, 'a');

  EXPECT_NE(NameOf({.file_bytes = 30, .block_bytes = 10}, file),
            NameOf({.file_bytes = 30, .block_bytes = 15}, file));
}

TEST(FileBlocksTest, NamesAreToldFromOtherTexts) {
  EXPECT_TRUE(IsFileName(std::string(64, 'a')));
  EXPECT_FALSE(IsFileName(std::string(63, 'a')));
  EXPECT_FALSE(IsFileName(std::string(64, 'g')));
}

TEST(FileBlocksTest, TheContractOfFilesIsComplete) {
  EXPECT_OK(Validate(FilesNamespace("files").contract));
}

}  // namespace
}  // namespace firnkv
