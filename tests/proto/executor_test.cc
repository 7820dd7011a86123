// TaskScope: the tie between tasks and their owner's life.

#include "proto/base/executor.h"

#include <atomic>
#include <memory>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace firnkv {
namespace {

TEST(TaskScope, AWrappedTaskRunsWhileTheScopeIsOpen) {
  TaskScope scope;
  int runs = 0;

  scope.Wrap([&] { ++runs; })();

  EXPECT_EQ(runs, 1);
}

TEST(TaskScope, AfterCloseAWrappedTaskDoesNothing) {
  TaskScope scope;
  int runs = 0;
  Task task = scope.Wrap([&] { ++runs; });

  scope.Close();
  std::move(task)();

  EXPECT_EQ(runs, 0);
}

TEST(TaskScope, ATaskMayOutliveItsScope) {
  int runs = 0;
  Task task;
  {
    TaskScope scope;
    task = scope.Wrap([&] { ++runs; });
  }

  std::move(task)();

  EXPECT_EQ(runs, 0);
}

TEST(TaskScope, WhatATaskCapturedIsDestroyedBeforeCloseReturns) {
  TaskScope scope;
  // Shared: the test looks at it from outside.
  auto captured = std::make_shared<int>(1);
  std::weak_ptr<int> seen = captured;
  Task task = scope.Wrap([captured = std::move(captured)] {});

  std::move(task)();
  scope.Close();

  EXPECT_TRUE(seen.expired());
}

TEST(TaskScope, CloseTwiceIsAsCloseOnce) {
  TaskScope scope;

  scope.Close();
  scope.Close();
}

TEST(TaskScope, CloseFromInsideATaskDoesNotWaitForThatTask) {
  TaskScope scope;
  bool closed = false;

  scope.Wrap([&] {
    scope.Close();
    closed = true;
  })();

  EXPECT_TRUE(closed);
}

TEST(TaskScope, AnOwnerMayDieInsideItsOwnTask) {
  auto scope = std::make_unique<TaskScope>();
  Task task = scope->Wrap([&] { scope.reset(); });

  std::move(task)();

  EXPECT_EQ(scope, nullptr);
}

TEST(TaskScope, CloseFromATaskInsideATaskWaitsForNeither) {
  TaskScope scope;
  Task inner = scope.Wrap([&] { scope.Close(); });
  bool ended = false;

  scope.Wrap([&] {
    std::move(inner)();
    ended = true;
  })();

  EXPECT_TRUE(ended);
}

TEST(TaskScope, CloseWaitsForATaskOfAnotherThread) {
  for (int round = 0; round < 50; ++round) {
    TaskScope scope;
    std::binary_semaphore started(0);
    std::binary_semaphore may_end(0);
    bool ended = false;  // Not atomic: Close orders it.
    std::thread runner(scope.Wrap([&] {
      started.release();
      may_end.acquire();
      ended = true;
    }));
    started.acquire();

    std::thread helper([&] { may_end.release(); });
    scope.Close();

    EXPECT_TRUE(ended);
    runner.join();
    helper.join();
  }
}

TEST(TaskScope, NoTaskOfManyThreadsRunsOnceCloseHasReturned) {
  TaskScope scope;
  std::atomic<bool> closed{false};
  std::atomic<int> late{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 1'000; ++round) {
        scope.Wrap([&] {
          if (closed.load()) ++late;
        })();
      }
    });
  }

  scope.Close();
  closed.store(true);
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(late.load(), 0);
}

}  // namespace
}  // namespace firnkv
