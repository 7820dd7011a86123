#include "server/node/node_options.h"

#include <string_view>
#include <utility>

#include "client/transport/socket_address.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/node/tenant_directory.h"

namespace firnkv {
namespace {

void DescribeNetwork(NodeOptions* options, OptionList* list) {
  list->Text("node.socket", &options->socket,
             {.help = "Unix socket of local sessions; their gRPC is beside it, "
                      "at this path with .control behind it."});
  list->Text(
      "node.stream", &options->stream,
      {.help = "host:port of the stream transport.", .check = CheckHostPort});
  list->Text("node.control", &options->control,
             {.help = "host:port of gRPC for administrators.",
              .check = CheckHostPort});
  list->Text("node.advertise_stream", &options->advertise_stream,
             {.help = "What others are told as the stream's address; empty: "
                      "where it listens.",
              .check = CheckHostPortOrEmpty});
  list->Text("node.advertise_control", &options->advertise_control,
             {.help = "As advertise_stream, for gRPC.",
              .check = CheckHostPortOrEmpty});
  list->Text("node.catalog", &options->catalog,
             {.help = "host:port of the catalog; empty: one embedded in this "
                      "process.",
              .check = CheckHostPortOrEmpty});
  list->Text("node.advertise_catalog", &options->advertise_catalog,
             {.help = "What sessions are told as the catalog's address; empty: "
                      "as node.catalog.",
              .check = CheckHostPortOrEmpty});
  list->Flag("node.plaintext_network", &options->plaintext_network,
             {.help = "Allow addresses beyond loopback without TLS."});
  list->Text("node.zone", &options->labels.zone,
             {.help = "Label: where the node stands, widest."});
  list->Text("node.rack", &options->labels.rack,
             {.help = "Label: where the node stands, narrower."});
  list->Text("node.host", &options->labels.host,
             {.help = "Label: the machine's name."});
  list->Duration("node.drain_timeout", &options->drain_timeout,
                 {.help = "How long SIGTERM waits for what is in flight.",
                  .least = absl::ZeroDuration(),
                  .most = absl::Minutes(10)});
}

void DescribeSessions(NodeOptions* options, OptionList* list) {
  list->List("sessions.uid_map", &options->uid_map,
             {.help = "UID=TENANT, one a line. Without any, only the node's "
                      "own uid is served, as tenant `default`.",
              .most = 4096,
              .check = [](std::string_view line) {
                return ParseUidMap({std::string(line)}).status();
              }});
  list->Text("sessions.trust_same_uid", &options->trust_same_uid,
             {.help = "Map the pool into processes of the node's own uid, "
                      "which could write to it. auto: only where there is no "
                      "uid map.",
              .one_of = {"auto", "true", "false"}});
  list->Count("sessions.max", &options->max_sessions,
              {.help = "Local sessions in all.", .least = 1, .most = 65536});
  list->Count(
      "sessions.max_a_uid", &options->max_sessions_a_uid,
      {.help = "Local sessions of one uid.", .least = 1, .most = 65536});
  list->Count("sessions.max_descriptors_in_flight",
              &options->max_descriptors_in_flight,
              {.help = "Descriptors on their way to clients at a time; keep it "
                       "far below nofile.",
               .least = 1,
               .most = 4096});
  list->Count("sessions.max_descriptors_in_flight_a_tenant",
              &options->max_descriptors_in_flight_a_tenant,
              {.help = "Of those, on their way to sessions of one tenant, also "
                       "of sessions that have ended without receiving them.",
               .least = 1,
               .most = 4096});
  list->Bytes("staging.max_bytes_a_session",
              &options->staging.max_bytes_a_session,
              {.help = "Staging that one session may lend.",
               .least = kMiB,
               .most = 1024 * kGiB});
  list->Bytes("staging.max_bytes_a_tenant",
              &options->staging.max_bytes_a_tenant,
              {.help = "Staging of all sessions of a tenant.",
               .least = kMiB,
               .most = 1024 * kGiB});
  list->Count(
      "staging.max_count_a_session", &options->staging.max_count_a_session,
      {.help = "Pieces of staging of one session.", .least = 1, .most = 4096});
  list->Count(
      "staging.max_count_a_tenant", &options->staging.max_count_a_tenant,
      {.help = "Pieces of staging of a tenant.", .least = 1, .most = 65536});
}

void DescribeMemory(NodeOptions* options, OptionList* list) {
  list->Bytes("dram.bytes", &options->dram_bytes,
              {.help = "Target size of the DRAM pool.",
               .least = 4 * kMiB,
               .most = 16 * 1024 * kGiB});
  list->Bytes("dram.region_bytes", &options->region_bytes,
              {.help = "Size of a region; 0B: 64 MiB below 4 GiB of DRAM, else "
                       "256 MiB.",
               .most = kGiB});
  list->Bytes("dram.reserve_bytes", &options->dram_reserve_bytes,
              {.help = "Memory left free below every limit of the machine and "
                       "of the cgroup.",
               .most = 1024 * kGiB});
  list->Flag("dram.huge_pages", &options->huge_pages,
             {.help = "Take the pool from reserved huge pages."});
}

void DescribeBounds(NodeOptions* options, OptionList* list) {
  list->Count("leases.max_slots", &options->leases.max_leased_slots,
              {.help = "Slots under read leases, counted once a lease.",
               .least = 1,
               .most = 1 << 26});
  list->Count(
      "leases.max_slots_a_session", &options->leases.max_leased_slots_a_session,
      {.help = "The same, of one session.", .least = 1, .most = 1 << 26});
  list->Count(
      "leases.max_slots_a_tenant", &options->leases.max_leased_slots_a_tenant,
      {.help = "The same, of one tenant.", .least = 1, .most = 1 << 26});
  list->Duration("leases.longest", &options->leases.longest,
                 {.help = "Longest read lease.",
                  .least = absl::Milliseconds(100),
                  .most = absl::Seconds(60)});
  list->Duration("leases.longest_view", &options->leases.longest_view,
                 {.help = "Hard age of a view; a session beyond it is closed.",
                  .least = absl::Milliseconds(100),
                  .most = absl::Minutes(5)});
  list->Bytes("reservations.max_bytes_a_session",
              &options->reservations.max_bytes_a_session,
              {.help = "Bytes that one session may have reserved.",
               .least = kMiB,
               .most = 1024 * kGiB});
  list->Bytes("reservations.max_bytes_a_tenant",
              &options->reservations.max_bytes_a_tenant,
              {.help = "Bytes that a tenant may have reserved.",
               .least = kMiB,
               .most = 1024 * kGiB});
  list->Duration("reservations.longest", &options->reservations.longest,
                 {.help = "Longest reservation.",
                  .least = absl::Milliseconds(100),
                  .most = absl::Minutes(2)});
  list->Bytes("copier.max_queued_bytes", &options->copier.max_queued_bytes,
              {.help = "Committed bytes that may wait to be copied; beyond, "
                       "Reserve is congested.",
               .least = kMiB,
               .most = 1024 * kGiB});
}

void DescribeStream(NodeOptions* options, OptionList* list) {
  list->Count("stream.threads", &options->stream_threads,
              {.help = "Threads that move the stream's bytes; connections are "
                       "dealt out among them. 0: one for each four processors, "
                       "at most 4.",
               .least = 0,
               .most = 64});
  list->Count(
      "stream.max_connections", &options->max_stream_connections,
      {.help = "Stream connections in all.", .least = 1, .most = 65536});
  list->Count(
      "stream.max_connections_a_tenant",
      &options->max_stream_connections_a_tenant,
      {.help = "Stream connections of a tenant.", .least = 1, .most = 65536});
  list->Duration("stream.longest_response", &options->longest_response,
                 {.help = "Wall deadline of a response, whatever the reader "
                          "asked for.",
                  .least = absl::Milliseconds(100),
                  .most = kLongestDeadline});
}

void DescribeAnnouncements(NodeOptions* options, OptionList* list) {
  list->Count("announcements.max_entries", &options->announcements.max_entries,
              {.help = "Events kept for the catalog, about 200 B each; beyond, "
                       "a full inventory replaces them.",
               .least = kMaxAnnouncementEntries,
               .most = 1 << 26});
  list->Duration("announcements.delay", &options->announcements.delay,
                 {.help = "How long the first event waits for others.",
                  .least = absl::ZeroDuration(),
                  .most = absl::Seconds(1)});
  list->Duration("announcements.compare_interval", &options->digests.interval,
                 {.help = "Between two comparisons of what the catalog knows "
                          "with what it was told, a quarter more or less.",
                  .least = absl::Seconds(1),
                  .most = absl::Hours(24)});
}

void DescribeCopies(NodeOptions* options, OptionList* list) {
  list->Flag("promotion.enabled", &options->promotion.on,
             {.help = "Fetch copies of blocks that this node's sessions read "
                      "at other nodes again and again."});
  list->Duration("promotion.window", &options->promotion.policy.window,
                 {.help = "A second read within so long after the first one "
                          "makes a block worth a copy.",
                  .least = absl::Seconds(1),
                  .most = absl::Hours(24)});
  list->Count("promotion.max_notes", &options->promotion.policy.max_notes,
              {.help = "Blocks of which the first read is remembered, about "
                       "200 B each.",
               .least = 1,
               .most = 1 << 26});
  list->Count(
      "promotion.max_notes_a_tenant",
      &options->promotion.policy.max_notes_a_tenant,
      {.help = "The same, of one tenant.", .least = 1, .most = 1 << 26});
  list->Bytes("copies.max_bytes", &options->copies.max_bytes,
              {.help = "Bytes of other nodes' copies on their way here, from "
                       "all of them together.",
               .least = kMiB,
               .most = 1024 * kGiB});
  list->Bytes(
      "copies.max_bytes_a_peer", &options->copies.max_bytes_a_peer,
      {.help = "The same, from one node.", .least = kMiB, .most = 1024 * kGiB});
}

}  // namespace

void Describe(NodeOptions* options, OptionList* list) {
  DescribeNetwork(options, list);
  DescribeSessions(options, list);
  DescribeMemory(options, list);
  DescribeBounds(options, list);
  DescribeStream(options, list);
  DescribeAnnouncements(options, list);
  DescribeCopies(options, list);
}

std::uint64_t RegionBytes(const NodeOptions& options) {
  if (options.region_bytes != 0) return options.region_bytes;
  return options.dram_bytes < 4 * kGiB ? 64 * kMiB : 256 * kMiB;
}

bool TrustSameUid(const NodeOptions& options) {
  if (options.trust_same_uid == "auto") return options.uid_map.empty();
  return options.trust_same_uid == "true";
}

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  // A name may resolve to anything.
  const bool numeric =
      host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "[::1]" || host == "::1" ||
         (numeric && host.rfind("127.", 0) == 0);
}

namespace {

// Every address of this host, and so no address for others: who is told it
// reaches its own host there.
bool IsWildcard(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "0.0.0.0" || host == "[::]";
}

absl::Status ValidateListen(const NodeOptions& options, std::string_view which,
                            const std::string& address,
                            const std::string& advertised) {
  if (!options.plaintext_network && !IsLoopback(address)) {
    return absl::InvalidArgumentError(
        StrCat("node.", which, " is ", address,
               ", beyond loopback, where bytes would go in plain text; if "
               "that network is trusted, set node.plaintext_network: true"));
  }
  if (IsWildcard(address) && advertised.empty()) {
    return absl::InvalidArgumentError(
        StrCat("node.", which, " is ", address,
               ", where no other host finds it; set node.advertise_", which,
               " to the address of this host that others use"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const NodeOptions& options) {
  RETURN_IF_ERROR(ParseUidMap(options.uid_map).status());
  RETURN_IF_ERROR(ValidateListen(options, "stream", options.stream,
                                 options.advertise_stream));
  RETURN_IF_ERROR(ValidateListen(options, "control", options.control,
                                 options.advertise_control));
  const std::uint64_t region = RegionBytes(options);
  if (region % (64 * kPageBytes) != 0) {
    return absl::InvalidArgumentError(
        StrCat("dram.region_bytes ", FormatBytes(region), " is no multiple of ",
               FormatBytes(64 * kPageBytes)));
  }
  if (region > options.dram_bytes) {
    return absl::InvalidArgumentError(
        StrCat("dram.bytes ", FormatBytes(options.dram_bytes),
               " holds no region of ", FormatBytes(region)));
  }
  return absl::OkStatus();
}

}  // namespace firnkv
