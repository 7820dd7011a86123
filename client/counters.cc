#include "client/counters.h"

#include <string>

namespace firnkv {
namespace {

constexpr std::string_view kPackage = "/firnkv.v1.";

LatencySnapshot Snapshot(const LatencyHistogram& histogram) {
  LatencySnapshot out;
  for (std::size_t i = 0; i < LatencyHistogram::kBuckets; ++i) {
    out.cells[i] = histogram.cell(i);
  }
  out.sum = absl::Nanoseconds(static_cast<std::int64_t>(histogram.sum_nanos()));
  return out;
}

}  // namespace

std::string_view MethodOf(ControlCall call) {
  switch (call) {
    case ControlCall::kOpenRead:
      return "/firnkv.v1.NodeService/OpenRead";
    case ControlCall::kRelease:
      return "/firnkv.v1.NodeService/Release";
    case ControlCall::kReserve:
      return "/firnkv.v1.NodeService/Reserve";
    case ControlCall::kCommit:
      return "/firnkv.v1.NodeService/Commit";
    case ControlCall::kAbort:
      return "/firnkv.v1.NodeService/Abort";
    case ControlCall::kExists:
      return "/firnkv.v1.NodeService/Exists";
    case ControlCall::kNodeRemove:
      return "/firnkv.v1.NodeService/Remove";
    case ControlCall::kReportCorrupt:
      return "/firnkv.v1.NodeService/ReportCorrupt";
    case ControlCall::kNoteRemoteReads:
      return "/firnkv.v1.NodeService/NoteRemoteReads";
    case ControlCall::kCatalogConnect:
      return "/firnkv.v1.CatalogService/Connect";
    case ControlCall::kOpenNamespace:
      return "/firnkv.v1.CatalogService/OpenNamespace";
    case ControlCall::kLocate:
      return "/firnkv.v1.CatalogService/Locate";
    case ControlCall::kPlace:
      return "/firnkv.v1.CatalogService/Place";
    case ControlCall::kCatalogRemove:
      return "/firnkv.v1.CatalogService/Remove";
  }
  return "";
}

ClientStats Snapshot(const ClientCounters& counters,
                     const StreamCounters& streams) {
  ClientStats out;
  for (std::size_t i = 0; i <= kLastOutcome; ++i) {
    out.read_outcomes[i] = counters.read_outcomes[i].value();
    out.write_outcomes[i] = counters.write_outcomes[i].value();
    out.view_outcomes[i] = counters.view_outcomes[i].value();
  }
  out.bytes_mapped = counters.bytes_mapped.value();
  out.bytes_remote = counters.bytes_remote.value();
  out.bytes_viewed = counters.bytes_viewed.value();
  out.bytes_stored = counters.bytes_stored.value();
  out.bytes_staged = counters.bytes_staged.value();
  for (std::size_t i = 0; i < kControlCalls; ++i) {
    const std::string_view method = MethodOf(static_cast<ControlCall>(i));
    out.calls[std::string(method.substr(kPackage.size()))] =
        counters.calls[i].value();
  }
  out.frame_calls = counters.frame_calls.value();
  out.stream_reads = streams.reads.value();
  out.stream_blocks = streams.blocks.value();
  out.stream_connects = streams.connects.value();
  out.stream_failures = streams.failures.value();
  out.location_hits = counters.location_hits.value();
  out.stale_locations = counters.stale_locations.value();
  out.locate_failures = counters.locate_failures.value();
  out.torn_reads = counters.torn_reads.value();
  out.corrupt_blocks = counters.corrupt_blocks.value();
  out.probes = counters.probes.value();
  out.breaker_skips = counters.breaker_skips.value();
  out.remote_reads_dropped = counters.remote_reads_dropped.value();
  out.promoted_here = counters.promoted_here.value();
  out.views_dropped = counters.views_dropped.value();
  out.sessions = counters.sessions.value();
  out.sessions_lost = counters.sessions_lost.value();
  out.regions_mapped = counters.regions_mapped.value();
  out.read = Snapshot(counters.read);
  out.open_views = Snapshot(counters.open_views);
  out.write = Snapshot(counters.write);
  out.exists = Snapshot(counters.exists);
  out.remove = Snapshot(counters.remove);
  out.locate = Snapshot(counters.locate);
  return out;
}

}  // namespace firnkv
