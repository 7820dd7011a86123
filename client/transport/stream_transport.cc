#include "client/transport/stream_transport.h"

#include <algorithm>
#include <utility>

namespace firnkv {
namespace {

// How what could not be begun ends.
std::pair<StreamEnd, absl::Status> NotBegun(const StreamPeer& peer,
                                            bool closed) {
  if (closed) {
    return {StreamEnd::kCancelled,
            absl::CancelledError("the Client was closed")};
  }
  return {StreamEnd::kUnreachable,
          absl::UnavailableError("no connection to " + peer.address)};
}

}  // namespace

StreamTransport::StreamTransport(const Seams* seams, const Options& options,
                                 std::function<StreamCredentials()> credentials)
    : seams_(seams), options_(options), credentials_(std::move(credentials)) {}

StreamTransport::~StreamTransport() { Close(); }

std::optional<StreamTransport::Ticket> StreamTransport::Start(
    const StreamPeer& peer, Use use, Begin begin, bool* closed) {
  // A connection may break between its choice and its use; another one is made
  // then, once.
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::shared_ptr<StreamConnection> connection;
    bool fresh = false;
    Connections dead;
    {
      MutexLock lock(&mutex_);
      *closed = closed_;
      if (!closed_) connection = Choose(peer, use, &fresh, &dead);
    }
    Bury(std::move(dead));
    if (connection == nullptr) break;
    if (fresh) connection->Connect(options_.connect_timeout);
    LentStreams* const here = LentStreams::Here();
    if (here != nullptr && connection->keeper() == here) {
      connection->LendTo(here);
    }
    const auto id = begin(connection.get());
    connection->Unclaim();
    if (id) return Ticket{.connection = connection, .id = *id};
    if (fresh) break;
  }
  return std::nullopt;
}

StreamTransport::Ticket StreamTransport::StartRead(
    const StreamPeer& peer, StreamRead read, std::shared_ptr<StreamSink> sink) {
  bool closed = false;
  const std::optional<Ticket> ticket = Start(
      peer, Use::kRead,
      [&](StreamConnection* connection) {
        return connection->StartRead(read, sink);
      },
      &closed);
  if (ticket) return *ticket;
  const auto [end, why] = NotBegun(peer, closed);
  sink->OnEnd(end, why);
  return {};
}

StreamTransport::Ticket StreamTransport::StartWrite(
    const StreamPeer& peer, const StreamWrite& write,
    const std::shared_ptr<StreamWriteSink>& sink) {
  bool closed = false;
  const std::optional<Ticket> ticket = Start(
      peer, Use::kWrite,
      [&](StreamConnection* connection) {
        return connection->StartWrite(write, sink);
      },
      &closed);
  if (ticket) return *ticket;
  const auto [end, why] = NotBegun(peer, closed);
  sink->OnEnd(end, why);
  return {};
}

bool StreamTransport::SendBlock(const Ticket& ticket, StreamBlock block) {
  const auto connection = ticket.connection.lock();
  return connection != nullptr &&
         connection->SendBlock(ticket.id, std::move(block));
}

std::shared_ptr<StreamConnection> StreamTransport::Choose(
    const StreamPeer& peer, Use use, bool* fresh, Connections* dead) {
  Connections& all = nodes_[{peer.address, use}];
  StreamCredentials credentials = credentials_();
  const auto gone = std::stable_partition(
      all.begin(), all.end(), [&](const auto& connection) {
        // One to an earlier run of the node ends by itself; it serves nothing.
        // Nor does one long that came with another token: that ends too.
        return connection->open() && connection->peer().node == peer.node &&
               connection->peer().epoch == peer.epoch &&
               (connection->token() == credentials.token ||
                connection->load() > 0);
      });
  connections_ -= static_cast<std::size_t>(all.end() - gone);
  std::move(gone, all.end(), std::back_inserter(*dead));
  all.erase(gone, all.end());

  Shared shared;
  if (auto chosen = ChooseShared(all, &shared)) return chosen;
  if (connections_ >= options_.max_connections && !DropIdle(dead)) {
    if (shared.least != nullptr) shared.least->Claim();
    return shared.least;
  }
  // Shared: see stream_connection.h.
  auto connection = std::make_shared<StreamConnection>(
      StreamConnection::Parts{.seams = seams_, .counters = &counters_}, peer,
      std::move(credentials));
  // DropIdle may have taken from `all`, but keeps it in its place.
  all.push_back(connection);
  ++connections_;
  *fresh = true;
  connection->Claim();
  return connection;
}

// Shared: see Connections.
std::shared_ptr<StreamConnection> StreamTransport::ChooseShared(
    const Connections& all, Shared* shared) const {
  LentStreams* const here = LentStreams::Here();
  std::size_t kept = 0;
  std::size_t others = 0;
  for (const auto& connection : all) {
    const LentStreams* const keeper = connection->keeper();
    if (keeper != nullptr && keeper != here) {
      ++kept;
      continue;
    }
    ++others;
    if (shared->least == nullptr ||
        connection->load() < shared->least->load()) {
      shared->least = connection;
    }
  }
  const bool more =
      others < static_cast<std::size_t>(options_.connections_per_node);
  if (shared->least == nullptr) return nullptr;
  if (shared->least->load() > 0 && more) return nullptr;
  if (here != nullptr && here->usable() &&
      kept < static_cast<std::size_t>(options_.kept_per_node)) {
    // Idle or its own; else it is shared.
    shared->least->KeepFor(here);
  }
  shared->least->Claim();
  return shared->least;
}

bool StreamTransport::DropIdle(Connections* dead) {
  for (auto& [address, all] : nodes_) {
    const auto idle = std::find_if(all.begin(), all.end(), [](const auto& one) {
      return one->load() == 0 && one->keeper() == nullptr;
    });
    if (idle == all.end()) continue;
    dead->push_back(*idle);
    all.erase(idle);
    --connections_;
    return true;
  }
  return false;
}

void StreamTransport::Bury(Connections dead) {
  if (dead.empty()) return;
  {
    MutexLock lock(&mutex_);
    std::move(dead.begin(), dead.end(), std::back_inserter(buried_));
  }
  seams_->executor->Post(scope_.Wrap([this] {
    Connections destroyed;
    {
      MutexLock lock(&mutex_);
      destroyed.swap(buried_);
    }
    for (const auto& connection : destroyed) connection->Destroy();
  }));
}

void StreamTransport::Cancel(const Ticket& ticket, absl::Duration grace) {
  if (const auto connection = ticket.connection.lock()) {
    connection->Cancel(ticket.id, grace);
  }
}

void StreamTransport::Close() {
  Connections all;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    all.swap(buried_);
    for (auto& [address, connections] : nodes_) {
      std::move(connections.begin(), connections.end(),
                std::back_inserter(all));
    }
    nodes_.clear();
    connections_ = 0;
  }
  for (const auto& connection : all) connection->Destroy();
  scope_.Close();
}

}  // namespace firnkv
