#include "server/node/node.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// How often a drain looks whether something is still in flight.
constexpr absl::Duration kDrainLook = absl::Milliseconds(20);
// Of a planned drain's time, what is kept for leaving and for reads that run.
constexpr absl::Duration kEndingTime = absl::Seconds(2);
// What telling the catalog may take.
constexpr absl::Duration kShortestLeave = absl::Milliseconds(20);
constexpr absl::Duration kLongestLeave = absl::Seconds(1);

ClusterId ClusterOf(const Node::Parts& parts) {
  return parts.cluster.IsZero() ? parts.state->memory().cluster : parts.cluster;
}

std::unique_ptr<ControlChannel> CatalogChannel(const NodeOptions& options,
                                               const Seams& seams,
                                               Node::Parts* parts) {
  if (parts->catalog != nullptr) return std::move(parts->catalog);
  return seams.control->Connect(options.catalog);
}

}  // namespace

Node::Node(const NodeOptions& options, const Seams& seams, Parts parts)
    : options_(options),
      seams_(seams),
      parts_(std::move(parts)),
      silent_(Logger::Options{}, seams.clock, nullptr),
      log_(parts_.log == nullptr ? &silent_ : parts_.log),
      credentials_(parts_.secret, ClusterOf(parts_), seams.clock),
      announcements_(options.announcements, seams.executor),
      notices_(seams.executor),
      descriptors_({.in_all = options.max_descriptors_in_flight,
                    .a_key = options.max_descriptors_in_flight_a_tenant}) {
  CHECK(Validate(options).ok());
  address_.node = parts_.state->memory().node;
  address_.epoch = NodeEpoch{seams.random->NonZero64()};
  address_.labels = options.labels;
  MakePool();
  MakePaths();
  MakeCopies();
  MakeStreams();
  MakeServers();
}

void Node::MakePool() {
  PoolOptions options;
  options.epoch = address_.epoch;
  options.target_bytes = options_.dram_bytes;
  options.region_bytes = RegionBytes(options_);
  options.reserve_bytes = options_.dram_reserve_bytes;
  options.leases = options_.leases;
  options.huge_pages = options_.huge_pages;
  pool_ = std::make_unique<DramPool>(
      options, DramPool::Parts{.clock = seams_.clock,
                               .executor = seams_.executor,
                               .memory = seams_.memory,
                               .limits = parts_.limits,
                               .events = &announcements_,
                               .hooks = &notices_});
}

void Node::MakePaths() {
  catalog_ = std::make_unique<NodeCatalogClient>(
      CatalogChannel(options_, seams_, &parts_), &credentials_);
  tenants_ = std::make_unique<TenantDirectory>(
      TenantDirectory::Options{.uid_map = *ParseUidMap(options_.uid_map),
                               .own_uid = options_.own_uid},
      catalog_.get());
  namespaces_ = std::make_unique<NamespaceCache>(
      options_.namespaces, catalog_.get(), seams_.clock,
      [this](const NamespaceFacts& facts) {
        pool_->SetClearEpoch(facts.name_space, facts.clear_epoch);
        tenants_->Learn(facts.tenant, facts.tenant_name);
      });
  checks_ = std::make_unique<CopyChecks>(
      CopyChecks::Options{},
      CopyChecks::Parts{.executor = seams_.executor, .pool = pool_.get()});
  copier_ = std::make_unique<Copier>(
      options_.copier, Copier::Parts{.pool = pool_.get(),
                                     .executor = seams_.executor,
                                     .foreground_busy = [this] {
                                       return streams_ != nullptr &&
                                              streams_->busy();
                                     }});
  reservations_ = std::make_unique<Reservations>(
      options_.reservations, Reservations::Parts{.pool = pool_.get(),
                                                 .copier = copier_.get(),
                                                 .executor = seams_.executor});
  staging_ = std::make_unique<Staging>(options_.staging);
  link_ = std::make_unique<CatalogLink>(
      CatalogLink::Options{.address = &address_,
                           .version = options_.version,
                           .announcer = {.digests = options_.digests}},
      CatalogLink::Parts{.executor = seams_.executor,
                         .random = seams_.random,
                         .log = log_,
                         .catalog = catalog_.get(),
                         .credentials = &credentials_,
                         .state = parts_.state,
                         .announcements = &announcements_,
                         .namespaces = namespaces_.get(),
                         .pool = pool_.get()},
      [this] { OnSuperseded(); });
  reads_ = std::make_unique<ReadPath>(
      ReadPath::Options{}, ReadPath::Parts{.executor = seams_.executor,
                                           .namespaces = namespaces_.get(),
                                           .registry = &registry_,
                                           .pool = pool_.get(),
                                           .checks = checks_.get(),
                                           .metrics = &metrics_});
  writes_ = std::make_unique<WritePath>(
      WritePath::Parts{.executor = seams_.executor,
                       .namespaces = namespaces_.get(),
                       .registry = &registry_,
                       .reservations = reservations_.get(),
                       .staging = staging_.get(),
                       .link = link_.get(),
                       .metrics = &metrics_});
}

void Node::MakeCopies() {
  copies_ = std::make_unique<CopyFetcher>(
      options_.copies, CopyFetcher::Parts{.seams = &seams_,
                                          .credentials = &credentials_,
                                          .namespaces = namespaces_.get(),
                                          .pool = pool_.get()});
  promoter_ = std::make_unique<Promoter>(
      options_.promotion, Promoter::Parts{.clock = seams_.clock,
                                          .random = seams_.random,
                                          .self = address_.node,
                                          .namespaces = namespaces_.get(),
                                          .catalog = catalog_.get(),
                                          .pool = pool_.get(),
                                          .copies = copies_.get()});
}

void Node::MakeStreams() {
  StreamServer::Options streams;
  streams.max_connections = options_.max_stream_connections;
  streams.max_connections_a_tenant = options_.max_stream_connections_a_tenant;
  streams.connection.node = address_.node;
  streams.connection.epoch = address_.epoch;
  streams.connection.longest_response = options_.longest_response;
  streams_ = std::make_unique<StreamServer>(
      streams, ServedConnection::Parts{.executor = seams_.executor,
                                       .log = log_,
                                       .credentials = &credentials_,
                                       .namespaces = namespaces_.get(),
                                       .pool = pool_.get(),
                                       .checks = checks_.get(),
                                       .metrics = &metrics_,
                                       .link = link_.get(),
                                       .writes = writes_.get(),
                                       .reservations = reservations_.get(),
                                       .registry = &registry_,
                                       .random = seams_.random});
}

void Node::MakeServers() {
  SessionListener::Options sessions;
  sessions.max_sessions = options_.max_sessions;
  sessions.max_sessions_a_uid = options_.max_sessions_a_uid;
  sessions.session.own_uid = options_.own_uid;
  sessions.session.trust_same_uid = TrustSameUid(options_);
  sessions.session.address = &address_;
  sessions.session.catalog_address = options_.advertise_catalog.empty()
                                         ? options_.catalog
                                         : options_.advertise_catalog;
  sessions.session.control_address =
      StrCat("unix:", options_.socket, ".control");
  sessions.session.region_bytes = RegionBytes(options_);
  sessions.session.max_staging_bytes = options_.staging.max_bytes_a_session;
  sessions.session.max_stagings =
      static_cast<std::uint32_t>(options_.staging.max_count_a_session);
  sessions_ = std::make_unique<SessionListener>(
      sessions, SessionSocket::Parts{.executor = seams_.executor,
                                     .random = seams_.random,
                                     .log = log_,
                                     .credentials = &credentials_,
                                     .tenants = tenants_.get(),
                                     .registry = &registry_,
                                     .descriptors = &descriptors_,
                                     .pool = pool_.get(),
                                     .reservations = reservations_.get(),
                                     .staging = staging_.get(),
                                     .calls = {.clock = seams_.clock,
                                               .reads = reads_.get(),
                                               .writes = writes_.get(),
                                               .metrics = &metrics_}});
  notices_.SetSessions(sessions_.get());
  housekeeper_ = std::make_unique<Housekeeper>(
      options_.housekeeper, Housekeeper::Parts{.executor = seams_.executor,
                                               .pool = pool_.get(),
                                               .staging = staging_.get(),
                                               .sessions = sessions_.get()});
  drainer_ = std::make_unique<Drainer>(
      Drainer::Options{}, Drainer::Parts{.executor = seams_.executor,
                                         .control = seams_.control,
                                         .log = log_,
                                         .catalog = catalog_.get(),
                                         .credentials = &credentials_,
                                         .pool = pool_.get(),
                                         .address = &address_});
  service_ = std::make_unique<NodeService>(
      NodeService::Options{.address = &address_, .version = options_.version},
      NodeService::Parts{.clock = seams_.clock,
                         .log = log_,
                         .credentials = &credentials_,
                         .registry = &registry_,
                         .tenants = tenants_.get(),
                         .reads = reads_.get(),
                         .writes = writes_.get(),
                         .copies = copies_.get(),
                         .promoter = promoter_.get(),
                         .pool = pool_.get(),
                         .drainer = drainer_.get(),
                         .reservations = reservations_.get(),
                         .staging = staging_.get(),
                         .announcements = &announcements_,
                         .link = link_.get(),
                         .metrics = &metrics_},
      [this](const DrainPlan& plan) { return AskDrain(plan); });
}

absl::Status Node::Start(const std::string& control_address) {
  const ClusterId remembered = parts_.state->memory().cluster;
  if (!remembered.IsZero() && remembered != credentials_.cluster()) {
    return absl::FailedPreconditionError(
        StrCat("this data directory is of cluster ", ToHex(remembered),
               ", the catalog of ", ToHex(credentials_.cluster())));
  }
  RETURN_IF_ERROR(streams_->Listen(seams_.network, options_.stream));
  address_.stream_address = options_.advertise_stream.empty()
                                ? streams_->address()
                                : options_.advertise_stream;
  address_.control_address = options_.advertise_control.empty()
                                 ? control_address
                                 : options_.advertise_control;
  RETURN_IF_ERROR(sessions_->Listen(seams_.sockets, options_.socket));
  credentials_.Outdate(parts_.state->memory().seen.credentials);
  credentials_.SetOnOutdated([this] {
    // They come again, and get a token that is good.
    sessions_->EndAll(absl::UnavailableError(
        "the catalog's restore was accepted: connect again"));
  });
  link_->Start();
  housekeeper_->Start();
  return absl::OkStatus();
}

Node::~Node() {
  // First whatever begins something, then what it waits for: an answer that
  // comes on the way finds everything that it needs.
  service_->StopServing();
  scope_.Close();
  drainer_->Close();
  housekeeper_->Stop();
  notices_.Close();
  sessions_->Close();
  streams_->Close();
  copies_->Close();
  link_->Stop();
  catalog_->Close();
  checks_->Close();
  pool_->CancelWaiting();
  copier_->Drain();
}

void Node::OnSuperseded() {
  service_->StopServing();
  sessions_->Close();
  streams_->Close();
  copies_->Close();
  if (parts_.on_superseded) parts_.on_superseded();
}

absl::Status Node::AskDrain(const DrainPlan& plan) {
  const BootTime now = seams_.clock->Now();
  const BootTime deadline =
      now + (plan.deadline > absl::ZeroDuration() ? plan.deadline
                                                  : options_.drain_timeout);
  log_->Write(Severity::kNotice, "drain_asked",
              {{"deadline", absl::FormatDuration(deadline - now)},
               {"move_bytes", plan.move_bytes}});
  if (plan.move_bytes == 0) {
    drainer_->End(deadline);
    EndAsked();
    return absl::OkStatus();
  }
  const BootTime moves_end =
      deadline - std::min(kEndingTime, (deadline - now) / 4);
  RETURN_IF_ERROR(drainer_->StartMoving(plan.move_bytes, moves_end, deadline,
                                        [this] { EndAsked(); }));
  // What is written from now on would be lost.
  writes_->StopReserving();
  return absl::OkStatus();
}

void Node::EndAsked() {
  seams_.executor->Post(scope_.Wrap([this] {
    if (parts_.on_drain) return parts_.on_drain();
    StartDrain(seams_.clock->Now() + drainer_->report().time_left, [] {});
  }));
}

void Node::StartDrain(BootTime deadline, absl::AnyInvocable<void() &&> done) {
  drainer_->End(deadline);
  writes_->StopReserving();
  copies_->StopTaking();
  sessions_->StopAccepting();
  // A writer that does not end must not keep this run from leaving.
  const absl::Duration left = deadline - seams_.clock->Now();
  const absl::Duration leaving =
      std::clamp(left / 4, kShortestLeave, kLongestLeave);
  Await(&Node::WritesAreOver, deadline - leaving,
        [this, deadline, leaving, done = std::move(done)]() mutable {
          link_->Leave(leaving, [this, deadline, done = std::move(done)](
                                    absl::Status left) mutable {
            Await(&Node::AllIsQuiet, deadline,
                  [this, left, done = std::move(done)]() mutable {
                    LogDrained(left);
                    std::move(done)();
                  });
          });
        });
}

bool Node::WritesAreOver() const {
  // A catalog that is away is not waited for: it would be told of copies that
  // this node is about to drop.
  const bool told = announcements_.pending() == 0 ||
                    link_->state() != CatalogLink::State::kRegistered;
  return reservations_->totals().live == 0 && told;
}

bool Node::AllIsQuiet() const {
  return reservations_->totals().live == 0 &&
         streams_->reads_in_flight() == 0 && pool_->Snapshot().holds == 0;
}

void Node::Await(bool (Node::*over)() const, BootTime deadline,
                 absl::AnyInvocable<void() &&> done) {
  const BootTime now = seams_.clock->Now();
  const bool ends = (this->*over)() || now >= deadline;
  seams_.executor->PostAt(ends ? now : std::min(deadline, now + kDrainLook),
                          scope_.Wrap([this, over, deadline, ends,
                                       done = std::move(done)]() mutable {
                            if (ends) return std::move(done)();
                            Await(over, deadline, std::move(done));
                          }));
}

void Node::LogDrained(const absl::Status& left) const {
  const DrainReport report = drainer_->report();
  const PoolSnapshot pool = pool_->Snapshot();
  log_->Write(Severity::kNotice, "drained",
              {{"moved_blocks", report.moved_blocks},
               {"moved_bytes", report.moved_bytes},
               {"left_blocks", report.left_blocks},
               {"dropped_blocks",
                pool.blocks - std::min(pool.blocks, report.moved_blocks)},
               {"trouble", report.trouble},
               {"unregistered", left.ok() ? "yes" : left.ToString()},
               {"reservations_cut", reservations_->totals().live},
               {"transfers_cut", pool.holds}});
}

std::vector<SlotHeader> Node::Residents() const {
  constexpr std::size_t kStep = 4096;
  std::vector<SlotHeader> copies;
  std::uint32_t cursor = 0;
  while (pool_->EachResident(&cursor, kStep, [&](const SlotHeader& header) {
    copies.push_back(header);
  })) {
  }
  return copies;
}

void Node::DescribeMetrics(MetricList* list) const {
  metrics_.Describe({.pool = pool_.get(),
                     .link = link_.get(),
                     .copier = copier_.get(),
                     .copies = copies_.get(),
                     .promoter = promoter_.get(),
                     .reservations = reservations_.get(),
                     .sessions = sessions_.get(),
                     .staging = staging_.get(),
                     .streams = streams_.get(),
                     .drainer = drainer_.get()},
                    list);
  list->AddCounter("firnkv_node_checked_copies_total",
                   "Copies that readers found corrupt and that this node "
                   "checked for itself.",
                   &checks_->counters().checked);
  list->AddCounter("firnkv_node_refused_checks_total",
                   "Copies that readers found corrupt and that were not "
                   "checked, because too many waited.",
                   &checks_->counters().refused);
  list->AddCounter("firnkv_node_overdue_views_total",
                   "Sessions closed for a view beyond its hard age.",
                   &housekeeper_->overdue_views());
  list->AddCounter("firnkv_node_overdue_mappings_total",
                   "Sessions closed because they kept a region mapped that was "
                   "wanted back.",
                   &housekeeper_->overdue_mappings());
}

}  // namespace firnkv
