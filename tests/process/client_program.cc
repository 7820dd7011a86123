#include "tests/process/client_program.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "client/transport/grpc_channel.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tests/process/soak_load.h"
#include "tests/process/soak_page.h"
#include "tests/process/users.h"
#include "tools/replay/block_content.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kBlockTokens = 16;
constexpr absl::Duration kDeadline = absl::Seconds(2);
constexpr int kPauseMillis = 5;
constexpr absl::Duration kConnectTimeout = absl::Seconds(20);

std::string Failed(const absl::Status& status) {
  return StrCat("failed ", status.ToString());
}

std::string Ok(const std::map<std::string, std::int64_t>& counts) {
  std::string line = "ok";
  for (const auto& [name, count] : counts) {
    absl::StrAppend(&line, " ", name, "=", count);
  }
  return line;
}

std::vector<Chain::Block> BlocksOf(std::uint64_t chain, std::size_t blocks) {
  Chain made({.block_tokens = kBlockTokens, .shard = {}});
  for (std::size_t i = 0; i < blocks; ++i) {
    made.Append(StrCat("chain ", chain, " block ", i));
  }
  return made.blocks();
}

std::uint64_t Number(const std::vector<std::string>& words, std::size_t i) {
  return i < words.size() ? std::strtoull(words[i].c_str(), nullptr, 10) : 0;
}

StateContract Contract() {
  return {.model = "granite",
          .weights_revision = "r1",
          .tokenizer = "granite@r1",
          .preprocessing = "none",
          .positional = "rope",
          .kv_dtype = "bf16",
          .layer_order = "layers,kv,heads,tokens,dim",
          .kv_order = "k-then-v",
          .head_grouping = "8 kv heads",
          .page_order = "tokens",
          .block_tokens = kBlockTokens,
          .tensor_parallel = 1,
          .pipeline_parallel = 1,
          .context_parallel = 1,
          .layout_version = 1,
          .adapters = {},
          .cache_salt = {}};
}

bool ALineHasCome() {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&input, 1, 0) != 0;
}

}  // namespace

std::string ClientProgram::Obey(const std::string& line) {
  static constexpr struct {
    const char* name;
    std::string (ClientProgram::*method)(const Words&);
  } kCommands[] = {{"connect", &ClientProgram::Connect},
                   {"open", &ClientProgram::Open},
                   {"write", &ClientProgram::Write},
                   {"read", &ClientProgram::Read},
                   {"view", &ClientProgram::View},
                   {"look", &ClientProgram::Look},
                   {"close", &ClientProgram::Close},
                   {"exists", &ClientProgram::Exists},
                   {"end", &ClientProgram::End},
                   {"threads", &ClientProgram::Threads},
                   {"fork", &ClientProgram::Fork},
                   {"load", &ClientProgram::Load},
                   {"soak", &ClientProgram::Soak},
                   {"raw", &ClientProgram::Raw},
                   {"hold", &ClientProgram::Hold},
                   {"check", &ClientProgram::Check},
                   {"reserve", &ClientProgram::Reserve},
                   {"attack", &ClientProgram::Attack},
                   {"take", &ClientProgram::Take},
                   {"away", &ClientProgram::Away}};
  const Words words = absl::StrSplit(line, ' ');
  for (const auto& command : kCommands) {
    if (words[0] == command.name) return (this->*command.method)(words);
  }
  return Failed(absl::InvalidArgumentError(StrCat("what is ", words[0], "?")));
}

// --- By the SDK.

std::string ClientProgram::Connect(const Words& words) {
  ClientOptions options;
  options.socket_path = words[1];
  options.client_name = "process_client";
  options.server_uid = kDaemonUid;
  options.connect_timeout = kConnectTimeout;
  options.map_local_blocks = words.size() < 3;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
  if (!client.ok()) return Failed(client.status());
  client_ = *std::move(client);
  return Ok({{"mapping", client_->Describe().mapping}});
}

std::string ClientProgram::Away(const Words& words) {
  ClientOptions options;
  options.socket_path.clear();
  options.catalog_address = words[1];
  options.token = absl::HexStringToBytes(words[2]);
  options.client_name = "process_client";
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
  if (!client.ok()) return Failed(client.status());
  client_ = *std::move(client);
  return Ok({});
}

std::string ClientProgram::Open(const Words& words) {
  const absl::StatusOr<NamespaceHandle> opened =
      client_->OpenNamespace({.name = words[1],
                              .contract = Contract(),
                              .block_bytes = Number(words, 2)});
  if (!opened.ok()) return Failed(opened.status());
  name_space_ = *opened;
  return Ok({{"version", name_space_.version}});
}

std::string ClientProgram::Write(const Words& words) {
  Counts counts;
  WriteChain(Number(words, 1), Number(words, 2), 0,
             words.size() > 3 ? WriteWait::kPublished : WriteWait::kLocal,
             &counts);
  return Ok(counts);
}

std::string ClientProgram::Read(const Words& words) {
  Counts counts;
  ReadChain(Number(words, 1), Number(words, 2), ReadWant::kEveryBlock, &counts);
  return Ok(counts);
}

std::string ClientProgram::View(const Words& words) {
  viewed_.clear();
  for (const Chain::Block& block :
       BlocksOf(Number(words, 1), Number(words, 2))) {
    viewed_.push_back(block.key);
  }
  views_ = client_->OpenViews({.name_space = name_space_,
                               .keys = viewed_,
                               .deadline = kDeadline,
                               .want = ReadWant::kEveryBlock,
                               .max_age = absl::Milliseconds(
                                   static_cast<std::int64_t>(Number(words, 3))),
                               .trace = {}});
  if (!views_.report().status.ok()) return Failed(views_.report().status);
  return Ok({{"hit", static_cast<std::int64_t>(views_.report().hits)}});
}

std::size_t ClientProgram::WrongIn(std::size_t index) const {
  std::vector<std::byte> bytes;
  for (const absl::Span<const std::byte> span : views_.spans(index)) {
    bytes.insert(bytes.end(), span.begin(), span.end());
  }
  return BlockContent({name_space_.id, viewed_[index]})
      .CountWrong(bytes, nullptr);
}

std::string ClientProgram::Look(const Words&) {
  Counts counts = {{"sessions_lost",
                    static_cast<std::int64_t>(client_->Stats().sessions_lost)}};
  for (std::size_t i = 0; i < views_.size(); ++i) {
    counts["wrong"] += static_cast<std::int64_t>(WrongIn(i));
  }
  return Ok(counts);
}

std::string ClientProgram::End(const Words& words) {
  views_ = ViewBatch();
  name_space_ = NamespaceHandle();
  client_.reset();
  return Threads(words);
}

std::string ClientProgram::Threads(const Words&) {
  std::int64_t threads = 0;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/self/task")) {
    threads += thread.is_directory() ? 1 : 0;
  }
  return Ok({{"threads", threads}});
}

std::string ClientProgram::Close(const Words&) {
  Counts counts;
  std::vector<std::int64_t> wrong;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    wrong.push_back(static_cast<std::int64_t>(WrongIn(i)));
  }
  const std::vector<Outcome> verdicts = std::move(views_).Close();
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    ++counts[std::string(OutcomeLabel(verdicts[i]))];
    if (verdicts[i] == Outcome::kHit) counts["wrong"] += wrong[i];
  }
  return Ok(counts);
}

std::string ClientProgram::Exists(const Words& words) {
  std::vector<ExistsTarget> targets;
  for (const Chain::Block& block :
       BlocksOf(Number(words, 1), Number(words, 2))) {
    targets.push_back({.key = block.key, .anchor = block.place.anchor});
  }
  const ExistsReport report =
      client_->Exists({.name_space = name_space_,
                       .blocks = absl::MakeSpan(targets),
                       .deadline = kDeadline,
                       .want = ReadWant::kEveryBlock,
                       .trace = {}});
  if (!report.status.ok()) return Failed(report.status);
  return Ok({{"hit", static_cast<std::int64_t>(report.hits)}});
}

std::size_t ClientProgram::ReadChain(std::uint64_t chain, std::size_t blocks,
                                     ReadWant want, Counts* counts) {
  const std::size_t bytes = name_space_.block_bytes;
  std::vector<std::byte> landed(blocks * bytes);
  std::vector<Buffer> buffers(blocks);
  std::vector<ReadTarget> targets(blocks);
  const std::vector<Chain::Block> of = BlocksOf(chain, blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    buffers[i] = {.address = landed.data() + i * bytes, .length = bytes};
    targets[i].key = of[i].key;
    targets[i].anchor = of[i].place.anchor;
    targets[i].destination = absl::MakeConstSpan(&buffers[i], 1);
  }
  const ReadReport report = client_->Read({.name_space = name_space_,
                                           .blocks = absl::MakeSpan(targets),
                                           .deadline = kDeadline,
                                           .want = want,
                                           .trace = {}});
  if (!report.status.ok()) ++(*counts)["bad_requests"];
  for (std::size_t i = 0; i < blocks; ++i) {
    ++(*counts)[std::string(OutcomeLabel(targets[i].outcome))];
    if (targets[i].outcome != Outcome::kHit) continue;
    const auto here = absl::MakeConstSpan(landed).subspan(i * bytes, bytes);
    (*counts)["wrong"] += static_cast<std::int64_t>(
        BlockContent({name_space_.id, of[i].key}).CountWrong(here, nullptr));
  }
  (*counts)["read_us"] += absl::ToInt64Microseconds(report.took);
  (*counts)["mapped_bytes"] += static_cast<std::int64_t>(report.bytes_mapped);
  (*counts)["remote_bytes"] += static_cast<std::int64_t>(report.bytes_remote);
  return report.leading_hits;
}

void ClientProgram::WriteChain(std::uint64_t chain, std::size_t blocks,
                               std::size_t from, WriteWait wait_for,
                               Counts* counts) {
  const std::size_t bytes = name_space_.block_bytes;
  const std::vector<Chain::Block> of = BlocksOf(chain, blocks);
  std::vector<std::byte> content((blocks - from) * bytes);
  std::vector<ConstBuffer> buffers(blocks - from);
  std::vector<WriteBlock> wanted(blocks - from);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Chain::Block& block = of[from + i];
    BlockContent({name_space_.id, block.key})
        .Fill(absl::MakeSpan(content).subspan(i * bytes, bytes));
    buffers[i] = {.address = content.data() + i * bytes, .length = bytes};
    wanted[i].key = block.key;
    wanted[i].place = block.place;
    wanted[i].source = absl::MakeConstSpan(&buffers[i], 1);
  }
  const BootTime began = SystemClock().Now();
  const WriteReport report = client_->Write({.name_space = name_space_,
                                             .blocks = absl::MakeSpan(wanted),
                                             .deadline = kDeadline,
                                             .wait_for = wait_for,
                                             .hint = {},
                                             .trace = {}});
  // To its outcome, and until the buffers were free.
  (*counts)["write_us"] += absl::ToInt64Microseconds(report.took);
  (*counts)["write_free_us"] +=
      absl::ToInt64Microseconds(SystemClock().Now() - began);
  if (!report.status.ok()) ++(*counts)["bad_requests"];
  for (const WriteBlock& block : wanted) {
    ++(*counts)["write_" + std::string(OutcomeLabel(block.outcome))];
  }
}

std::string ClientProgram::Fork(const Words& words) {
  int result[2];
  if (pipe(result) != 0) return Failed(absl::ErrnoToStatus(errno, "pipe"));
  const pid_t child = fork();
  if (child == 0) {
    Counts counts;
    ReadChain(Number(words, 1), Number(words, 2), ReadWant::kEveryBlock,
              &counts);
    client_.reset();
    const char unavailable = static_cast<char>(counts["unavailable"]);
    _exit(write(result[1], &unavailable, 1) == 1 ? 0 : 1);
  }
  close(result[1]);
  char unavailable = 0;
  const bool said = read(result[0], &unavailable, 1) == 1;
  close(result[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return Ok({{"exit", WIFEXITED(status) && said ? WEXITSTATUS(status) : -1},
             {"unavailable", unavailable}});
}

std::string ClientProgram::Load(const Words& words) {
  SeededRandom random(Number(words, 1));
  const std::uint64_t chains = Number(words, 2);
  const std::size_t blocks = Number(words, 3);
  Counts counts;
  while (!ALineHasCome()) {
    const std::uint64_t chain = random.Next64() % chains;
    const ReadWant want = random.Next64() % 3 == 0 ? ReadWant::kEveryBlock
                                                   : ReadWant::kLeadingRun;
    const WriteWait wait_for =
        random.Next64() % 8 == 0 ? WriteWait::kPublished : WriteWait::kLocal;
    const std::size_t there = ReadChain(chain, blocks, want, &counts);
    if (there < blocks) WriteChain(chain, blocks, there, wait_for, &counts);
    // Where nobody answers, others get the processor.
    if (!client_->Describe().session) poll(nullptr, 0, kPauseMillis);
    ++counts["rounds"];
  }
  return Ok(counts);
}

std::string ClientProgram::Soak(const Words& words) {
  const SoakPageFile file(words[1]);
  SoakLoad load({.name_space = name_space_,
                 .seed = Number(words, 2),
                 .chains = Number(words, 3),
                 .nodes = static_cast<int>(Number(words, 4)),
                 .here = static_cast<int>(Number(words, 5)),
                 .grace = ClientOptions().buffer_grace},
                client_.get(), &file.page());
  while (!ALineHasCome()) load.Round();
  return Ok(load.WriteToTheEnd());
}

// --- By hand.

absl::Status ClientProgram::OpenSeams() {
  if (seams_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(seams_,
                   RealSeams::Make({}, std::make_unique<GrpcConnector>()));
  return absl::OkStatus();
}

std::string ClientProgram::Raw(const Words& words) {
  const absl::Status opened = OpenSeams();
  if (!opened.ok()) return Failed(opened);
  absl::StatusOr<std::unique_ptr<RawSession>> session =
      RawSession::Connect(seams_->seams(), words[1]);
  if (!session.ok()) return Failed(session.status());
  raw_ = *std::move(session);
  return Ok({});
}

std::string ClientProgram::Hold(const Words& words) {
  const absl::StatusOr<int> hits =
      raw_->Hold(name_space_, BlocksOf(Number(words, 1), Number(words, 2)),
                 absl::Seconds(static_cast<std::int64_t>(Number(words, 3))));
  if (!hits.ok()) return Failed(hits.status());
  return Ok({{"hit", *hits},
             {"wrong", static_cast<std::int64_t>(raw_->WrongBytesHeld())},
             {"region", static_cast<std::int64_t>(raw_->region())}});
}

std::string ClientProgram::Check(const Words&) {
  return Ok({{"wrong", static_cast<std::int64_t>(raw_->WrongBytesHeld())}});
}

std::string ClientProgram::Reserve(const Words& words) {
  const absl::StatusOr<int> reserved =
      raw_->Reserve(name_space_, BlocksOf(Number(words, 1), Number(words, 2)),
                    name_space_.block_bytes);
  if (!reserved.ok()) return Failed(reserved.status());
  return Ok({{"reserved", *reserved}});
}

std::string ClientProgram::Take(const Words& words) {
  taken_.emplace_back(Number(words, 1), std::byte{1});
  return Ok({});
}

std::string ClientProgram::Attack(const Words& words) {
  const absl::StatusOr<std::shared_ptr<SharedMemory>> memory = raw_->Descriptor(
      Number(words, 1), static_cast<DescriptorOf>(Number(words, 2)));
  if (!memory.ok()) return Failed(memory.status());
  Counts counts;
  for (const std::string& way :
       WaysToWrite(static_cast<const MemfdMemory&>(**memory).descriptor())) {
    ++counts[way];
  }
  return Ok(counts);
}

}  // namespace firnkv
