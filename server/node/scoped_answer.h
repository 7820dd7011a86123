// Ties an answer that comes from elsewhere to the life of who asked: TaskScope
// (proto/base/executor.h) for callbacks with an argument.
//
// Threading. As TaskScope: the answer runs on the thread that gives it, not at
// all once the scope is closed.

#ifndef FIRNKV_SERVER_NODE_SCOPED_ANSWER_H_
#define FIRNKV_SERVER_NODE_SCOPED_ANSWER_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "proto/base/executor.h"

namespace firnkv {

template <typename Answer>
absl::AnyInvocable<void(Answer) &&> ScopedAnswer(
    TaskScope* scope, absl::AnyInvocable<void(Answer) &&> done) {
  // Shared by who fills it in and the task that takes it out.
  auto box = std::make_shared<std::optional<Answer>>();
  Task task = scope->Wrap([box, done = std::move(done)]() mutable {
    std::move(done)(*std::move(*box));
  });
  return [box, task = std::move(task)](Answer answer) mutable {
    box->emplace(std::move(answer));
    std::move(task)();
  };
}

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_SCOPED_ANSWER_H_
