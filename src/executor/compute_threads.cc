#include "executor/compute_threads.h"

namespace pelton::executor {

void ComputeThreads::begin_turn() {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = tickets_++;
  next_.wait(lock, [&] { return serving_ == ticket; });
}

void ComputeThreads::end_turn() {
  {
    const std::lock_guard lock(mutex_);
    ++serving_;
    if (serving_ == tickets_) return;  // nobody waits
  }
  next_.notify_all();
}

}  // namespace pelton::executor
