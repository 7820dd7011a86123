#include "proto/base/contract.h"

#include <cstddef>
#include <utility>

#include "proto/base/limits.h"
#include "proto/base/sha256.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

// The terminating zero belongs to it.
constexpr std::string_view kDomainTag("FirnKV state contract", 22);
constexpr std::uint16_t kEncodingVersion = 1;

// One mandatory field. Tags are those of types.proto.
struct TextField {
  std::uint16_t tag;
  std::string_view name;
  std::string StateContract::*member;
};
constexpr TextField kTexts[] = {
    {1, "model", &StateContract::model},
    {2, "weights_revision", &StateContract::weights_revision},
    {3, "tokenizer", &StateContract::tokenizer},
    {4, "preprocessing", &StateContract::preprocessing},
    {5, "positional", &StateContract::positional},
    {6, "kv_dtype", &StateContract::kv_dtype},
    {7, "layer_order", &StateContract::layer_order},
    {8, "kv_order", &StateContract::kv_order},
    {9, "head_grouping", &StateContract::head_grouping},
    {10, "page_order", &StateContract::page_order},
};
struct NumberField {
  std::uint16_t tag;
  std::string_view name;
  std::uint32_t StateContract::*member;
};
constexpr NumberField kNumbers[] = {
    {11, "block_tokens", &StateContract::block_tokens},
    {12, "tensor_parallel", &StateContract::tensor_parallel},
    {13, "pipeline_parallel", &StateContract::pipeline_parallel},
    {14, "context_parallel", &StateContract::context_parallel},
    {15, "layout_version", &StateContract::layout_version},
};
// Optional ones are left out where they are empty, so that an optional field
// that is added one day leaves the digests of contracts without it alone.
constexpr std::uint16_t kAdaptersTag = 16;
constexpr std::uint16_t kCacheSaltTag = 17;

absl::Status Wrong(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(
      StrCat("state contract: ", field, " ", what));
}

absl::Status CheckText(std::string_view name, const std::string& value) {
  if (value.empty()) return Wrong(name, "is missing");
  if (value.size() > kMaxContractTextBytes) {
    return Wrong(name, StrCat("has ", value.size(), " bytes; at most ",
                              kMaxContractTextBytes, " are allowed"));
  }
  return absl::OkStatus();
}

void AppendField(std::uint16_t tag, std::string_view value, std::string* out) {
  WireWriter writer(out);
  writer.U16(tag);
  writer.U32(static_cast<std::uint32_t>(value.size()));
  writer.Bytes(value);
}

std::string EncodeAdapters(const std::vector<Adapter>& adapters) {
  std::string out;
  WireWriter writer(&out);
  writer.U32(static_cast<std::uint32_t>(adapters.size()));
  for (const Adapter& adapter : adapters) {
    writer.U32(static_cast<std::uint32_t>(adapter.name.size()));
    writer.Bytes(adapter.name);
    writer.U32(static_cast<std::uint32_t>(adapter.revision.size()));
    writer.Bytes(adapter.revision);
  }
  return out;
}

absl::StatusOr<std::vector<Adapter>> DecodeAdapters(std::string_view value) {
  WireReader reader(value);
  const std::uint32_t count = reader.U32();
  if (count == 0 || count > kMaxContractAdapters) {
    return Wrong("adapters", "is encoded with a wrong count");
  }
  std::vector<Adapter> adapters;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    Adapter adapter;
    adapter.name = reader.Bytes(reader.U32());
    adapter.revision = reader.Bytes(reader.U32());
    adapters.push_back(std::move(adapter));
  }
  if (!reader.AtEnd()) return Wrong("adapters", "is torn");
  return adapters;
}

// Puts the value of field `tag` into `contract`.
absl::Status TakeField(std::uint16_t tag, std::string_view value,
                       StateContract* contract) {
  for (const TextField& field : kTexts) {
    if (field.tag != tag) continue;
    contract->*field.member = value;
    return absl::OkStatus();
  }
  for (const NumberField& field : kNumbers) {
    if (field.tag != tag) continue;
    WireReader reader(value);
    contract->*field.member = reader.U32();
    if (!reader.AtEnd()) return Wrong(field.name, "is not 4 bytes long");
    return absl::OkStatus();
  }
  if (tag == kAdaptersTag) {
    ASSIGN_OR_RETURN(contract->adapters, DecodeAdapters(value));
    return absl::OkStatus();
  }
  if (tag == kCacheSaltTag) {
    if (value.empty()) return Wrong("cache_salt", "is encoded though empty");
    contract->cache_salt = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("state contract: field ", tag, " is unknown"));
}

}  // namespace

absl::Status Validate(const StateContract& contract) {
  for (const TextField& field : kTexts) {
    RETURN_IF_ERROR(CheckText(field.name, contract.*field.member));
  }
  for (const NumberField& field : kNumbers) {
    if (contract.*field.member == 0) return Wrong(field.name, "is missing");
  }
  if (contract.adapters.size() > kMaxContractAdapters) {
    return Wrong("adapters",
                 StrCat("has ", contract.adapters.size(), " entries; at most ",
                        kMaxContractAdapters, " are allowed"));
  }
  for (std::size_t i = 0; i < contract.adapters.size(); ++i) {
    const std::string name = StrCat("adapters[", i, "]");
    RETURN_IF_ERROR(CheckText(name + ".name", contract.adapters[i].name));
    RETURN_IF_ERROR(
        CheckText(name + ".revision", contract.adapters[i].revision));
  }
  if (contract.cache_salt.empty()) return absl::OkStatus();
  return CheckText("cache_salt", contract.cache_salt);
}

std::string CanonicalEncoding(const StateContract& contract) {
  std::string out(kDomainTag);
  WireWriter(&out).U16(kEncodingVersion);
  for (const TextField& field : kTexts) {
    AppendField(field.tag, contract.*field.member, &out);
  }
  for (const NumberField& field : kNumbers) {
    std::string value;
    WireWriter(&value).U32(contract.*field.member);
    AppendField(field.tag, value, &out);
  }
  if (!contract.adapters.empty()) {
    AppendField(kAdaptersTag, EncodeAdapters(contract.adapters), &out);
  }
  if (!contract.cache_salt.empty()) {
    AppendField(kCacheSaltTag, contract.cache_salt, &out);
  }
  return out;
}

absl::StatusOr<StateContract> DecodeCanonical(std::string_view bytes) {
  WireReader reader(bytes);
  if (reader.Bytes(kDomainTag.size()) != kDomainTag) {
    return absl::InvalidArgumentError("these bytes are no state contract");
  }
  const std::uint16_t version = reader.U16();
  if (reader.ok() && version != kEncodingVersion) {
    return absl::InvalidArgumentError(
        StrCat("state contract: encoding version ", version, " is unknown"));
  }
  StateContract contract;
  std::uint16_t last = 0;
  while (reader.left() > 0) {
    const std::uint16_t tag = reader.U16();
    const std::string_view value = reader.Bytes(reader.U32());
    if (!reader.ok()) break;
    if (tag <= last) {
      return absl::InvalidArgumentError(
          StrCat("state contract: field ", tag, " follows field ", last));
    }
    last = tag;
    RETURN_IF_ERROR(TakeField(tag, value, &contract));
  }
  if (!reader.ok()) return absl::InvalidArgumentError("state contract: torn");
  RETURN_IF_ERROR(Validate(contract));
  return contract;
}

IdentityDigest MakeIdentityDigest(const StateContract& contract) {
  return IdentityDigest{Sha256(CanonicalEncoding(contract))};
}

std::string FirstDifference(const StateContract& a, const StateContract& b) {
  for (const TextField& field : kTexts) {
    if (a.*field.member != b.*field.member) return std::string(field.name);
  }
  for (const NumberField& field : kNumbers) {
    if (a.*field.member != b.*field.member) return std::string(field.name);
  }
  if (a.adapters != b.adapters) return "adapters";
  if (a.cache_salt != b.cache_salt) return "cache_salt";
  return "";
}

}  // namespace firnkv
