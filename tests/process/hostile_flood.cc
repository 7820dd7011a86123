#include "tests/process/hostile_flood.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "proto/base/checksum.h"
#include "proto/base/frame.h"
#include "proto/base/outcome.h"
#include "proto/base/random.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"
#include "tests/process/hostile_stream.h"

namespace firnkv {
namespace {

constexpr int kGuesses = 200;
constexpr std::uint64_t kLeaseMillis = 10'000;

// A call that any session may make: whether it was served.
bool IsServed(ControlChannel* channel, const SessionId& session) {
  return CallAs<v1::RenewResponse>(channel, session, "Renew",
                                   v1::RenewRequest())
      .ok();
}

std::vector<int> NullDevices(std::size_t count,
                             std::vector<Descriptor>* owners) {
  std::vector<int> fds;
  for (std::size_t i = 0; i < count; ++i) {
    owners->emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
    fds.push_back(owners->back().get());
  }
  return fds;
}

// A region that the session may map.
absl::StatusOr<std::uint64_t> ARegion(HostileWorld* world,
                                      const HostileSession& session) {
  ASSIGN_OR_RETURN(const v1::OpenReadResponse opened,
                   OpenBlocks(world, session, 0, 1));
  if (opened.extent_regions_size() == 0) {
    return absl::NotFoundError("nothing to ask for");
  }
  return opened.extent_regions(0);
}

// A lead that says so, with the right checksum over it.
std::string LeadOf(std::uint16_t type, std::uint32_t body,
                   std::uint64_t payload) {
  std::string lead = EncodeLead({.type = FrameType::kHello}).substr(0, 6);
  WireWriter out(&lead);
  out.U16(type);
  out.U64(1);
  out.U64(payload);
  out.U32(body);
  out.U32(
      Crc32c({reinterpret_cast<const std::byte*>(lead.data()), lead.size()}));
  return lead;
}

// In the child: 0 where it was welcomed, 1 refused, 2 no namespace.
[[noreturn]] void SpeakAsRoot(const std::string& socket, std::uint32_t uid) {
  if (unshare(CLONE_NEWUSER) != 0) _exit(2);
  const std::string map = StrCat("0 ", uid, " 1");
  const Descriptor file(open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC));
  if (write(file.get(), map.data(), map.size()) !=
      static_cast<ssize_t>(map.size())) {
    _exit(2);
  }
  _exit(HostileSession::Connect(socket).ok() ? 0 : 1);
}

// That the node has hung up shows without a receive: what is never received
// stays in flight.
bool HasHungUp(const HostileSession& session) {
  struct pollfd one = {
      .fd = session.socket(), .events = POLLRDHUP, .revents = 0};
  return poll(&one, 1, kPatienceSeconds * 1000) == 1;
}

}  // namespace

absl::StatusOr<Tally> GuessSessions(HostileWorld* world,
                                    const std::string& tcp) {
  Tally tally = {{"guessed", 0}, {"over_tcp", 0}, {"ended", 0}, {"own", 0}};
  SystemRandom random;
  for (int i = 0; i < kGuesses; ++i) {
    if (IsServed(world->channel.get(), SessionId::Make(&random))) {
      ++tally["guessed"];
    }
  }
  ASSIGN_OR_RETURN(std::unique_ptr<HostileSession> session,
                   HostileSession::Connect(world->socket));
  const SessionId id = session->id();
  tally["own"] = IsServed(world->channel.get(), id) ? 1 : 0;
  // One bit off, and cut short.
  for (std::size_t i = 0; i < SessionId::kBytes; ++i) {
    SessionId near = id;
    near.bytes[i] ^= 1;
    if (IsServed(world->channel.get(), near)) ++tally["guessed"];
  }
  const auto channel = world->connector.Connect(tcp);
  tally["over_tcp"] = IsServed(channel.get(), id) ? 1 : 0;
  session.reset();
  // The node sees the socket's end after the call that came before it.
  bool served = true;
  for (int i = 0; served && i < kGuesses; ++i) {
    served = IsServed(world->channel.get(), id);
  }
  tally["ended"] = served ? 1 : 0;
  return tally;
}

absl::StatusOr<Tally> GuessHandles(HostileWorld* world, std::uint64_t count) {
  Tally tally = {{"renewed", 0}, {"committed", 0}, {"calls", 0}};
  ASSIGN_OR_RETURN(const std::unique_ptr<HostileSession> session,
                   HostileSession::Connect(world->socket));
  const std::vector<std::byte> block(kHostileBlockBytes);
  for (std::uint64_t i = 1; i <= count; ++i) {
    v1::RenewRequest renew;
    renew.set_lease_millis(kLeaseMillis);
    renew.add_leases(i);
    ASSIGN_OR_RETURN(const v1::RenewResponse renewed,
                     CallAs<v1::RenewResponse>(world->channel.get(),
                                               session->id(), "Renew", renew));
    // 2: over.
    if (renewed.results() != "\2") ++tally["renewed"];
    v1::ReleaseRequest release;
    release.add_leases(i);
    v1::AbortRequest abort;
    abort.set_reservation(i);
    // Answered whatever they name; what they must not do is seen by others.
    tally["calls"] +=
        CallAs<v1::ReleaseResponse>(world->channel.get(), session->id(),
                                    "Release", release)
            .ok() &&
        CallAs<v1::AbortResponse>(world->channel.get(), session->id(), "Abort",
                                  abort)
            .ok();
    const auto committed = CallAs<v1::CommitResponse>(
        world->channel.get(), session->id(), "Commit", CommitOf(i, 1, block));
    if (committed.ok() &&
        committed->outcomes() ==
            std::string(1, static_cast<char>(Outcome::kStored))) {
      ++tally["committed"];
    }
  }
  return tally;
}

absl::StatusOr<Tally> LeaveInFlight(HostileWorld* world, std::uint64_t count) {
  Tally tally = {{"asked", 0}, {"ended", 0}};
  std::vector<std::unique_ptr<HostileSession>> sessions;
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<HostileSession> session,
                     HostileSession::Connect(world->socket));
    ASSIGN_OR_RETURN(const std::uint64_t region, ARegion(world, *session));
    v1::ClientMessage wanted;
    wanted.mutable_descriptor_wanted()->set_region(region);
    session->Send(wanted);
    ++tally["asked"];
    sessions.push_back(std::move(session));
  }
  for (const auto& session : sessions) {
    if (HasHungUp(*session)) ++tally["ended"];
  }
  return tally;
}

absl::StatusOr<Tally> ClaimInFlight(
    HostileWorld* world, std::uint64_t count,
    std::vector<std::unique_ptr<HostileSession>>* held) {
  // Each would stay in flight: more in all than any bound.
  constexpr int kClaims = 50;
  Tally tally = {{"claimed", 0}, {"ended", 0}};
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<HostileSession> session,
                     HostileSession::Connect(world->socket));
    ASSIGN_OR_RETURN(const std::uint64_t region, ARegion(world, *session));
    v1::ClientMessage wanted;
    wanted.mutable_descriptor_wanted()->set_region(region);
    v1::ClientMessage taken;
    taken.mutable_descriptor_taken()->set_region(region);
    for (int claim = 0; claim < kClaims; ++claim) {
      if (!session->Send(wanted) || !session->Send(taken)) break;
      ++tally["claimed"];
    }
    // Each is of no use any more, in its second or at once.
    if (HasHungUp(*session)) ++tally["ended"];
    held->push_back(std::move(session));
  }
  return tally;
}

absl::StatusOr<Tally> SendUnexpected(HostileWorld* world) {
  Tally tally = {{"sent", 0}, {"ended", 0}};
  v1::ClientMessage renew;
  renew.mutable_renew_token();
  v1::ClientMessage staging;
  staging.mutable_add_staging()->set_staging(1);
  staging.mutable_add_staging()->set_bytes(4096);
  const std::string garbage(100, '\xff');
  for (const std::size_t count : {1, 2, 16, 253}) {
    for (const bool greeted : {false, true}) {
      for (const std::string& packet :
           {renew.SerializeAsString(), staging.SerializeAsString(), garbage}) {
        std::vector<Descriptor> owners;
        const std::vector<int> fds = NullDevices(count, &owners);
        std::unique_ptr<HostileSession> session;
        Descriptor silent;
        if (greeted) {
          ASSIGN_OR_RETURN(session, HostileSession::Connect(world->socket));
        } else {
          silent = ConnectTo(world->socket);
        }
        const int socket = greeted ? session->socket() : silent.get();
        if (SendPacket(socket, packet, fds)) ++tally["sent"];
        if (IsEnded(socket)) ++tally["ended"];
      }
    }
  }
  return tally;
}

absl::StatusOr<Tally> OpenWithoutEnd(HostileWorld* world, std::uint64_t count) {
  Tally tally = {{"opened", 0}, {"refused", 0}};
  std::vector<std::unique_ptr<HostileSession>> sessions;
  std::vector<Descriptor> silent;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto session = HostileSession::Connect(world->socket);
    ++tally[session.ok() ? "opened" : "refused"];
    if (session.ok()) sessions.push_back(*std::move(session));
    silent.push_back(ConnectTo(world->socket));
  }
  return tally;
}

absl::StatusOr<Tally> OpenControlWithoutEnd(HostileWorld* world,
                                            std::uint64_t count) {
  Tally tally = {{"opened", 0}, {"refused", 0}};
  std::vector<Descriptor> all;
  for (std::uint64_t i = 0; i < count; ++i) {
    Descriptor fd = ConnectTo(StrCat(world->socket, ".control"), SOCK_STREAM);
    // gRPC speaks first.
    char first = 0;
    const bool spoken_to = recv(fd.get(), &first, 1, 0) == 1;
    ++tally[spoken_to ? "opened" : "refused"];
    all.push_back(std::move(fd));
  }
  return tally;
}

absl::StatusOr<Tally> Flood(HostileWorld* world, std::uint64_t count) {
  Tally tally = {{"garbage", 0}, {"calls", 0}};
  SeededRandom random(count);
  std::string packet(512, '\0');
  // A hello by a client whose name is no UTF-8.
  const std::string unreadable("\x0a\x05\x22\x03\xff\xfe\xfd", 7);
  ASSIGN_OR_RETURN(const std::unique_ptr<HostileSession> session,
                   HostileSession::Connect(world->socket));
  for (std::uint64_t i = 0; i < count; ++i) {
    random.Fill(
        {reinterpret_cast<std::uint8_t*>(packet.data()), packet.size()});
    const Descriptor socket = ConnectTo(world->socket);
    if (socket.valid() &&
        SendPacket(socket.get(), i % 2 == 0 ? packet : unreadable, {})) {
      ++tally["garbage"];
    }
    // Dropped as soon as they are on their way.
    const auto channel =
        world->connector.Connect(StrCat("unix:", world->socket, ".control"));
    v1::RenewRequest renew;
    FillHeader(session->id(), renew.mutable_header());
    for (int call = 0; call < 8; ++call) {
      channel->StartCall("/firnkv.v1.NodeService/Renew",
                         call % 2 == 0 ? packet : renew.SerializeAsString(),
                         absl::Seconds(kPatienceSeconds),
                         [](const absl::StatusOr<std::string>&) {});
      ++tally["calls"];
    }
  }
  return tally;
}

absl::StatusOr<Tally> FloodStream(const std::string& address,
                                  std::uint64_t count) {
  const std::string hello =
      LeadOf(static_cast<std::uint16_t>(FrameType::kHello), 200, 0);
  const std::string attacks[] = {
      std::string(64, '\xee'),
      LeadOf(1, 0xffffffff, 0),
      LeadOf(3, 100, 0xffffffffffffffff),
      LeadOf(4, 100, 64 * kMiB),
      LeadOf(0xffff, 0, 0),
      // Half open: a lead cut short, and a hello that never ends.
      hello.substr(0, 16),
      hello,
  };
  Tally tally = {{"sent", 0}, {"ended", 0}};
  std::vector<Descriptor> streams;
  for (std::uint64_t i = 0; i < count; ++i) {
    for (const std::string& attack : attacks) {
      Descriptor stream = ConnectStream(address);
      if (send(stream.get(), attack.data(), attack.size(), MSG_NOSIGNAL) < 0) {
        continue;
      }
      ++tally["sent"];
      streams.push_back(std::move(stream));
    }
  }
  for (const Descriptor& stream : streams) {
    if (IsEnded(stream.get())) ++tally["ended"];
  }
  return tally;
}

Tally SpeakFromAnotherNamespace(const std::string& socket) {
  Tally tally = {{"unshared", 0}, {"served", 0}};
  const std::uint32_t uid = getuid();
  const pid_t child = fork();
  if (child == 0) SpeakAsRoot(socket, uid);
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 2;
  tally["unshared"] = code == 2 ? 0 : 1;
  tally["served"] = code == 0 ? 1 : 0;
  return tally;
}

}  // namespace firnkv
