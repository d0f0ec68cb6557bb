#include "bench/latency_report.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "cli/human_size.h"
#include "report/percentile.h"

namespace pelton::bench {
namespace {

double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  return report::percentile(values, percent);
}

double median(const std::vector<double>& values) {
  return percentile(values, 50);
}

double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void append_ratios(const std::vector<double>& base_s, const std::vector<double>& measured_s,
                   std::vector<double>& ratios) {
  for (size_t i = 0; i < base_s.size(); ++i) ratios.push_back(base_s[i] / measured_s[i]);
}

void summarize_pairs(std::span<const LatencyRun> runs, LatencyReport& report) {
  std::vector<double> prefill;
  std::vector<double> decode;
  std::vector<double> prefill_ratios;
  std::vector<double> decode_ratios;
  for (const LatencyRun& run : runs) {
    prefill.push_back(report.batch_size * report.input_len / sum(run.base_prefill_s));
    decode.push_back(report.batch_size / report::mean(run.base_step_s));
    append_ratios(run.base_prefill_s, run.prefill_s, prefill_ratios);
    append_ratios(run.base_step_s, run.step_s, decode_ratios);
  }
  report.base_prefill_tok_s = median(prefill);
  report.base_decode_tok_s = median(decode);
  report.prefill_over_base = median(prefill_ratios);
  report.decode_over_base = median(decode_ratios);
}

}  // namespace

void summarize_runs(std::span<const LatencyRun> runs, LatencyReport& report) {
  std::vector<double> prefill;
  std::vector<double> decode;
  std::vector<double> bandwidth;
  std::vector<double> share;
  std::vector<double> share_of_median;
  std::vector<double> all_steps;
  const double batch = report.batch_size;
  for (const LatencyRun& run : runs) {
    const double mean = report::mean(run.step_s);
    prefill.push_back(batch * report.input_len / sum(run.prefill_s));
    decode.push_back(batch / mean);
    bandwidth.insert(bandwidth.end(), {run.bandwidth_before, run.bandwidth_after});
    // If the memory changed its speed meanwhile, the share is not flattered.
    const double step_at_probe =
        report.bytes_per_step / std::max(run.bandwidth_before, run.bandwidth_after);
    share.push_back(step_at_probe / mean);
    share_of_median.push_back(step_at_probe / median(run.step_s));
    all_steps.insert(all_steps.end(), run.step_s.begin(), run.step_s.end());
  }
  report.runs = static_cast<int>(runs.size());
  report.prefill_tok_s = median(prefill);
  report.decode_tok_s = median(decode);
  report.share = median(share);
  report.share_of_median_step = median(share_of_median);
  report.step_ms_p50 = median(all_steps) * 1e3;
  report.step_ms_p90 = percentile(all_steps, 90) * 1e3;
  report.step_ms_max = percentile(all_steps, 100) * 1e3;
  report.bandwidth_probe = median(bandwidth);
  report.bandwidth_low = *std::min_element(bandwidth.begin(), bandwidth.end());
  report.bandwidth_high = *std::max_element(bandwidth.begin(), bandwidth.end());
  if (!runs.front().base_step_s.empty()) summarize_pairs(runs, report);
}

std::string latency_json(const LatencyReport& report) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object();
  w.key("prefill_tok_s").number(report.prefill_tok_s);
  w.key("decode_tok_s").number(report.decode_tok_s);
  w.key("bytes_per_token").number(report.bytes_per_token);
  w.key("bytes_per_step").number(report.bytes_per_step);
  w.key("bandwidth_probe").number(report.bandwidth_probe);
  w.key("bandwidth_probe_min").number(report.bandwidth_low);
  w.key("bandwidth_probe_max").number(report.bandwidth_high);
  w.key("share").number(report.share);
  w.key("share_of_median_step").number(report.share_of_median_step);
  w.key("step_ms_p50").number(report.step_ms_p50);
  w.key("step_ms_p90").number(report.step_ms_p90);
  w.key("step_ms_max").number(report.step_ms_max);
  w.key("peak_rss").integer(report.peak_rss);
  w.key("batch_size").integer(report.batch_size);
  w.key("input_len").integer(report.input_len);
  w.key("output_len").integer(report.output_len);
  w.key("depth").integer(report.depth);
  w.key("threads").integer(report.threads);
  w.key("kernels").string(report.kernels);
  w.key("kv_cache_dtype").string(report.kv_type);
  w.key("load_mode").string(report.load_mode);
  w.key("runs").integer(report.runs);
  if (report.adapters > 0) {
    w.key("adapters").integer(report.adapters);
    w.key("base_prefill_tok_s").number(report.base_prefill_tok_s);
    w.key("base_decode_tok_s").number(report.base_decode_tok_s);
    w.key("prefill_over_base").number(report.prefill_over_base);
    w.key("decode_over_base").number(report.decode_over_base);
  }
  w.end_object();
  out += '\n';
  return out;
}

std::string latency_text(const LatencyReport& report) {
  const std::string adapters =
      report.adapters == 0
          ? ""
          : fmt::format(
                "adapters     {:10} in turn; over the model alone: prefill {:.3f}, decode "
                "{:.3f}\n",
                report.adapters, report.prefill_over_base, report.decode_over_base);
  return fmt::format(
      "prefill      {:10.2f} tokens/s\n"
      "decode       {:10.2f} tokens/s (all {} sequences together)\n"
      "step         {:10.2f} ms in the middle, 9 of 10 in {:.2f}, the longest {:.2f}\n"
      "reads        {:>10} a step\n"
      "bandwidth    {:>10}/s ({} to {}), of which decode uses {:.0f} %, its middle step {:.0f} %\n"
      "peak memory  {:>10}\n"
      "load mode    {:>10}\n"
      "{}",
      report.prefill_tok_s, report.decode_tok_s, report.batch_size, report.step_ms_p50,
      report.step_ms_p90, report.step_ms_max, cli::format_bytes(report.bytes_per_step),
      cli::format_bytes(report.bandwidth_probe), cli::format_bytes(report.bandwidth_low),
      cli::format_bytes(report.bandwidth_high), report.share * 100,
      report.share_of_median_step * 100, cli::format_bytes(static_cast<double>(report.peak_rss)),
      report.load_mode, adapters);
}

}  // namespace pelton::bench
