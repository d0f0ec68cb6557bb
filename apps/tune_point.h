// What a combination of settings gave in the simulator, and the page that shows a front of them.
// Values, pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/variations.h"
#include "report/confidence.h"
#include "report/goodput.h"

namespace pelton::apps {

struct Point {
  Settings settings;
  std::string why_not;  // it cannot be played; empty: it was
  double tokens_per_s = 0;
  double per_replica = 0;
  std::vector<double> p90_ms;          // of each objective's metric
  bool keeps = false;                  // all objectives
  double excess = 0;                   // of the objective that is missed most, as a share of it
  bool is_front = false;               // none is better in everything
  report::Interval per_replica_seeds;  // of --seeds; without bounds: one run
};

// Marks those that none beats in tokens a second of a replica and in every objective's metric.
void mark_front(std::vector<Point>& points);

// Fronts: tokens a second of a replica over each objective's metric, one picture each, with a table
// of all points. `notes`: lines above.
std::string tune_page(const std::string& title, const std::vector<std::string>& notes,
                      const std::vector<Point>& points,
                      const std::vector<report::Objective>& objectives);

}  // namespace pelton::apps
