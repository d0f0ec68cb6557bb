// pelton bench latency: prefill and decode speed of a fixed batch, beside the memory's bandwidth.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "apps/bandwidth_probe.h"
#include "apps/bench_lock.h"
#include "apps/decode_bench.h"
#include "apps/input.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/residency.h"
#include "cli/human_size.h"
#include "cli/progress.h"
#include "families/kv_groups.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "report/percentile.h"
#include "tensor/kv_block.h"

namespace pelton::apps {
namespace {

using cli::Flag;

double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  return report::percentile(values, percent);
}

double median(const std::vector<double>& values) {
  return percentile(values, 50);
}

// What computes.
struct Arithmetic {
  kernels::KernelChoice kernels = kernels::KernelChoice::kAuto;
  std::optional<tensor::DType> kv_type;  // empty: what the kernels prefer
  int threads = 0;
};

struct Report {
  DecodeBench::Options shape;
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
};

std::string to_json(const Report& report) {
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
  w.key("batch_size").integer(report.shape.batch_size);
  w.key("input_len").integer(report.shape.input_len);
  w.key("output_len").integer(report.shape.output_len);
  w.key("depth").integer(report.shape.depth);
  w.key("threads").integer(report.threads);
  w.key("kernels").string(report.kernels);
  w.key("kv_cache_dtype").string(report.kv_type);
  w.key("load_mode").string(report.load_mode);
  w.key("runs").integer(report.runs);
  w.end_object();
  out += '\n';
  return out;
}

std::string to_text(const Report& report) {
  return fmt::format(
      "prefill      {:10.2f} tokens/s\n"
      "decode       {:10.2f} tokens/s (all {} sequences together)\n"
      "step         {:10.2f} ms in the middle, 9 of 10 in {:.2f}, the longest {:.2f}\n"
      "reads        {:>10} a step\n"
      "bandwidth    {:>10}/s ({} to {}), of which decode uses {:.0f} %, its middle step {:.0f} %\n"
      "peak memory  {:>10}\n"
      "load mode    {:>10}\n",
      report.prefill_tok_s, report.decode_tok_s, report.shape.batch_size, report.step_ms_p50,
      report.step_ms_p90, report.step_ms_max, cli::format_bytes(report.bytes_per_step),
      cli::format_bytes(report.bandwidth_probe), cli::format_bytes(report.bandwidth_low),
      cli::format_bytes(report.bandwidth_high), report.share * 100,
      report.share_of_median_step * 100, cli::format_bytes(static_cast<double>(report.peak_rss)),
      report.load_mode);
}

// Keys and values that one decoded token reads, halfway through the output.
double kv_bytes_read(const DecodeBench::Options& shape, const families::ModelConfig& config,
                     tensor::DType kv_type) {
  const double position = shape.depth + shape.input_len + shape.output_len / 2.0;
  const double in_window = std::min<double>(config.sliding_window, position);
  const auto token_bytes =
      static_cast<double>(tensor::kv_block_bytes(kv_type, families::kv_block_shape(config, 1)));
  double tokens = 0;
  for (int i = 0; i < config.layer_count(); ++i) {
    tokens += config.is_sliding(i) ? in_window : position;
  }
  return tokens * token_bytes;
}

// The measured runs, each decode between two probes.
void measure_runs(DecodeBench& bench, base::ThreadPool& pool, int64_t probe_bytes, Report& report) {
  const base::SystemClock clock;
  cli::Progress progress("measuring", cli::Progress::Unit::kCount, clock);
  BandwidthProbe probe(pool, probe_bytes);
  std::vector<double> prefill;
  std::vector<double> decode;
  std::vector<double> bandwidth;
  std::vector<double> share;
  std::vector<double> share_of_median;
  std::vector<double> all_steps;
  const double batch = report.shape.batch_size;
  for (int i = 0; i < report.runs; ++i) {
    progress.update(i, report.runs);
    prefill.push_back(batch * report.shape.input_len / bench.time_prefill(clock));
    const double before = probe.bytes_per_second(clock);
    const std::vector<double> steps = bench.time_decode(clock);
    const double after = probe.bytes_per_second(clock);
    const double mean = report::mean(steps);
    decode.push_back(batch / mean);
    bandwidth.insert(bandwidth.end(), {before, after});
    // If the memory changed its speed meanwhile, the share is not flattered.
    const double step_at_probe = report.bytes_per_step / std::max(before, after);
    share.push_back(step_at_probe / mean);
    share_of_median.push_back(step_at_probe / median(steps));
    all_steps.insert(all_steps.end(), steps.begin(), steps.end());
  }
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
}

Result<Report> measure_model(const checkpoint::Checkpoint& checkpoint, const Arithmetic& arithmetic,
                             const DecodeBench::Options& shape, int runs, int64_t probe_bytes) {
  const base::SystemClock clock;
  base::ThreadPool pool({.threads = arithmetic.threads});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels,
             kernels::make_kernels(arithmetic.kernels, pool));
  const tensor::DType kv_type = arithmetic.kv_type.value_or(kernels->kv_dtype());
  TRY_ASSIGN(const std::unique_ptr<models::Model> model,
             models::load_model(checkpoint, *kernels, DecodeBench::model_options(shape)));
  TRY_ASSIGN(DecodeBench bench, DecodeBench::make(*model, kv_type, shape));

  bench.fill_depth();
  bench.time_prefill(clock);  // warms files, caches and clocks; not counted
  bench.time_decode(clock);
  const double kv_bytes = kv_bytes_read(shape, checkpoint.config(), kv_type);
  Report report{
      .shape = shape,
      .kernels = std::string(kernels->name()),
      .kv_type = std::string(tensor::kv_type_name(kv_type)),
      .threads = pool.size(),
      .runs = runs,
      .bytes_per_token = model->weight_bytes_of_step(1) + kv_bytes,
      .bytes_per_step = model->weight_bytes_of_step(shape.batch_size) + shape.batch_size * kv_bytes,
      // All is allocated by now, and the probe's buffer is not the model's.
      .peak_rss = base::peak_rss_bytes()};
  measure_runs(bench, pool, probe_bytes, report);
  return report;
}

// At most: keys and values as if no layer had a window, and the probe's buffer.
int64_t bytes_beside_weights(const DecodeBench::Options& shape, const families::ModelConfig& config,
                             tensor::DType kv_type, int64_t probe_bytes) {
  const auto token_bytes =
      static_cast<int64_t>(tensor::kv_block_bytes(kv_type, families::kv_block_shape(config, 1)));
  const int64_t tokens = int64_t{shape.depth} + shape.input_len + shape.output_len;
  const auto layers = int64_t{config.layer_count()};
  return tokens * shape.batch_size * layers * token_bytes + probe_bytes;
}

// Timed with weights in memory.
Result<checkpoint::LoadChoice> read_weights(const checkpoint::Checkpoint& checkpoint,
                                            checkpoint::LoadMode asked, int64_t bytes_beside) {
  const auto go_on = [](int64_t, int64_t) { return true; };
  TRY_ASSIGN(
      const checkpoint::LoadChoice choice,
      checkpoint::choose_load_mode(
          asked, checkpoint::load_facts(checkpoint::mapped_bytes(checkpoint), bytes_beside)));
  return checkpoint::read_weights(checkpoint, choice, go_on);
}

Result<void> run(const cli::Arguments& arguments) {
  Arithmetic arithmetic{.threads = static_cast<int>(arguments.integer("--threads"))};
  TRY_ASSIGN(arithmetic.kernels, kernels::parse_kernel_choice(arguments.text("--kernels")));
  TRY_ASSIGN(arithmetic.kv_type, tensor::parse_kv_type(arguments.text("--kv-cache-dtype")));
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(nullptr));
  TRY_ASSIGN(const auto asked, checkpoint::parse_load_mode(arguments.text("--load-mode")));
  const DecodeBench::Options shape{
      .batch_size = static_cast<int>(arguments.integer("--batch-size")),
      .depth = static_cast<int>(arguments.integer("--depth")),
      .input_len = static_cast<int>(arguments.integer("--input-len")),
      .output_len = static_cast<int>(arguments.integer("--output-len")),
      .seed = static_cast<uint64_t>(arguments.integer("--seed"))};
  const int64_t probe_bytes = BandwidthProbe::bytes_of(arguments);
  TRY_ASSIGN(const checkpoint::LoadChoice taken,
             read_weights(checkpoint, asked,
                          bytes_beside_weights(shape, checkpoint.config(),
                                               arithmetic.kv_type.value_or(tensor::DType::kF16),
                                               probe_bytes)));
  if (asked == checkpoint::LoadMode::kAuto) fmt::print(stderr, "load mode {}\n", taken.text());
  TRY_ASSIGN(Report report,
             measure_model(checkpoint, arithmetic, shape,
                           static_cast<int>(arguments.integer("--runs")), probe_bytes));
  report.load_mode = checkpoint::load_mode_name(taken.mode);
  if (arguments.has("--json")) {
    const std::string json = to_json(report);
    if (arguments.text("--json") == "-") return write_output(json);
    TRY(base::write_file(arguments.text("--json"), json));
  }
  return write_text(to_text(report));
}

Flag number_flag(std::string name, std::string value, std::string help, std::string fallback,
                 double least, double most) {
  return {.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .kind = Flag::Kind::kSize,
          .default_text = std::move(fallback),
          .least = least,
          .most = most};
}

}  // namespace

cli::Verb bench_latency_verb() {
  return {
      .name = "bench latency",
      .summary = "Measures prefill and decode speed of a fixed batch.",
      .about =
          "Random tokens; a warm-up, then the median of --runs. Each run's decode stands between\n"
          "two probes of the memory: the fastest of six ways in which all threads read up to\n"
          "4 GiB (pelton bench bandwidth). share is decode_tok_s / batch size * bytes_per_step /\n"
          "the faster of the two, where bytes_per_step counts keys, values and the weights that a\n"
          "step reads, were one expert chosen as often as another; bytes_per_token is that of a\n"
          "sequence alone. share_of_median_step takes a run's median step instead of its mean, "
          "which\n"
          "leaves out what other work on the machine holds up now and then. One measurement at a\n"
          "time on a machine: a second one waits.",
      .positionals = {{"MODEL", "a model folder or a hub id"}},
      .flags = {number_flag("--batch-size", "B", "sequences side by side", "1", 1, 256),
                number_flag("--input-len", "N", "prompt tokens of each", "512", 1, 1 << 20),
                number_flag("--output-len", "M", "decoded tokens of each", "64", 1, 1 << 20),
                number_flag("--depth", "D", "tokens of context before them", "0", 0, 1 << 20),
                threads_flag(),
                number_flag("--runs", "R", "measured runs", "5", 1, 1000),
                number_flag("--seed", "S", "of the random tokens", "1", 0, 9e15),
                kernels_flag(),
                kv_type_flag(),
                load_mode_flag(),
                BandwidthProbe::buffer_size_flag(),
                {.name = "--json", .value = "FILE", .help = "also write the numbers; - is stdout"}},
      .examples = {"pelton bench latency ./model --batch-size 1 --input-len 512 --output-len 128 "
                   "--json b.json",
                   "pelton bench latency ./model --depth 16K --threads 2"},
      .run = run,
  };
}

}  // namespace pelton::apps
