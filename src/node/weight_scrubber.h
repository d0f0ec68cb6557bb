// Can what a model computes be believed? Watches how many requests end with numbers that are not
// finite, and looks again and again whether the weights are still what they were at first. A thread
// of its own, "pelton-scrub", of the least priority; owned by the program's entry, and gone before
// the checkpoint and whatever it asks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "checkpoint/weight_ranges.h"
#include "node/weight_sums.h"

namespace pelton::node {

// Whether too many errors have come in too short a time: pure.
class ErrorWindow {
 public:
  struct Options {
    int errors_max = 0;  // in a window; 0: there are never too many
    int64_t window_ns = 60'000'000'000;
  };
  explicit ErrorWindow(const Options& options) : options_(options) {}

  // `total`: since the start; it never falls. What came before the first call is not counted.
  bool too_many(int64_t now_ns, int64_t total);

 private:
  struct Count {
    int64_t at_ns;
    int64_t total;
  };
  const Options options_;
  std::deque<Count> counts_;  // when it grew; the first is the last from before the window
};

class WeightScrubber {
 public:
  enum class State {
    kSound,
    kDoubted,  // too many errors just now
    kDamaged,  // the weights are not what they were, for good
  };
  struct Options {
    int64_t period_ns = 0;  // in which all weights are looked at once; 0: only when there is doubt
    ErrorWindow::Options errors;
    std::function<int64_t()> error_count;  // since the start
    // On the watch's thread, whenever the state has changed.
    std::function<void(State)> on_change;
  };

  // `clock`, `log` and the checkpoint of `weights` outlive it. weights: what is computed with; none
  // where it is not in the host's memory.
  WeightScrubber(Options options, const checkpoint::WeightRanges& weights, const base::Clock& clock,
                 base::Log& log);
  WeightScrubber(const WeightScrubber&) = delete;
  WeightScrubber& operator=(const WeightScrubber&) = delete;

 private:
  void turn();
  void count_errors();
  void look_at_weights(int64_t passed_ns);
  void become(State state);

  const Options options_;
  const base::Clock& clock_;
  base::Log& log_;

  // The thread's.
  ErrorWindow window_;
  std::unique_ptr<WeightSums> sums_;  // null: nothing to look at
  State state_ = State::kSound;
  int64_t last_ns_;  // when it last had its turn
  int64_t bytes_due_ = 0;
  size_t doubted_pieces_ = 0;  // still to be looked at because of a doubt
  int64_t compared_ = 0;       // of those, so many could be

  std::optional<base::PeriodicThread> thread_;
};

}  // namespace pelton::node
