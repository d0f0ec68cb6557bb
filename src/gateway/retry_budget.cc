#include "gateway/retry_budget.h"

#include <algorithm>

namespace pelton::gateway {

RetryBudget::Second& RetryBudget::second_of(int64_t now_ns) {
  const int64_t number = now_ns / 1'000'000'000;
  Second& second = seconds_[static_cast<size_t>(number % kSeconds)];
  if (second.number != number) second = {.number = number};
  return second;
}

void RetryBudget::note_request(int64_t now_ns) {
  std::lock_guard lock(mutex_);
  ++second_of(now_ns).requests;
}

void RetryBudget::set_share(double share) {
  std::lock_guard lock(mutex_);
  options_.share = share;
}

int64_t RetryBudget::left_locked(int64_t now_ns) {
  const Second& now = second_of(now_ns);
  int64_t requests = 0;
  int64_t retries = 0;
  for (const Second& second : seconds_) {
    if (second.number <= now.number - kSeconds) continue;
    requests += second.requests;
    retries += second.retries;
  }
  if (options_.share == 0) return 0;
  const double most =
      std::max<double>(options_.least, options_.share * static_cast<double>(requests));
  return std::max<int64_t>(static_cast<int64_t>(most) - retries, 0);
}

int64_t RetryBudget::left(int64_t now_ns) {
  std::lock_guard lock(mutex_);
  return left_locked(now_ns);
}

bool RetryBudget::take(int64_t now_ns) {
  std::lock_guard lock(mutex_);
  if (left_locked(now_ns) < 1) return false;
  ++second_of(now_ns).retries;
  return true;
}

}  // namespace pelton::gateway
