// The limits of a socket: bare request and response loops over blocking calls,
// the bytes straight between a memfd and a caller's buffers, each 64 KiB piece
// checksummed where it landed.
//
//     serve address=unix:PATH|HOST:0 bytes=POOL        ok port=PORT
//     round_trip address= request=BYTES response=BYTES millis=80
//     read address= batch=BYTES threads=1 millis=80
//     write address= batch=BYTES millis=80
//
// One process serves, a thread a connection; another one asks.

#include <isa-l/crc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/status.h"
#include "tools/bench/command_loop.h"
#include "tools/bench/landing.h"
#include "tools/bench/limits/socket.h"

namespace firnkv {
namespace {

constexpr std::size_t kPiece = 64 * kKiB;

// What a request begins with. `out` bytes follow it, `back` bytes are answered:
// of the pool from `at` on.
struct Ask {
  std::uint64_t at = 0;
  std::uint64_t out = 0;
  std::uint64_t back = 0;
};

std::uint32_t Crc(absl::Span<const std::byte> bytes) {
  return crc32_iscsi(const_cast<unsigned char*>(
                         reinterpret_cast<const unsigned char*>(bytes.data())),
                     static_cast<int>(bytes.size()), 0);
}

// Each piece is checksummed while a cache still has it.
absl::Status ReceiveChecked(Socket* socket, absl::Span<std::byte> into,
                            std::uint32_t* crc) {
  while (!into.empty()) {
    const auto piece = into.subspan(0, kPiece);
    RETURN_IF_ERROR(socket->Receive(piece));
    *crc ^= Crc(piece);
    into.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

class Server {
 public:
  absl::StatusOr<Counts> Serve(const Command& command) {
    const std::size_t bytes =
        std::max<std::size_t>(command.Number("bytes"), kMiB);
    const int fd = memfd_create("firnkv-limit", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_POPULATE, fd, 0);
    CHECK(memory != MAP_FAILED);
    close(fd);
    std::memset(memory, 0x5a, bytes);
    const absl::Span<std::byte> pool(static_cast<std::byte*>(memory), bytes);
    ASSIGN_OR_RETURN(Socket listener, Socket::Listen(command.Text("address")));
    const std::uint64_t port = listener.port();
    // Its threads serve until the process ends.
    threads_.emplace_back([this, pool, own = std::move(listener)]() mutable {
      for (;;) {
        absl::StatusOr<Socket> socket = own.Accept();
        if (!socket.ok()) return;
        connections_.emplace_back([pool, peer = *std::move(socket)]() mutable {
          while (ServeOne(pool, &peer).ok()) {
          }
        });
      }
    });
    return Counts{{"port", port}};
  }

 private:
  static absl::Status ServeOne(absl::Span<std::byte> pool, Socket* socket) {
    Ask ask;
    RETURN_IF_ERROR(socket->Receive(BytesOf(&ask)));
    std::uint32_t crc = 0;
    RETURN_IF_ERROR(
        ReceiveChecked(socket, pool.subspan(ask.at, ask.out), &crc));
    return socket->Send(pool.subspan(ask.at, ask.back));
  }

  std::vector<std::thread> threads_;
  std::vector<std::thread> connections_;
};

class SocketLimit {
 public:
  absl::StatusOr<Counts> RoundTrip(const Command& command) {
    ASSIGN_OR_RETURN(Socket socket, Socket::Connect(command.Text("address")));
    const std::size_t request =
        std::max<std::size_t>(command.Number("request"), sizeof(Ask));
    std::vector<std::byte> out(request);
    std::vector<std::byte> back(command.Number("response", 8));
    const Ask ask{.at = 0, .out = request - sizeof(Ask), .back = back.size()};
    std::memcpy(out.data(), &ask, sizeof(ask));
    return Measure(command, [&](int) -> absl::StatusOr<std::uint64_t> {
      RETURN_IF_ERROR(socket.Send(out));
      RETURN_IF_ERROR(socket.Receive(absl::MakeSpan(back)));
      return back.size();
    });
  }

  absl::StatusOr<Counts> Read(const Command& command) {
    const std::size_t batch = command.Number("batch");
    const std::uint64_t batches = command.Number("bytes") / batch;
    struct Reader {
      Socket socket;
      std::unique_ptr<Landing> landing;
      std::uint32_t crc = 0;
      std::uint64_t turn = 0;
    };
    std::vector<Reader> readers(
        std::max<std::uint64_t>(command.Number("threads", 1), 1));
    for (Reader& reader : readers) {
      ASSIGN_OR_RETURN(reader.socket, Socket::Connect(command.Text("address")));
      reader.landing = std::make_unique<Landing>(batch);
    }
    return Measure(command, [&](int thread) -> absl::StatusOr<std::uint64_t> {
      Reader& reader = readers[static_cast<std::size_t>(thread)];
      Ask ask{.at = reader.turn++ % batches * batch, .out = 0, .back = batch};
      RETURN_IF_ERROR(reader.socket.Send(BytesOf(&ask)));
      RETURN_IF_ERROR(
          ReceiveChecked(&reader.socket, reader.landing->Next(), &reader.crc));
      return batch;
    });
  }

  absl::StatusOr<Counts> Write(const Command& command) {
    const std::size_t batch = command.Number("batch");
    const std::uint64_t batches = command.Number("bytes") / batch;
    ASSIGN_OR_RETURN(Socket socket, Socket::Connect(command.Text("address")));
    Landing source(batch);
    std::uint64_t turn = 0;
    std::uint32_t crc = 0;
    return Measure(command, [&](int) -> absl::StatusOr<std::uint64_t> {
      Ask ask{.at = turn++ % batches * batch, .out = batch, .back = 8};
      const absl::Span<std::byte> bytes = source.Next();
      // The writer's checksum goes with the bytes.
      crc ^= Crc(bytes);
      RETURN_IF_ERROR(socket.Send(BytesOf(&ask)));
      RETURN_IF_ERROR(socket.Send(bytes));
      std::uint64_t answer = 0;
      RETURN_IF_ERROR(socket.Receive(BytesOf(&answer)));
      return batch + (crc & 0);
    });
  }
};

}  // namespace
}  // namespace firnkv

int main() {
  firnkv::Server server;
  firnkv::SocketLimit limit;
  firnkv::CommandLoop loop;
  loop.Add("serve", [&](const firnkv::Command& command) {
    return server.Serve(command);
  });
  loop.Add("round_trip", [&](const firnkv::Command& command) {
    return limit.RoundTrip(command);
  });
  loop.Add("read",
           [&](const firnkv::Command& command) { return limit.Read(command); });
  loop.Add("write", [&](const firnkv::Command& command) {
    return limit.Write(command);
  });
  loop.Run();
  // Without waiting for threads that wait for peers.
  _exit(0);
}
