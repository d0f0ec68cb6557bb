#include "hub/retry.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/random.h"

namespace pelton::hub {
namespace {

constexpr int kRetryAfterSecondsMax = 120;

// "Retry-After: 7"; the form with a date is not worth a calendar.
std::chrono::milliseconds asked_wait(const ResponseHead& head) {
  const std::string_view text = head.get("retry-after");
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return std::chrono::seconds(std::clamp(seconds, 0, kRetryAfterSecondsMax));
}

}  // namespace

bool worth_a_retry(int status) {
  return status == 408 || status == 425 || status == 429 || (status >= 500 && status <= 599);
}

bool Retry::again(const ResponseHead& head, const std::string& why, int64_t now_ns) {
  if (++failures_ >= options_.tries_max) return false;
  // Doubled each time, and spread, so that connections that fell together do not rise together.
  std::chrono::milliseconds wait = options_.delay * (1 << std::min(failures_ - 1, 10));
  wait = std::min(wait, options_.delay_max);
  const double spread = 0.75 + 0.5 * base::random_unit(static_cast<uint64_t>(now_ns), 0);
  const auto spread_ns = static_cast<int64_t>(static_cast<double>(wait.count()) * 1e6 * spread);
  const int64_t asked_ns = std::chrono::nanoseconds(asked_wait(head)).count();
  const int64_t wait_ns = std::max(spread_ns, asked_ns);
  not_before_ns_ = now_ns + wait_ns;
  if (options_.on_retry) {
    options_.on_retry({.why = why,
                       .failures = failures_,
                       .tries_max = options_.tries_max,
                       .wait = std::chrono::milliseconds(wait_ns / 1'000'000)});
  }
  return true;
}

}  // namespace pelton::hub
