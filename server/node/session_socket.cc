#include "server/node/session_socket.h"

#include <algorithm>
#include <utility>

#include "proto/base/limits.h"
#include "proto/base/request.h"
#include "proto/base/session_frame.h"
#include "proto/base/slot_header.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "proto/session.pb.h"
#include "server/node/scoped_answer.h"

namespace firnkv {
namespace {

// What a descriptor is of (session.proto).
constexpr std::uint32_t kPoolRegion = 0;
constexpr std::uint32_t kHeaderTable = 1;

absl::Status Broken(std::string_view what) {
  return absl::InvalidArgumentError(StrCat("protocol: ", what));
}

}  // namespace

SessionSocket::SessionSocket(const Options& options, const Parts& parts,
                             std::unique_ptr<LocalSocket> socket,
                             ConnectionCounts::Receipt place,
                             absl::AnyInvocable<void() &&> on_ended)
    : options_(options),
      parts_(parts),
      place_(std::move(place)),
      on_ended_(std::move(on_ended)),
      socket_(std::move(socket)) {}

SessionSocket::~SessionSocket() {
  End(absl::UnavailableError("the node is closing"));
  scope_.Close();
}

void SessionSocket::Start() {
  {
    MutexLock lock(&mutex_);
    hello_timer_ = parts_.executor->PostAt(
        parts_.executor->clock()->Now() + options_.hello_timeout,
        scope_.Wrap([this] {
          {
            MutexLock lock(&mutex_);
            if (state_ != State::kHello) return;
          }
          End(absl::DeadlineExceededError("no hello"));
        }));
  }
  socket_->Start(
      {.on_message =
           [this](std::string message, std::shared_ptr<SharedMemory> memory) {
             OnMessage(message, std::move(memory));
           },
       .on_closed = [this](const absl::Status& why) { End(why); },
       // Holds the place until it is destroyed; nothing else is to do.
       .on_gone = [place = std::move(place_)] {}});
}

void SessionSocket::OnMessage(const std::string& message,
                              std::shared_ptr<SharedMemory> memory) {
  State state;
  {
    MutexLock lock(&mutex_);
    state = state_;
  }
  if (state == State::kEnded) return;
  const absl::Status status = Decode(state, message, std::move(memory));
  if (!status.ok()) End(status);
}

absl::Status SessionSocket::Decode(State state, const std::string& message,
                                   std::shared_ptr<SharedMemory> memory) {
  if (BeginsFrame(message)) {
    return memory == nullptr ? OnFrame(message)
                             : Broken("a descriptor that nobody asked for");
  }
  v1::ClientMessage decoded;
  if (message.size() > kMaxSessionMessageBytes ||
      !decoded.ParseFromString(message)) {
    return Broken("not a message");
  }
  switch (state) {
    case State::kHello:
      return decoded.has_hello() && memory == nullptr
                 ? OnHello(decoded.hello())
                 : Broken("the first message is not a hello");
    case State::kAsking:
      return Broken("a message before the welcome");
    case State::kLive:
      return OnLiveMessage(decoded, std::move(memory));
    case State::kEnded:
      break;
  }
  return absl::OkStatus();
}

absl::Status SessionSocket::OnFrame(std::string_view packet) {
  SessionCalls* calls = nullptr;
  {
    MutexLock lock(&mutex_);
    calls = calls_.get();
  }
  if (calls == nullptr) return Broken("a frame that was not agreed upon");
  return calls->OnFrame(packet);
}

absl::Status SessionSocket::OnHello(const v1::SessionHello& hello) {
  {
    MutexLock lock(&mutex_);
    state_ = State::kAsking;
    parts_.executor->Cancel(hello_timer_);
  }
  ASSIGN_OR_RETURN(const Handshake theirs, FromProto(hello.handshake()));
  ASSIGN_OR_RETURN(const std::uint32_t protocol,
                   Agree(parts_.credentials->handshake(), theirs));
  if (parts_.credentials->cluster().IsZero()) {
    return absl::UnavailableError("this node has not met its catalog yet");
  }
  Wishes wishes;
  wishes.protocol = protocol;
  wishes.call_frames = std::min(hello.call_frames(), kCallFrames);
  wishes.knows_layout =
      std::find(hello.mapped_layouts().begin(), hello.mapped_layouts().end(),
                kMappedLayoutVersion) != hello.mapped_layouts().end();
  if (!hello.token().empty()) {
    ASSIGN_OR_RETURN(const TokenClaims claims,
                     parts_.credentials->Check(hello.token()));
    if (claims.role != Role::kTenant || claims.tenant.IsZero()) {
      return absl::PermissionDeniedError("the token is no tenant's");
    }
    OnTenant(wishes, TenantDirectory::Tenant{
                         claims.tenant, parts_.tenants->NameOf(claims.tenant)});
    return absl::OkStatus();
  }
  // The answer may come when the session is over and this object gone.
  parts_.tenants->StartFindByPeer(
      socket_->credentials(),
      ScopedAnswer<absl::StatusOr<TenantDirectory::Tenant>>(
          &scope_,
          [this, wishes](absl::StatusOr<TenantDirectory::Tenant> tenant) {
            OnTenant(wishes, std::move(tenant));
          }));
  return absl::OkStatus();
}

bool SessionSocket::IsOwn() const {
  const PeerCredentials& peer = socket_->credentials();
  return peer.uid == options_.own_uid || peer.privileged;
}

void SessionSocket::OnTenant(const Wishes& wishes,
                             absl::StatusOr<TenantDirectory::Tenant> tenant) {
  if (!tenant.ok()) return End(tenant.status());
  LiveSession session;
  session.id = SessionId::Make(parts_.random);
  session.tenant = tenant->id;
  session.uid = socket_->credentials().uid;
  session.mapping =
      wishes.knows_layout && (!IsOwn() || options_.trust_same_uid);
  std::unique_ptr<SessionCalls> calls;
  if (wishes.call_frames > 0) {
    calls = std::make_unique<SessionCalls>(
        parts_.calls, session, &scope_, [this](std::string packet) {
          const absl::Status sent = socket_->Send(std::move(packet), nullptr);
          if (!sent.ok()) End(sent);
        });
  }
  {
    MutexLock lock(&mutex_);
    if (state_ != State::kAsking) return;
    state_ = State::kLive;
    session_ = session;
    calls_ = std::move(calls);
    // Under the lock: an End that comes now must find it to take it out.
    parts_.registry->Add(session);
  }
  Welcome(session, tenant->name, wishes);
}

void SessionSocket::Welcome(const LiveSession& session,
                            const std::string& tenant_name,
                            const Wishes& wishes) {
  v1::NodeMessage message;
  v1::SessionWelcome* const welcome = message.mutable_welcome();
  ToProto(parts_.credentials->handshake(), welcome->mutable_handshake());
  welcome->set_agreed_protocol(wishes.protocol);
  welcome->set_session(IdToProto(session.id));
  welcome->set_tenant(IdToProto(session.tenant));
  welcome->set_tenant_name(tenant_name);
  welcome->set_node(IdToProto(options_.address->node));
  welcome->set_epoch(static_cast<std::uint64_t>(options_.address->epoch));
  ToProto(options_.address->labels, welcome->mutable_labels());
  welcome->set_mapping(session.mapping);
  welcome->set_verify_views(session.mapping && IsOwn());
  welcome->set_stream_address(options_.address->stream_address);
  welcome->set_catalog_address(options_.catalog_address);
  welcome->set_control_address(options_.control_address);
  welcome->set_token(
      parts_.credentials->SessionToken(session.tenant, session.id));
  welcome->set_token_life_seconds(
      static_cast<std::uint32_t>(absl::ToInt64Seconds(kTokenLife)));
  welcome->set_region_bytes(options_.region_bytes);
  welcome->set_largest_block_bytes(parts_.pool->largest_block());
  welcome->set_max_staging_bytes(options_.max_staging_bytes);
  welcome->set_max_stagings(options_.max_stagings);
  welcome->set_call_frames(wishes.call_frames);
  Send(message);
}

absl::Status SessionSocket::OnLiveMessage(
    const v1::ClientMessage& message, std::shared_ptr<SharedMemory> memory) {
  if (memory != nullptr && !message.has_add_staging()) {
    return Broken("a descriptor that nobody asked for");
  }
  switch (message.kind_case()) {
    case v1::ClientMessage::kHello:
      return Broken("a second hello");
    case v1::ClientMessage::kDescriptorWanted:
      return OnDescriptorWanted(message.descriptor_wanted());
    case v1::ClientMessage::kDescriptorTaken:
      return OnDescriptorTaken(message.descriptor_taken());
    case v1::ClientMessage::kAddStaging:
      return OnAddStaging(message.add_staging(), std::move(memory));
    case v1::ClientMessage::kDropStaging:
      parts_.staging->Drop(id(), message.drop_staging().staging());
      return absl::OkStatus();
    case v1::ClientMessage::kRegionUnmapped:
      OnRegionUnmapped(message.region_unmapped().region());
      return absl::OkStatus();
    case v1::ClientMessage::kRenewToken:
      OnRenewToken();
      return absl::OkStatus();
    case v1::ClientMessage::KIND_NOT_SET:
      return Broken("a message of no known kind");
  }
  return Broken("a message of no known kind");
}

absl::Status SessionSocket::OnDescriptorWanted(
    const v1::DescriptorWanted& request) {
  const Wanted wanted{request.region(), request.what()};
  if (wanted.what != kPoolRegion && wanted.what != kHeaderTable) {
    return Broken("a descriptor of no known kind");
  }
  {
    MutexLock lock(&mutex_);
    // What waits before it in the socket may hide that the last one has been
    // received, for a moment: this one is sent when that has shown.
    if (in_flight_ && in_flight_->said && !wanted_next_) {
      wanted_next_ = wanted;
      return absl::OkStatus();
    }
  }
  SendDescriptor(wanted);
  return absl::OkStatus();
}

void SessionSocket::SendDescriptor(const Wanted& wanted) {
  absl::StatusOr<Ready> ready = TakeDescriptor(wanted);
  v1::NodeMessage message;
  if (!ready.ok()) {
    v1::DescriptorRefused* const refused = message.mutable_descriptor_refused();
    refused->set_region(wanted.region);
    refused->set_what(wanted.what);
    refused->set_reason(std::string(ready.status().message()));
    return Send(message);
  }
  const auto& memory =
      wanted.what == kPoolRegion ? ready->files.slots : ready->files.headers;
  v1::DescriptorIs* const is = message.mutable_descriptor_is();
  is->set_region(wanted.region);
  is->set_what(wanted.what);
  is->set_bytes(memory->bytes());
  // The receipt may outlive this session: it goes with the descriptor.
  const absl::Status sent = socket_->SendWatched(
      message.SerializeAsString(), memory,
      [receipt = std::move(ready->receipt),
       received = scope_.Wrap([this, flight = ready->flight] {
         OnDescriptorReceived(flight);
       })]() mutable {
        receipt = DescriptorCounts::Receipt();
        std::move(received)();
      });
  if (!sent.ok()) End(sent);
}

absl::StatusOr<SessionSocket::Ready> SessionSocket::TakeDescriptor(
    const Wanted& wanted) {
  LiveSession session;
  {
    MutexLock lock(&mutex_);
    session = session_;
    if (in_flight_) {
      return absl::ResourceExhaustedError("one descriptor at a time");
    }
  }
  if (!session.mapping) {
    return absl::PermissionDeniedError("this session maps nothing");
  }
  Ready ready;
  ready.receipt = parts_.descriptors->Take(session.tenant);
  if (!ready.receipt) {
    return absl::ResourceExhaustedError("too many descriptors are in flight");
  }
  bool first = false;
  {
    // Before the pool hands it out: a region that begins to retire right then
    // is one that the peer has to be told of, or it would never unmap it.
    MutexLock lock(&mutex_);
    first = mapped_.insert(wanted.region).second;
  }
  absl::StatusOr<RegionFiles> files =
      parts_.pool->MapRegion(session.tenant, session.id, wanted.region);
  bool goes = false;
  {
    MutexLock lock(&mutex_);
    goes = files.ok() && state_ == State::kLive;
    if (!goes && first) mapped_.erase(wanted.region);
    if (goes) {
      in_flight_ = Flight{.wanted = wanted};
      ready.flight = ++flights_;
      parts_.executor->PostAt(
          parts_.executor->clock()->Now() + options_.descriptor_timeout,
          scope_.Wrap(
              [this, flight = flights_] { OnDescriptorTimeout(flight); }));
    }
  }
  if (!files.ok()) return files.status();
  if (!goes) {
    // The session ended meanwhile: it maps nothing.
    parts_.pool->EndSession(session.id);
    return absl::CancelledError("the session has ended");
  }
  ready.files = *std::move(files);
  return ready;
}

absl::Status SessionSocket::OnDescriptorTaken(
    const v1::DescriptorTaken& taken) {
  std::optional<Wanted> next;
  {
    MutexLock lock(&mutex_);
    if (!in_flight_ || in_flight_->said ||
        in_flight_->wanted != Wanted{taken.region(), taken.what()}) {
      return Broken("a descriptor was taken that was not sent");
    }
    in_flight_->said = true;
    next = Landed();
  }
  if (next) SendDescriptor(*next);
  return absl::OkStatus();
}

void SessionSocket::OnDescriptorReceived(std::uint64_t flight) {
  std::optional<Wanted> next;
  {
    MutexLock lock(&mutex_);
    if (!in_flight_ || flights_ != flight) return;
    in_flight_->received = true;
    next = Landed();
  }
  if (next) SendDescriptor(*next);
}

std::optional<SessionSocket::Wanted> SessionSocket::Landed() {
  if (!in_flight_->said || !in_flight_->received) return std::nullopt;
  in_flight_.reset();
  return std::exchange(wanted_next_, std::nullopt);
}

void SessionSocket::OnDescriptorTimeout(std::uint64_t flight) {
  {
    MutexLock lock(&mutex_);
    if (!in_flight_ || flights_ != flight) return;
  }
  End(absl::DeadlineExceededError("a descriptor was not taken in time"));
}

absl::Status SessionSocket::OnAddStaging(const v1::AddStaging& request,
                                         std::shared_ptr<SharedMemory> memory) {
  LiveSession session;
  {
    MutexLock lock(&mutex_);
    session = session_;
  }
  if (memory == nullptr) return Broken("staging without a descriptor");
  const absl::Status status =
      parts_.staging->Add(session.id, session.tenant, request.staging(),
                          request.bytes(), std::move(memory));
  // Where the session ended meanwhile, its staging must not outlive it.
  if (!parts_.registry->IsLive(session.id)) {
    parts_.staging->EndSession(session.id);
  }
  v1::NodeMessage message;
  if (status.ok()) {
    message.mutable_staging_accepted()->set_staging(request.staging());
  } else {
    message.mutable_staging_refused()->set_staging(request.staging());
    message.mutable_staging_refused()->set_reason(
        std::string(status.message()));
  }
  Send(message);
  return absl::OkStatus();
}

void SessionSocket::OnRegionUnmapped(std::uint64_t region) {
  SessionId session;
  {
    MutexLock lock(&mutex_);
    if (mapped_.erase(region) == 0) return;
    session = session_.id;
  }
  parts_.pool->NoteUnmapped(session, region);
}

void SessionSocket::OnRenewToken() {
  LiveSession session;
  {
    MutexLock lock(&mutex_);
    session = session_;
  }
  v1::NodeMessage message;
  message.mutable_token_is()->set_token(
      parts_.credentials->SessionToken(session.tenant, session.id));
  message.mutable_token_is()->set_token_life_seconds(
      static_cast<std::uint32_t>(absl::ToInt64Seconds(kTokenLife)));
  Send(message);
}

void SessionSocket::OnRegionRetiring(std::uint64_t region) {
  {
    MutexLock lock(&mutex_);
    if (!mapped_.contains(region)) return;
  }
  v1::NodeMessage message;
  message.mutable_region_retired()->set_region(region);
  Send(message);
}

void SessionSocket::Send(const v1::NodeMessage& message) {
  const absl::Status status =
      socket_->Send(message.SerializeAsString(), nullptr);
  if (!status.ok()) End(status);
}

SessionId SessionSocket::id() const {
  MutexLock lock(&mutex_);
  return session_.id;
}

void SessionSocket::End(const absl::Status& why) {
  State before;
  SessionId session;
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kEnded) return;
    before = std::exchange(state_, State::kEnded);
    session = session_.id;
    in_flight_.reset();
    parts_.executor->Cancel(hello_timer_);
  }
  if (before == State::kLive) {
    // Nobody first, so that nothing new is granted to it (rule S3).
    parts_.registry->Remove(session);
    parts_.pool->EndSession(session);
    parts_.reservations->EndSession(session);
    parts_.staging->EndSession(session);
  } else {
    v1::NodeMessage message;
    message.mutable_refused()->set_code(static_cast<std::uint32_t>(why.code()));
    message.mutable_refused()->set_reason(std::string(why.message()));
    // The peer may be gone; there is nobody else to tell.
    (void)socket_->Send(message.SerializeAsString(), nullptr);
    parts_.log->Write(
        Severity::kNotice, "session_refused",
        {{"uid", socket_->credentials().uid}, {"why", why.ToString()}});
  }
  socket_->Close();
  std::move(on_ended_)();
}

}  // namespace firnkv
