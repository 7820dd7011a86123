// What process_client does when it is told: one method a command of its line
// protocol, each answering with one line.
//
//     ok NAME=NUMBER...          it was done; outcomes by kind, counts
//     failed CODE MESSAGE        it could not be tried
//
// Blocks are those of numbered chains; their bytes follow from namespace and
// key (tools/replay/block_content.h), so that every hit is verified.
//
// Threading. One thread.

#ifndef FIRNKV_TESTS_PROCESS_CLIENT_PROGRAM_H_
#define FIRNKV_TESTS_PROCESS_CLIENT_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/transport/real_seams.h"
#include "tests/process/raw_session.h"

namespace firnkv {

class ClientProgram {
 public:
  ClientProgram() = default;

  // Answers one line.
  std::string Obey(const std::string& line);

 private:
  using Words = std::vector<std::string>;
  using Counts = std::map<std::string, std::int64_t>;

  // connect SOCKET [stream]: by the SDK; `stream` maps nothing.
  std::string Connect(const Words& words);
  // away CATALOG TOKEN: by the SDK, without a local node; the token in hex.
  std::string Away(const Words& words);
  // open NAME BLOCK_BYTES
  std::string Open(const Words& words);
  // write CHAIN BLOCKS [published]
  std::string Write(const Words& words);
  // read CHAIN BLOCKS: every block.
  std::string Read(const Words& words);
  // view CHAIN BLOCKS AGE_MILLIS: opens views of every block.
  std::string View(const Words& words);
  // look, close: what is wrong in them, whatever the verdict; then with it.
  // Look also says how many sessions were lost.
  std::string Look(const Words& words);
  std::string Close(const Words& words);
  // end: ends the Client; then as `threads`.
  std::string End(const Words& words);
  // threads: how many this process has.
  std::string Threads(const Words& words);
  // exists CHAIN BLOCKS
  std::string Exists(const Words& words);
  // fork CHAIN BLOCKS: a forked child reads, ends its Client and itself; says
  // how.
  std::string Fork(const Words& words);
  // soak PAGE_FILE SEED CHAINS NODES HERE: SoakLoad, until a line comes; what
  // it counts stands in the page. Then SoakLoad::WriteToTheEnd.
  std::string Soak(const Words& words);
  // load SEED CHAINS BLOCKS: reads chains, writes what they lack, over and over
  // until a line comes.
  std::string Load(const Words& words);

  // raw SOCKET: by RawSession.
  std::string Raw(const Words& words);
  // hold CHAIN BLOCKS SECONDS, check, reserve CHAIN BLOCKS
  std::string Hold(const Words& words);
  std::string Check(const Words& words);
  std::string Reserve(const Words& words);
  // take BYTES more of the machine's memory.
  std::string Take(const Words& words);
  // attack REGION WHAT: asks for its descriptor and tries to write.
  std::string Attack(const Words& words);

  // Wrong bytes of one viewed block.
  std::size_t WrongIn(std::size_t index) const;

  absl::Status OpenSeams();
  // Each notes outcomes, bytes and wrong bytes in `counts`. ReadChain returns
  // the leading hits.
  std::size_t ReadChain(std::uint64_t chain, std::size_t blocks, ReadWant want,
                        Counts* counts);
  void WriteChain(std::uint64_t chain, std::size_t blocks, std::size_t from,
                  WriteWait wait_for, Counts* counts);

  std::unique_ptr<RealSeams> seams_;
  std::unique_ptr<RawSession> raw_;
  std::unique_ptr<Client> client_;
  NamespaceHandle name_space_;
  ViewBatch views_;
  // Of the viewed blocks.
  std::vector<BlockKey> viewed_;
  std::vector<std::vector<std::byte>> taken_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_CLIENT_PROGRAM_H_
