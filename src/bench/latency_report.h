// What `bench latency` measured: runs of prefill and decode, each decode between two probes of the
// memory, summed up. Pure: numbers in, numbers and words out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pelton::bench {

struct LatencyRun {
  std::vector<double> prefill_s;  // of each sequence
  std::vector<double> step_s;     // each decode step
  double bandwidth_before = 0;    // bytes a second, as the probes read
  double bandwidth_after = 0;
  // With adapters: the same of the model alone, each measured right beside its counterpart.
  std::vector<double> base_prefill_s = {};
  std::vector<double> base_step_s = {};
};

struct LatencyReport {
  int batch_size = 1;
  int input_len = 0;
  int output_len = 0;
  int depth = 0;
  std::string kernels;
  std::string kv_type;
  std::string load_mode;  // what was taken
  int threads = 0;
  int runs = 0;
  double prefill_tok_s = 0;
  double decode_tok_s = 0;
  double bytes_per_token = 0;  // of a sequence alone
  double bytes_per_step = 0;   // of all sequences together
  double bandwidth_probe = 0;  // the median of those beside the runs, the lowest and the highest
  double bandwidth_low = 0;
  double bandwidth_high = 0;
  // Each run's of the probes around it, the median: of its mean step, and of its median one, which
  // what others do on the machine now and then does not touch.
  double share = 0;
  double share_of_median_step = 0;
  double step_ms_p50 = 0;  // of all runs' steps
  double step_ms_p90 = 0;
  double step_ms_max = 0;
  int64_t peak_rss = 0;
  // With adapters: how many, and what the model alone did by turns with them. The ratios are the
  // middle ones of all pairs: one step that something else on the machine holds up is one of many,
  // where in a mean it could stand for hundreds.
  int adapters = 0;
  double base_prefill_tok_s = 0;
  double base_decode_tok_s = 0;
  double prefill_over_base = 0;
  double decode_over_base = 0;
};

// Fills in what follows from the runs, at least one of at least one step. Needs batch_size,
// input_len and bytes_per_step.
void summarize_runs(std::span<const LatencyRun> runs, LatencyReport& report);

std::string latency_json(const LatencyReport& report);  // one line
std::string latency_text(const LatencyReport& report);

}  // namespace pelton::bench
