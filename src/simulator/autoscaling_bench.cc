// Eight loads of an hour and three start times, by Pelton's rule and by Knative's: requests that
// waited more than 2 s for their first token beyond what an idle replica takes, and replica-hours.
// What docs/scaling.md shows; the time measured is the simulator's own.
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numbers>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/check.h"
#include "base/random.h"
#include "simulator/even_steps.h"
#include "simulator/simulation.h"

namespace pelton::simulator {
namespace {

constexpr double kHour_s = 3600;

// Requests a second at a moment of the hour.
double rate_at(int load, double t_s) {
  constexpr double kLow = 2;
  constexpr double kHigh = 20;
  const double day = 11 - 9 * std::cos(2 * std::numbers::pi * t_s / kHour_s);
  const auto within = [&](double from_s, double until_s) { return t_s >= from_s && t_s < until_s; };
  switch (load) {
    case 0:  // step
      return within(1200, 2400) ? kHigh : kLow;
    case 1:  // square
      return static_cast<int>(t_s / 300) % 2 == 1 ? kHigh : kLow;
    case 2:  // saw
      return kLow + (kHigh - kLow) * std::fmod(t_s, 600) / 600;
    case 3:  // two spikes
      return within(1000, 1030) || within(2500, 2530) ? 60 : kLow;
    case 4:  // sine
      return day;
    case 5:  // sine with bursts
      return day + (base::random_unit(5, static_cast<uint64_t>(t_s)) < 0.05 ? 20 : 0);
    case 6:  // bursts alone
      return base::random_unit(6, static_cast<uint64_t>(t_s)) < 0.1 ? 30 : 1;
    default:  // from nearly nothing
      return t_s < 1800 ? 0.2 : 8;
  }
}
constexpr const char* kLoads[] = {"step", "square",           "saw",    "two spikes",
                                  "sine", "sine with bursts", "bursts", "start of a day"};

// A Poisson process of that rate, by thinning.
workload::Workload an_hour(int load) {
  constexpr double kRateMax = 64;
  workload::Workload made;
  uint64_t draws = 0;
  const auto unit = [&] { return base::random_unit(77, draws++); };
  for (double t_s = 0; t_s < kHour_s;) {
    t_s -= std::log(1 - unit()) / kRateMax;
    if (t_s >= kHour_s || unit() * kRateMax > rate_at(load, t_s)) continue;
    made.at_s.push_back(t_s);
    made.conversations.emplace_back().turns.push_back(
        {.prompt = std::to_string(made.at_s.size()), .prompt_tokens = 16, .output_tokens = 32});
  }
  return made;
}

void BM_AnHour(benchmark::State& state) {
  const auto load = static_cast<int>(state.range(0));
  const auto start_s = static_cast<double>(state.range(1));
  const bool knative = state.range(2) == 1;
  SimulationOptions options;
  options.replica.capacity = {
      .groups = {{{.name = "full"}, {2000}}, {{.name = "window", .sliding_window = 128}, {1000}}},
      .sequences_max = 16,
      .batch_tokens_max = 512,
      .context_tokens_max = 4096,
      .vocab_size = 1000};
  options.keeps_pieces = false;
  Autoscaling asked{.policy = {.replicas_min = 1, .replicas_max = 64}, .start_s = start_s};
  asked.replicas = std::max(1, static_cast<int>(std::ceil(rate_at(load, 0) * 8 / 11.2)));
  if (knative) {
    asked.policy.rule = autoscaler::PoolPolicy::Rule::kKnative;
    asked.policy.concurrency_target = 16;
    asked.policy.target_utilization = 0.7;
    asked.policy.scale_down_delay_s = 300;
  }
  options.autoscaling = asked;
  const workload::Workload hour = an_hour(load);
  // An answer of 32 tokens is 8 s in one of 16 slots.
  const cost_model::StepTimeModel times = *even_steps(0.25);
  SimulationResult result;
  for (auto _ : state) {
    Result<SimulationResult> played = simulate(options, hour, times);
    CHECK(played.ok(), "the simulation");
    result = std::move(*played);
  }
  constexpr int64_t kLate_ns = 2'500'000'000;  // 2 s, and two steps
  int64_t late = 0;
  for (const report::RequestRecord& record : result.records) {
    late += record.first_byte_ns - record.due_ns > kLate_ns ? 1 : 0;
  }
  state.counters["late_%"] = 100.0 * static_cast<double>(late) /
                             static_cast<double>(std::max<size_t>(result.records.size(), 1));
  state.counters["hours"] = result.scaling->replica_s / kHour_s;
  state.counters["most"] = result.scaling->replicas_most;
  state.counters["turns"] = result.scaling->direction_changes;
  state.SetLabel(fmt::format("{}, start {:.0f} s, {}", kLoads[load], start_s,
                             knative ? "Knative's rule" : "own rule"));
}
// All of them take half a minute: without PELTON_FULL one by each rule.
void cells(benchmark::internal::Benchmark* bench) {
  const bool all = std::getenv("PELTON_FULL") != nullptr;
  for (const int64_t rule : {0, 1}) {
    for (const int64_t start_s : {5, 30, 300}) {
      for (int64_t load = 0; load < (all ? std::ssize(kLoads) : 1); ++load) {
        if (all || start_s == 30) bench->Args({load, start_s, rule});
      }
    }
  }
}
BENCHMARK(BM_AnHour)->Apply(cells)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pelton::simulator
