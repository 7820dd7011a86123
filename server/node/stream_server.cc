#include "server/node/stream_server.h"

#include <algorithm>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

StreamServer::StreamServer(const Options& options,
                           const ServedConnection::Parts& parts)
    : options_(options), parts_(parts) {
  parts_.busy = &busy_;
}

StreamServer::~StreamServer() { Close(); }

absl::Status StreamServer::Listen(Network* network, std::string_view address) {
  absl::StatusOr<std::unique_ptr<ByteStreamListener>> listener =
      network->Listen(address, [this](std::unique_ptr<ByteStream> stream) {
        OnAccept(std::move(stream));
      });
  if (!listener.ok()) {
    return Annotate(listener.status(), StrCat("listen on ", address));
  }
  MutexLock lock(&mutex_);
  listener_ = *std::move(listener);
  return absl::OkStatus();
}

std::string StreamServer::address() const {
  MutexLock lock(&mutex_);
  return listener_ == nullptr ? std::string() : listener_->address();
}

void StreamServer::OnAccept(std::unique_ptr<ByteStream> stream) {
  counters_.accepted.Add();
  // Shared: see ConnectionPtr.
  ConnectionPtr silent;
  {
    MutexLock lock(&mutex_);
    // Who means it says hello at once, so of those that have not the one that
    // has been silent for longest makes room: else whoever opens connections
    // again and again would keep all others out.
    if (unidentified_ >= options_.max_unidentified) {
      const auto oldest = std::find_if(
          entries_.begin(), entries_.end(),
          [](const auto& entry) { return !entry.second.identified; });
      if (oldest != entries_.end()) silent = oldest->second.connection;
    }
  }
  if (silent != nullptr) {
    counters_.over_caps.Add();
    silent->Close(absl::ResourceExhaustedError("others wait to be heard"));
  }
  std::uint64_t number = 0;
  {
    MutexLock lock(&mutex_);
    // Silently: whoever floods us gets no answer to each of its connections.
    if (closed_ || entries_.size() >= options_.max_connections ||
        unidentified_ >= options_.max_unidentified) {
      counters_.over_caps.Add();
      return;
    }
    number = next_number_++;
    entries_[number] = Entry{};
    ++unidentified_;
  }
  // Shared: see ConnectionPtr.
  const auto connection = std::make_shared<ServedConnection>(
      options_.connection, parts_, std::move(stream),
      ServedConnection::Callbacks{
          .on_identified =
              [this, number](const TokenClaims& claims) {
                return OnIdentified(number, claims);
              },
          .on_closed = [this, number] { OnClosed(number); }});
  {
    MutexLock lock(&mutex_);
    const auto it = entries_.find(number);
    if (it == entries_.end()) return;  // Closed meanwhile.
    it->second.connection = connection;
  }
  connection->Start();
}

absl::Status StreamServer::OnIdentified(std::uint64_t number,
                                        const TokenClaims& claims) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(number);
  if (it == entries_.end() || it->second.identified) {
    return absl::CancelledError("the connection is closing");
  }
  std::size_t& of_tenant = by_tenant_[claims.tenant];
  if (of_tenant >= options_.max_connections_a_tenant) {
    counters_.over_caps.Add();
    return absl::ResourceExhaustedError(
        StrCat("the tenant has ", of_tenant, " connections already"));
  }
  ++of_tenant;
  --unidentified_;
  it->second.identified = true;
  it->second.tenant = claims.tenant;
  return absl::OkStatus();
}

void StreamServer::Uncount(const Entry& entry) {
  if (!entry.identified) {
    --unidentified_;
    return;
  }
  const auto it = by_tenant_.find(entry.tenant);
  if (--it->second == 0) by_tenant_.erase(it);
}

void StreamServer::OnClosed(std::uint64_t number) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(number);
  if (it == entries_.end()) return;
  Uncount(it->second);
  // Destroyed by a task: this may be a completion of its stream.
  dropped_.push_back(std::move(it->second.connection));
  entries_.erase(it);
  parts_.executor->Post(scope_.Wrap([this] { DropClosed(); }));
}

void StreamServer::DropClosed() {
  std::vector<ConnectionPtr> dropped;
  MutexLock lock(&mutex_);
  dropped.swap(dropped_);
}

std::size_t StreamServer::connections() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

void StreamServer::Close() {
  std::unique_ptr<ByteStreamListener> listener;
  absl::btree_map<std::uint64_t, Entry> entries;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    listener = std::move(listener_);
    entries.swap(entries_);
    by_tenant_.clear();
    unidentified_ = 0;
  }
  listener.reset();
  entries.clear();
  scope_.Close();
  DropClosed();
}

}  // namespace firnkv
