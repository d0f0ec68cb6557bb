#include "server/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/result.h"

namespace pelton::server {
namespace {

// Often enough for the limit, and not so often that it costs anything.
int64_t tick_of(int64_t limit_ns) {
  return std::clamp<int64_t>(limit_ns / 8, 5'000'000, 1'000'000'000);
}

}  // namespace

bool StepPatience::stuck(int64_t now_ns, int64_t busy_since_ns) {
  const int64_t due_ns = looked_ns_ + tick_ns_;
  // A tick's lateness is a busy machine's everyday life.
  if (now_ns - due_ns > tick_ns_) gaps_.push_back({due_ns, now_ns});
  looked_ns_ = now_ns;
  // A step may have begun before a gap and be seen for the first time after it: the second of two
  // in flight. So gaps are kept by when they were.
  std::erase_if(gaps_,
                [&](const Gap& gap) { return busy_since_ns == 0 || gap.end_ns <= busy_since_ns; });
  step_ns_ = busy_since_ns == 0 ? 0 : now_ns - busy_since_ns;
  for (const Gap& gap : gaps_) step_ns_ -= gap.end_ns - std::max(gap.begin_ns, busy_since_ns);
  return step_ns_ > limit_ns_;
}

Watchdog::Watchdog(Options options, engine::Engine& engine, const base::Clock& clock,
                   base::Log& log)
    : options_(std::move(options)),
      engine_(engine),
      clock_(clock),
      log_(log),
      patience_(options_.limit_ns, tick_of(options_.limit_ns), clock_.now_ns()),
      thread_({.name = "pelton-watch",
               .interval = std::chrono::nanoseconds(tick_of(options_.limit_ns))},
              [this] { look(); }) {
  CHECK(options_.limit_ns > 0);
}

void Watchdog::look() {
  const bool stuck = patience_.stuck(clock_.now_ns(), engine_.busy_since_ns());
  const bool was_stuck = stuck_.exchange(stuck, std::memory_order_relaxed);
  if (!stuck) {
    if (was_stuck) log_.info("the step that was stuck has ended; the server goes on");
    return;
  }
  const Error error{ErrorCode::kUnavailable,
                    fmt::format("The engine is stuck: a step has been running for {} seconds",
                                patience_.step_ns() / 1'000'000'000),
                    ""};
  const int ended = engine_.abandon(error);
  if (was_stuck) return;
  log_.error(
      fmt::format("a step has been running for {:.1f} s; the watchdog allows {:.1f}: {} "
                  "answers are given up",
                  static_cast<double>(patience_.step_ns()) * 1e-9,
                  static_cast<double>(options_.limit_ns) * 1e-9, ended));
  if (options_.on_stuck) options_.on_stuck();
}

}  // namespace pelton::server
