#include "tools/replay/replay_report.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/base/bytes.h"
#include "proto/base/outcome.h"
#include "proto/base/text.h"
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

// One row of the table of calls.
struct CallTimes {
  std::string_view name;
  std::size_t count = 0;
  absl::Duration p50, p95, p99, most;
};

CallTimes TimesOf(std::string_view name, const TimeSample& sample) {
  return {name,
          sample.count(),
          sample.Quantile(0.5),
          sample.Quantile(0.95),
          sample.Quantile(0.99),
          sample.Quantile(1)};
}

CallTimes TimesOf(std::string_view name, const LatencySnapshot& snapshot) {
  return {name,
          snapshot.count(),
          SnapshotQuantile(snapshot, 0.5),
          SnapshotQuantile(snapshot, 0.95),
          SnapshotQuantile(snapshot, 0.99),
          SnapshotQuantile(snapshot, 1)};
}

LatencySnapshot Sum(const std::vector<ClientStats>& clients,
                    LatencySnapshot ClientStats::*member) {
  LatencySnapshot sum;
  for (const ClientStats& stats : clients) {
    const LatencySnapshot& one = stats.*member;
    for (std::size_t i = 0; i < sum.cells.size(); ++i) {
      sum.cells[i] += one.cells[i];
    }
    sum.sum += one.sum;
  }
  return sum;
}

// Every kind of call that was made.
std::vector<CallTimes> AllCalls(const ReplayReport& report) {
  const ReplayTally& tally = report.tally;
  std::vector<CallTimes> calls = {
      TimesOf("request", tally.request), TimesOf("read", tally.read),
      TimesOf("write", tally.write), TimesOf("locate", tally.locate),
      TimesOf("late", tally.late)};
  calls.push_back(
      TimesOf("exists", Sum(report.client_stats, &ClientStats::exists)));
  calls.push_back(
      TimesOf("remove", Sum(report.client_stats, &ClientStats::remove)));
  std::erase_if(calls, [](const CallTimes& call) { return call.count == 0; });
  return calls;
}

double ASecond(double count, absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  return seconds > 0 ? count / seconds : 0;
}

std::string Percent(double rate) { return absl::StrFormat("%.2f", rate); }

struct Rate {
  std::string_view title;
  std::string_view name;
  double (HitCounts::*of)() const;
};
// All blocks have one size, so that bytes and blocks have one rate.
constexpr Rate kRates[] = {
    {"requests with a hit", "requests", &HitCounts::request_rate},
    {"blocks", "blocks", &HitCounts::block_rate},
    {"bytes", "bytes", &HitCounts::block_rate},
    {"tokens of the leading run", "leading_run_tokens", &HitCounts::token_rate},
    {"prefill work saved", "work_saved", &HitCounts::saved_rate},
};

std::string RatesText(const ReplayReport& report) {
  std::vector<std::string> columns = {"hit rate, %", ">replay"};
  if (report.lru_blocks.has_value()) {
    columns.push_back(
        StrCat(">LRU of ", FormatCount(*report.lru_blocks), " blocks"));
  }
  columns.push_back(">endless cache");
  TextTable table(columns);
  for (const Rate& rate : kRates) {
    std::vector<std::string> row = {std::string(rate.title),
                                    Percent((report.tally.hits.*rate.of)())};
    if (report.lru_blocks.has_value()) {
      row.push_back(Percent((report.lru.*rate.of)()));
    }
    row.push_back(Percent((report.endless.*rate.of)()));
    table.Add(std::move(row));
  }
  std::string text = table.Text();
  if (!report.lru_blocks.has_value()) {
    StrAppend(&text, "no LRU to compare with: ", report.lru_unknown, "\n");
  }
  return text;
}

std::string CallsText(const ReplayReport& report) {
  TextTable table({"call", ">count", ">p50", ">p95", ">p99", ">most"});
  for (const CallTimes& call : AllCalls(report)) {
    table.Add({std::string(call.name), FormatCount(call.count),
               FormatTime(call.p50), FormatTime(call.p95), FormatTime(call.p99),
               FormatTime(call.most)});
  }
  return table.Text();
}

std::string OutcomesText(const ReplayTally::Outcomes& outcomes) {
  std::string text;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i] == 0) continue;
    StrAppend(&text, text.empty() ? "" : ", ",
              OutcomeLabel(static_cast<Outcome>(i)), " ",
              FormatCount(outcomes[i]));
  }
  return text.empty() ? "none" : text;
}

std::string WrongText(const ReplayTally& tally) {
  std::string text = StrCat("wrong bytes: ", tally.wrong_bytes, "\n");
  if (tally.wrong_blocks == 0) return text;
  StrAppend(&text, "WRONG BYTES WERE SERVED, in ", tally.wrong_blocks,
            " blocks:\n");
  for (const WrongBlock& wrong : tally.listed) {
    StrAppend(&text, "  namespace ", ToHex(wrong.block.name_space), " key ",
              ToHex(wrong.block.key), ": ", wrong.wrong_bytes,
              " bytes, the first at ", wrong.first_wrong_byte, " (request ",
              wrong.request, ", position ", wrong.position, ")\n");
  }
  if (tally.wrong_blocks > tally.listed.size()) {
    StrAppend(&text, "  and ", tally.wrong_blocks - tally.listed.size(),
              " more\n");
  }
  return text;
}

std::string HeadText(const ReplayReport& report) {
  const ReplayTally& tally = report.tally;
  std::string text = StrCat("replay of ", report.trace_name, " in namespace ",
                            report.namespace_name, "\n",
                            FormatCount(tally.hits.requests), " requests");
  if (tally.hits.requests < report.trace_requests) {
    StrAppend(&text, " of ", FormatCount(report.trace_requests), " (stopped)");
  }
  const std::uint64_t bytes = tally.hits.blocks * report.block_bytes;
  StrAppend(&text, ", ", FormatCount(tally.hits.blocks), " blocks (",
            FormatCount(report.trace_distinct), " different) of ",
            FormatSize(static_cast<double>(report.block_bytes)), ", ",
            FormatSize(static_cast<double>(bytes)), "\n", report.workers,
            " workers on ", report.nodes, " nodes, ",
            report.routing == Routing::kAffinity ? "with affinity" : "in turn",
            ", ");
  if (report.speed > 0) {
    StrAppend(&text,
              absl::StrFormat("%g times the recorded speed", report.speed));
  } else {
    StrAppend(&text, "as fast as it goes");
  }
  StrAppend(&text, ": ", FormatTime(report.took), "\n");
  return text;
}

Json RatesJson(const HitCounts& counts) {
  Json json = Json::Object();
  for (const Rate& rate : kRates) json.Set(rate.name, (counts.*rate.of)());
  return json;
}

Json OutcomesJson(const ReplayTally::Outcomes& outcomes) {
  Json json = Json::Object();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i] == 0) continue;
    json.Set(OutcomeLabel(static_cast<Outcome>(i)), outcomes[i]);
  }
  return json;
}

Json CallsJson(const ReplayReport& report) {
  Json json = Json::Object();
  for (const CallTimes& call : AllCalls(report)) {
    json.Set(call.name,
             Json::Object()
                 .Set("count", call.count)
                 .Set("p50_us", absl::ToDoubleMicroseconds(call.p50))
                 .Set("p95_us", absl::ToDoubleMicroseconds(call.p95))
                 .Set("p99_us", absl::ToDoubleMicroseconds(call.p99))
                 .Set("most_us", absl::ToDoubleMicroseconds(call.most)));
  }
  return json;
}

Json WrongJson(const ReplayTally& tally) {
  Json json = Json::Array();
  for (const WrongBlock& wrong : tally.listed) {
    json.Append(Json::Object()
                    .Set("namespace", ToHex(wrong.block.name_space))
                    .Set("key", ToHex(wrong.block.key))
                    .Set("request", wrong.request)
                    .Set("position", wrong.position)
                    .Set("first_wrong_byte", wrong.first_wrong_byte)
                    .Set("wrong_bytes", wrong.wrong_bytes));
  }
  return json;
}

}  // namespace

absl::Duration SnapshotQuantile(const LatencySnapshot& snapshot, double share) {
  const double wanted = share * static_cast<double>(snapshot.count());
  double so_far = 0;
  for (std::size_t i = 0; i < snapshot.cells.size(); ++i) {
    so_far += static_cast<double>(snapshot.cells[i]);
    if (snapshot.cells[i] > 0 && so_far >= wanted) {
      return absl::Microseconds(std::int64_t{1} << i);
    }
  }
  return absl::ZeroDuration();
}

bool Passed(const ReplayReport& report) {
  return report.tally.wrong_blocks == 0 && report.tally.failed_calls == 0;
}

std::string ReportText(const ReplayReport& report) {
  const ReplayTally& tally = report.tally;
  std::string text = StrCat(HeadText(report), "\n", RatesText(report), "\n",
                            CallsText(report), "\n");
  const double read =
      static_cast<double>(tally.bytes_mapped + tally.bytes_remote);
  StrAppend(
      &text, "throughput: ",
      absl::StrFormat(
          "%.1f requests/s",
          ASecond(static_cast<double>(tally.hits.requests), report.took)),
      ", read ", FormatSize(ASecond(read, report.took)), "/s, written ",
      FormatSize(ASecond(static_cast<double>(tally.bytes_stored), report.took)),
      "/s\nbytes by source: mapped ",
      FormatSize(static_cast<double>(tally.bytes_mapped)), ", remote ",
      FormatSize(static_cast<double>(tally.bytes_remote)), ", recomputed ",
      FormatSize(static_cast<double>(tally.bytes_recomputed)), "\nevictions: ");
  if (report.evictions.has_value()) {
    StrAppend(&text, FormatCount(*report.evictions));
  } else {
    StrAppend(&text, "unknown (", report.evictions_unknown, ")");
  }
  StrAppend(&text, "\nread outcomes: ", OutcomesText(tally.read_outcomes),
            "\nwrite outcomes: ", OutcomesText(tally.write_outcomes), "\n");
  if (tally.failed_calls > 0) {
    StrAppend(&text, "FAILED CALLS: ", FormatCount(tally.failed_calls),
              ", the first: ", tally.first_failure, "\n");
  }
  StrAppend(&text, WrongText(tally));
  return text;
}

Json ReportJson(const ReplayReport& report) {
  const ReplayTally& tally = report.tally;
  Json json = Json::Object();
  json.Set("trace", report.trace_name)
      .Set("namespace", report.namespace_name)
      .Set("requests", tally.hits.requests)
      .Set("trace_requests", report.trace_requests)
      .Set("blocks", tally.hits.blocks)
      .Set("distinct_blocks", report.trace_distinct)
      .Set("block_bytes", report.block_bytes)
      .Set("block_tokens", report.block_tokens)
      .Set("bytes", tally.hits.blocks * report.block_bytes)
      .Set("workers", report.workers)
      .Set("nodes", report.nodes)
      .Set("affinity", report.routing == Routing::kAffinity)
      .Set("speed", report.speed)
      .Set("seconds", absl::ToDoubleSeconds(report.took))
      .Set("hit_rates", RatesJson(tally.hits))
      .Set("endless_hit_rates", RatesJson(report.endless));
  if (report.lru_blocks.has_value()) {
    json.Set("lru_blocks", *report.lru_blocks)
        .Set("lru_hit_rates", RatesJson(report.lru));
  }
  json.Set("calls", CallsJson(report))
      .Set("requests_a_second",
           ASecond(static_cast<double>(tally.hits.requests), report.took))
      .Set("bytes_mapped", tally.bytes_mapped)
      .Set("bytes_remote", tally.bytes_remote)
      .Set("bytes_recomputed", tally.bytes_recomputed)
      .Set("bytes_stored", tally.bytes_stored)
      .Set("evictions",
           report.evictions.has_value() ? Json(*report.evictions) : Json())
      .Set("read_outcomes", OutcomesJson(tally.read_outcomes))
      .Set("write_outcomes", OutcomesJson(tally.write_outcomes))
      .Set("failed_calls", tally.failed_calls)
      .Set("first_failure", tally.first_failure)
      .Set("wrong_bytes", tally.wrong_bytes)
      .Set("wrong_blocks", tally.wrong_blocks)
      .Set("wrong", WrongJson(tally));
  return json;
}

}  // namespace firnkv
