// How what the services answer is shown: as text and as JSON, the same names in
// every command. Epochs of nodes and generations are strings in JSON: they need
// all 64 bits, and many a JSON reader rounds numbers above 2^53.
//
// Threading: functions.

#ifndef FIRNKV_TOOLS_FIRNKV_OUTPUT_H_
#define FIRNKV_TOOLS_FIRNKV_OUTPUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tools/replay/json.h"

namespace firnkv {

namespace v1 {
class NamespaceRow;
class NodeRow;
class NodeStatusResponse;
class TenantRow;
}  // namespace v1

// Tables of several, texts of one, JSON of one.
std::string TenantTable(const std::vector<v1::TenantRow>& rows);
Json TenantJson(const v1::TenantRow& row);

std::string NamespaceTable(const std::vector<v1::NamespaceRow>& rows);
std::string NamespaceText(const v1::NamespaceRow& row);
Json NamespaceJson(const v1::NamespaceRow& row);

std::string NodeTable(const std::vector<v1::NodeRow>& rows);
Json NodeJson(const v1::NodeRow& row);

Json NodeStatusJson(const v1::NodeStatusResponse& status);

// "2025-01-31 12:00:00 UTC"; empty for 0.
std::string FormatUnix(std::int64_t seconds);
// "3 d 4 h", "5 min 6 s".
std::string FormatAge(std::uint64_t seconds);
// "DRAM", "flash".
std::string TierName(std::uint32_t tier);
// "1 block", "1,234 blocks".
std::string CountOf(std::uint64_t count, std::string_view what);
// An id's bytes as hex, the begin of it where people read it.
std::string ShortHex(std::string_view bytes);
// "UNAVAILABLE: what it says", on one line.
std::string OneLine(const absl::Status& status);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_OUTPUT_H_
