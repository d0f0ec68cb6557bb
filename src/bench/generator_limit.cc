#include "bench/generator_limit.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::bench {
namespace {

// Lateness below this is what timers and threads cost anywhere.
constexpr double kLateMsMax = 10;
constexpr double kLateShareMax = 0.05;   // of the median answer
constexpr double kFullWindowsMax = 0.1;  // of all windows
constexpr int kFullWindowsMin = 2;       // one is a hiccup

}  // namespace

std::string generator_limit(const report::GeneratorWatch& watch,
                            const ThreadWatch::Busiest& busiest, double median_answer_ms) {
  if (busiest.full_windows >= kFullWindowsMin &&
      busiest.full_windows > kFullWindowsMax * busiest.windows) {
    return fmt::format(
        "the generator, not the server, was the limit: its busiest thread had no time left in {} "
        "of {} windows (--client-threads {} gives it more)",
        busiest.full_windows, busiest.windows, watch.threads + 1);
  }
  if (watch.late_p99_ms > std::max(kLateMsMax, kLateShareMax * median_answer_ms)) {
    return fmt::format(
        "the generator sent its requests late, P99 {:.1f} ms: it, or this machine, was short of "
        "breath, and the server may be better than it looks",
        watch.late_p99_ms);
  }
  return "";
}

}  // namespace pelton::bench
