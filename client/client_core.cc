#include "client/client_core.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "proto/base/text.h"

namespace firnkv {
namespace {

Session::Options SessionOptions(const ClientOptions& options) {
  Session::Options out;
  out.socket_path = options.socket_path;
  out.token = options.token;
  out.client_name = options.client_name;
  out.server_uids = {::geteuid()};
  if (options.server_uid) out.server_uids.push_back(*options.server_uid);
  out.want_mapping = options.map_local_blocks;
  out.call_frames = options.call_frames ? kCallFrames : 0;
  return out;
}

}  // namespace

Client::Core::Core(ClientOptions options, const Seams& seams)
    : options_(std::move(options)),
      seams_(seams),
      pid_(::getpid()),
      poison_([this](std::string_view line) { Log(line); }),
      bounce_(options_.bounce_bytes),
      router_(seams_.clock, seams_.random),
      locations_(options_.max_locations, options_.location_life, seams_.clock),
      node_(&seams_, &counters_),
      session_(
          {.seams = &seams_,
           .counters = &counters_,
           .node = &node_,
           .on_begin =
               [this](const Session::Welcome& welcome) { OnSession(welcome); },
           .log = [this](std::string_view line) { Log(line); }},
          SessionOptions(options_)),
      catalog_(&seams_, &counters_, [this] { return Token(); }),
      staging_(&seams_,
               {.own_bytes = options_.staging_bytes,
                .shared_bytes = options_.shared_bytes},
               [this](std::shared_ptr<SharedMemory> memory) {
                 return session_.AddStaging(std::move(memory));
               }),
      streams_(&seams_,
               {.connections_per_node = options_.streams_per_node,
                .connect_timeout = options_.stream_connect_timeout},
               [this] { return Credentials(); }),
      probes_(&seams_, &counters_, &router_, &streams_),
      remote_reads_(&seams_, &counters_, &node_, &locations_) {
  parts_.options = &options_;
  parts_.seams = &seams_;
  parts_.counters = &counters_;
  parts_.node = &node_;
  parts_.catalog = &catalog_;
  parts_.session = &session_;
  parts_.staging = &staging_;
  parts_.streams = &streams_;
  parts_.locations = &locations_;
  parts_.router = &router_;
  parts_.probes = &probes_;
  parts_.remote_reads = &remote_reads_;
  parts_.retries = &retries_;
  parts_.epochs = &epochs_;
  parts_.bounce = &bounce_;
  parts_.operations = &operations_;
  parts_.poison = &poison_;
  parts_.scope = &scope_;
  // Shared: see ViewTie.
  parts_.views = std::make_shared<ViewTie>(
      parts_, pid_, options_.check_views.value_or(ChecksViewsByDefault()));
  if (!options_.catalog_address.empty()) {
    catalog_.SetAddress(options_.catalog_address, ClusterId{});
  }
  router_.SetOwnLabels(options_.labels);
}

Client::Core::~Core() { Close(); }

void Client::Core::Start() {
  if (!options_.socket_path.empty()) session_.Start();
}

// Operations first: their callers hear kCancelled. Open views have no Client
// from then on. Then what they wait for,
// part by part; once all have ended, nothing touches a caller's buffer.
void Client::Core::Close() {
  operations_.Close();
  parts_.views->Close();
  session_.Close();
  probes_.Close();
  remote_reads_.Close();
  streams_.Close();
  catalog_.Close();
  node_.Close();
  staging_.Close();
  scope_.Close();
  if (!operations_.empty()) {
    poison_.Break("an operation has outlived its Client");
  }
}

bool Client::Core::forked() const { return ::getpid() != pid_; }

void Client::Core::OnSession(const Session::Welcome& welcome) {
  router_.SetOwnLabels(welcome->labels);
  catalog_.SetAddress(options_.catalog_address.empty()
                          ? welcome->catalog_address
                          : options_.catalog_address,
                      welcome->handshake.cluster);
}

StreamCredentials Client::Core::Credentials() const {
  StreamCredentials credentials;
  credentials.token = Token();
  credentials.cluster = catalog_.cluster();
  return credentials;
}

std::string Client::Core::Token() const {
  const bool own = options_.socket_path.empty() && options_.token_source;
  return own ? options_.token_source() : session_.token();
}

Client::About Client::Core::Describe() const {
  About about;
  about.token = Token();
  about.catalog_address = catalog_.address();
  about.cluster = catalog_.cluster();
  const Session::Welcome welcome = session_.welcome();
  if (welcome == nullptr) return about;
  about.session = true;
  about.node = welcome->node;
  about.tenant = welcome->tenant;
  about.tenant_name = welcome->tenant_name;
  about.labels = welcome->labels;
  about.mapping = welcome->mapping;
  about.largest_block_bytes = welcome->largest_block_bytes;
  return about;
}

void Client::Core::Log(std::string_view line) const {
  if (options_.log) options_.log(line);
}

}  // namespace firnkv
