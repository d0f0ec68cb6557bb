// What others have measured and published, beside what the model says: the share of the roofline
// that such a number implies. Reported as modelled; nothing here was run by us. Pure.
#pragma once

#include <vector>

#include "planner/plan_report.h"

namespace pelton::planner {

// gpt-oss-120b on a GB200 NVL72: 1.5 M tokens/s, as NVIDIA said in August 2025.
struct RackThroughput {
  double published_per_s = 0;
  double per_device_per_s = 0;      // published, of one of 72
  double replicas_ideal_per_s = 0;  // a copy on every device
  double experts_ideal_per_s = 0;   // experts dealt to all 72 as far as they divide
  double implied_of_replicas = 0;   // published over ideal
  double implied_of_experts = 0;
  int answers_per_device = 512;
};
RackThroughput rack_throughput();

// Four times the interactivity with prompts and answers on devices of their own, 32 k tokens in, on
// Blackwell, at equal throughput. At how many answers that is read is not said: so a curve.
struct SplitPoint {
  int concurrency = 0;  // answers on each device, while prompts are there too
  double gain = 0;
  double together_itl_s = 0;
  double split_itl_s = 0;
  double output_kept = 0;
  double prefill_devices_share = 0;
};
std::vector<SplitPoint> split_interactivity();

Section published_section();

}  // namespace pelton::planner
