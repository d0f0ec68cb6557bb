#include "executor/compute_threads.h"

#include <algorithm>

namespace pelton::executor {
namespace {

// Between two steps of a model that generates: longer than sampling and planning take, also where
// the machine has more to do.
constexpr std::chrono::milliseconds kBetweenSteps{25};

}  // namespace

void ComputeThreads::begin_turn(Work work) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = tickets_++;
  waiting_.push_back({ticket, work});
  while (is_taken_ || next_ticket() != ticket) {
    // Nobody says that a model has stopped generating.
    if (work == Work::kEncodes && encoding_share_) {
      next_.wait_for(lock, kBetweenSteps);
    } else {
      next_.wait(lock);
    }
  }
  std::erase_if(waiting_, [&](const Waiting& one) { return one.ticket == ticket; });
  is_taken_ = true;
  work_ = work;
  begun_ = Clock::now();
  if (work == Work::kEncodes) owed_ = Clock::duration::zero();
}

std::optional<uint64_t> ComputeThreads::next_ticket() const {
  for (const Waiting& one : waiting_) {
    if (one.work == Work::kGenerates || may_encode()) return one.ticket;
  }
  return std::nullopt;
}

bool ComputeThreads::may_encode() const {
  if (owed_ <= Clock::duration::zero()) return true;
  const bool some_wait = std::ranges::any_of(
      waiting_, [](const Waiting& one) { return one.work == Work::kGenerates; });
  return !some_wait && Clock::now() - generated_ > kBetweenSteps;
}

void ComputeThreads::end_turn() {
  {
    const std::lock_guard lock(mutex_);
    is_taken_ = false;
    const Clock::time_point now = Clock::now();
    if (work_ == Work::kGenerates) {
      generated_ = now;
      owed_ -= std::min(owed_, now - begun_);
    } else if (encoding_share_) {
      const double owes = (1 - *encoding_share_) / *encoding_share_;
      owed_ = std::chrono::duration_cast<Clock::duration>((now - begun_) * owes);
    }
    if (waiting_.empty()) return;
  }
  next_.notify_all();
}

}  // namespace pelton::executor
