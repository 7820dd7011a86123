// Redis and memcached, asked as quickly as their protocols allow: blocking
// sockets, values received straight into the caller's buffers by one vectored
// call, no copy and no checksum.
//
//     connect kind=redis|memcached address=unix:PATH|HOST:PORT
//     fill blocks=COUNT bytes=SIZE
//     get count=1 threads=1 millis=80
//
// `get` asks for `count` values at a time (MGET, get k1 k2 ...).

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"
#include "tools/bench/command_loop.h"
#include "tools/bench/landing.h"
#include "tools/bench/limits/socket.h"

namespace firnkv {
namespace {

absl::Span<const std::byte> BytesOfText(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string KeyOf(std::uint64_t number) {
  // All of one length, so that so are the answers.
  return absl::StrCat("block-", absl::Dec(number, absl::kZeroPad10));
}

// One protocol: what is sent, and what stands before, between and behind the
// values of the answer.
struct Protocol {
  virtual ~Protocol() = default;
  virtual std::string Set(std::uint64_t number, std::size_t bytes) const = 0;
  virtual std::string Stored() const = 0;
  virtual std::string Get(std::uint64_t first, std::size_t count) const = 0;
  virtual std::string Begin(std::size_t count) const = 0;
  virtual std::string Before(std::uint64_t number, std::size_t bytes) const = 0;
  virtual std::string End() const = 0;
};

struct Redis : Protocol {
  std::string Set(std::uint64_t number, std::size_t bytes) const override {
    const std::string key = KeyOf(number);
    return absl::StrCat("*3\r\n$3\r\nSET\r\n$", key.size(), "\r\n", key,
                        "\r\n$", bytes, "\r\n");
  }
  std::string Stored() const override { return "+OK\r\n"; }
  std::string Get(std::uint64_t first, std::size_t count) const override {
    std::string text = absl::StrCat("*", count + 1, "\r\n$4\r\nMGET\r\n");
    if (count == 1) text = "*2\r\n$3\r\nGET\r\n";
    for (std::size_t i = 0; i < count; ++i) {
      const std::string key = KeyOf(first + i);
      absl::StrAppend(&text, "$", key.size(), "\r\n", key, "\r\n");
    }
    return text;
  }
  std::string Begin(std::size_t count) const override {
    return count == 1 ? "" : absl::StrCat("*", count, "\r\n");
  }
  std::string Before(std::uint64_t, std::size_t bytes) const override {
    return absl::StrCat("$", bytes, "\r\n");
  }
  std::string End() const override { return ""; }
};

struct Memcached : Protocol {
  std::string Set(std::uint64_t number, std::size_t bytes) const override {
    return absl::StrCat("set ", KeyOf(number), " 0 0 ", bytes, "\r\n");
  }
  std::string Stored() const override { return "STORED\r\n"; }
  std::string Get(std::uint64_t first, std::size_t count) const override {
    std::string text = "get";
    for (std::size_t i = 0; i < count; ++i) {
      absl::StrAppend(&text, " ", KeyOf(first + i));
    }
    return text + "\r\n";
  }
  std::string Begin(std::size_t) const override { return ""; }
  std::string Before(std::uint64_t number, std::size_t bytes) const override {
    return absl::StrCat("VALUE ", KeyOf(number), " 0 ", bytes, "\r\n");
  }
  std::string End() const override { return "END\r\n"; }
};

absl::Status Expect(Socket* socket, const std::string& wanted) {
  std::string got(wanted.size(), '\0');
  RETURN_IF_ERROR(
      socket->Receive({reinterpret_cast<std::byte*>(got.data()), got.size()}));
  if (got == wanted) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("answered '", got, "'"));
}

class CachePeer {
 public:
  absl::StatusOr<Counts> Connect(const Command& command) {
    if (command.Text("kind") == "redis") {
      protocol_ = std::make_unique<Redis>();
    } else {
      protocol_ = std::make_unique<Memcached>();
    }
    address_ = command.Text("address");
    sockets_.clear();
    return Add(1);
  }

  absl::StatusOr<Counts> Fill(const Command& command) {
    if (sockets_.empty()) return absl::FailedPreconditionError("no peer");
    blocks_ = command.Number("blocks");
    bytes_ = command.Number("bytes");
    const std::string value = std::string(bytes_, 'v') + "\r\n";
    for (std::uint64_t i = 0; i < blocks_; ++i) {
      RETURN_IF_ERROR(sockets_[0].Send(BytesOfText(protocol_->Set(i, bytes_))));
      RETURN_IF_ERROR(sockets_[0].Send(BytesOfText(value)));
      RETURN_IF_ERROR(Expect(&sockets_[0], protocol_->Stored()));
    }
    return Counts();
  }

  absl::StatusOr<Counts> Get(const Command& command) {
    const std::size_t threads =
        std::max<std::uint64_t>(command.Number("threads", 1), 1);
    const std::size_t count = command.Number("count", 1);
    RETURN_IF_ERROR(Add(threads).status());
    std::vector<std::unique_ptr<Landing>> landings;
    for (std::size_t i = 0; i < threads; ++i) {
      landings.push_back(std::make_unique<Landing>(count * bytes_));
    }
    std::vector<std::uint64_t> turns(threads);
    return Measure(command, [&](int thread) -> absl::StatusOr<std::uint64_t> {
      const auto me = static_cast<std::size_t>(thread);
      const std::uint64_t first =
          (turns[me]++ * threads + me) % (blocks_ / count) * count;
      return GetBatch(&sockets_[me], first, count, landings[me]->Next());
    });
  }

 private:
  absl::StatusOr<Counts> Add(std::size_t sockets) {
    while (sockets_.size() < sockets) {
      ASSIGN_OR_RETURN(Socket socket, Socket::Connect(address_));
      sockets_.push_back(std::move(socket));
    }
    return Counts();
  }

  absl::StatusOr<std::uint64_t> GetBatch(Socket* socket, std::uint64_t first,
                                         std::size_t count,
                                         absl::Span<std::byte> into) const {
    RETURN_IF_ERROR(socket->Send(BytesOfText(protocol_->Get(first, count))));
    // The answer's length is known: everything in it lands at once, values in
    // their places and the rest in `text`.
    std::vector<std::string> text;
    text.reserve(count + 1);
    std::vector<std::string> wanted;
    std::vector<iovec> pieces;
    const auto add_text = [&](std::string expected) {
      text.emplace_back(expected.size(), '\0');
      pieces.push_back({text.back().data(), expected.size()});
      wanted.push_back(std::move(expected));
    };
    for (std::size_t i = 0; i < count; ++i) {
      add_text((i == 0 ? protocol_->Begin(count) : std::string("\r\n")) +
               protocol_->Before(first + i, bytes_));
      pieces.push_back({into.data() + i * bytes_, bytes_});
    }
    add_text("\r\n" + protocol_->End());
    RETURN_IF_ERROR(socket->ReceivePieces(&pieces));
    if (text != wanted) return absl::InternalError("another answer");
    return into.size();
  }

  std::unique_ptr<Protocol> protocol_;
  std::string address_;
  std::vector<Socket> sockets_;
  std::uint64_t blocks_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace
}  // namespace firnkv

int main() {
  firnkv::CachePeer peer;
  firnkv::CommandLoop loop;
  loop.Add("connect", [&](const firnkv::Command& command) {
    return peer.Connect(command);
  });
  loop.Add("fill",
           [&](const firnkv::Command& command) { return peer.Fill(command); });
  loop.Add("get",
           [&](const firnkv::Command& command) { return peer.Get(command); });
  return loop.Run();
}
