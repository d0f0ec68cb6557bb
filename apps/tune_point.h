// What a combination of settings gave in the simulator, and the page that shows a front of them.
// Values, pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/variations.h"
#include "base/result.h"
#include "report/confidence.h"
#include "report/goodput.h"
#include "report/summary.h"

namespace pelton::apps {

// Of one run, whatever the objectives are: what --history keeps.
struct PlayedRun {
  std::string why_not;  // it cannot be played; empty: it was
  int64_t requests = 0;
  int64_t failed = 0;     // refused, lost, or not done at the end
  std::string failure;    // what most of them ended with
  double duration_s = 0;  // of the simulated load
  double tokens_per_s = 0;
  double replicas = 1;                   // on average
  int devices = 1;                       // of a replica
  double dollars_per_hour = 0;           // of a replica; 0: not known
  std::map<std::string, double> p90_ms;  // by a metric's key
};

std::string to_json(const PlayedRun& run);
// kBadConfig.
Result<PlayedRun> parse_played_run(std::string_view json);

// What a best one has most of.
enum class BestBy { kReplica, kDevice, kCost };

// On a real server, medians of rounds; spreads are half of what lies between the least and the
// most.
struct Measured {
  double tokens_per_s = 0;
  double tokens_spread = 0;
  double ttft_p90_ms = 0;
  double ttft_spread = 0;
  int64_t failed = 0;
  bool keeps = false;  // all objectives, in most rounds
  // The forecast with the calibration that these runs gave; 0: there is none.
  double again_tokens_per_s = 0;
  double again_ttft_p90_ms = 0;
};

struct Point {
  Settings settings;
  std::string why_not;  // it cannot be played; empty: it was
  std::string why;      // it does not keep the objectives, where that is no metric's
  double duration_s = 0;
  double tokens_per_s = 0;
  double per_replica = 0;
  int devices = 1;
  double per_million = 0;  // dollars for a million output tokens; 0: not known
  double ttft_p90_ms = 0;
  double value = 0;              // what the best one has most of
  std::vector<double> p90_ms;    // of each objective's metric
  bool keeps = false;            // all objectives
  double excess = 0;             // of the objective that is missed most, as a share of it
  bool is_front = false;         // none is better in everything
  report::Interval value_seeds;  // of --seeds; without bounds: one run
  std::optional<Measured> measured;
};

// Judged by objectives; a bound may be infinite: its percentile counts on the front alone.
Point judged(Settings settings, const PlayedRun& run,
             const std::vector<report::Objective>& objectives, BestBy best_by);

// "tokens/s of a replica".
std::string_view best_by_text(BestBy best_by);

// Marks those that none beats in value and in every objective's metric.
void mark_front(std::vector<Point>& points);

// Fronts: value over each objective's metric, one picture each, with a table of all points.
// `notes`: lines above.
std::string tune_page(const std::string& title, const std::vector<std::string>& notes,
                      const std::vector<Point>& points,
                      const std::vector<report::Objective>& objectives, BestBy best_by);

// For terminals and programs.
std::string points_table(const std::vector<Point>& points,
                         const std::vector<report::Objective>& objectives);
std::string points_json(const std::vector<Point>& points,
                        const std::vector<report::Objective>& objectives);

}  // namespace pelton::apps
