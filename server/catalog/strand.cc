#include "server/catalog/strand.h"

#include <utility>

namespace firnkv {

Strand::Strand(Executor* executor) : executor_(executor) {}

Strand::~Strand() { Close(); }

void Strand::Post(Step step) {
  absl::Status refused;
  bool start = false;
  {
    MutexLock lock(&mutex_);
    if (closed_) {
      refused = absl::UnavailableError("the catalog stops");
    } else if (queue_.size() >= kMaxQueued) {
      refused = absl::ResourceExhaustedError("the catalog's queue is full");
    } else {
      queue_.push_back(std::move(step));
      start = !scheduled_;
      scheduled_ = true;
    }
  }
  if (!refused.ok()) {
    std::move(step)(std::move(refused));
  } else if (start) {
    PostRun();
  }
}

void Strand::PostRun() {
  executor_->Post(scope_.Wrap([this] { Run(); }));
}

void Strand::Run() {
  for (int i = 0; i < kStepsATask; ++i) {
    Step step;
    {
      MutexLock lock(&mutex_);
      if (closed_ || queue_.empty()) {
        scheduled_ = false;
        return;
      }
      step = std::move(queue_.front());
      queue_.pop_front();
    }
    std::move(step)(absl::OkStatus());
  }
  // `scheduled_` stays true: nobody else posts a Run meanwhile.
  PostRun();
}

void Strand::Close() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  scope_.Close();
  std::deque<Step> left;
  {
    MutexLock lock(&mutex_);
    left.swap(queue_);
  }
  for (Step& step : left) {
    std::move(step)(absl::UnavailableError("the catalog stops"));
  }
}

}  // namespace firnkv
