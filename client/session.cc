#include "client/session.h"

#include <algorithm>
#include <utility>

#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

Handshake OurHandshake(ClusterId cluster) {
  Handshake ours;
  ours.cluster = cluster;
  ours.test_vector = HandshakeTestVector();
  return ours;
}

// Waiting does not make these go away.
bool IsFinal(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
      return true;
    default:
      return false;
  }
}

}  // namespace

Session::Session(const Parts& parts, Options options)
    : parts_(parts),
      options_(std::move(options)),
      socket_(parts.seams->executor),
      backoff_(kReconnect),
      refusal_(absl::UnavailableError("not tried yet")),
      token_(options_.token) {}

Session::~Session() { Close(); }

void Session::Start() {
  parts_.seams->executor->Post(scope_.Wrap([this] { Connect(); }));
}

void Session::Close() {
  Afterwards afterwards;
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kClosed) return;
    state_ = State::kClosed;
    ++serial_;
    const absl::Status why = absl::CancelledError("the Client was closed");
    VoidEverything(why, &afterwards);
    for (auto& done : waiting_) {
      afterwards.push_back(
          [done = std::move(done), why]() mutable { std::move(done)(why); });
    }
    waiting_.clear();
  }
  parts_.node->Detach();
  // A thread that receives is inside a use of it, and hears of its end.
  if (const auto socket = socket_.Get()) socket->socket->Close();
  socket_.Close();
  scope_.Close();
  for (auto& run : afterwards) std::move(run)();
}

void Session::WhenLive(absl::AnyInvocable<void(const absl::Status&) &&> done) {
  absl::Status now;
  {
    MutexLock lock(&mutex_);
    switch (state_) {
      case State::kLive:
        break;
      case State::kClosed:
        now = absl::CancelledError("the Client was closed");
        break;
      case State::kAway:
      case State::kGreeting:
        if (!IsFinal(refusal_)) return waiting_.push_back(std::move(done));
        now = refusal_;
        break;
    }
  }
  std::move(done)(now);
}

Session::Welcome Session::welcome() const {
  MutexLock lock(&mutex_);
  return welcome_;
}

bool Session::IsLive(SessionId session) const {
  MutexLock lock(&mutex_);
  return welcome_ != nullptr && welcome_->session == session;
}

absl::Status Session::refusal() const {
  MutexLock lock(&mutex_);
  return refusal_;
}

std::string Session::token() const {
  MutexLock lock(&mutex_);
  return token_;
}

void Session::SetTimer(absl::Duration delay, std::uint64_t number,
                       void (Session::*then)(std::uint64_t)) {
  parts_.seams->executor->PostAt(
      parts_.seams->clock->Now() + delay,
      scope_.Wrap([this, number, then] { (this->*then)(number); }));
}

// --- Connecting.

absl::StatusOr<std::unique_ptr<LocalSocket>> Session::OpenSocket() {
  ASSIGN_OR_RETURN(std::unique_ptr<LocalSocket> socket,
                   parts_.seams->sockets->Connect(options_.socket_path));
  const std::uint32_t uid = socket->credentials().uid;
  const auto& allowed = options_.server_uids;
  if (uid != 0 &&
      std::find(allowed.begin(), allowed.end(), uid) == allowed.end()) {
    return absl::PermissionDeniedError(
        StrCat(options_.socket_path, " is served under uid ", uid,
               ", which is neither ours, root nor ClientOptions::server_uid"));
  }
  return socket;
}

void Session::Connect() {
  absl::StatusOr<std::unique_ptr<LocalSocket>> socket = OpenSocket();
  std::uint64_t serial = 0;
  {
    MutexLock lock(&mutex_);
    if (state_ != State::kAway) return;
    serial = ++serial_;
    if (socket.ok()) state_ = State::kGreeting;
  }
  if (!socket.ok()) return Lose(serial, socket.status());
  auto held = std::make_unique<Socket>();
  held->serial = serial;
  held->socket = *std::move(socket);
  socket_.Replace(std::move(held));
  Greet(serial);
}

void Session::Greet(std::uint64_t serial) {
  {
    const auto socket = socket_.Get();
    if (!socket || socket->serial != serial) return;
    socket->socket->Start(
        {.on_message =
             [this, serial](std::string message,
                            std::shared_ptr<SharedMemory> memory) {
               OnMessage(serial, message, std::move(memory));
             },
         .on_closed =
             [this, serial](const absl::Status& why) {
               Lose(serial,
                    why.ok() ? absl::UnavailableError("it hung up") : why);
             }});
  }
  {
    MutexLock lock(&mutex_);
    if (serial != serial_ || state_ != State::kGreeting) return;
    Queue(EncodeSessionHello({.handshake = OurHandshake(cluster_),
                              .want_mapping = options_.want_mapping,
                              .token = options_.token,
                              .client_name = options_.client_name,
                              .call_frames = options_.call_frames}),
          nullptr);
  }
  SetTimer(options_.hello_timeout, serial, &Session::OnHelloTimeout);
  Flush();
}

void Session::OnHelloTimeout(std::uint64_t serial) {
  {
    MutexLock lock(&mutex_);
    if (serial != serial_ || state_ != State::kGreeting) return;
  }
  Lose(serial, absl::UnavailableError("the node has not answered the hello"));
}

void Session::ConnectLater() {
  absl::Duration delay;
  std::uint64_t serial = 0;
  {
    MutexLock lock(&mutex_);
    if (state_ != State::kAway) return;
    delay = backoff_.Next(parts_.seams->random);
    serial = serial_;
  }
  SetTimer(delay, serial, &Session::OnConnectDue);
}

void Session::OnConnectDue(std::uint64_t serial) {
  {
    MutexLock lock(&mutex_);
    if (serial != serial_) return;
  }
  Connect();
}

// --- From the socket.

void Session::OnMessage(std::uint64_t serial, const std::string& message,
                        std::shared_ptr<SharedMemory> memory) {
  if (memory == nullptr && BeginsFrame(message)) {
    return OnFrame(serial, message);
  }
  absl::StatusOr<FromNode> decoded = DecodeFromNode(message);
  if (!decoded.ok()) {
    return Lose(serial, absl::InternalError(decoded.status().message()));
  }
  if (auto* const welcome = std::get_if<SessionWelcome>(&*decoded)) {
    return OnWelcome(serial, std::move(*welcome));
  }
  if (const auto* const refused = std::get_if<SessionRefused>(&*decoded)) {
    return Lose(serial, refused->reason);
  }
  absl::StatusOr<std::unique_ptr<MemoryMapping>> mapping =
      absl::InternalError("no descriptor came");
  if (memory != nullptr) mapping = memory->Map(MapAccess::kRead);

  absl::Status status;
  Afterwards afterwards;
  {
    MutexLock lock(&mutex_);
    if (serial != serial_) return;
    status = state_ == State::kLive
                 ? OnFromNode(*decoded, std::move(mapping), &afterwards)
                 : absl::InternalError("the node sent something unasked");
  }
  Flush();
  for (auto& run : afterwards) std::move(run)();
  if (!status.ok()) Lose(serial, status);
}

void Session::OnFrame(std::uint64_t serial, std::string_view packet) {
  {
    MutexLock lock(&mutex_);
    if (serial != serial_) return;
  }
  const absl::Status status = parts_.node->frames()->OnFrame(packet);
  if (!status.ok()) Lose(serial, status);
}

absl::Status Session::OnFromNode(
    const FromNode& message,
    absl::StatusOr<std::unique_ptr<MemoryMapping>> mapping,
    Afterwards* afterwards) {
  if (const auto* const is = std::get_if<DescriptorIs>(&message)) {
    return OnDescriptor(*is, std::move(mapping), afterwards);
  }
  if (const auto* const refused = std::get_if<DescriptorRefused>(&message)) {
    if (!asked_ || asked_->region != refused->region) {
      return absl::InternalError("the node refused what nobody wanted");
    }
    // It retired between its two descriptors, and counts as mapped here.
    if (const auto half = regions_.find(refused->region);
        half != regions_.end() && half->second.payload != nullptr) {
      Queue(EncodeRegionUnmapped(refused->region), nullptr);
    }
    FailRegion(refused->region, absl::UnavailableError(refused->reason),
               afterwards);
    AskNextDescriptor();
  } else if (const auto* const yes = std::get_if<StagingAccepted>(&message)) {
    OnStagingAnswer(yes->staging, Staging::Answer::kAccepted, "", afterwards);
  } else if (const auto* const no = std::get_if<StagingRefused>(&message)) {
    OnStagingAnswer(no->staging, Staging::Answer::kRefused, no->reason,
                    afterwards);
  } else if (const auto* const gone = std::get_if<RegionRetired>(&message)) {
    OnRetired(gone->region, afterwards);
  } else if (const auto* const token = std::get_if<TokenIs>(&message)) {
    if (!token->token.empty()) token_ = token->token;
  }
  return absl::OkStatus();
}

void Session::OnWelcome(std::uint64_t serial, SessionWelcome message) {
  // Shared: see Welcome.
  auto welcome = std::make_shared<const SessionWelcome>(std::move(message));
  absl::Status agreed;
  {
    MutexLock lock(&mutex_);
    if (serial != serial_) return;
    agreed = state_ == State::kGreeting
                 ? Agree(OurHandshake(cluster_), welcome->handshake).status()
                 : absl::InternalError("a second welcome");
  }
  if (!agreed.ok()) return Lose(serial, agreed);
  // A version that we did not say is none that we know.
  const bool takes_frames =
      welcome->call_frames > 0 && welcome->call_frames <= options_.call_frames;
  // Before anybody can see that there is a session.
  parts_.node->Attach(welcome->session,
                      welcome->control_address.empty()
                          ? StrCat("unix:", options_.socket_path, ".control")
                          : welcome->control_address,
                      takes_frames ? this : nullptr, serial);
  parts_.on_begin(welcome);

  std::vector<absl::AnyInvocable<void(const absl::Status&) &&>> waiting;
  bool lost = false;
  {
    MutexLock lock(&mutex_);
    lost = serial != serial_ || state_ != State::kGreeting;
    if (!lost) {
      state_ = State::kLive;
      welcome_ = welcome;
      cluster_ = welcome->handshake.cluster;
      if (!welcome->token.empty()) token_ = welcome->token;
      backoff_.Reset();
      waiting.swap(waiting_);
      for (const auto& [id, staging] : stagings_) {
        Queue(EncodeAddStaging(id, staging.memory->bytes()), staging.memory);
      }
    }
  }
  if (lost) return parts_.node->Detach();
  parts_.counters->sessions.Add();
  if (welcome->token_life > absl::ZeroDuration()) {
    SetTimer(welcome->token_life / 2, serial, &Session::OnTokenDue);
  }
  Flush();
  for (auto& done : waiting) std::move(done)(absl::OkStatus());
}

// Half of a token's life is left for trouble with renewing it.
void Session::OnTokenDue(std::uint64_t serial) {
  absl::Duration again;
  {
    MutexLock lock(&mutex_);
    if (serial != serial_ || state_ != State::kLive) return;
    Queue(EncodeRenewToken(), nullptr);
    again =
        std::max(welcome_->token_life / 4, absl::Duration(absl::Seconds(1)));
  }
  Flush();
  SetTimer(again, serial, &Session::OnTokenDue);
}

// --- Ends.

void Session::End(SessionId session, std::string_view why) {
  std::uint64_t serial = 0;
  {
    MutexLock lock(&mutex_);
    if (welcome_ == nullptr || welcome_->session != session) return;
    serial = serial_;
  }
  Lose(serial, absl::UnavailableError(ToAbsl(why)));
}

void Session::Lose(std::uint64_t serial, const absl::Status& why) {
  Afterwards afterwards;
  bool was_live = false;
  {
    MutexLock lock(&mutex_);
    if (serial != serial_ || state_ == State::kClosed) return;
    was_live = state_ == State::kLive;
    state_ = State::kAway;
    // What is still to come of this socket is void.
    ++serial_;
    refusal_ = why;
    VoidEverything(absl::UnavailableError(StrCat("the local session ended: ",
                                                 ToStd(why.message()))),
                   &afterwards);
    if (IsFinal(why)) {
      for (auto& done : waiting_) {
        afterwards.push_back(
            [done = std::move(done), why]() mutable { std::move(done)(why); });
      }
      waiting_.clear();
    }
  }
  if (was_live) {
    parts_.counters->sessions_lost.Add();
    parts_.log(StrCat("local session lost: ", why.ToString()));
  }
  parts_.node->Detach();
  if (const auto socket = socket_.Get(); socket && socket->serial == serial) {
    socket->socket->Close();
  }
  socket_.Replace(nullptr);
  for (auto& run : afterwards) std::move(run)();
  ConnectLater();
}

void Session::VoidEverything(const absl::Status& why, Afterwards* afterwards) {
  welcome_ = nullptr;
  outgoing_.clear();
  wanted_.clear();
  asked_.reset();
  std::vector<std::uint64_t> regions;
  for (const auto& [id, region] : regions_) regions.push_back(id);
  for (const std::uint64_t id : regions) FailRegion(id, why, afterwards);
  for (auto& [id, staging] : stagings_) {
    staging.answer = Staging::Answer::kNone;
    for (auto& done : staging.waiting) {
      afterwards->push_back(
          [done = std::move(done), why]() mutable { std::move(done)(why); });
    }
    staging.waiting.clear();
  }
}

void Session::Queue(std::string message, std::shared_ptr<SharedMemory> memory) {
  outgoing_.push_back(Outgoing{.serial = serial_,
                               .message = std::move(message),
                               .memory = std::move(memory)});
}

// One thread at a time sends, so that messages keep their order.
void Session::Flush() {
  {
    MutexLock lock(&mutex_);
    if (flushing_) return;
    flushing_ = true;
  }
  for (;;) {
    Outgoing next;
    {
      MutexLock lock(&mutex_);
      if (outgoing_.empty()) {
        flushing_ = false;
        return;
      }
      next = std::move(outgoing_.front());
      outgoing_.pop_front();
    }
    absl::Status sent;
    {
      const auto socket = socket_.Get();
      if (!socket || socket->serial != next.serial) continue;
      sent =
          socket->socket->Send(std::move(next.message), std::move(next.memory));
    }
    if (!sent.ok()) Lose(next.serial, sent);
  }
}

// --- Calls as frames.

absl::Status Session::SendPacket(std::uint64_t serial, std::string packet) {
  const auto socket = socket_.Get();
  if (!socket || socket->serial != serial) {
    return absl::UnavailableError("the session has ended");
  }
  return socket->socket->Send(std::move(packet), nullptr);
}

bool Session::ReceiveHere(
    std::uint64_t serial,
    absl::FunctionRef<LocalSocket::Taken(std::string_view)> take,
    absl::FunctionRef<bool()> waits) {
  const auto socket = socket_.Get();
  return socket && socket->serial == serial &&
         socket->socket->ReceiveHere(take, waits);
}

void Session::StopReceiving(std::uint64_t serial) {
  const auto socket = socket_.Get();
  if (socket && socket->serial == serial) socket->socket->StopReceiving();
}

void Session::LendSoon(std::uint64_t serial) {
  const auto socket = socket_.Get();
  if (socket && socket->serial == serial) socket->socket->LendSoon();
}

void Session::TakeBack(std::uint64_t serial) {
  const auto socket = socket_.Get();
  if (socket && socket->serial == serial) socket->socket->TakeBack();
}

}  // namespace firnkv
