// What a small local call costs as a frame, as gRPC, and what the socket alone
// does: interleaved, median of the pairs' ratios.
//
//     frame_bench SOCKET [PAIRS]       (a running node's; as a uid of its map)
//
// A bare round trip is a packet of the same size there and one back, between
// this process and a child that does nothing else, each blocking in recv(2).

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/chain.h"
#include "client/client.h"
#include "client/transport/descriptor.h"
#include "proto/base/check.h"
#include "proto/base/clock.h"
#include "proto/base/session_frame.h"

namespace firnkv {
namespace {

constexpr int kBlocks = 128;
constexpr int kCalls = 2000;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

// A call, on average. The processor's time and the times that a thread went to
// sleep are this process's, and steady on a busy machine too.
struct Cost {
  double micros = 0;
  double cpu_micros = 0;
  double sleeps = 0;
};

Cost CostOf(const std::function<void()>& call) {
  const SystemClock clock;
  rusage before = {};
  rusage after = {};
  const BootTime begun = clock.Now();
  getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < kCalls; ++i) call();
  getrusage(RUSAGE_SELF, &after);
  const auto cpu = [](const rusage& usage) {
    return absl::DurationFromTimeval(usage.ru_utime) +
           absl::DurationFromTimeval(usage.ru_stime);
  };
  return {
      .micros = absl::ToDoubleMicroseconds(clock.Now() - begun) / kCalls,
      .cpu_micros =
          absl::ToDoubleMicroseconds(cpu(after) - cpu(before)) / kCalls,
      .sleeps = static_cast<double>(after.ru_nvcsw - before.ru_nvcsw) / kCalls};
}

// A child that answers packets of one size by packets of another.
class BareLoop {
 public:
  BareLoop(std::size_t request, std::size_t answer) : request_(request, 'q') {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    here_ = Descriptor(ends[0]);
    child_ = fork();
    CHECK(child_ >= 0);
    if (child_ == 0) {
      here_.Reset();
      Serve(ends[1], request, std::string(answer, 'a'));
    }
    close(ends[1]);
    answer_.resize(answer);
  }
  ~BareLoop() {
    here_.Reset();
    waitpid(child_, nullptr, 0);
  }
  void Call() {
    CHECK(send(here_.get(), request_.data(), request_.size(), 0) > 0);
    CHECK(recv(here_.get(), answer_.data(), answer_.size(), 0) > 0);
  }

 private:
  [[noreturn]] static void Serve(int fd, std::size_t request,
                                 const std::string& answer) {
    std::string got(request, '\0');
    while (recv(fd, got.data(), got.size(), 0) > 0) {
      if (send(fd, answer.data(), answer.size(), 0) < 0) break;
    }
    _exit(0);
  }

  std::string request_;
  std::string answer_;
  Descriptor here_;
  pid_t child_ = -1;
};

std::unique_ptr<Client> Connect(const std::string& socket, bool frames) {
  ClientOptions options;
  options.socket_path = socket;
  options.client_name = "frame_bench";
  options.call_frames = frames;
  // Of whatever uid: it is the operator's own choice here.
  options.server_uid = 1001;
  return Must(Client::Connect(std::move(options)));
}

NamespaceHandle Open(Client* client) {
  StateContract contract;
  contract.model = contract.weights_revision = contract.tokenizer = "bench";
  contract.preprocessing = contract.positional = contract.kv_dtype = "bench";
  contract.layer_order = contract.kv_order = contract.head_grouping = "bench";
  contract.page_order = "bench";
  contract.block_tokens = contract.tensor_parallel = 1;
  contract.pipeline_parallel = contract.context_parallel = 1;
  contract.layout_version = 1;
  return Must(client->OpenNamespace({.name = "frame_bench",
                                     .contract = contract,
                                     .create = true,
                                     .deadline = absl::Seconds(5)}));
}

std::vector<BlockKey> Write(Client* client, const NamespaceHandle& name_space,
                            const std::string& name, int count,
                            std::size_t bytes) {
  const std::vector<std::byte> content(bytes, std::byte{42});
  const std::vector<ConstBuffer> source = {
      {.address = content.data(), .length = bytes}};
  std::vector<BlockKey> keys;
  std::vector<WriteBlock> blocks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    WriteBlock& block = blocks[static_cast<std::size_t>(i)];
    block.key = MakeBlockKey(name + std::to_string(i), {});
    block.place.anchor = block.key;
    block.place.tokens = 1;
    block.source = source;
    keys.push_back(block.key);
  }
  const WriteReport report = client->Write({.name_space = name_space,
                                            .blocks = absl::MakeSpan(blocks),
                                            .deadline = absl::Seconds(10)});
  CHECK(report.stored + report.already_there == blocks.size());
  return keys;
}

void ViewAll(Client* client, const NamespaceHandle& name_space,
             const std::vector<BlockKey>& keys) {
  ViewBatch views = client->OpenViews(
      {.name_space = name_space, .keys = keys, .deadline = absl::Seconds(5)});
  CHECK(views.report().hits == keys.size());
  for (const Outcome outcome : std::move(views).Close()) {
    CHECK(outcome == Outcome::kHit);
  }
}

void ReadOne(Client* client, const NamespaceHandle& name_space,
             const BlockKey& key, std::vector<std::byte>* memory) {
  const std::vector<Buffer> buffers = {
      {.address = memory->data(), .length = memory->size()}};
  ReadTarget target;
  target.key = key;
  target.destination = buffers;
  const ReadReport report = client->Read({.name_space = name_space,
                                          .blocks = {&target, 1},
                                          .deadline = absl::Seconds(5)});
  CHECK(report.hits == 1);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Figure {
  const char* name;
  std::function<void()> call;
};

void Measure(const char* title, std::vector<Figure> figures, int pairs) {
  std::vector<std::vector<Cost>> costs(figures.size());
  for (int pair = -1; pair < pairs; ++pair) {
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const Cost cost = CostOf(figures[i].call);
      if (pair >= 0) costs[i].push_back(cost);
    }
  }
  const auto median = [](const std::vector<Cost>& all, double Cost::*of) {
    std::vector<double> values;
    for (const Cost& cost : all) values.push_back(cost.*of);
    return Median(std::move(values));
  };
  std::printf("%s\n", title);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    std::vector<double> ratios;
    for (std::size_t n = 0; n < costs[i].size(); ++n) {
      ratios.push_back(costs[i][n].micros / costs[0][n].micros);
    }
    std::printf("  %-20s %7.1f us  x %5.2f   cpu %6.1f us   %4.1f sleeps\n",
                figures[i].name, median(costs[i], &Cost::micros),
                Median(ratios), median(costs[i], &Cost::cpu_micros),
                median(costs[i], &Cost::sleeps));
  }
}

void Main(const std::string& socket, int pairs) {
  CallOpenReadBody ask;
  ask.keys.resize(kBlocks);
  CallOpenedBody told;
  told.lease = 1;
  told.blocks.resize(kBlocks);
  for (CallOpenedBody::Block& block : told.blocks) {
    block.outcome = Outcome::kHit;
    block.extents.push_back({});
  }
  const std::size_t asked = kFrameLeadBytes + EncodeCallOpenRead(ask).size();
  const std::size_t answered = kFrameLeadBytes + EncodeCallOpened(told).size();
  BareLoop bare_128(asked, answered);
  BareLoop bare_1(200, 120);

  const auto framed = Connect(socket, true);
  const auto called = Connect(socket, false);
  const NamespaceHandle name_space = Open(framed.get());
  const auto small = Write(framed.get(), name_space, "s", kBlocks, 4096);
  const auto one = Write(framed.get(), name_space, "l", 1, 64 * kKiB);
  std::vector<std::byte> memory(64 * kKiB);

  std::printf("packets of %zu and %zu bytes\n", asked, answered);
  Measure("view of 128 blocks, open to close",
          {{"bare unix socket", [&] { bare_128.Call(); }},
           {"frames", [&] { ViewAll(framed.get(), name_space, small); }},
           {"gRPC", [&] { ViewAll(called.get(), name_space, small); }}},
          pairs);
  Measure(
      "one block of 64 KiB, copied and verified",
      {{"bare unix socket", [&] { bare_1.Call(); }},
       {"frames", [&] { ReadOne(framed.get(), name_space, one[0], &memory); }},
       {"gRPC", [&] { ReadOne(called.get(), name_space, one[0], &memory); }}},
      pairs);
}

}  // namespace
}  // namespace firnkv

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "frame_bench SOCKET [PAIRS]\n");
    return 1;
  }
  firnkv::TurnOffDeadlockDetection();
  firnkv::Main(argv[1], argc > 2 ? std::atoi(argv[2]) : 15);
  return 0;
}
