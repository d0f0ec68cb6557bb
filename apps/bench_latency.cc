// pelton bench latency: prefill and decode speed of a fixed batch, beside the memory's bandwidth.
#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "apps/bandwidth_probe.h"
#include "apps/bench_lock.h"
#include "apps/decode_bench.h"
#include "apps/input.h"
#include "apps/loading.h"
#include "apps/lora_flags.h"
#include "apps/rank_bench.h"
#include "apps/rank_flags.h"
#include "apps/speculation_bench.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "bench/latency_report.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/compact_weights.h"
#include "checkpoint/huge_pages.h"
#include "checkpoint/residency.h"
#include "cli/progress.h"
#include "families/kv_groups.h"
#include "kernels/kernels.h"
#include "lora/adapter.h"
#include "models/model.h"
#include "tensor/kv_block.h"

namespace pelton::apps {
namespace {

using bench::LatencyReport;
using bench::LatencyRun;
using cli::Flag;

constexpr const char* kNotOverRanks[] = {"--depth", "--buffer-size", "--speculative-config",
                                         "--lora-modules"};

// What computes.
struct Arithmetic {
  kernels::KernelChoice kernels = kernels::KernelChoice::kAuto;
  std::optional<tensor::DType> kv_type;  // empty: what the kernels prefer
  int threads = 0;
};

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

LatencyRun measure_run(DecodeBench& timed, BandwidthProbe& probe, const base::Clock& clock) {
  DecodeBench::Times prefill = timed.time_prefill(clock);
  const double bandwidth_before = probe.bytes_per_second(clock);
  DecodeBench::Times decode = timed.time_decode(clock);
  return {.prefill_s = std::move(prefill.measured),
          .step_s = std::move(decode.measured),
          .bandwidth_before = bandwidth_before,
          .bandwidth_after = probe.bytes_per_second(clock),
          .base_prefill_s = std::move(prefill.of_base),
          .base_step_s = std::move(decode.of_base)};
}

// Each decode between two probes.
std::vector<LatencyRun> measure_runs(DecodeBench& timed, base::ThreadPool& pool,
                                     int64_t probe_bytes, int count) {
  const base::SystemClock clock;
  cli::Progress progress("measuring", cli::Progress::Unit::kCount, clock);
  BandwidthProbe probe(pool, probe_bytes);
  std::vector<LatencyRun> runs;
  for (int i = 0; i < count; ++i) {
    progress.update(i, count);
    runs.push_back(measure_run(timed, probe, clock));
  }
  return runs;
}

Result<LatencyReport> measure_model(const checkpoint::Checkpoint& checkpoint,
                                    const Arithmetic& arithmetic, const DecodeBench::Options& shape,
                                    int runs, int64_t probe_bytes) {
  const base::SystemClock clock;
  base::ThreadPool pool({.threads = arithmetic.threads});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels,
             kernels::make_kernels(arithmetic.kernels, pool));
  const tensor::DType kv_type = arithmetic.kv_type.value_or(kernels->kv_dtype());
  TRY_ASSIGN(const std::unique_ptr<models::Model> model,
             models::load_model(checkpoint, *kernels, DecodeBench::model_options(shape)));
  TRY_ASSIGN(DecodeBench timed, DecodeBench::make(*model, kv_type, shape));

  timed.fill_depth();
  timed.time_prefill(clock);  // warms files, caches and clocks; not counted
  timed.time_decode(clock);
  const double kv_bytes = kv_bytes_read(shape, checkpoint.config(), kv_type);
  LatencyReport report{
      .batch_size = shape.batch_size,
      .input_len = shape.input_len,
      .output_len = shape.output_len,
      .depth = shape.depth,
      .kernels = std::string(kernels->name()),
      .kv_type = std::string(tensor::kv_type_name(kv_type)),
      .threads = pool.size(),
      .bytes_per_token = model->weight_bytes_of_step(1) + kv_bytes,
      .bytes_per_step = model->weight_bytes_of_step(shape.batch_size) + shape.batch_size * kv_bytes,
      // All is allocated by now, and the probe's buffer is not the model's.
      .peak_rss = base::peak_rss_bytes(),
      .adapters = static_cast<int>(shape.adapters.size())};
  bench::summarize_runs(measure_runs(timed, pool, probe_bytes, runs), report);
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
  const checkpoint::WeightPieces pieces = checkpoint::weight_pieces(checkpoint);
  TRY_ASSIGN(const checkpoint::LoadChoice choice,
             checkpoint::choose_load_mode(
                 asked, checkpoint::load_facts(checkpoint::mapped_bytes(pieces), bytes_beside)));
  return checkpoint::read_weights(pieces, choice, go_on);
}

Result<void> write_report(const cli::Arguments& arguments, const std::string& json,
                          const std::string& text) {
  if (arguments.has("--json")) {
    if (arguments.text("--json") == "-") return write_output(json);
    TRY(base::write_file(arguments.text("--json"), json));
  }
  return write_text(text);
}

Result<void> run_speculation(const cli::Arguments& arguments,
                             const checkpoint::Checkpoint& checkpoint, const Arithmetic& arithmetic,
                             const DecodeBench::Options& shape) {
  executor::LocalExecutor::Options options;
  options.kernels = arguments.text("--kernels");
  options.threads = arithmetic.threads;
  options.kv_dtype = arithmetic.kv_type;
  TRY_ASSIGN(options.speculation,
             speculative::parse_config(arguments.text("--speculative-config")));
  TRY_ASSIGN(const SpeculationReport report,
             measure_speculation(checkpoint, options, shape,
                                 static_cast<int>(arguments.integer("--runs"))));
  return write_report(arguments, to_json(report), to_text(report));
}

// The one process beside them has as many threads as all, on the processors of this one.
void warn_of_bound(const executor::LocalExecutor::Options& options) {
  const auto usable = static_cast<int>(base::usable_cpus().size());
  const int threads = options.threads * options.ranks.count;
  if (threads <= usable) return;
  fmt::print(stderr,
             "pelton: {} threads of one process on the {} processors that this one is bound to: "
             "mpirun --bind-to none, srun --cpu-bind=none\n",
             threads, usable);
}

// What is measured otherwise than through the whole engine is not measured over ranks.
Result<void> check_measured_by_ranks(const cli::Arguments& arguments) {
  for (const char* const flag : kNotOverRanks) {
    if (!arguments.has(flag) || arguments.source(flag) == cli::Arguments::Source::kDefault)
      continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: not over several ranks, and a launcher has started them", flag),
                 std::string(flag).substr(2)};
  }
  return {};
}

// Beside one process; both compute with the files as they are mapped, as ranks do.
Result<void> run_ranks(const cli::Arguments& arguments, const std::string& folder,
                       const checkpoint::Checkpoint& checkpoint, const Arithmetic& arithmetic,
                       const checkpoint::LoadChoice& load, const DecodeBench::Options& shape,
                       std::optional<StartedRank> started) {
  executor::LocalExecutor::Options options;
  options.kernels = arguments.text("--kernels");
  options.threads = arithmetic.threads;
  options.kv_dtype = arithmetic.kv_type;
  TRY(read_parallel_flags(arguments, options.ranks));
  options.ranks.threads = arithmetic.threads;
  options.ranks.model = folder;
  options.ranks.load = load;
  if (started) {
    lead_started(arguments, std::move(*started), options.ranks);
    warn_of_bound(options);
  }
  TRY_ASSIGN(const RankReport report, measure_ranks(checkpoint, options, shape,
                                                    static_cast<int>(arguments.integer("--runs"))));
  return write_report(arguments, to_json(report), to_text(report));
}

// Of --lora-modules, or the first alone: --lora-mix.
Result<std::vector<lora::Adapter>> load_adapters(const cli::Arguments& arguments,
                                                 const families::ModelConfig& base) {
  std::vector<lora::Adapter> adapters;
  TRY_ASSIGN(const auto modules, lora_modules(arguments, {}));
  for (const auto& module : modules) {
    Result<lora::Adapter> adapter = lora::Adapter::load(module.path, base, {});
    if (!adapter.ok()) {
      return Error{adapter.error().code, "--lora-modules: " + adapter.error().message,
                   "lora-modules"};
    }
    adapters.push_back(std::move(adapter).value());
    if (arguments.text("--lora-mix") == "same") break;
  }
  return adapters;
}

// As `serve` does it.
Result<void> hold_compact(const cli::Arguments& arguments, const Arithmetic& arithmetic,
                          checkpoint::Checkpoint& checkpoint) {
  const bool asked = arguments.text("--weights") == "shipped" &&
                     arithmetic.kernels != kernels::KernelChoice::kReference;
  if (!asked || checkpoint::compactible_bytes(checkpoint) < checkpoint::kCompactFromBytes) {
    return {};
  }
  base::ThreadPool pool({.threads = arithmetic.threads});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(const checkpoint::CompactWeights made,
             checkpoint::compact_weights(checkpoint, pool, [](int64_t, int64_t) { return true; }));
  fmt::print(stderr, "{} bytes of bf16 weights held in 12 bits each: {} bytes\n", made.file_bytes,
             made.bytes);
  return {};
}

Result<void> run_bench_latency(const cli::Arguments& arguments) {
  TRY_ASSIGN(std::optional<StartedRank> started, measuring_rank(arguments));
  if (started) {
    const base::SystemClock clock;
    base::Log log(clock, {});
    TRY_ASSIGN(const bool followed,
               follow_leader(arguments, arguments.text("MODEL"), started, log));
    // What is measured is the leader's to say.
    for (const std::string& flag : arguments.unread()) {
      if (followed) static_cast<void>(arguments.has(flag));
    }
    if (followed) return {};
    TRY(check_measured_by_ranks(arguments));
  }
  Arithmetic arithmetic{.threads = static_cast<int>(arguments.integer("--threads"))};
  TRY_ASSIGN(arithmetic.kernels, kernels::parse_kernel_choice(arguments.text("--kernels")));
  TRY_ASSIGN(arithmetic.kv_type, tensor::parse_kv_type(arguments.text("--kv-cache-dtype")));
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(nullptr));
  TRY_ASSIGN(const auto asked, checkpoint::parse_load_mode(arguments.text("--load-mode")));
  TRY_ASSIGN(const std::vector<lora::Adapter> adapters,
             load_adapters(arguments, checkpoint.config()));
  DecodeBench::Options shape{.batch_size = static_cast<int>(arguments.integer("--batch-size")),
                             .depth = static_cast<int>(arguments.integer("--depth")),
                             .input_len = static_cast<int>(arguments.integer("--input-len")),
                             .output_len = static_cast<int>(arguments.integer("--output-len")),
                             .seed = static_cast<uint64_t>(arguments.integer("--seed"))};
  for (const lora::Adapter& adapter : adapters) shape.adapters.push_back(&adapter);
  const int64_t probe_bytes = BandwidthProbe::bytes_of(arguments);
  TRY_ASSIGN(const checkpoint::LoadChoice taken,
             read_weights(checkpoint, asked,
                          bytes_beside_weights(shape, checkpoint.config(),
                                               arithmetic.kv_type.value_or(tensor::DType::kF16),
                                               probe_bytes)));
  if (started || arguments.integer("--tensor-parallel-size") > 1) {
    return run_ranks(arguments, folder, checkpoint, arithmetic, taken, shape, std::move(started));
  }
  TRY(hold_compact(arguments, arithmetic, checkpoint));
  // As a server does in its first seconds (node/lock_watch.h).
  checkpoint::HugePages huge_pages(checkpoint, checkpoint::weight_pieces(checkpoint));
  if (taken.mode == checkpoint::LoadMode::kLock && taken.keep_available &&
      checkpoint::HugePages::are_worth_it()) {
    TRY(huge_pages.move(std::numeric_limits<int64_t>::max()));
  }
  if (arguments.has("--speculative-config")) {
    return run_speculation(arguments, checkpoint, arithmetic, shape);
  }
  if (asked == checkpoint::LoadMode::kAuto) fmt::print(stderr, "load mode {}\n", taken.text());
  TRY_ASSIGN(LatencyReport report,
             measure_model(checkpoint, arithmetic, shape,
                           static_cast<int>(arguments.integer("--runs")), probe_bytes));
  report.load_mode = checkpoint::load_mode_name(taken.mode);
  return write_report(arguments, bench::latency_json(report), bench::latency_text(report));
}

// Ranks are measured through the whole engine, which has no depth to begin with and no probes.
std::vector<Flag> rank_measuring_flags() {
  std::vector<Flag> flags = parallel_flags();
  flags.front().help =
      "instead: so many ranks, processes of --threads each, by turns with one process of as many "
      "threads in all; the "
      "answers have to be the same";
  for (const char* const flag : kNotOverRanks) flags.front().not_with.push_back({flag});
  for (Flag& flag : meeting_flags()) flags.push_back(std::move(flag));
  return flags;
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
  cli::Verb verb = {
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
          "time on a machine: a second one waits. Random weights (pelton synth) send neighbouring\n"
          "tokens to experts of their own, so guessing gains less with them than with real ones.\n"
          "With --lora-modules each prefill and each step is measured twice, with the adapters "
          "and\n"
          "by the model alone; the ratios are the medians of these pairs.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
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
                unpacked_weights_flag(),
                BandwidthProbe::buffer_size_flag(),
                {.name = "--speculative-config",
                 .value = "JSON",
                 .help =
                     "instead: what speculative decoding gains (docs/serving.md), through the "
                     "whole engine and by turns with none; an oracle without answers takes its own",
                 .not_with = {{"--depth"}, {"--buffer-size"}}},
                {.name = "--lora-modules",
                 .value = "NAME=PATH",
                 .help = "with LoRA adapters, step by step beside the model alone",
                 .many = true,
                 .not_with = {{"--speculative-config"}}},
                {.name = "--lora-mix",
                 .value = "HOW",
                 .help = "whether sequences have adapters of their own, in turn, or all the first",
                 .default_text = "distinct",
                 .choices = {"distinct", "same"},
                 .only_with = {{"--lora-modules"}}},
                {.name = "--json", .value = "FILE", .help = "also write the numbers; - is stdout"}},
      .examples =
          {"pelton bench latency ./model --batch-size 1 --input-len 512 --output-len 128 "
           "--json b.json",
           "pelton bench latency ./model --depth 16K --threads 2",
           "pelton bench latency ./model --batch-size 8 --lora-modules a=./a b=./b",
           "pelton bench latency ./model --tensor-parallel-size 2 --threads 1 --batch-size 8",
           "mpirun -n 2 --bind-to none pelton bench latency ./model --threads 1",
           "pelton bench latency ./model --speculative-config "
           "'{\"method\":\"oracle\",\"acceptance\":0.9,\"num_speculative_tokens\":8}'"},
      .run = run_bench_latency,
  };
  for (Flag& flag : rank_measuring_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps
