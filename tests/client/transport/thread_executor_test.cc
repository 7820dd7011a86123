// The executor of production: what runs, when, where, and what is left.

#include "client/transport/thread_executor.h"

#include <pthread.h>
#include <signal.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "tests/client/transport/inbox.h"
#include "tests/client/transport/process_state.h"

namespace firnkv {
namespace {

// Puts a word in an inbox when the task that holds it is destroyed.
class LastWord {
 public:
  explicit LastWord(Inbox<bool>* inbox) : inbox_(inbox) {}
  LastWord(LastWord&& other) noexcept
      : inbox_(std::exchange(other.inbox_, nullptr)) {}
  ~LastWord() {
    if (inbox_ != nullptr) inbox_->Put(true);
  }

 private:
  Inbox<bool>* inbox_;
};

class ThreadExecutorTest : public testing::Test {
 protected:
  void Start(int threads) {
    executor_ =
        *ThreadExecutor::Make({.threads = threads, .name = "test"}, &clock_);
  }
  // Keeps the only thread until the word comes.
  void Occupy() {
    executor_->Post([this] {
      occupied_.Put(true);
      go_on_.Take();
    });
    occupied_.Take();
  }

  SystemClock clock_;
  Inbox<int> ran_;
  Inbox<bool> occupied_;
  Inbox<bool> go_on_;
  std::unique_ptr<ThreadExecutor> executor_;
};

TEST_F(ThreadExecutorTest, TasksOfOneThreadRunInTheirOrder) {
  Start(1);

  for (int i = 0; i < 100; ++i) executor_->Post([this, i] { ran_.Put(i); });

  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran_.Take(), i);
}

TEST_F(ThreadExecutorTest, ATaskMayPostAnother) {
  Start(1);

  executor_->Post([this] { executor_->Post([this] { ran_.Put(2); }); });

  EXPECT_EQ(ran_.Take(), 2);
}

TEST_F(ThreadExecutorTest, TwoThreadsRunTwoTasksAtATime) {
  Start(2);

  // Each waits for the other: with one thread the test would end its program.
  executor_->Post([this] {
    occupied_.Put(true);
    ran_.Put(go_on_.Take() ? 1 : 0);
  });
  executor_->Post([this] {
    occupied_.Take();
    go_on_.Put(true);
  });

  EXPECT_EQ(ran_.Take(), 1);
}

TEST_F(ThreadExecutorTest, ATimerNeverRunsBeforeItIsDue) {
  Start(2);
  const BootTime due = clock_.Now() + absl::Milliseconds(20);
  Inbox<BootTime> ran_at;

  executor_->PostAt(due, [&] { ran_at.Put(clock_.Now()); });

  EXPECT_GE(ran_at.Take(), due);
}

TEST_F(ThreadExecutorTest, TimersRunInTheOrderInWhichTheyAreDue) {
  Start(1);
  const BootTime now = clock_.Now();

  executor_->PostAt(now + absl::Milliseconds(20), [this] { ran_.Put(3); });
  executor_->PostAt(now + absl::Milliseconds(5), [this] { ran_.Put(1); });
  executor_->PostAt(now + absl::Milliseconds(10), [this] { ran_.Put(2); });

  EXPECT_EQ(ran_.Take(), 1);
  EXPECT_EQ(ran_.Take(), 2);
  EXPECT_EQ(ran_.Take(), 3);
}

TEST_F(ThreadExecutorTest, ATimerOfThePastRunsAtOnce) {
  Start(1);

  executor_->PostAt(BootTime{}, [this] { ran_.Put(1); });

  EXPECT_EQ(ran_.Take(), 1);
}

TEST_F(ThreadExecutorTest, ACancelledTimerIsDestroyedUnrun) {
  Start(1);
  Inbox<bool> destroyed;
  const TimerId timer =
      executor_->PostAt(clock_.Now() + absl::Hours(1),
                        [this, word = LastWord(&destroyed)] { ran_.Put(1); });

  EXPECT_TRUE(executor_->Cancel(timer));

  EXPECT_FALSE(destroyed.empty());
  EXPECT_TRUE(ran_.empty());
  EXPECT_FALSE(executor_->Cancel(timer));
}

TEST_F(ThreadExecutorTest, ATimerThatRanCannotBeCancelled) {
  Start(1);
  const TimerId timer = executor_->PostAt(BootTime{}, [this] { ran_.Put(1); });
  ran_.Take();

  EXPECT_FALSE(executor_->Cancel(timer));
}

TEST_F(ThreadExecutorTest, ATimerSetAfterAnEarlierOneWasCancelledStillRuns) {
  Start(1);

  for (int i = 0; i < 100; ++i) {
    const BootTime soon = clock_.Now() + absl::Microseconds(50);
    const TimerId first = executor_->PostAt(soon, [] {});
    executor_->Cancel(first);
    executor_->PostAt(clock_.Now() + absl::Microseconds(200),
                      [this, i] { ran_.Put(i); });
    ASSERT_EQ(ran_.Take(), i);
  }
}

TEST_F(ThreadExecutorTest, ADueTimerHasItsTurnAmongPostsWithoutEnd) {
  Start(1);
  Occupy();
  // Posts itself again for as long as the executor lives.
  struct Forever {
    ThreadExecutor* executor;
    void operator()() { executor->Post(Forever{executor}); }
  };
  executor_->Post(Forever{executor_.get()});

  executor_->PostAt(BootTime{}, [this] { ran_.Put(1); });
  go_on_.Put(true);

  EXPECT_EQ(ran_.Take(), 1);
}

TEST_F(ThreadExecutorTest, APostHasItsTurnAmongDueTimersWithoutEnd) {
  Start(1);
  Occupy();
  struct Forever {
    ThreadExecutor* executor;
    void operator()() { executor->PostAt(BootTime{}, Forever{executor}); }
  };
  executor_->PostAt(BootTime{}, Forever{executor_.get()});

  executor_->Post([this] { ran_.Put(1); });
  go_on_.Put(true);

  EXPECT_EQ(ran_.Take(), 1);
}

TEST_F(ThreadExecutorTest, StopDestroysWhatHasNotRun) {
  Start(1);
  Inbox<bool> destroyed;
  Occupy();
  executor_->Post([this, word = LastWord(&destroyed)] { ran_.Put(1); });
  executor_->PostAt(clock_.Now() + absl::Hours(1),
                    [this, word = LastWord(&destroyed)] { ran_.Put(2); });

  go_on_.Put(true);
  executor_->Stop();

  // The post may have had its turn before Stop; that it has ended is certain.
  destroyed.Take();
  destroyed.Take();
  EXPECT_TRUE(destroyed.empty());
}

TEST_F(ThreadExecutorTest, ATaskPostedAfterStopIsDestroyedAtOnce) {
  Start(1);
  Inbox<bool> destroyed;
  executor_->Stop();

  executor_->Post([this, word = LastWord(&destroyed)] { ran_.Put(1); });
  const TimerId timer = executor_->PostAt(
      BootTime{}, [this, word = LastWord(&destroyed)] { ran_.Put(2); });

  destroyed.Take();
  destroyed.Take();
  EXPECT_EQ(timer, TimerId::kNone);
  EXPECT_TRUE(ran_.empty());
}

TEST_F(ThreadExecutorTest, ATaskDestroyedByStopMayPostAndCancel) {
  Start(1);
  struct Clinging {
    ThreadExecutor* executor;
    TimerId timer;
    bool live = true;
    Clinging(ThreadExecutor* e, TimerId t) : executor(e), timer(t) {}
    Clinging(Clinging&& other) noexcept
        : executor(other.executor),
          timer(other.timer),
          live(std::exchange(other.live, false)) {}
    ~Clinging() {
      if (!live) return;
      executor->Post([] {});
      executor->Cancel(timer);
    }
    void operator()() {}
  };
  const BootTime later = clock_.Now() + absl::Hours(1);
  const TimerId timer = executor_->PostAt(later, [] {});
  executor_->PostAt(later, Clinging(executor_.get(), timer));

  executor_->Stop();

  EXPECT_TRUE(ran_.empty());
}

TEST_F(ThreadExecutorTest, StopLeavesNoThread) {
  const std::size_t before = ThreadsOfThisProcess();
  Start(4);
  ASSERT_GE(ThreadsOfThisProcess(), before + 4);

  executor_->Stop();

  EXPECT_EQ(ThreadsOfThisProcess(), before);
}

TEST_F(ThreadExecutorTest, ThreadsAreNamed) {
  Start(1);
  Inbox<std::string> name;

  executor_->Post([&name] {
    std::array<char, 16> text = {};
    pthread_getname_np(pthread_self(), text.data(), text.size());
    name.Put(text.data());
  });

  EXPECT_EQ(name.Take(), "test-0");
}

TEST_F(ThreadExecutorTest, ThreadsLeaveTheProcesssSignalsToOthers) {
  Start(1);
  Inbox<sigset_t> mask;

  executor_->Post([&mask] {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    mask.Put(blocked);
  });

  const sigset_t blocked = mask.Take();
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
  EXPECT_EQ(sigismember(&blocked, SIGCHLD), 1);
  EXPECT_EQ(sigismember(&blocked, SIGSEGV), 0);
  EXPECT_EQ(sigismember(&blocked, SIGBUS), 0);
}

TEST_F(ThreadExecutorTest, ManyThreadsMayPostSetAndCancel) {
  Start(2);
  constexpr int kEach = 200;
  auto other = *ThreadExecutor::Make({.threads = 3, .name = "posts"}, &clock_);

  for (int i = 0; i < 3 * kEach; ++i) {
    other->Post([this, i] {
      executor_->Post([this, i] { ran_.Put(i); });
      const BootTime soon = clock_.Now() + absl::Microseconds(i % 50);
      const TimerId timer = executor_->PostAt(soon, [this, i] { ran_.Put(i); });
      // Exactly one of the two puts.
      if (executor_->Cancel(timer)) ran_.Put(i);
    });
  }

  for (int i = 0; i < 2 * 3 * kEach; ++i) ran_.Take();
  executor_->Stop();
  EXPECT_TRUE(ran_.empty());
}

}  // namespace
}  // namespace firnkv
