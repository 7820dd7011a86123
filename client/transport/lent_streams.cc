#include "client/transport/lent_streams.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "client/transport/descriptor.h"

namespace firnkv {
namespace {

thread_local LentStreams* here = nullptr;

// For as long as another thread ends a receive that it had begun before.
constexpr int kOtherThreadMillis = 1;

// One a thread, for all its blocking calls.
int WakerOfThisThread() {
  thread_local const Descriptor waker(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return waker.get();
}

}  // namespace

LentStreams::LentStreams() : outer_(std::exchange(here, this)) {}

LentStreams::~LentStreams() {
  GiveBack();
  here = outer_;
}

LentStreams* LentStreams::Here() { return here; }

bool LentStreams::usable() {
  if (waker_ < 0) waker_ = WakerOfThisThread();
  return waker_ >= 0;
}

void LentStreams::Add(const void* of, std::unique_ptr<LentStream> stream,
                      absl::AnyInvocable<void() &&> on_returned) {
  // Shared: see the type.
  streams_.push_back(std::make_shared<Lent>());
  streams_.back()->of = of;
  streams_.back()->stream = std::move(stream);
  streams_.back()->on_returned = std::move(on_returned);
}

bool LentStreams::Has(const void* of) const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [of](const Shared& one) { return one->of == of; });
}

void LentStreams::Drop(const Shared& one) {
  if (std::erase(streams_, one) == 0) return;
  one->stream.reset();
  std::move(one->on_returned)();
}

void LentStreams::GiveBack() {
  while (!streams_.empty()) {
    const Shared last = streams_.back();
    Drop(last);
  }
}

void LentStreams::Receive() {
  std::vector<pollfd> events = {{.fd = waker_, .events = POLLIN, .revents = 0}};
  const std::vector<Shared> streams = streams_;
  for (const Shared& one : streams) {
    events.push_back({.fd = one->stream->descriptor(),
                      .events = POLLIN | POLLRDHUP,
                      .revents = 0});
  }
  // No deadline: whoever ends what this thread waits for wakes it.
  poll(events.data(), events.size(), -1);
  if (events[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = read(waker_, &count, sizeof(count));
  }
  bool other_thread = false;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (events[i + 1].revents == 0 || streams[i]->stream == nullptr) continue;
    switch (streams[i]->stream->Receive()) {
      case LentStream::Received::kAll:
        break;
      case LentStream::Received::kOtherThread:
        other_thread = true;
        break;
      case LentStream::Received::kEnded:
        Drop(streams[i]);
        break;
    }
  }
  if (other_thread) poll(events.data(), 1, kOtherThreadMillis);
}

void LentStreams::Wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(waker_, &one, sizeof(one));
}

}  // namespace firnkv
