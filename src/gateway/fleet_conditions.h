// Which alerts of deploy/metrics.toml would fire, by what this gateway itself has counted: for
// whoever looks at its console, with a Prometheus or without one; and which are not for it to say.
// Counters in fixed memory: one sample a second of fifteen minutes, one a minute of six hours, one
// a quarter of an hour of three days. A window begins at the first sample in it; one that is longer
// than what is kept is as long as that, and says so. A rule's text and its numbers stand here
// again: tests/gateway_operators_test.py holds them against the file. Any thread; one lock.
//
// Example: 1 000 requests ended in the last five minutes, and 20 of them were not served: a share
// of 0.02, which is more than 14.4 times the budget of 0.001. After two minutes of that
// PeltonErrorBudgetFast fires.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_writer.h"

namespace pelton::gateway {

class FleetConditions {
 public:
  static constexpr double kBudget_s = 900;
  static constexpr size_t kPoolsMax = 16;      // those behind them are not looked at
  static constexpr double kObjective = 0.001;  // of requests may be not served

  // As they stand.
  struct Pool {
    std::string name;
    int64_t held = 0;
    // Where its replicas come and go; the rest is of such.
    bool is_scaled = false;
    int desired = 0;
    int ready = 0;
    int64_t failed_starts = 0;
    int64_t lost = 0;  // replicas that ended by themselves
    bool alarm = false;
  };
  struct Counts {
    int64_t requests = 0;  // that are over
    int64_t interrupted = 0;
    int64_t unserved = 0;
    int able = 0;  // workers that could answer: ready, suspect, unverified
    int down = 0;
    std::vector<Pool> pools;
  };

  // Of a process that begins then: all that it counts begins at nothing.
  explicit FleetConditions(int64_t now_ns);

  // Once a second.
  void note(const Counts& counts, int64_t now_ns);

  // {"history_s":…,"budget":{…},"budgets":[{"window_s",…},…],"conditions":[{"name","pool",
  // "severity","state","value","limit","for_s","since_s","window_s","kept_s","expr"},…],
  // "elsewhere":[{"name","severity","for_s","expr","where"},…]}; `state`: "firing", "pending"
  // (true, and not for long enough), "quiet". Of a rule of pools there is one for each of them.
  // `budget`: of the last fifteen minutes.
  std::string body() const;

 private:
  struct Sample {
    int64_t now_ns = 0;
    int64_t requests = 0;
    int64_t interrupted = 0;
    int64_t unserved = 0;
    std::array<int64_t, kPoolsMax> failed_starts{};
    std::array<int64_t, kPoolsMax> lost{};
  };
  // The newest samples that are so far apart, so many of them.
  class Ring {
   public:
    Ring(size_t count, int64_t step_ns) : samples_(count), step_ns_(step_ns) {}
    // If it is time for one.
    void add(const Sample& sample);
    const Sample& oldest() const { return at(noted_ <= samples_.size() ? 0 : noted_); }
    // The oldest one that is not older than that, or the newest.
    const Sample& first_since(int64_t from_ns) const;

   private:
    const Sample& at(size_t number) const { return samples_[number % samples_.size()]; }
    std::vector<Sample> samples_;  // of a size that does not change
    int64_t step_ns_;
    size_t noted_ = 0;  // also those that are gone
  };
  // A rule, held against what is.
  struct Found {
    std::string_view name;
    std::string pool;
    bool is_true = false;
    double value = 0;
    double limit = 0;
    double window_s = 0;  // 0: it looks at no window
  };

  const Sample& before(double window_s) const;
  double bad_share(double window_s) const;
  size_t place_of(const std::string& pool);
  std::vector<Found> look() const;
  void look_at_pool(const Pool& pool, std::vector<Found>& found) const;
  void write(base::JsonWriter& w, const Found& found) const;
  void write_budget(base::JsonWriter& w, double window_s) const;
  double history_s() const;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::array<Ring, 3> rings_;  // each goes further back than the one before
  Sample newest_;
  Counts now_;
  std::vector<std::string> places_;  // of pools in a sample
  std::map<std::pair<std::string, std::string>, int64_t>
      since_ns_;  // of what is true, by name and pool
};

}  // namespace pelton::gateway
