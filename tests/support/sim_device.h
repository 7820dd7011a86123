// A block device that fails as devices do: writes that are torn, lost or land
// elsewhere and answer OK, flushes that lie, transfers that stall, EIO, ENOSPC,
// short reads, bits that turn over, and a power cut at any write.
//
// It keeps two images: what a reader sees (the device's cache) and what a power
// cut leaves. A flush makes the one the other; at a cut each sector written
// since then survives or not, as the seed says: so a large write may be torn,
// and later writes may survive where earlier ones did not.
//
// Transfers take random times, so that they end in any order.
//
// Threading. One thread only: `done` runs as a task of the process.
//
// Ownership. The device outlives its transfers. The bytes survive Crash, as a
// disk does: give the same SimDevice to the next run. Call Crash before what
// started the transfers is destroyed without having waited for them.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_DEVICE_H_
#define FIRNKV_TESTS_SUPPORT_SIM_DEVICE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/io/block_device.h"
#include "tests/support/sim_executor.h"

namespace firnkv {

class SimDevice : public BlockDevice {
 public:
  // How many of a thousand transfers of the kind meet what.
  struct Faults {
    std::uint32_t lost_writes = 0;
    std::uint32_t misdirected_writes = 0;
    // Of its sectors some are written and some are not; answers OK.
    std::uint32_t torn_writes = 0;
    // One bit of what is written is wrong.
    std::uint32_t flipped_bits = 0;
    std::uint32_t failed_writes = 0;
    std::uint32_t failed_reads = 0;
    std::uint32_t failed_flushes = 0;
    std::uint32_t lying_flushes = 0;
    // Takes a hundred times as long.
    std::uint32_t slow = 0;
  };

  // `process` runs the completions; `bytes` is a multiple of kDeviceAlignment.
  SimDevice(SimProcess* process, std::uint64_t bytes);
  ~SimDevice() override;

  std::uint64_t bytes() const override { return image_.size(); }
  void StartReads(absl::Span<ReadRequest> batch) override;
  void StartWrites(absl::Span<WriteRequest> batch) override;
  void StartFlush(Done done) override;
  DeviceLoad GetLoad() const override;

  // Power goes; what the last honest flush did not cover survives by sectors,
  // at random. Transfers in flight never end, and what they would have called
  // is destroyed; `next` is the process of the next run.
  void Crash(SimProcess* next);
  // Power goes once `steps` more writes and flushes have been carried out:
  // nothing ends from then on, until Crash.
  void CutPowerAfter(std::uint64_t steps) { steps_left_ = steps; }
  bool power_is_cut() const { return cut_; }

  void SetFaults(const Faults& faults) { faults_ = faults; }
  // The next `count` transfers of any kind end with UNAVAILABLE: EIO.
  void FailNext(int count) { fail_next_ = count; }
  // Writes end with RESOURCE_EXHAUSTED: ENOSPC.
  void set_full(bool full) { full_ = full; }
  // The next `count` reads are short: DATA_LOSS, with some of the bytes there.
  void ShortenNextReads(int count) { short_next_ = count; }
  // A flush answers OK and does nothing.
  void LieAboutFlushes(bool lie) { lie_ = lie; }
  // Nothing completes while stalled; then everything does.
  void Stall() { stalling_ = true; }
  void Resume();
  // A bit that turned over on its own.
  void CorruptOneByte(std::uint64_t offset);
  // What a transfer that starts now is told to wait for (GetLoad).
  void set_predicted_wait(absl::Duration wait) { predicted_wait_ = wait; }

  std::uint64_t transfers_in_flight() const { return pending_.size(); }
  // The most there have been at once.
  std::uint64_t deepest() const { return deepest_; }
  // Carried out since the beginning.
  std::uint64_t reads() const { return reads_; }
  std::uint64_t writes() const { return writes_; }
  std::uint64_t flushes() const { return flushes_; }
  std::uint64_t written_bytes() const { return written_bytes_; }
  std::uint64_t read_bytes() const { return read_bytes_; }

 private:
  enum class Kind : std::uint8_t { kRead, kWrite, kFlush };
  struct Transfer {
    Kind kind = Kind::kFlush;
    std::uint64_t offset = 0;
    absl::Span<std::byte> into;
    absl::Span<const std::byte> from;
    Done done;
  };

  void Start(Transfer transfer);
  void RunLater(std::uint64_t number);
  void Run(std::uint64_t number);
  // False: the power is gone.
  bool TakeStep();
  absl::Status CarryOut(const Transfer& transfer);
  absl::Status Read(const Transfer& transfer);
  absl::Status Write(const Transfer& transfer);
  void Flush();
  void Put(std::uint64_t offset, const std::byte* sector);
  bool Chance(std::uint32_t per_mille);
  std::uint64_t Below(std::uint64_t bound);

  SimProcess* process_;
  std::vector<std::byte> image_;
  // By sector number: what a crash may bring back.
  std::map<std::uint64_t, std::vector<std::byte>> before_flush_;
  std::map<std::uint64_t, Transfer> pending_;
  // Due, and waiting for Resume.
  std::vector<std::uint64_t> stalled_;
  // Transfers of an earlier life are not in pending_.
  std::uint64_t next_number_ = 1;
  Faults faults_;
  std::uint64_t steps_left_ = UINT64_MAX;
  bool cut_ = false;
  bool stalling_ = false;
  bool lie_ = false;
  bool full_ = false;
  int fail_next_ = 0;
  int short_next_ = 0;
  absl::Duration predicted_wait_;
  std::uint64_t deepest_ = 0;
  std::uint64_t reads_ = 0;
  std::uint64_t writes_ = 0;
  std::uint64_t flushes_ = 0;
  std::uint64_t written_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_DEVICE_H_
