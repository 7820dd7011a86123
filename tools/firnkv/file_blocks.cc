#include "tools/firnkv/file_blocks.h"

#include <algorithm>

#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/sha256.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

constexpr std::string_view kMagic("FirnKV file", 12);
constexpr std::uint32_t kVersion = 1;

std::string_view View(const Sha256Bytes& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::uint64_t FileManifest::pieces() const {
  return DivideUp(file_bytes, block_bytes);
}

std::uint64_t FileManifest::PieceBytes(std::uint64_t index) const {
  return std::min(block_bytes, file_bytes - index * block_bytes);
}

std::string EncodeManifest(const FileManifest& manifest) {
  std::string bytes;
  WireWriter writer(&bytes);
  writer.Bytes(kMagic);
  writer.U32(kVersion);
  writer.U64(manifest.file_bytes);
  writer.U64(manifest.block_bytes);
  return bytes;
}

absl::StatusOr<FileManifest> DecodeManifest(std::string_view bytes) {
  WireReader reader(bytes);
  const bool known = reader.Bytes(kMagic.size()) == kMagic;
  const std::uint32_t version = reader.U32();
  FileManifest manifest{.file_bytes = reader.U64(),
                        .block_bytes = reader.U64()};
  if (!reader.AtEnd() || !known) {
    return absl::InvalidArgumentError("it is no file that put has stored");
  }
  if (version != kVersion) {
    return absl::InvalidArgumentError(StrCat("it is of version ", version,
                                             ", which this firnkv is too old "
                                             "for"));
  }
  if (manifest.block_bytes == 0 || manifest.block_bytes > kLargestBlockBytes ||
      manifest.file_bytes > kMaxFilePieces * manifest.block_bytes) {
    return absl::InvalidArgumentError("its manifest has impossible sizes");
  }
  return manifest;
}

FileNamer::FileNamer(const FileManifest& manifest)
    : hashed_(EncodeManifest(manifest)) {}

void FileNamer::Add(std::string_view piece) {
  hashed_.append(View(Sha256(piece)));
}

std::string FileNamer::Name() const { return ToHex(View(Sha256(hashed_))); }

bool IsFileName(std::string_view name) {
  return name.size() == 64 && FromHex(name).has_value();
}

Chain MakeFileChain(std::string_view name, std::uint64_t pieces) {
  Chain chain({.block_tokens = 1});
  for (std::uint64_t i = 0; i <= pieces; ++i) {
    chain.Append(StrCat(name, "/", i));
  }
  return chain;
}

OpenNamespaceRequest FilesNamespace(const std::string& name) {
  OpenNamespaceRequest request;
  request.name = name;
  StateContract& contract = request.contract;
  contract.model = "files";
  contract.weights_revision = "1";
  contract.tokenizer = "none";
  contract.preprocessing = "none";
  contract.positional = "none";
  contract.kv_dtype = "bytes";
  contract.layer_order = "none";
  contract.kv_order = "none";
  contract.head_grouping = "none";
  contract.page_order = "none";
  contract.block_tokens = 1;
  contract.tensor_parallel = 1;
  contract.pipeline_parallel = 1;
  contract.context_parallel = 1;
  contract.layout_version = kVersion;
  return request;
}

}  // namespace firnkv
