// Files as blocks, for `put` and `get`: named by their content, so that a block
// under one key never has other bytes, and so that what was got can be checked
// by its name.
//
// A file is a chain: block 0 is the manifest (sizes), the others are the file
// in pieces of block bytes, the last one shorter. Its name is
//
//     SHA-256(manifest, SHA-256(piece 1), SHA-256(piece 2), ...)
//
// in hex, and the chain hash of block i is "NAME/i".
//
// Threading: none; plain values.

#ifndef FIRNKV_TOOLS_FIRNKV_FILE_BLOCKS_H_
#define FIRNKV_TOOLS_FIRNKV_FILE_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/chain.h"
#include "client/namespace.h"

namespace firnkv {

struct FileManifest {
  std::uint64_t file_bytes = 0;
  std::uint64_t block_bytes = 0;

  // Pieces, without the manifest's own block.
  std::uint64_t pieces() const;
  // Of piece `index`, from 0.
  std::uint64_t PieceBytes(std::uint64_t index) const;
};

// "FirnKV file", a zero, u32 version, u64 file bytes, u64 block bytes.
inline constexpr std::size_t kFileManifestBytes = 32;
// The index in a chain hash, and with it a chain, is this long at most: 1 TiB
// in pieces of 1 MiB.
inline constexpr std::uint64_t kMaxFilePieces = 1 << 20;

std::string EncodeManifest(const FileManifest& manifest);
// INVALID_ARGUMENT for what is none, and for sizes that no put makes.
absl::StatusOr<FileManifest> DecodeManifest(std::string_view bytes);

// Finds a file's name while its pieces go by.
class FileNamer {
 public:
  explicit FileNamer(const FileManifest& manifest);
  void Add(std::string_view piece);
  // Of what was added, in hex.
  std::string Name() const;

 private:
  std::string hashed_;
};

// 64 hex digits.
bool IsFileName(std::string_view name);

// The manifest's block, then those of `pieces` pieces.
Chain MakeFileChain(std::string_view name, std::uint64_t pieces);

// The namespace in which files are; `name` is "files" unless somebody says
// otherwise.
OpenNamespaceRequest FilesNamespace(const std::string& name);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_FILE_BLOCKS_H_
