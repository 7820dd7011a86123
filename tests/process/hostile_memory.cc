#include "tests/process/hostile_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "proto/base/slot_header.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tests/process/raw_session.h"

namespace firnkv {
namespace {

// Never unmapped: that is the attack.
absl::StatusOr<absl::Span<const std::byte>> MapAll(int fd) {
  struct stat size = {};
  if (fstat(fd, &size) != 0) return absl::ErrnoToStatus(errno, "fstat");
  const auto bytes = static_cast<std::size_t>(size.st_size);
  void* const address = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap");
  return absl::MakeConstSpan(static_cast<const std::byte*>(address), bytes);
}

bool IsZero(absl::Span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte one) { return one == std::byte{0}; });
}

}  // namespace

absl::Status KeptRegions::KeepOne(HostileSession* session,
                                  std::uint64_t region) {
  Region kept;
  ASSIGN_OR_RETURN(kept.slots, session->TakeDescriptor(region, 0));
  ASSIGN_OR_RETURN(kept.headers, session->TakeDescriptor(region, 1));
  ASSIGN_OR_RETURN(kept.slot_bytes, MapAll(kept.slots.get()));
  ASSIGN_OR_RETURN(kept.header_bytes, MapAll(kept.headers.get()));
  regions_.push_back(std::move(kept));
  return absl::OkStatus();
}

absl::StatusOr<int> KeptRegions::Keep(HostileWorld* world,
                                      std::uint64_t count) {
  count_ = count;
  ASSIGN_OR_RETURN(const std::unique_ptr<HostileSession> session,
                   HostileSession::Connect(world->socket));
  ASSIGN_OR_RETURN(const v1::OpenReadResponse opened,
                   OpenBlocks(world, *session, 0, count));
  const std::set<std::uint64_t> regions(opened.extent_regions().begin(),
                                        opened.extent_regions().end());
  for (const std::uint64_t region : regions) {
    RETURN_IF_ERROR(KeepOne(session.get(), region));
  }
  return static_cast<int>(regions_.size());
}

Tally KeptRegions::Look(const HostileWorld& world) const {
  Tally tally = {{"own", 0}, {"zero", 0}, {"foreign", 0}, {"strangers", 0}};
  for (const Region& region : regions_) {
    for (std::size_t at = 0; at < region.slot_bytes.size();
         at += kHostileBlockBytes) {
      const auto page = region.slot_bytes.subspan(at, kHostileBlockBytes);
      bool own = false;
      for (std::uint64_t i = 0; i < count_ && !own; ++i) {
        // A look at the first bytes finds the block; all of it is compared.
        own = IsBlock(world, i, page.subspan(0, 16)) && IsBlock(world, i, page);
      }
      ++tally[own ? "own" : IsZero(page) ? "zero" : "foreign"];
    }
    // Where the table's lead says it is; an entry that is none is no stranger.
    const auto* const lead =
        reinterpret_cast<const HeaderTableLead*>(region.header_bytes.data());
    const auto reader = HeaderTableReader::Open(
        region.header_bytes,
        RegionId{NodeEpoch{lead->region_epoch}, lead->region_serial});
    if (!reader) continue;
    for (std::uint32_t page = 0; page < lead->pages; ++page) {
      const std::optional<SlotHeader> header = reader->Read(page);
      if (header && header->block.name_space != world.name_space.id) {
        ++tally["strangers"];
      }
    }
  }
  return tally;
}

Tally KeptRegions::Reopen() const {
  Tally tally;
  for (const Region& region : regions_) {
    for (const int fd : {region.slots.get(), region.headers.get()}) {
      for (const std::string& way : WaysToWrite(fd)) ++tally[way];
    }
  }
  return tally;
}

Tally KeptRegions::Scribble() const {
  Tally tally = {{"died", 0}, {"lived", 0}};
  for (const Region& region : regions_) {
    for (const auto bytes : {region.slot_bytes, region.header_bytes}) {
      const pid_t child = fork();
      if (child == 0) {
        std::signal(SIGSEGV, SIG_DFL);
        *reinterpret_cast<volatile char*>(
            const_cast<std::byte*>(bytes.data())) = 'x';
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      const bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
      ++tally[died ? "died" : "lived"];
    }
  }
  return tally;
}

Tally Pry(pid_t process) {
  Tally tally;
  const std::string proc = StrCat("/proc/", process, "/");
  const auto note = [&tally](bool worked, const char* way) {
    if (worked) ++tally[way];
  };
  for (const char* name : {"mem", "maps", "smaps", "pagemap", "environ", "auxv",
                           "stack", "syscall"}) {
    const Descriptor fd(open((proc + name).c_str(), O_RDONLY | O_CLOEXEC));
    char byte = 0;
    note(fd.valid() && read(fd.get(), &byte, 1) > 0, name);
  }
  note(Descriptor(open((proc + "mem").c_str(), O_RDWR | O_CLOEXEC)).valid(),
       "mem-writable");
  for (const char* name : {"fd", "map_files", "fdinfo"}) {
    DIR* const folder = opendir((proc + name).c_str());
    note(folder != nullptr, name);
    if (folder != nullptr) closedir(folder);
  }
  for (int fd = 0; fd < 256; ++fd) {
    note(Descriptor(open(StrCat(proc, "fd/", fd).c_str(), O_RDWR | O_CLOEXEC))
             .valid(),
         "fd-reopened");
  }
  const Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  for (int fd = 0; fd < 256; ++fd) {
    note(Descriptor(
             static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), fd, 0)))
             .valid(),
         "fd-taken");
  }
  std::array<char, 8> bytes;
  const iovec here = {bytes.data(), bytes.size()};
  const iovec there = {bytes.data(), bytes.size()};
  // The address is none of the node's: what counts is who may ask.
  note(
      process_vm_readv(process, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT,
      "vm-read");
  const bool traced = ptrace(PTRACE_SEIZE, process, nullptr, nullptr) == 0;
  note(traced, "traced");
  if (traced) ptrace(PTRACE_DETACH, process, nullptr, nullptr);
  return tally;
}

}  // namespace firnkv
