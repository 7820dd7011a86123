// A block device that fails as devices do: torn writes at a crash, flushes that
// lie, transfers that stall, EIO, short reads.
//
// It keeps two images: what a reader sees (the device's cache) and what a crash
// leaves. A flush makes the one the other; at a crash each sector written since
// then survives or not, as the seed says: so a large write may be torn.
//
// Threading. One thread only: `done` runs as a task of the process.
//
// Ownership. The device outlives its transfers. The bytes survive Crash, as a
// disk does: give the same SimDevice to the next run.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_DEVICE_H_
#define FIRNKV_TESTS_SUPPORT_SIM_DEVICE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "server/io/block_device.h"
#include "tests/support/sim_executor.h"

namespace firnkv {

class SimDevice : public BlockDevice {
 public:
  // `process` runs the completions; `bytes` is a multiple of kDeviceAlignment.
  SimDevice(SimProcess* process, std::uint64_t bytes);
  ~SimDevice() override;

  std::uint64_t bytes() const override { return image_.size(); }
  void StartRead(std::uint64_t offset, absl::Span<std::byte> into,
                 Done done) override;
  void StartWrite(std::uint64_t offset, absl::Span<const std::byte> from,
                  Done done) override;
  void StartFlush(Done done) override;

  // Power goes; what the last honest flush did not cover survives by sectors,
  // at random. Transfers in flight never end; `next` is the process of the next
  // run.
  void Crash(SimProcess* next);

  // The next `count` transfers of any kind end with UNAVAILABLE: EIO.
  void FailNext(int count) { fail_next_ = count; }
  // The next `count` reads are short: DATA_LOSS, with some of the bytes there.
  void ShortenNextReads(int count) { short_next_ = count; }
  // A flush answers OK and does nothing.
  void LieAboutFlushes(bool lie) { lie_ = lie; }
  // Nothing completes while stalled; then everything does.
  void Stall();
  void Resume();
  // A bit that turned over on its own.
  void CorruptOneByte(std::uint64_t offset);

  std::uint64_t transfers_in_flight() const { return in_flight_; }

 private:
  // Runs `transfer` and then `done`, later.
  void Later(absl::AnyInvocable<absl::Status()> transfer, Done done);
  bool TakeFailure();

  SimProcess* process_;
  std::vector<std::byte> image_;
  // By sector number: what a crash may bring back.
  std::map<std::uint64_t, std::vector<std::byte>> before_flush_;
  std::vector<Task> stalled_;
  bool stalling_ = false;
  bool lie_ = false;
  int fail_next_ = 0;
  int short_next_ = 0;
  std::uint64_t in_flight_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_DEVICE_H_
