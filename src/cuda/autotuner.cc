#include "cuda/autotuner.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "cuda/step_arrays.h"

namespace pelton::cuda {
namespace {

// A trial should be long beside the two marks around it, and read more than a cache keeps.
constexpr double kTrialBytes = 48e6;
constexpr int kTrialLaunchesMax = 16;

constexpr int kTrialSteps = 4;

constexpr double kLeastGain = 0.02;  // of the time: for less nothing changes

constexpr ProductKind kTaskOrder[kProductKinds] = {ProductKind::kQkv,    ProductKind::kO,
                                                   ProductKind::kRouter, ProductKind::kGateUp,
                                                   ProductKind::kDown,   ProductKind::kHead};

// Entries of an expert, on average over those that have any.
double entries_each(const ModelShape& shape, int rows) {
  return std::max(1.0, double{1} * rows * shape.choices / shape.experts);
}

// Columns that many more than the rows would be computed for nothing; columns that many fewer read
// the weights too often.
bool is_worth_it(const KernelConfig& config, double rows) {
  if (config.kind != KernelKind::kSmall) return rows > config.columns / 4.0;
  return config.columns < 2 * std::max(rows, 8.0) && config.columns * 4 >= rows;
}

double experts_touched(const ModelShape& shape, int rows) {
  const double share = double{1} * shape.choices / shape.experts;
  return shape.experts * (1 - std::pow(1 - share, rows));
}

// Weights of one launch.
double weight_bytes(const ModelShape& shape, ProductKind kind, int rows) {
  const ProductShape product = product_shape(shape, kind);
  if (product.grouped) {
    return experts_touched(shape, rows) * product.rows * product.columns * 4.25 / 8;
  }
  const int weight_rows =
      kind == ProductKind::kHead ? std::min(product.rows, int{kTrialHeadRows}) : product.rows;
  return 2.0 * weight_rows * product.columns;
}

TuningTask task_of(const ModelShape& shape, ProductKind kind, int bucket, int rows,
                   const KernelDevice& device) {
  TuningTask task{.kind = kind, .bucket = bucket, .rows = rows};
  const double launches = std::ceil(kTrialBytes / weight_bytes(shape, kind, rows));
  task.launches = static_cast<int>(std::clamp(launches, 1.0, double{kTrialLaunchesMax}));
  task.configs.push_back(default_config(shape, kind, bucket_rows(bucket), device));
  const double columns = product_shape(shape, kind).grouped ? entries_each(shape, rows) : rows;
  for (const KernelConfig& config : configs_of(kind)) {
    if (config == task.configs[0] || !is_worth_it(config, columns)) continue;
    if (is_usable(shape, kind, config, device)) task.configs.push_back(config);
  }
  return task;
}

struct Timing {
  double median = 0;
  double spread = 0;  // half of what lies between the quartiles
};

Timing timing_of(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t quarter = seconds.size() / 4;
  return {seconds[seconds.size() / 2],
          (seconds[seconds.size() - 1 - quarter] - seconds[quarter]) / 2};
}

bool is_faster(const Timing& one, const Timing& other) {
  const double margin = std::max(kLeastGain * other.median, one.spread + other.spread);
  return one.median + margin < other.median;
}

// By the task's configs; empty: it failed.
using Timings = std::vector<std::optional<Timing>>;

// Of those that `counts`, the fastest that is faster than `standing`, which may be -1; else that.
template <typename Counts>
int best_of(const Timings& timings, int standing, const Counts& counts) {
  int best = standing;
  for (int i = 0; i < static_cast<int>(timings.size()); ++i) {
    const std::optional<Timing>& own = timings[static_cast<size_t>(i)];
    if (i == standing || !own || !counts(i)) continue;
    if (standing < 0) {
      standing = best = i;
    } else if (is_faster(*own, *timings[static_cast<size_t>(standing)]) &&
               (best == standing || own->median < timings[static_cast<size_t>(best)]->median)) {
      best = i;
    }
  }
  return best;
}

// How each of several candidates was timed; the first is what constants say.
struct Times {
  Timings timings;
  int failed = 0;
};

// All candidates in turns, so that a clock that falls or rises meets all of them. Empty: out of
// time, or the device has no clock.
template <typename SecondsOf>
Result<std::optional<Times>> time_in_turns(size_t candidates, int rounds, double end,
                                           const base::FunctionRef<double()>& now,
                                           const SecondsOf& seconds_of) {
  std::vector<std::vector<double>> seconds(candidates);
  std::vector<bool> is_out(candidates, false);
  Times out;
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < candidates; ++i) {
      if (is_out[i]) continue;
      if (now() >= end) return std::optional<Times>();
      const Result<double> took = seconds_of(i);
      if (!took.ok()) {
        // Of the candidate or of the device? What the constants say must run.
        if (i == 0 || !seconds_of(size_t{0}).ok()) return took.error();
        ++out.failed;
      }
      is_out[i] = !took.ok() || !(*took > 0);
      if (!is_out[i] && round >= 0) seconds[i].push_back(*took);
    }
  }
  if (is_out[0]) return std::optional<Times>();
  out.timings.resize(candidates);
  for (size_t i = 0; i < candidates; ++i) {
    if (!is_out[i]) out.timings[i] = timing_of(seconds[i]);
  }
  return std::optional(std::move(out));
}

class Measurement {
 public:
  Measurement(const ModelShape& shape, const TuningBudget& budget, const ProductTimer& timer,
              const KernelDevice& device)
      : budget_(budget), timer_(timer), end_(timer.now() + budget.seconds) {
    out_.configs = default_configs(shape, device);
  }

  Result<TunedConfigs> run(const std::vector<TuningTask>& tasks) {
    out_.tasks = static_cast<int>(tasks.size());
    std::optional<Timings> gate_up;
    for (size_t i = 0; i < tasks.size(); ++i) {
      const TuningTask& task = tasks[i];
      TRY_ASSIGN(std::optional<Timings> timings, time(task));
      if (task.kind == ProductKind::kGateUp) {
        gate_up = std::move(timings);
      } else if (task.kind == ProductKind::kDown) {
        if (gate_up && timings) decide_experts(tasks[i - 1], *gate_up, task, *timings);
      } else if (timings) {
        decide(task, best_of(*timings, 0, [](int) { return true; }));
      }
    }
    return out_;
  }

 private:
  Result<double> seconds_of(const TuningTask& task, size_t config) {
    return timer_.seconds_of({.kind = task.kind,
                              .config = task.configs[config],
                              .rows = task.rows,
                              .launches = task.launches});
  }

  Result<std::optional<Timings>> time(const TuningTask& task) {
    TRY_ASSIGN(std::optional<Times> times,
               time_in_turns(task.configs.size(), budget_.rounds, end_, timer_.now,
                             [&](size_t config) { return seconds_of(task, config); }));
    if (!times) return std::optional<Timings>();
    out_.failed += times->failed;
    return std::optional(std::move(times->timings));
  }

  void decide(const TuningTask& task, int winner) {
    ++out_.decided;
    out_.changed += winner != 0 ? 1 : 0;
    out_.configs.config[static_cast<int>(task.kind)][task.bucket] =
        task.configs[static_cast<size_t>(winner)];
  }

  // Both share tiles of one width: of each width the best pair, and of the pairs the best sum.
  void decide_experts(const TuningTask& gate_up, const Timings& gate_up_timings,
                      const TuningTask& down, const Timings& down_timings) {
    struct Pair {
      int gate_up;
      int down;
    };
    std::vector<Pair> pairs;
    Timings sums;
    for (const KernelConfig& config : gate_up.configs) {
      const int columns = config.columns;
      const auto best_of_width = [&](const TuningTask& task, const Timings& timings) {
        const int standing = task.configs[0].columns == columns ? 0 : -1;
        return best_of(timings, standing, [&](int i) {
          return task.configs[static_cast<size_t>(i)].columns == columns;
        });
      };
      const Pair pair{best_of_width(gate_up, gate_up_timings), best_of_width(down, down_timings)};
      if (pair.gate_up < 0 || pair.down < 0) continue;
      const Timing& one = *gate_up_timings[static_cast<size_t>(pair.gate_up)];
      const Timing& other = *down_timings[static_cast<size_t>(pair.down)];
      pairs.push_back(pair);
      sums.push_back(Timing{one.median + other.median, one.spread + other.spread});
    }
    const Pair& best = pairs[static_cast<size_t>(best_of(sums, 0, [](int) { return true; }))];
    decide(gate_up, best.gate_up);
    decide(down, best.down);
  }

  const TuningBudget budget_;
  const ProductTimer& timer_;
  const double end_;
  TunedConfigs out_;
};

}  // namespace

std::vector<TuningTask> tuning_tasks(const ModelShape& shape, const Limits& limits,
                                     const KernelDevice& device) {
  std::vector<TuningTask> tasks;
  const auto last_bucket = [](int rows_max) { return row_bucket(rounded_up(rows_max)); };
  for (int bucket = 0; bucket <= last_bucket(limits.rows_max); ++bucket) {
    for (const ProductKind kind : kTaskOrder) {
      const int rows_max = kind == ProductKind::kHead ? limits.logit_rows_max : limits.rows_max;
      if (bucket > last_bucket(rows_max)) continue;
      tasks.push_back(
          task_of(shape, kind, bucket, std::min(bucket_rows(bucket), rows_max), device));
    }
  }
  return tasks;
}

TuningCost tuning_cost(const ModelShape& shape, const std::vector<TuningTask>& tasks,
                       const TuningBudget& budget) {
  TuningCost cost;
  for (const TuningTask& task : tasks) {
    const ProductShape product = product_shape(shape, task.kind);
    const double bytes = weight_bytes(shape, task.kind, task.rows);
    const double each = product.grouped ? entries_each(shape, task.rows) : task.rows;
    for (const KernelConfig& config : task.configs) {
      const double blocks = std::ceil(each / config.columns);
      const double launches = double{1} * task.launches * (budget.rounds + 1);
      cost.trials += budget.rounds + 1;
      cost.launches += task.launches * (budget.rounds + 1);
      cost.bytes += launches * bytes * blocks;
      // Two operations for each weight, which is 2 bytes or 4.25 bits.
      cost.flops +=
          launches * 2 * bytes / (product.grouped ? 4.25 / 8 : 2.0) * blocks * config.columns;
    }
  }
  return cost;
}

Result<TunedConfigs> tune_products(const ModelShape& shape, const Limits& limits,
                                   const KernelDevice& device, const TuningBudget& budget,
                                   const ProductTimer& timer) {
  return Measurement(shape, budget, timer, device).run(tuning_tasks(shape, limits, device));
}

std::vector<StepTuningTask> step_tuning_tasks(const Limits& limits) {
  const int rows_max = std::min({limits.rows_max, limits.sequences_max, limits.logit_rows_max});
  std::vector<StepTuningTask> tasks;
  for (int bucket = 0; bucket < kPersistentBuckets; ++bucket) {
    if (bucket > 0 && rows_max <= bucket_rows(bucket - 1)) break;
    tasks.push_back({bucket, std::min(bucket_rows(bucket), rows_max)});
  }
  return tasks;
}

Result<TunedSteps> tune_steps(const Limits& limits, const TuningBudget& budget,
                              const StepTimer& timer) {
  const double end = timer.now() + budget.seconds;
  TunedSteps out;
  for (const StepTuningTask& task : step_tuning_tasks(limits)) {
    ++out.tasks;
    TRY_ASSIGN(const std::optional<Times> times,
               time_in_turns(2, budget.rounds, end, timer.now, [&](size_t is_persistent) {
                 return timer.seconds_of({.rows = task.rows,
                                          .is_persistent = static_cast<int32_t>(is_persistent),
                                          .steps = kTrialSteps});
               }));
    if (!times) continue;
    ++out.decided;
    out.failed += times->failed;
    const int winner = best_of(times->timings, 0, [](int) { return true; });
    out.persistent[task.bucket] = winner;
    out.changed += winner;
  }
  return out;
}

}  // namespace pelton::cuda
