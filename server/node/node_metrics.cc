#include "server/node/node_metrics.h"

#include <functional>
#include <string>
#include <utility>

#include "server/node/catalog_link.h"
#include "server/node/copier.h"
#include "server/node/copy_fetcher.h"
#include "server/node/drainer.h"
#include "server/node/promoter.h"
#include "server/node/reservations.h"
#include "server/node/session_listener.h"
#include "server/node/staging.h"
#include "server/node/stream_server.h"
#include "server/tier/dram_pool.h"

namespace firnkv {
namespace {

// Outcomes that a call can end in have a line each from the start, so that a
// rate over them is never over a line that was not there.
void AddByOutcome(const char* name, const char* help,
                  const NodeMetrics::ByOutcome& counters, MetricList* list) {
  for (std::size_t i = 1; i < counters.size(); ++i) {
    list->AddCounter(
        name, help, &counters[i],
        {{"outcome", std::string(OutcomeLabel(static_cast<Outcome>(i)))}});
  }
}

void DescribePool(const DramPool* pool, MetricList* list) {
  const auto gauge = [pool, list](const char* name, const char* help,
                                  std::uint64_t PoolSnapshot::*field) {
    list->AddGauge(name, help, [pool, field] {
      return static_cast<double>(pool->Snapshot().*field);
    });
  };
  const auto counter = [pool, list](const char* name, const char* help,
                                    std::uint64_t PoolSnapshot::*field) {
    list->AddCounter(name, help,
                     [pool, field] { return pool->Snapshot().*field; });
  };
  gauge("firnkv_node_dram_target_bytes", "Target size of the DRAM pool.",
        &PoolSnapshot::target_bytes);
  gauge("firnkv_node_dram_region_bytes",
        "Regions that have memory or are mapped by somebody.",
        &PoolSnapshot::region_bytes);
  gauge("firnkv_node_dram_resident_bytes", "Slots of resident blocks.",
        &PoolSnapshot::resident_bytes);
  gauge("firnkv_node_dram_reserved_bytes", "Slots that writers have reserved.",
        &PoolSnapshot::reserved_bytes);
  gauge("firnkv_node_dram_retiring_bytes",
        "Slots that wait for their last lease or hold.",
        &PoolSnapshot::retiring_bytes);
  gauge("firnkv_node_blocks", "Resident blocks.", &PoolSnapshot::blocks);
  gauge("firnkv_node_leases", "Read leases that are alive.",
        &PoolSnapshot::leases);
  gauge("firnkv_node_holds", "Transfers in flight that keep a slot.",
        &PoolSnapshot::holds);
  gauge("firnkv_node_waiting_batches", "Reserve calls that wait for room.",
        &PoolSnapshot::waiting_batches);
  counter("firnkv_node_evicted_blocks_total", "Blocks evicted for room.",
          &PoolSnapshot::evicted_blocks);
  counter("firnkv_node_evicted_bytes_total", "Bytes of evicted blocks.",
          &PoolSnapshot::evicted_bytes);
  counter("firnkv_node_cleared_blocks_total",
          "Copies of older clear epochs that were let go.",
          &PoolSnapshot::cleared_blocks);
  counter("firnkv_node_corrupt_copies_total",
          "Copies that failed their checksum and were isolated. Alert on any.",
          &PoolSnapshot::corrupt_copies);
  counter("firnkv_node_replaced_copies_total",
          "Copies retired because a writer placed the block elsewhere in its "
          "chain.",
          &PoolSnapshot::replaced_copies);
  counter("firnkv_node_copied_hits_total",
          "Blocks that local reads found here because they were copied from "
          "another node: as many remote reads were saved.",
          &PoolSnapshot::copied_hits);
  counter("firnkv_node_growth_refusals_total",
          "Times that a memory limit forbade another region.",
          &PoolSnapshot::growth_refusals);
}

void DescribeLink(const CatalogLink* link, MetricList* list) {
  list->AddGauge(
      "firnkv_node_registered", "1 while the catalog knows this node.", [link] {
        return link->state() == CatalogLink::State::kRegistered ? 1.0 : 0.0;
      });
  list->AddCounter("firnkv_node_registrations_total",
                   "Registrations at the catalog.",
                   &link->counters().registrations);
  list->AddCounter("firnkv_node_lost_leases_total",
                   "Membership leases that ran out without an answer.",
                   &link->counters().lost_leases);
  list->AddCounter("firnkv_node_failed_heartbeats_total",
                   "Heartbeats without an answer.",
                   &link->counters().failed_heartbeats);
  list->AddCounter("firnkv_node_catalog_removals_total",
                   "Copies removed because the catalog asked.",
                   &link->counters().removals);
  const Announcer::Counters& announced = link->announcer_counters();
  list->AddCounter("firnkv_node_announced_batches_total",
                   "Announcement batches that were applied.",
                   &announced.batches);
  list->AddCounter("firnkv_node_announced_entries_total",
                   "Entries of applied announcement batches.",
                   &announced.entries);
  list->AddCounter("firnkv_node_announcement_retries_total",
                   "Announcement batches that were sent again.",
                   &announced.retries);
  list->AddCounter("firnkv_node_refused_entries_total",
                   "Copies that the catalog refused and that were let go.",
                   &announced.refused);
  list->AddCounter("firnkv_node_inventories_total",
                   "Full inventories that were begun.", &announced.inventories);
  list->AddCounter("firnkv_node_announcement_overflows_total",
                   "Times that the announcement log was full.",
                   &announced.overflows);
  list->AddCounter("firnkv_node_resumed_registrations_total",
                   "Registrations that the catalog had kept, and that needed "
                   "no inventory.",
                   &announced.resumed);
  list->AddCounter("firnkv_node_digest_compares_total",
                   "Comparisons of digests with the catalog.",
                   &announced.compares);
  list->AddCounter("firnkv_node_different_buckets_total",
                   "Buckets in which the catalog differed and was mended. "
                   "Alert on a rate.",
                   &announced.different_buckets);
  list->AddCounter("firnkv_node_repaired_entries_total",
                   "Copies told again to mend buckets.",
                   &announced.repaired_entries);
}

void DescribeCopies(const CopyFetcher* copies, MetricList* list) {
  AddByOutcome("firnkv_node_copies_total",
               "Blocks to be copied here from other nodes, by outcome.",
               copies->counters().blocks, list);
  list->AddCounter("firnkv_node_copied_bytes_total",
                   "Bytes of blocks that were copied here from other nodes.",
                   &copies->counters().bytes);
  list->AddCounter("firnkv_node_paused_copies_total",
                   "Runs of copies that were refused because the node to copy "
                   "from had failed a moment before.",
                   &copies->counters().paused);
  list->AddGauge("firnkv_node_copy_bytes_in_flight",
                 "Bytes on their way here from other nodes.",
                 [copies] { return static_cast<double>(copies->bytes()); });
}

void DescribePromotion(const Promoter* promoter, MetricList* list) {
  const Promoter::Counters& counters = promoter->counters();
  list->AddCounter("firnkv_node_noted_remote_reads_total",
                   "Blocks that local sessions read at other nodes.",
                   &counters.noted);
  list->AddCounter("firnkv_node_promoted_blocks_total",
                   "Blocks copied here because local sessions read them "
                   "elsewhere again.",
                   &counters.promoted);
  list->AddCounter("firnkv_node_promoted_bytes_total",
                   "Bytes of promoted blocks.", &counters.promoted_bytes);
  for (std::size_t i = 0; i < Promoter::kRefusals; ++i) {
    list->AddCounter(
        "firnkv_node_refused_promotions_total",
        "Blocks that were worth a copy and got none, by reason.",
        &counters.refused[i],
        {{"reason",
          std::string(Promoter::LabelOf(static_cast<Promoter::Refusal>(i)))}});
  }
}

void DescribeConnections(const NodeMetrics::Parts& parts,
                         const Counter* refused_call_connections,
                         MetricList* list) {
  list->AddGauge("firnkv_node_sessions", "Connections of local sessions.",
                 [sessions = parts.sessions] {
                   return static_cast<double>(sessions->connections());
                 });
  list->AddGauge(
      "firnkv_node_descriptors_in_flight",
      "Descriptors sent to sessions that have not received them.",
      [sessions = parts.sessions] {
        return static_cast<double>(sessions->descriptors_in_flight());
      });
  list->AddCounter("firnkv_node_refused_sessions_total",
                   "Local connections refused by a cap.",
                   &parts.sessions->counters().over_caps);
  list->AddCounter("firnkv_node_refused_call_connections_total",
                   "Local connections for gRPC calls refused by a cap.",
                   refused_call_connections);
  list->AddGauge("firnkv_node_stream_connections", "Stream connections.",
                 [streams = parts.streams] {
                   return static_cast<double>(streams->connections());
                 });
  list->AddCounter("firnkv_node_refused_streams_total",
                   "Stream connections refused by a cap.",
                   &parts.streams->counters().over_caps);
}

void DescribeDrain(const Drainer* drainer, MetricList* list) {
  list->AddGauge("firnkv_node_draining",
                 "0 serves, 1 moves blocks to other nodes, 2 ends.", [drainer] {
                   return static_cast<double>(drainer->report().state);
                 });
  list->AddCounter("firnkv_node_drain_moved_blocks_total",
                   "Blocks that other nodes took, or had, in a drain.",
                   &drainer->counters().moved_blocks);
  list->AddCounter("firnkv_node_drain_moved_bytes_total",
                   "Bytes that other nodes took, or had, in a drain.",
                   &drainer->counters().moved_bytes);
  list->AddCounter("firnkv_node_drain_left_blocks_total",
                   "Blocks of a drain's plan that no other node took.",
                   &drainer->counters().left_blocks);
  list->AddCounter("firnkv_node_drain_calls_total",
                   "Batches that a drain asked other nodes to fetch.",
                   &drainer->counters().calls);
  list->AddCounter("firnkv_node_drain_failed_calls_total",
                   "Batches of a drain that were not answered.",
                   &drainer->counters().failed_calls);
}

}  // namespace

std::vector<std::uint64_t> NodeMetrics::Outcomes() const {
  std::vector<std::uint64_t> sums(kLastOutcome + 1, 0);
  for (const ByOutcome* one :
       {&local_reads, &stream_reads, &reserves, &commits}) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += (*one)[i].value();
  }
  return sums;
}

void NodeMetrics::Describe(const Parts& parts, MetricList* list) const {
  AddByOutcome("firnkv_node_local_reads_total",
               "Keys of local OpenRead calls, by outcome.", local_reads, list);
  AddByOutcome("firnkv_node_stream_reads_total",
               "Keys of reads over the stream, by outcome.", stream_reads,
               list);
  AddByOutcome("firnkv_node_reserves_total", "Keys of Reserve, by outcome.",
               reserves, list);
  AddByOutcome("firnkv_node_commits_total", "Keys of Commit, by outcome.",
               commits, list);
  list->AddCounter("firnkv_node_stream_bytes_total",
                   "Payload handed to the stream.", &stream_bytes);
  list->AddCounter("firnkv_node_stream_received_bytes_total",
                   "Payload that came over the stream, wanted or not.",
                   &stream_received_bytes);
  list->AddCounter("firnkv_node_bad_requests_total",
                   "Calls and frames that were refused as malformed.",
                   &bad_requests);
  list->AddCounter("firnkv_node_frame_calls_total",
                   "Calls of local sessions that came as frames over their "
                   "socket, not as gRPC.",
                   &frame_calls);
  list->AddHistogram("firnkv_node_open_read_seconds",
                     "OpenRead, from its arrival to its answer.", &open_read);
  list->AddHistogram("firnkv_node_reserve_seconds",
                     "Reserve, from its arrival to its answer.", &reserve);
  list->AddHistogram("firnkv_node_commit_seconds",
                     "Commit, from its arrival to its answer.", &commit);
  list->AddHistogram("firnkv_node_stream_read_seconds",
                     "A read over the stream, from its arrival to the end of "
                     "its last byte's send.",
                     &stream_read);
  DescribePool(parts.pool, list);
  DescribeLink(parts.link, list);
  DescribeCopies(parts.copies, list);
  DescribePromotion(parts.promoter, list);
  list->AddGauge("firnkv_node_copy_queue_bytes",
                 "Committed bytes that wait to be copied.",
                 [copier = parts.copier] {
                   return static_cast<double>(copier->queued_bytes());
                 });
  list->AddGauge("firnkv_node_reservations", "Reservations that are alive.",
                 [reservations = parts.reservations] {
                   return static_cast<double>(reservations->totals().live);
                 });
  list->AddGauge("firnkv_node_staging_bytes",
                 "Clients' staging that is mapped.", [staging = parts.staging] {
                   return static_cast<double>(staging->mapped_bytes());
                 });
  DescribeConnections(parts, &refused_call_connections, list);
  DescribeDrain(parts.drainer, list);
}

}  // namespace firnkv
