#include "tests/process/hostile_writer.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "proto/base/checksum.h"
#include "proto/base/status.h"
#include "proto/base/write_frame.h"

namespace firnkv {
namespace {

// Three pieces and a bit, so that a block may be cut in its middle.
constexpr std::uint64_t kBlockBytes = 200'000;
// Keys of the attacks: those whose blocks must never be there, and others.
constexpr std::uint64_t kFirstNever = kFirstOtherSize + 10'000;
constexpr std::uint64_t kFirstSound = kFirstOtherSize + 20'000;
constexpr std::uint64_t kFirstStalled = kFirstOtherSize + 30'000;
// Of a request that is to be outlived.
constexpr absl::Duration kShort = absl::Seconds(3);

std::string ContentOf(const HostileWorld& world, std::uint64_t number) {
  std::string content(kBlockBytes, '\0');
  FillBlock(world, number,
            {reinterpret_cast<std::byte*>(content.data()), content.size()});
  return content;
}

std::vector<std::uint32_t> PiecesOf(const std::string& content) {
  return PieceChecksums(
      {reinterpret_cast<const std::byte*>(content.data()), content.size()});
}

std::string ReserveOf(NamespaceId name_space, std::uint64_t from,
                      std::uint64_t count,
                      absl::Duration remaining = absl::Seconds(20)) {
  ReserveBody body;
  body.header.protocol = kProtocolOfStreamWrites;
  body.header.remaining = remaining;
  body.name_space = name_space;
  body.reserve_for = absl::Seconds(60);
  for (std::uint64_t i = 0; i < count; ++i) {
    ReserveBody::Block block;
    block.key = HostileKey(from + i);
    block.place.anchor = block.key;
    block.length = kBlockBytes;
    body.blocks.push_back(block);
  }
  return EncodeReserve(body);
}

std::string WriteOf(std::uint64_t number, const std::string& content,
                    std::uint32_t index = 0) {
  return EncodeWrite(
      {.index = index, .key = HostileKey(number), .pieces = PiecesOf(content)});
}

// The next answer of that type to `request`; what else comes is skipped.
std::optional<std::string> Await(HostileStream* stream, FrameType type,
                                 std::uint64_t request) {
  while (const auto frame = stream->Receive()) {
    if (frame->lead.type == type && frame->lead.request == request) {
      return frame->body;
    }
  }
  return std::nullopt;
}

// Of each block; empty where the request was refused as a whole.
std::vector<Outcome> AwaitReserved(HostileStream* stream,
                                   std::uint64_t request) {
  const auto body = Await(stream, FrameType::kReserved, request);
  if (!body.has_value()) return {};
  const absl::StatusOr<ReservedBody> reserved = DecodeReserved(*body);
  return reserved.ok() ? reserved->outcomes : std::vector<Outcome>();
}

Outcome AwaitWritten(HostileStream* stream, std::uint64_t request) {
  const auto body = Await(stream, FrameType::kWritten, request);
  if (!body.has_value()) return Outcome::kUnset;
  const absl::StatusOr<WrittenBody> written = DecodeWritten(*body);
  return written.ok() && !written->blocks.empty()
             ? written->blocks.front().outcome
             : Outcome::kUnset;
}

// What one attack may use: a stream of its own, with block `number` of
// `content` reserved as request 1.
struct Scene {
  HostileWorld* world = nullptr;
  const v1::SessionWelcome* welcome = nullptr;
  HostileStream* stream = nullptr;
  std::uint64_t number = 0;
  std::string content;

  bool Write(std::uint64_t request, const std::string& body,
             const std::string& payload) {
    return stream->Send(FrameType::kWrite, request, body, payload.size(),
                        payload);
  }
};

// Nothing of these may ever be in the node, and their stream ends.
std::vector<std::function<void(Scene*)>> Ending() {
  std::vector<std::function<void(Scene*)>> attacks = {
      // Another key, another index, another length, another request.
      [](Scene* s) {
        s->Write(1, WriteOf(s->number + 1, s->content), s->content);
      },
      [](Scene* s) {
        s->Write(1, WriteOf(s->number, s->content, 1), s->content);
      },
      [](Scene* s) {
        const std::string shorter = s->content.substr(1);
        s->Write(1, WriteOf(s->number, shorter), shorter);
      },
      [](Scene* s) {
        const std::string longer = s->content + "x";
        s->Write(1, WriteOf(s->number, longer), longer);
      },
      [](Scene* s) { s->Write(7, WriteOf(s->number, s->content), s->content); },
      [](Scene* s) {
        s->stream->Send(FrameType::kReserve, 1,
                        ReserveOf(s->world->other_sizes.id, s->number, 1));
      },
      // Fewer checksums than pieces; a length that no memory has.
      [](Scene* s) {
        s->stream->Send(FrameType::kWrite, 1,
                        WriteOf(s->number, s->content.substr(0, 100)),
                        s->content.size(), s->content);
      },
      [](Scene* s) {
        s->stream->Send(FrameType::kWrite, 1, WriteOf(s->number, s->content),
                        std::uint64_t{1} << 60, s->content);
      },
      // A payload where there is none.
      [](Scene* s) {
        s->stream->Send(FrameType::kReserve, 2,
                        ReserveOf(s->world->other_sizes.id, s->number, 1),
                        s->content.size(), s->content);
      },
      // Of another connection's reservation.
      [](Scene* s) {
        auto other = HostileStream::Connect(*s->welcome, s->welcome->token());
        if (!other.ok()) return;
        other->Send(FrameType::kWrite, 1, WriteOf(s->number, s->content),
                    s->content.size(), s->content);
        if (other->IsEnded()) s->stream->SendRaw(std::string(64, '\xee'));
      },
  };
  // What only a node says.
  for (const FrameType type :
       {FrameType::kReserved, FrameType::kWritten, FrameType::kWriteEnd}) {
    attacks.push_back([type](Scene* s) {
      s->stream->Send(type, 1,
                      EncodeWritten({.retry_after = {},
                                     .blocks = {{0, Outcome::kStored}}}));
    });
  }
  return attacks;
}

absl::StatusOr<HostileStream> StreamOf(const HostileSession& session) {
  return HostileStream::Connect(session.welcome(), session.welcome().token());
}

// Blocks that can be read.
absl::StatusOr<int> Hits(HostileWorld* world, const HostileSession& session,
                         std::uint64_t from, std::uint64_t count) {
  ASSIGN_OR_RETURN(const v1::OpenReadResponse opened,
                   OpenBlocks(world, session, from, count));
  int hits = 0;
  for (const char outcome : opened.outcomes()) {
    hits += static_cast<Outcome>(outcome) == Outcome::kHit ? 1 : 0;
  }
  return hits;
}

// Attacks that leave their stream alive: how many answers are not what they
// deserve.
absl::StatusOr<int> LivingAttacks(HostileWorld* world,
                                  const HostileSession& session,
                                  std::uint64_t number) {
  const NamespaceId name_space = world->other_sizes.id;
  ASSIGN_OR_RETURN(HostileStream stream, StreamOf(session));
  const std::string content = ContentOf(*world, number);
  std::string changed = content;
  changed[kBlockBytes / 2] = static_cast<char>(changed[kBlockBytes / 2] ^ 1);
  int wrong = 0;
  const auto expect = [&wrong](bool is_so) { wrong += is_so ? 0 : 1; };

  // One byte is not what its checksum says.
  stream.Send(FrameType::kReserve, 1, ReserveOf(name_space, number, 1));
  stream.Send(FrameType::kWrite, 1, WriteOf(number, content), changed.size(),
              changed);
  expect(AwaitWritten(&stream, 1) == Outcome::kCorrupt);
  // Given up, then sent all the same.
  stream.Send(FrameType::kReserve, 2, ReserveOf(name_space, number, 1));
  stream.Send(FrameType::kCancel, 2, "");
  expect(Await(&stream, FrameType::kWriteEnd, 2).has_value());
  stream.Send(FrameType::kWrite, 2, WriteOf(number, content), content.size(),
              content);
  // Twice, a sound block: the second is thrown away.
  const std::string sound = ContentOf(*world, kFirstSound);
  stream.Send(FrameType::kReserve, 3, ReserveOf(name_space, kFirstSound, 1));
  for (int i = 0; i < 2; ++i) {
    stream.Send(FrameType::kWrite, 3, WriteOf(kFirstSound, sound), sound.size(),
                sound);
  }
  expect(AwaitWritten(&stream, 3) == Outcome::kStored);
  stream.Send(FrameType::kReserve, 4, ReserveOf(name_space, kFirstSound, 1));
  const std::vector<Outcome> again = AwaitReserved(&stream, 4);
  expect(!again.empty() && again.front() == Outcome::kAlreadyThere);
  return wrong;
}

}  // namespace

absl::StatusOr<Tally> ForgeTokens(HostileWorld* world) {
  Tally tally = {{"forged", 0}, {"served", 0}, {"own", 0}};
  ASSIGN_OR_RETURN(const std::unique_ptr<HostileSession> session,
                   HostileSession::Connect(world->socket));
  const std::string token = session->welcome().token();
  tally["own"] = StreamOf(*session).ok() ? 1 : 0;
  std::vector<std::string> forged = {"", token.substr(0, token.size() - 1),
                                     token + token,
                                     std::string(token.size(), '\0')};
  for (std::size_t i = 0; i < token.size(); i += 4) {
    forged.push_back(token);
    forged.back()[i] = static_cast<char>(forged.back()[i] ^ 1);
  }
  for (const std::string& one : forged) {
    ++tally["forged"];
    if (HostileStream::Connect(session->welcome(), one).ok()) ++tally["served"];
  }
  return tally;
}

absl::StatusOr<Tally> BreakWrites(HostileWorld* world) {
  Tally tally = {{"tried", 0}, {"ended", 0}, {"wrong", 0}, {"hits", 0}};
  ASSIGN_OR_RETURN(const std::unique_ptr<HostileSession> session,
                   HostileSession::Connect(world->socket));
  std::uint64_t number = kFirstNever;
  for (const auto& attack : Ending()) {
    ASSIGN_OR_RETURN(HostileStream stream, StreamOf(*session));
    Scene scene{.world = world,
                .welcome = &session->welcome(),
                .stream = &stream,
                .number = number,
                .content = ContentOf(*world, number)};
    ++number;
    stream.Send(FrameType::kReserve, 1,
                ReserveOf(world->other_sizes.id, scene.number, 1));
    const std::vector<Outcome> reserved = AwaitReserved(&stream, 1);
    if (reserved.empty() || reserved.front() != Outcome::kStored) {
      ++tally["wrong"];
    }
    ++tally["tried"];
    attack(&scene);
    if (stream.IsEnded()) ++tally["ended"];
  }
  // Cut in the middle of a block.
  {
    ASSIGN_OR_RETURN(HostileStream stream, StreamOf(*session));
    const std::string content = ContentOf(*world, number);
    stream.Send(FrameType::kReserve, 1,
                ReserveOf(world->other_sizes.id, number, 1));
    stream.Send(FrameType::kWrite, 1, WriteOf(number, content), content.size(),
                content.substr(0, kBlockBytes / 2));
    ++number;
  }
  ASSIGN_OR_RETURN(const int wrong, LivingAttacks(world, *session, number++));
  tally["wrong"] += wrong;
  ASSIGN_OR_RETURN(const int hits,
                   Hits(world, *session, kFirstNever, number - kFirstNever));
  tally["hits"] = hits;
  ASSIGN_OR_RETURN(const int sound, Hits(world, *session, kFirstSound, 1));
  tally["sound"] = sound;
  return tally;
}

absl::StatusOr<Tally> WriteIntoForeign(HostileWorld* world,
                                       const std::string& hex) {
  Tally tally = {{"asked", 0}, {"told", 0}};
  const std::optional<std::string> bytes = FromHex(hex);
  if (!bytes.has_value() || bytes->size() != NamespaceId::kBytes) {
    return absl::InvalidArgumentError("that is no namespace's id");
  }
  NamespaceId foreign;
  std::copy(bytes->begin(), bytes->end(), foreign.bytes.begin());
  ASSIGN_OR_RETURN(const std::unique_ptr<HostileSession> session,
                   HostileSession::Connect(world->socket));
  ASSIGN_OR_RETURN(HostileStream stream, StreamOf(*session));
  // Block by block, as it is there or not: neither may show. The bytes are
  // sent at once, as for a small batch.
  for (std::uint64_t i = 0; i < 16; ++i) {
    const std::uint64_t request = i + 1;
    const std::string content = ContentOf(*world, kFirstSound + i);
    stream.Send(FrameType::kReserve, request, ReserveOf(foreign, i, 1));
    stream.Send(FrameType::kWrite, request, WriteOf(i, content), content.size(),
                content);
    const std::vector<Outcome> outcomes = AwaitReserved(&stream, request);
    ++tally["asked"];
    if (outcomes.size() != 1 || outcomes.front() != Outcome::kDenied) {
      ++tally["told"];
    }
  }
  return tally;
}

absl::StatusOr<Tally> StallWrites(HostileWorld* world, std::uint64_t count,
                                  std::vector<HostileStream>* held) {
  constexpr std::uint64_t kRequests = 16;
  constexpr std::uint64_t kBlocks = 16;
  Tally tally = {{"reserved", 0}, {"congested", 0}};
  ASSIGN_OR_RETURN(const std::unique_ptr<HostileSession> session,
                   HostileSession::Connect(world->socket));
  std::uint64_t number = kFirstStalled;
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(HostileStream stream, StreamOf(*session));
    for (std::uint64_t request = 1; request <= kRequests; ++request) {
      stream.Send(FrameType::kReserve, request,
                  ReserveOf(world->other_sizes.id, number, kBlocks, kShort));
      for (const Outcome outcome : AwaitReserved(&stream, request)) {
        ++tally[outcome == Outcome::kStored ? "reserved" : "congested"];
      }
      number += kBlocks;
    }
    const std::uint64_t first = number - kRequests * kBlocks;
    const std::string content = ContentOf(*world, first);
    stream.Send(FrameType::kWrite, 1, WriteOf(first, content), content.size(),
                content.substr(0, kBlockBytes / 2));
    held->push_back(std::move(stream));
  }
  return tally;
}

}  // namespace firnkv
