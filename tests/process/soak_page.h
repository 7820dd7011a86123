// What the soak and one of its workers tell each other: counters in a file that
// both have mapped, so that nothing counted is lost when the worker is killed.
// A worker that takes a killed one's place counts on in its page.
//
// Threading. Each field has one writer; readers see it at some later moment,
// each by itself.

#ifndef FIRNKV_TESTS_PROCESS_SOAK_PAGE_H_
#define FIRNKV_TESTS_PROCESS_SOAK_PAGE_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace firnkv {

struct SoakPage {
  using Count = std::atomic<std::uint64_t>;

  // --- By the worker.

  // Blocks that were kHit and compared byte by byte; those of them that came
  // over the stream.
  Count hits;
  Count remote_hits;
  Count hit_bytes;
  // Blocks that were kHit and had a wrong byte; blocks that were kCorrupt.
  Count wrong;
  Count corrupt;
  // Of the hits, those that were compared in the pool itself.
  Count view_hits;
  Count stored;
  Count operations;
  // Requests that were refused as malformed: none is.
  Count refused;
  // Operations that ended later than they may, and the worst of all.
  Count late;
  std::atomic<std::int64_t> longest_over_nanos;
  // Boot time by which the operation under way must have ended; 0: none.
  std::atomic<std::int64_t> due_nanos;

  // --- By the soak.

  // For how long it has stopped the worker so far.
  std::atomic<std::int64_t> stopped_nanos;
};
static_assert(SoakPage::Count::is_always_lock_free,
              "a lock would be left locked by a worker that is killed");

// A mapping of the page.
class SoakPageFile {
 public:
  // Makes the file, which then belongs to `uid`.
  static SoakPageFile Create(const std::string& path, std::uint32_t uid);
  explicit SoakPageFile(const std::string& path);
  SoakPageFile(SoakPageFile&& other) noexcept;
  SoakPageFile& operator=(SoakPageFile&&) = delete;
  ~SoakPageFile();

  const std::string& path() const { return path_; }
  SoakPage& page() const { return *page_; }

 private:
  std::string path_;
  SoakPage* page_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_SOAK_PAGE_H_
