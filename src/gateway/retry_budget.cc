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

bool RetryBudget::take(int64_t now_ns) {
  std::lock_guard lock(mutex_);
  Second& now = second_of(now_ns);
  int64_t requests = 0;
  int64_t retries = 0;
  for (const Second& second : seconds_) {
    if (second.number <= now.number - kSeconds) continue;
    requests += second.requests;
    retries += second.retries;
  }
  const double most =
      std::max<double>(options_.least, options_.share * static_cast<double>(requests));
  if (static_cast<double>(retries + 1) > most) return false;
  ++now.retries;
  return true;
}

}  // namespace pelton::gateway
