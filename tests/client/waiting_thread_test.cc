// Threads that wait for their own calls (client/frame_calls.h), over a line of
// this test: on which thread what runs, and that nobody waits for ever.

#include <pthread.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/frame_calls.h"
#include "client/transport/named_thread.h"
#include "client/transport/thread_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/frame_body.h"
#include "tests/client/transport/inbox.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using Way = FrameCalls::Way;

// The socket: packets out, and in by who receives.
class TestLine : public CallLine {
 public:
  // False: no caller may receive, as in the simulator.
  TestLine(FrameCalls* calls, bool lets_receive)
      : calls_(calls), lets_receive_(lets_receive) {}

  absl::Status SendPacket(std::uint64_t serial, std::string packet) override {
    EXPECT_EQ(serial, 5u);
    if (refuse_sends) return absl::UnavailableError("no socket");
    sent.Put(DecodeCallPacket(packet)->request);
    return absl::OkStatus();
  }
  bool ReceiveHere(std::uint64_t,
                   absl::FunctionRef<LocalSocket::Taken(std::string_view)> take,
                   absl::FunctionRef<bool()> waits) override {
    std::deque<std::string> left;
    if (before_receiving != nullptr) before_receiving();
    {
      MutexLock lock(&mutex_);
      if (!lets_receive_ || receiving_) return false;
      receiving_ = true;
      changed_.SignalAll();
    }
    while (waits()) {
      const std::optional<std::string> packet = Next();
      if (!packet) break;
      if (take(*packet) == LocalSocket::Taken::kLast) break;
    }
    {
      MutexLock lock(&mutex_);
      receiving_ = false;
      left.swap(packets_);
    }
    // What the socket's own thread would find.
    for (const std::string& packet : left) EXPECT_OK(calls_->OnFrame(packet));
    return true;
  }
  // Of who received before, and takes a stop for its own.
  void ForgetStop() {
    MutexLock lock(&mutex_);
    stop_ = false;
  }
  void StopReceiving(std::uint64_t) override {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.SignalAll();
  }
  void LendSoon(std::uint64_t) override { ++lends; }
  void TakeBack(std::uint64_t) override { ++taken_back; }
  // For who receives; else the socket's own thread does, which is this one.
  void Arrive(std::string packet) {
    {
      MutexLock lock(&mutex_);
      if (receiving_) {
        packets_.push_back(std::move(packet));
        return changed_.SignalAll();
      }
    }
    EXPECT_OK(calls_->OnFrame(packet));
  }
  void AwaitReceiver() {
    MutexLock lock(&mutex_);
    while (!receiving_) changed_.Wait(&mutex_);
  }

  bool refuse_sends = false;
  // Runs in ReceiveHere, before it is known that nobody else receives.
  std::function<void()> before_receiving;
  std::atomic<int> lends{0};
  std::atomic<int> taken_back{0};
  Inbox<std::uint64_t> sent;

 private:
  // nullopt: told to stop.
  std::optional<std::string> Next() {
    MutexLock lock(&mutex_);
    while (packets_.empty() && !stop_) changed_.Wait(&mutex_);
    if (std::exchange(stop_, false)) return std::nullopt;
    std::string packet = std::move(packets_.front());
    packets_.pop_front();
    return packet;
  }

  FrameCalls* const calls_;
  const bool lets_receive_;
  Mutex mutex_;
  CondVar changed_;
  bool receiving_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> packets_ ABSL_GUARDED_BY(mutex_);
};

class WaitingThreadTest : public ::testing::Test {
 protected:
  static constexpr FrameType kType = FrameType::kCallOpenRead;

  WaitingThreadTest() : executor_(*ThreadExecutor::Make({}, &clock_)) {
    session_.bytes.fill(9);
    calls_ = std::make_unique<FrameCalls>(executor_.get());
  }
  ~WaitingThreadTest() override {
    calls_->Close();
    executor_->Stop();
  }

  void Open(bool lets_receive) {
    line_ = std::make_unique<TestLine>(calls_.get(), lets_receive);
    calls_->Open(session_, line_.get(), 5);
  }
  bool Start(FrameCalls::Done done) {
    return calls_->Start(session_, kType, SealBody("question"),
                         clock_.Now() + absl::Seconds(30), &done);
  }
  static std::string Answer(std::uint64_t request) {
    return EncodeCallPacket(FrameType::kCallOpened, request,
                            SealBody("answer"));
  }
  void Run(Task body) {
    threads_.push_back(std::make_unique<NamedThread>());
    ASSERT_OK(threads_.back()->Start("other", std::move(body)));
  }
  void Join() { threads_.clear(); }

  SystemClock clock_;
  SessionId session_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<TestLine> line_;
  std::unique_ptr<FrameCalls> calls_;
  std::vector<std::unique_ptr<NamedThread>> threads_;
};

TEST_F(WaitingThreadTest, ReceivesItsOwnAnswerAndRunsItsDoneHere) {
  Open(/*lets_receive=*/true);
  Run([&] {
    const std::uint64_t request = line_->sent.Take();
    line_->AwaitReceiver();
    line_->Arrive(Answer(request));
  });
  std::optional<pthread_t> ran;

  WaitingThread waiting(calls_.get());
  ASSERT_TRUE(Start([&](absl::StatusOr<std::string> bytes, Way way) {
    EXPECT_OK(bytes);
    EXPECT_EQ(way, Way::kFrame);
    ran = pthread_self();
    waiting.Finish();
  }));
  waiting.Wait();

  ASSERT_TRUE(ran.has_value());
  EXPECT_TRUE(pthread_equal(*ran, pthread_self()));
  Join();
}

TEST_F(WaitingThreadTest, TheSocketIsLentBeforeTheQuestionGoes) {
  Open(/*lets_receive=*/true);

  WaitingThread waiting(calls_.get());
  ASSERT_TRUE(Start(
      [&](const absl::StatusOr<std::string>&, Way) { waiting.Finish(); }));
  const std::uint64_t request = line_->sent.Take();
  Run([&] {
    line_->AwaitReceiver();
    line_->Arrive(Answer(request));
  });
  waiting.Wait();

  EXPECT_EQ(line_->lends, 1);
  EXPECT_EQ(line_->taken_back, 0) << "it has received";
  Join();
}

TEST_F(WaitingThreadTest, WhatIsNotUsedIsGivenBack) {
  Open(/*lets_receive=*/true);
  {
    WaitingThread waiting(calls_.get());
    ASSERT_TRUE(Start([](const absl::StatusOr<std::string>&, Way) {}));
    // It had all it waited for before it came to receive.
    waiting.Finish();
    waiting.Wait();
  }

  EXPECT_EQ(line_->lends, 1);
  EXPECT_EQ(line_->taken_back, 1);
}

TEST_F(WaitingThreadTest, WhoOnlySleepsGivesItBackFirst) {
  Open(/*lets_receive=*/true);
  line_->refuse_sends = true;
  WaitingThread waiting(calls_.get());
  ASSERT_FALSE(Start([](const absl::StatusOr<std::string>&, Way) {}));
  Run([&] {
    while (line_->taken_back == 0) {
    }
    waiting.Finish();
  });

  waiting.Wait();

  EXPECT_EQ(line_->taken_back, 1);
  Join();
}

// One of two threads stayed for ever: the one that received before gave it its
// answer, and took the stop that was meant for it.
TEST_F(WaitingThreadTest, AnAnswerThatCameBeforeItReceivesIsNotSleptOver) {
  Open(/*lets_receive=*/true);
  line_->before_receiving = [&] {
    // Its own turn to receive comes only now, so that it has to be stopped.
    EXPECT_OK(calls_->OnFrame(Answer(line_->sent.Take())));
    line_->ForgetStop();
  };
  bool answered = false;

  WaitingThread waiting(calls_.get());
  ASSERT_TRUE(Start([&](absl::StatusOr<std::string> bytes, Way) {
    answered = bytes.ok();
    waiting.Finish();
  }));
  waiting.Wait();

  EXPECT_TRUE(answered);
}

TEST_F(WaitingThreadTest, CallsThatAnAnswerMakesAreItsOwnToo) {
  Open(/*lets_receive=*/true);
  Run([&] {
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t request = line_->sent.Take();
      line_->AwaitReceiver();
      line_->Arrive(Answer(request));
    }
  });
  int answers = 0;

  WaitingThread waiting(calls_.get());
  std::function<void()> next = [&] {
    ASSERT_TRUE(Start([&](absl::StatusOr<std::string>, Way) {
      if (++answers == 3) return waiting.Finish();
      next();
    }));
  };
  next();
  waiting.Wait();

  EXPECT_EQ(answers, 3);
  Join();
}

TEST_F(WaitingThreadTest, WhereNobodyMayReceiveTheAnswerIsHandedOver) {
  Open(/*lets_receive=*/false);
  Run([&] { EXPECT_OK(calls_->OnFrame(Answer(line_->sent.Take()))); });
  std::optional<pthread_t> ran;

  WaitingThread waiting(calls_.get());
  ASSERT_TRUE(Start([&](absl::StatusOr<std::string>, Way) {
    ran = pthread_self();
    waiting.Finish();
  }));
  waiting.Wait();

  EXPECT_TRUE(pthread_equal(*ran, pthread_self()));
  Join();
}

TEST_F(WaitingThreadTest, OneReceivesForAllAndEachRunsItsOwn) {
  Open(/*lets_receive=*/true);
  constexpr int kThreads = 4;
  std::atomic<int> right{0};
  for (int i = 0; i < kThreads; ++i) {
    Run([&] {
      for (int n = 0; n < 50; ++n) {
        WaitingThread waiting(calls_.get());
        const pthread_t self = pthread_self();
        ASSERT_TRUE(Start([&, self](absl::StatusOr<std::string> bytes, Way) {
          if (bytes.ok() && pthread_equal(self, pthread_self()) != 0) ++right;
          waiting.Finish();
        }));
        waiting.Wait();
      }
    });
  }

  for (int n = 0; n < kThreads * 50; ++n) {
    const std::uint64_t request = line_->sent.Take();
    // By who receives, or by the socket's own thread just before it.
    if (n % 2 == 0) {
      line_->Arrive(Answer(request));
    } else {
      EXPECT_OK(calls_->OnFrame(Answer(request)));
    }
  }
  Join();

  EXPECT_EQ(right, kThreads * 50);
}

TEST_F(WaitingThreadTest, AnotherThreadsFinishWakesOneThatReceives) {
  Open(/*lets_receive=*/true);
  WaitingThread waiting(calls_.get());
  bool done = false;
  ASSERT_TRUE(
      Start([&](const absl::StatusOr<std::string>&, Way) { done = true; }));
  Run([&] {
    line_->AwaitReceiver();
    waiting.Finish();
  });

  waiting.Wait();

  EXPECT_FALSE(done) << "the call is still in flight";
  Join();
  calls_->End(absl::UnavailableError("gone"));
  EXPECT_TRUE(done);
}

TEST_F(WaitingThreadTest, WhatIsStillInFlightAtItsEndIsAnsweredElsewhere) {
  Open(/*lets_receive=*/true);
  bool done = false;
  {
    WaitingThread waiting(calls_.get());
    ASSERT_TRUE(
        Start([&](const absl::StatusOr<std::string>&, Way) { done = true; }));
    waiting.Finish();
    waiting.Wait();
  }

  EXPECT_OK(calls_->OnFrame(Answer(line_->sent.Take())));

  EXPECT_TRUE(done);
}

TEST_F(WaitingThreadTest, AnAnswerThatCameWithTheEndIsNotLost) {
  Open(/*lets_receive=*/false);
  bool done = false;
  {
    WaitingThread waiting(calls_.get());
    ASSERT_TRUE(
        Start([&](const absl::StatusOr<std::string>&, Way) { done = true; }));
    EXPECT_OK(calls_->OnFrame(Answer(line_->sent.Take())));
    waiting.Finish();
    waiting.Wait();
    EXPECT_FALSE(done);
  }

  EXPECT_TRUE(done);
}

TEST_F(WaitingThreadTest, TheSessionsEndIsHeardByOneThatWaits) {
  Open(/*lets_receive=*/false);
  Run([&] {
    line_->sent.Take();
    calls_->End(absl::UnavailableError("gone"));
  });
  absl::Status why;

  WaitingThread waiting(calls_.get());
  ASSERT_TRUE(Start([&](const absl::StatusOr<std::string>& bytes, Way) {
    why = bytes.status();
    waiting.Finish();
  }));
  waiting.Wait();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  Join();
}

TEST_F(WaitingThreadTest, ACallThatCannotBeSentIsTheCallersAgain) {
  Open(/*lets_receive=*/true);
  line_->refuse_sends = true;
  bool done = false;

  EXPECT_FALSE(
      Start([&](const absl::StatusOr<std::string>&, Way) { done = true; }));

  EXPECT_FALSE(done);
}

TEST_F(WaitingThreadTest, ACallIsGivenUpAtItsTime) {
  Open(/*lets_receive=*/false);
  Inbox<absl::Status> ended;
  FrameCalls::Done done = [&](const absl::StatusOr<std::string>& bytes, Way) {
    ended.Put(bytes.status());
  };

  ASSERT_TRUE(calls_->Start(session_, kType, SealBody("question"),
                            clock_.Now() + absl::Milliseconds(5), &done));

  EXPECT_EQ(ended.Take().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace firnkv
