// Two fleets at rising loads: what each user sees against what a GPU brings, and where one of them
// is better. Pure.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "report/plot.h"
#include "report/summary.h"

namespace pelton::simulator {

struct FrontPoint {
  double value = 0;         // of the flag that is swept
  double tokens_per_s = 0;  // of each user, behind the first token
  double throughput = 0;    // output tokens a second and GPU
  double ttft_p50_s = 0;
  double itl_p99_s = 0;
};

FrontPoint front_point(const report::Summary& summary, double value, int gpus);

// On the line through the points that no other one beats, by rising throughput; none: it brings
// less, or was not played with so little.
std::optional<double> interactivity_at(std::vector<FrontPoint> points, double throughput);

struct PlayedFront {
  std::string name;
  std::vector<FrontPoint> points;
};
// Both, point by point; and at the throughput of each point of the first: how many times the
// interactivity the second has there, the greatest of these, and where it stops paying.
std::string fronts_text(const std::string& flag, const std::array<PlayedFront, 2>& fronts,
                        double wanted_ratio);
std::string fronts_json(const std::string& scenario, const std::string& flag,
                        const std::array<PlayedFront, 2>& fronts);
report::Plot fronts_plot(const std::array<PlayedFront, 2>& fronts);

}  // namespace pelton::simulator
