// Which alerts of deploy/metrics.toml would fire, by what this gateway itself has counted: for
// whoever looks at its console, with a Prometheus or without one. Fifteen minutes of counters, one
// sample a second, in fixed memory; a rule's longer window is as long as what is kept, and says so.
// A rule's text and its numbers stand here again: tests/deploy_test.py holds them against the file.
// Any thread; one lock.
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
  static constexpr size_t kSamples = 900;
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

  // {"history_s":…,"budget":{…},"conditions":[{"name","pool","severity","state","value","limit",
  // "for_s","since_s","window_s","kept_s","expr"},…]}; `state`: "firing", "pending" (true, and not
  // for long enough), "quiet". Of a rule of pools there is one for each of them.
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
  double history_s() const;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::array<Sample, kSamples> ring_;
  size_t noted_ = 1;  // samples, also those that are gone
  Counts now_;
  std::vector<std::string> places_;  // of pools in a sample
  std::map<std::pair<std::string, std::string>, int64_t>
      since_ns_;  // of what is true, by name and pool
};

}  // namespace pelton::gateway
