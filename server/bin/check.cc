#include "server/bin/check.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "client/transport/memfd.h"
#include "client/transport/real_seams.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"
#include "server/bin/data_directory.h"
#include "server/bin/process.h"
#include "server/node/tenant_directory.h"
#include "server/tier/memory_limits.h"

namespace firnkv {
namespace {

// Descriptors that are not counted one by one: libraries, logs, the store.
constexpr std::uint64_t kOtherDescriptors = 512;
constexpr std::uint64_t kCatalogDiskReserve = 256 * kMiB;

enum class Verdict { kOk, kNote, kFail };

class Report {
 public:
  void Line(Verdict verdict, std::string_view what, std::string_view says) {
    const char* word = verdict == Verdict::kOk     ? "ok  "
                       : verdict == Verdict::kNote ? "note"
                                                   : "FAIL";
    if (verdict == Verdict::kFail) ++failures_;
    std::fputs(absl::StrFormat("%s  %-22s %s\n", word, std::string(what),
                               std::string(says))
                   .c_str(),
               stdout);
  }
  void Status(const absl::Status& status, std::string_view what,
              std::string_view says) {
    if (status.ok()) {
      Line(Verdict::kOk, what, says);
    } else {
      Line(Verdict::kFail, what, ToStd(status.message()));
    }
  }
  int Close() const {
    std::fputs(failures_ == 0
                   ? "This works.\n"
                   : StrCat(failures_, " of these cannot work.\n").c_str(),
               stdout);
    return failures_ == 0 ? 0 : 1;
  }

 private:
  int failures_ = 0;
};

std::uint64_t SoftLimit(int resource) {
  struct rlimit limit = {};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  return limit.rlim_cur;
}

std::string LimitText(std::uint64_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : StrCat(limit);
}

void CheckDirectory(const DaemonOptions& daemon, Report* report) {
  const absl::StatusOr<DataDirectory> data =
      DataDirectory::Open(daemon.data_dir);
  report->Status(data.status(), "data directory",
                 StrCat(daemon.data_dir, ", writable, its lock is free"));
  struct statvfs disk = {};
  if (!data.ok() || ::statvfs(daemon.data_dir.c_str(), &disk) != 0) return;
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  report->Line(free < kCatalogDiskReserve ? Verdict::kFail : Verdict::kOk,
               "free disk",
               StrCat(free / kMiB,
                      " MiB; the catalog's log and files want at "
                      "least ",
                      kCatalogDiskReserve / kMiB));
}

void CheckSecret(const DaemonOptions& daemon, bool made_where_missing,
                 Report* report) {
  const std::string path = SecretFile(daemon);
  const absl::Status read = ReadSecret(path).status();
  if (absl::IsNotFound(read) && made_where_missing) {
    report->Line(Verdict::kOk, "cluster secret",
                 StrCat(path, ", will be made at first start"));
    return;
  }
  report->Status(read, "cluster secret", StrCat(path, ", 0600"));
}

void CheckListens(Network* network, const std::string& address,
                  bool plaintext_allowed, std::string_view what,
                  Report* report) {
  if (!plaintext_allowed && !IsOnThisHost(address)) {
    report->Line(Verdict::kFail, what,
                 StrCat(address,
                        " is beyond loopback, without TLS; set "
                        "plaintext_network: true if that network is "
                        "trusted"));
    return;
  }
  const auto listener =
      network->Listen(address, [](std::unique_ptr<ByteStream>) {});
  report->Status(listener.status(), what, StrCat(address, " is free"));
}

void CheckDescriptors(std::uint64_t wanted, Report* report) {
  const std::uint64_t limit = SoftLimit(RLIMIT_NOFILE);
  report->Line(
      limit < wanted ? Verdict::kNote : Verdict::kOk, "open files (nofile)",
      StrCat(LimitText(limit), "; all caps used to the full want ", wanted,
             limit < wanted ? "; raise it (LimitNOFILE=) or lower "
                              "sessions.max and stream."
                              "max_connections"
                            : ""));
}

void CheckMemory(const NodeOptions& options, Report* report) {
  const absl::StatusOr<MemoryLimits::Reading> reading =
      SystemMemoryLimits().Read();
  if (!reading.ok()) {
    report->Status(reading.status(), "memory", "");
    return;
  }
  const std::uint64_t available = reading->available_bytes;
  const std::uint64_t wanted = options.dram_bytes + options.dram_reserve_bytes;
  const bool none =
      available < options.dram_reserve_bytes + RegionBytes(options);
  report->Line(
      none                 ? Verdict::kFail
      : available < wanted ? Verdict::kNote
                           : Verdict::kOk,
      "memory",
      StrCat(available / kMiB, " MiB to be had before ", reading->limited_by,
             "; dram.bytes and dram.reserve_bytes want ", wanted / kMiB, " MiB",
             none                 ? ": not even one region fits"
             : available < wanted ? ": the pool will stay smaller"
                                  : ""));
  report->Line(Verdict::kOk, "regions",
               StrCat(options.dram_bytes / RegionBytes(options), " of ",
                      FormatBytes(RegionBytes(options)), ", largest block ",
                      FormatBytes(std::min(kLargestBlockBytes,
                                           RegionBytes(options) / 4))));
  report->Line(Verdict::kNote, "locked memory (memlock)",
               StrCat(LimitText(SoftLimit(RLIMIT_MEMLOCK)),
                      "; not needed: the pool is not locked"));
}

void CheckMemfds(Report* report) {
  MemfdMaker maker;
  const auto memory =
      maker.Make(MemoryKindWanted::kRegion, "firnkv-check", 2 * kMiB);
  absl::Status status = memory.status();
  if (status.ok()) status = (*memory)->ReopenReadOnly().status();
  report->Status(status, "memfd", "can be made, sealed and reopened read-only");
  const auto table = maker.MakeHeaderTable("firnkv-check", kMiB);
  report->Status(table.status(), "memfd, future write",
                 "header tables can be sealed against writing");
}

void CheckHugePages(const NodeOptions& options, Report* report) {
  std::ifstream file(
      "/sys/kernel/mm/hugepages/hugepages-2048kB/"
      "free_hugepages");
  std::uint64_t free = 0;
  file >> free;
  const std::uint64_t wanted = options.dram_bytes / (2 * kMiB);
  if (!options.huge_pages) {
    report->Line(Verdict::kNote, "huge pages",
                 StrCat(free, " of 2 MiB are free; dram.huge_pages is off"));
    return;
  }
  report->Line(free < wanted ? Verdict::kNote : Verdict::kOk, "huge pages",
               StrCat(free, " of 2 MiB are free, ", wanted, " wanted",
                      free < wanted ? ": the rest takes ordinary pages; set "
                                      "vm.nr_hugepages"
                                    : ""));
}

void CheckWhoIsServed(const NodeOptions& options, Report* report) {
  if (options.uid_map.empty()) {
    report->Line(Verdict::kNote, "who is served",
                 StrCat("only uid ", ::geteuid(),
                        ", as tenant default; set sessions.uid_map for "
                        "others"));
  } else {
    report->Status(ParseUidMap(options.uid_map).status(), "who is served",
                   StrCat(options.uid_map.size(), " uids of the uid map"));
  }
  const bool trust = TrustSameUid(options);
  report->Line(Verdict::kNote, "trust_same_uid",
               trust ? "yes: processes of the node's own uid map the pool and "
                       "could write to it; their views verify checksums"
                     : "no: processes of the node's own uid, or with its "
                       "capabilities, read by the stream");
  if (::geteuid() == 0) {
    report->Line(Verdict::kNote, "user",
                 "root; a user of its own without capabilities is safer");
  }
}

void CheckSocket(const NodeOptions& options, Report* report) {
  absl::Status status = MakeParent(options.socket);
  // 108 bytes with the terminator, and ".control" is appended.
  if (status.ok() && options.socket.size() + 8 > 107) {
    status = absl::InvalidArgumentError(
        StrCat(options.socket,
               " is too long for a unix socket; at most 99 "
               "bytes"));
  }
  const std::string parent =
      std::filesystem::path(options.socket).parent_path();
  if (status.ok() && ::access(parent.c_str(), W_OK) != 0) {
    status = absl::FailedPreconditionError(
        StrCat(parent, " may not be written by this user; set node.socket"));
  }
  report->Status(status, "session socket",
                 StrCat(options.socket, " and ", options.socket, ".control"));
}

void CheckSystem(Report* report) {
  struct utsname about = {};
  ::uname(&about);
  report->Line(Verdict::kOk, "kernel", about.release);
}

}  // namespace

int CheckNode(const DaemonOptions& daemon, const NodeOptions& options) {
  Report report;
  CheckSystem(&report);
  report.Status(Validate(options), "options", "go together");
  const auto seams = RealSeams::Make({}, nullptr);
  if (!seams.ok()) {
    report.Status(seams.status(), "threads, epoll", "");
    return report.Close();
  }
  CheckDirectory(daemon, &report);
  const bool embedded = options.catalog.empty();
  CheckSecret(daemon, embedded, &report);
  CheckMemory(options, &report);
  CheckMemfds(&report);
  CheckHugePages(options, &report);
  CheckDescriptors(options.max_sessions * 2 + options.max_stream_connections +
                       options.staging.max_count_a_tenant +
                       2 * (options.dram_bytes / RegionBytes(options)) +
                       kOtherDescriptors,
                   &report);
  CheckWhoIsServed(options, &report);
  CheckSocket(options, &report);
  Network* network = (*seams)->seams().network;
  CheckListens(network, options.stream, options.plaintext_network, "stream",
               &report);
  CheckListens(network, options.control, options.plaintext_network, "grpc",
               &report);
  if (!daemon.http.empty()) {
    CheckListens(network, daemon.http, options.plaintext_network, "http",
                 &report);
  }
  if (embedded) {
    CheckListens(network, daemon.catalog_listen,
                 daemon.catalog_plaintext_network, "catalog (embedded)",
                 &report);
  } else {
    report.Line(Verdict::kOk, "catalog", options.catalog);
  }
  return report.Close();
}

int CheckCatalog(const DaemonOptions& daemon) {
  Report report;
  CheckSystem(&report);
  const auto seams = RealSeams::Make({}, nullptr);
  report.Status(seams.status(), "threads, epoll", "can be had");
  if (!seams.ok()) return report.Close();
  CheckDirectory(daemon, &report);
  CheckSecret(daemon, /*made_where_missing=*/true, &report);
  CheckDescriptors(1024 + kOtherDescriptors, &report);
  Network* network = (*seams)->seams().network;
  CheckListens(network, daemon.catalog_listen, daemon.catalog_plaintext_network,
               "grpc", &report);
  if (!daemon.http.empty()) {
    CheckListens(network, daemon.http, daemon.catalog_plaintext_network, "http",
                 &report);
  }
  return report.Close();
}

}  // namespace firnkv
