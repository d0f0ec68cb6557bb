// Fifteen minutes of what the server did, a sample a second, for whoever opens the console's page
// Live: rates and percentiles out of counters that only rise. Fixed memory. Any thread; one lock.
//
// Example: 1 200 tokens sampled a second ago and 1 500 now are a rate of 300. Of the 10 first
// tokens of this second 5 came within 0.1 s and all within 0.2 s: p50 is 0.1, p95 0.19, by straight
// lines within a histogram's range, as Prometheus' histogram_quantile() says.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/json_writer.h"

namespace pelton::server {

// As they stand, summed over the models.
struct LiveCounters {
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t steps = 0;
  int64_t prefix_tokens_asked = 0;
  int64_t prefix_tokens_found = 0;
  int running = 0;
  int waiting = 0;
  // Upper bounds, and by bound, and at last by none, how many were not above it.
  std::vector<double> first_bounds;
  std::vector<int64_t> first_token;
  std::vector<double> inter_bounds;
  std::vector<int64_t> inter_token;
  struct Group {
    std::string name;
    int64_t used = 0;
    int64_t total = 0;
  };
  std::vector<Group> kv;
};

class LiveHistory {
 public:
  static constexpr size_t kSamples = 900;

  // Once a second; the first only says from where to count.
  // `now_ns` is the steady clock's, which rates come from; the calendar's is only shown.
  void note(const LiveCounters& counters, int64_t now_ns, int64_t unix_ms);

  struct News {
    int64_t newest = 0;   // number of the last sample; 0: none yet
    std::string samples;  // behind the one asked for, the oldest first, as a JSON array; or empty
  };
  News after(int64_t number) const;

 private:
  static constexpr size_t kGroupsMax = 6;
  struct Percentiles {
    float p50 = -1;  // seconds; below 0: nothing was observed
    float p95 = -1;
  };
  struct Sample {
    int64_t number = 0;
    int64_t unix_ms = 0;
    float output = 0;  // a second, as the next
    float prompt = 0;
    float steps = 0;
    float hits = -1;  // share of prompt tokens looked up; below 0: none were
    int running = 0;
    int waiting = 0;
    Percentiles first_token;
    Percentiles inter_token;
    std::array<float, kGroupsMax> kv = {};
  };
  static Percentiles percentiles(const std::vector<double>& bounds, const std::vector<int64_t>& now,
                                 const std::vector<int64_t>& before);
  void write(base::JsonWriter& w, const Sample& sample) const;

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::array<Sample, kSamples> ring_;
  int64_t newest_ = 0;
  LiveCounters last_;
  int64_t last_ns_ = 0;  // 0: nothing was noted yet
  std::vector<std::string> groups_;
};

}  // namespace pelton::server
