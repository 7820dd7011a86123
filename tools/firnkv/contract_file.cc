#include "tools/firnkv/contract_file.h"

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "yaml-cpp/yaml.h"

namespace firnkv {
namespace {

struct TextField {
  const char* name;
  std::string StateContract::*member;
};
constexpr TextField kTexts[] = {
    {"model", &StateContract::model},
    {"weights_revision", &StateContract::weights_revision},
    {"tokenizer", &StateContract::tokenizer},
    {"preprocessing", &StateContract::preprocessing},
    {"positional", &StateContract::positional},
    {"kv_dtype", &StateContract::kv_dtype},
    {"layer_order", &StateContract::layer_order},
    {"kv_order", &StateContract::kv_order},
    {"head_grouping", &StateContract::head_grouping},
    {"page_order", &StateContract::page_order},
    {"cache_salt", &StateContract::cache_salt},
};

struct NumberField {
  const char* name;
  std::uint32_t StateContract::*member;
};
constexpr NumberField kNumbers[] = {
    {"block_tokens", &StateContract::block_tokens},
    {"tensor_parallel", &StateContract::tensor_parallel},
    {"pipeline_parallel", &StateContract::pipeline_parallel},
    {"context_parallel", &StateContract::context_parallel},
    {"layout_version", &StateContract::layout_version},
};

absl::Status Wrong(const YAML::Node& node, std::string_view what) {
  return absl::InvalidArgumentError(
      StrCat("line ", node.Mark().line + 1, ": ", what));
}

absl::Status TakeAdapters(const YAML::Node& list, StateContract* contract) {
  if (!list.IsSequence()) {
    return Wrong(list, "adapters must be a list of {name, revision}");
  }
  for (const YAML::Node& node : list) {
    const bool fits = node.IsMap() && node.size() == 2 && node["name"] &&
                      node["name"].IsScalar() && node["revision"] &&
                      node["revision"].IsScalar();
    if (!fits) return Wrong(node, "an adapter must be {name, revision}");
    contract->adapters.push_back(
        {node["name"].Scalar(), node["revision"].Scalar()});
  }
  return absl::OkStatus();
}

absl::Status TakeField(const std::string& name, const YAML::Node& value,
                       StateContract* contract) {
  if (name == "adapters") return TakeAdapters(value, contract);
  for (const TextField& field : kTexts) {
    if (name != field.name) continue;
    if (!value.IsScalar()) return Wrong(value, StrCat(name, " must be a text"));
    contract->*field.member = value.Scalar();
    return absl::OkStatus();
  }
  for (const NumberField& field : kNumbers) {
    if (name != field.name) continue;
    std::uint32_t number = 0;
    if (!value.IsScalar() || !absl::SimpleAtoi(value.Scalar(), &number)) {
      return Wrong(value, StrCat(name, " must be a whole number"));
    }
    contract->*field.member = number;
    return absl::OkStatus();
  }
  return Wrong(value, StrCat("a state contract has no field '", name, "'"));
}

absl::Status TakeFields(const YAML::Node& root, StateContract* contract) {
  if (!root.IsMap()) {
    return absl::InvalidArgumentError("it must be `field: value` lines");
  }
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) return Wrong(entry.first, "no field name");
    RETURN_IF_ERROR(TakeField(entry.first.Scalar(), entry.second, contract));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StateContract> ParseContract(const std::string& text) {
  StateContract contract;
  // The library says by exceptions what is wrong; they end here.
  try {
    RETURN_IF_ERROR(TakeFields(YAML::Load(text), &contract));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        StrCat("line ", error.mark.line + 1, ": ", error.msg));
  }
  return contract;
}

absl::StatusOr<StateContract> ReadContractFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::ErrnoToStatus(errno, ToAbsl(StrCat("contract ", path)));
  }
  std::string text(kMaxContractFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxContractFileBytes) {
    return absl::InvalidArgumentError(
        StrCat("contract ", path, ": over ", kMaxContractFileBytes, " bytes"));
  }
  absl::StatusOr<StateContract> contract = ParseContract(text);
  if (contract.ok()) return contract;
  return Annotate(contract.status(), StrCat("contract ", path));
}

absl::StatusOr<Adapter> ParseAdapter(const std::string& text) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return absl::InvalidArgumentError(
        StrCat("adapter '", text, "' must be NAME@REVISION"));
  }
  return Adapter{text.substr(0, at), text.substr(at + 1)};
}

}  // namespace firnkv
