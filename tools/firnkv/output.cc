#include "tools/firnkv/output.h"

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "proto/admin.pb.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/text.h"
#include "proto/node.pb.h"
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

std::string SizeOr(std::uint64_t bytes, std::string_view zero) {
  return bytes == 0 ? std::string(zero)
                    : FormatSize(static_cast<double>(bytes));
}

// "z1/r2/h3"; what is not set is "-", also alone.
std::string LabelsText(const v1::Labels& labels) {
  if (labels.zone().empty() && labels.rack().empty() && labels.host().empty()) {
    return "-";
  }
  const auto or_dash = [](const std::string& label) {
    return label.empty() ? std::string("-") : label;
  };
  return StrCat(or_dash(labels.zone()), "/", or_dash(labels.rack()), "/",
                or_dash(labels.host()));
}

std::string RetentionText(std::uint64_t seconds) {
  return seconds == 0 ? "for ever" : FormatAge(seconds);
}

Json ContractJson(const v1::StateContract& contract) {
  Json adapters = Json::Array();
  for (const v1::Adapter& adapter : contract.adapters()) {
    adapters.Append(Json::Object()
                        .Set("name", adapter.name())
                        .Set("revision", adapter.revision()));
  }
  return Json::Object()
      .Set("model", contract.model())
      .Set("weights_revision", contract.weights_revision())
      .Set("tokenizer", contract.tokenizer())
      .Set("preprocessing", contract.preprocessing())
      .Set("positional", contract.positional())
      .Set("kv_dtype", contract.kv_dtype())
      .Set("layer_order", contract.layer_order())
      .Set("kv_order", contract.kv_order())
      .Set("head_grouping", contract.head_grouping())
      .Set("page_order", contract.page_order())
      .Set("block_tokens", contract.block_tokens())
      .Set("tensor_parallel", contract.tensor_parallel())
      .Set("pipeline_parallel", contract.pipeline_parallel())
      .Set("context_parallel", contract.context_parallel())
      .Set("layout_version", contract.layout_version())
      .Set("adapters", std::move(adapters))
      .Set("cache_salt", contract.cache_salt());
}

void AddContract(const v1::StateContract& contract, TextTable* table) {
  table->Add({"model", contract.model()});
  table->Add({"weights revision", contract.weights_revision()});
  table->Add({"tokenizer", contract.tokenizer()});
  table->Add({"preprocessing", contract.preprocessing()});
  table->Add({"positional", contract.positional()});
  table->Add({"kv dtype", contract.kv_dtype()});
  table->Add({"layer order", contract.layer_order()});
  table->Add({"kv order", contract.kv_order()});
  table->Add({"head grouping", contract.head_grouping()});
  table->Add({"page order", contract.page_order()});
  table->Add({"block tokens", StrCat(contract.block_tokens())});
  table->Add({"parallel", StrCat("tensor ", contract.tensor_parallel(),
                                 ", pipeline ", contract.pipeline_parallel(),
                                 ", context ", contract.context_parallel())});
  table->Add({"layout version", StrCat(contract.layout_version())});
  for (const v1::Adapter& adapter : contract.adapters()) {
    table->Add({"adapter", StrCat(adapter.name(), "@", adapter.revision())});
  }
  if (!contract.cache_salt().empty()) {
    table->Add({"cache salt", contract.cache_salt()});
  }
}

}  // namespace

std::string FormatUnix(std::int64_t seconds) {
  if (seconds == 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC",
                          absl::FromUnixSeconds(seconds), absl::UTCTimeZone());
}

std::string FormatAge(std::uint64_t seconds) {
  const std::uint64_t minutes = seconds / 60;
  const std::uint64_t hours = minutes / 60;
  if (hours >= 48) return StrCat(hours / 24, " d ", hours % 24, " h");
  if (hours > 0) return StrCat(hours, " h ", minutes % 60, " min");
  if (minutes > 0) return StrCat(minutes, " min ", seconds % 60, " s");
  return StrCat(seconds, " s");
}

std::string TierName(std::uint32_t tier) {
  if (tier == 0) return "DRAM";
  if (tier == 1) return "flash";
  return StrCat("tier ", tier);
}

std::string CountOf(std::uint64_t count, std::string_view what) {
  return StrCat(FormatCount(count), " ", what, count == 1 ? "" : "s");
}

std::string ShortHex(std::string_view bytes) {
  return ToHex(bytes.substr(0, 4));
}

std::string OneLine(const absl::Status& status) {
  // Advice stands on a line of its own, indented by two.
  return absl::StrReplaceAll(StrCat(absl::StatusCodeToString(status.code()),
                                    ": ", ToStd(status.message())),
                             {{"\n  ", "; "}, {"\n", " "}});
}

std::string TenantTable(const std::vector<v1::TenantRow>& rows) {
  TextTable table({"TENANT", ">NAMESPACES", "CREATED", "ID"});
  for (const v1::TenantRow& row : rows) {
    table.Add({row.name(), FormatCount(row.namespaces()),
               FormatUnix(row.created_unix_seconds()), ToHex(row.tenant())});
  }
  return table.Text();
}

Json TenantJson(const v1::TenantRow& row) {
  return Json::Object()
      .Set("name", row.name())
      .Set("id", ToHex(row.tenant()))
      .Set("namespaces", row.namespaces())
      .Set("created_unix_seconds", row.created_unix_seconds());
}

std::string NamespaceTable(const std::vector<v1::NamespaceRow>& rows) {
  TextTable table({"TENANT", "NAMESPACE", ">VERSION", "MODEL", ">BLOCK",
                   ">KEYS", ">CLEARS", "ID"});
  for (const v1::NamespaceRow& row : rows) {
    const v1::NamespaceFacts& facts = row.facts();
    table.Add({facts.tenant_name(), facts.name(), StrCat(facts.version()),
               row.contract().model(), SizeOr(facts.block_bytes(), "any"),
               FormatCount(row.keys()),
               // Clear epochs count from 1.
               FormatCount(facts.clear_epoch() - (facts.clear_epoch() ? 1 : 0)),
               ShortHex(facts.name_space())});
  }
  return table.Text();
}

std::string NamespaceText(const v1::NamespaceRow& row) {
  const v1::NamespaceFacts& facts = row.facts();
  TextTable table({StrCat("namespace ", facts.name()),
                   StrCat("version ", facts.version())});
  table.Add({"tenant", facts.tenant_name()});
  table.Add({"id", ToHex(facts.name_space())});
  table.Add({"identity digest", ToHex(facts.digest())});
  table.Add({"clear epoch", StrCat(facts.clear_epoch())});
  table.Add({"block size", SizeOr(facts.block_bytes(), "any")});
  table.Add({"chained", facts.chained() ? "yes" : "no"});
  table.Add({"retention", RetentionText(facts.retention_seconds())});
  table.Add({"strict clear", facts.strict_clear() ? "yes" : "no"});
  table.Add({"flash", facts.flash_mode()});
  table.Add({"keys in the index", FormatCount(row.keys())});
  table.Add({"created", FormatUnix(row.created_unix_seconds())});
  AddContract(row.contract(), &table);
  return table.Text();
}

Json NamespaceJson(const v1::NamespaceRow& row) {
  const v1::NamespaceFacts& facts = row.facts();
  return Json::Object()
      .Set("tenant", facts.tenant_name())
      .Set("name", facts.name())
      .Set("version", facts.version())
      .Set("id", ToHex(facts.name_space()))
      .Set("digest", ToHex(facts.digest()))
      .Set("clear_epoch", facts.clear_epoch())
      .Set("block_bytes", facts.block_bytes())
      .Set("chained", facts.chained())
      .Set("retention_seconds", facts.retention_seconds())
      .Set("strict_clear", facts.strict_clear())
      .Set("flash_mode", facts.flash_mode())
      .Set("keys", row.keys())
      .Set("created_unix_seconds", row.created_unix_seconds())
      .Set("contract", ContractJson(row.contract()));
}

std::string NodeTable(const std::vector<v1::NodeRow>& rows) {
  TextTable table({"NODE", "STATE", "CONTROL", "STREAM", "ZONE/RACK/HOST",
                   ">DRAM USED", ">OF", ">BLOCKS", ">SEEN", "INVENTORY"});
  for (const v1::NodeRow& row : rows) {
    const v1::NodeAddress& address = row.address();
    const v1::Labels& labels = address.labels();
    table.Add({ShortHex(address.node()), row.state(), address.control_address(),
               address.stream_address(), LabelsText(labels),
               FormatSize(static_cast<double>(row.dram_used_bytes())),
               FormatSize(static_cast<double>(row.dram_bytes())),
               FormatCount(row.blocks()),
               StrCat(FormatAge(row.last_seen_millis_ago() / 1000), " ago"),
               row.inventory_complete() ? "complete" : "under way"});
  }
  return table.Text();
}

Json NodeJson(const v1::NodeRow& row) {
  const v1::NodeAddress& address = row.address();
  return Json::Object()
      .Set("id", ToHex(address.node()))
      .Set("epoch", StrCat(address.epoch()))
      .Set("state", row.state())
      .Set("control_address", address.control_address())
      .Set("stream_address", address.stream_address())
      .Set("zone", address.labels().zone())
      .Set("rack", address.labels().rack())
      .Set("host", address.labels().host())
      .Set("dram_bytes", row.dram_bytes())
      .Set("dram_used_bytes", row.dram_used_bytes())
      .Set("blocks", row.blocks())
      .Set("last_seen_millis_ago", row.last_seen_millis_ago())
      .Set("applied", row.applied())
      .Set("version", row.version())
      .Set("inventory_complete", row.inventory_complete());
}

Json NodeStatusJson(const v1::NodeStatusResponse& status) {
  Json outcomes = Json::Object();
  for (int i = 1; i < status.outcomes_size() && i <= kLastOutcome; ++i) {
    if (status.outcomes(i) == 0) continue;
    outcomes.Set(OutcomeLabel(static_cast<Outcome>(i)), status.outcomes(i));
  }
  Json regions = Json::Object();
  const int tenants =
      std::min(status.region_tenants_size(), status.region_counts_size());
  for (int i = 0; i < tenants; ++i) {
    regions.Set(status.region_tenants(i), status.region_counts(i));
  }
  return Json::Object()
      .Set("id", ToHex(status.node()))
      .Set("epoch", StrCat(status.epoch()))
      .Set("version", status.version())
      .Set("stream_address", status.stream_address())
      .Set("dram_target_bytes", status.dram_target_bytes())
      .Set("dram_mapped_bytes", status.dram_mapped_bytes())
      .Set("dram_used_bytes", status.dram_used_bytes())
      .Set("dram_retiring_bytes", status.dram_retiring_bytes())
      .Set("blocks", status.blocks())
      .Set("sessions", status.sessions())
      .Set("leases", status.leases())
      .Set("reservations", status.reservations())
      .Set("holds", status.holds())
      .Set("retiring_slots", status.retiring_slots())
      .Set("staging_bytes", status.staging_bytes())
      .Set("evictions", status.evictions())
      .Set("corrupt_copies", status.corrupt_copies())
      .Set("catalog_link", status.catalog_link())
      .Set("announcements_pending", status.announcements_pending())
      .Set("uptime_seconds", status.uptime_seconds())
      .Set("outcomes", std::move(outcomes))
      .Set("regions", std::move(regions));
}

}  // namespace firnkv
