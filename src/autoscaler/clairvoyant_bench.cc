// Replica-hours of this rule and of others' against the fewest with which the load could have been
// served with as many late requests (test_clairvoyant.h, its bound by prices): a virtual hour of
// each of eight loads, replicas of 8 requests of a second each. What docs/scaling.md shows; the
// time measured is the dynamic program's. Without PELTON_FULL five minutes of one load.
#include <cstdlib>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "autoscaler/test_clairvoyant.h"
#include "autoscaler/test_loads.h"
#include "autoscaler/test_policies.h"

namespace pelton::autoscaler {
namespace {

constexpr int kMost = 64;
constexpr const char* kPolicies[] = {"own rule", "Knative", "HPA", "halving", "one step"};

TestPool::Options pool_of(int policy, int64_t start_s) {
  TestPool::Options options{
      .policy = {.replicas_min = 1, .replicas_max = kMost}, .slots = kTestSlots, .service_s = 1};
  options.start_s = start_s;
  const double target = 0.7 * kTestSlots;
  switch (policy) {
    case 1:
      options.policy.rule = PoolPolicy::Rule::kKnative;
      options.policy.concurrency_target = kTestSlots;
      options.policy.target_utilization = 0.7;
      options.policy.scale_down_delay_s = 300;
      break;
    case 2:
      options.decide = decide_by<HpaPolicy>({.target = target, .most = kMost});
      break;
    case 3:
      options.decide = decide_by<HalvingPolicy>(
          {.target = kTestSlots, .delay_s = 300, .least = 1, .most = kMost});
      break;
    case 4:
      options.decide = decide_by<OneStepPolicy>({.most = kMost});
      break;
    default:
      break;
  }
  return options;
}

void BM_AgainstTheOptimum(benchmark::State& state) {
  const auto load = static_cast<int>(state.range(0));
  const int64_t start_s = state.range(1);
  const auto policy = static_cast<int>(state.range(2));
  const int seconds = std::getenv("PELTON_FULL") != nullptr ? 1'800 : 300;
  const std::vector<int> requests = test_load(load, seconds, 1);
  const int at_first =
      std::max(1, static_cast<int>(std::ceil(test_rate(load, 0, seconds) / (0.7 * kTestSlots))));
  const Played played = play(pool_of(policy, start_s), at_first, requests);
  double fewest = 0;
  for (auto _ : state) {
    const Clairvoyant clairvoyant(
        {.slots = kTestSlots, .start_s = start_s, .most = 36, .at_first = at_first}, requests);
    fewest = clairvoyant.fewest_at_least(played.late);
  }
  state.counters["late_%"] = 100 * played.late_share();
  state.counters["hours"] = played.replica_s / 3'600;
  state.counters["optimum"] = fewest / 3'600;
  state.counters["ratio"] = played.replica_s / std::max(fewest, 1.0);
  state.SetLabel(fmt::format("{}, start {} s, {}", kTestLoads[load], start_s, kPolicies[policy]));
}

void cells(benchmark::internal::Benchmark* bench) {
  const bool all = std::getenv("PELTON_FULL") != nullptr;
  for (const int64_t policy : {0, 1}) {
    for (const int64_t start_s : {5, 30}) {
      for (int64_t load = 0; load < (all ? std::ssize(kTestLoads) : 1); ++load) {
        if (all || (start_s == 30 && policy == 0)) bench->Args({load, start_s, policy});
      }
    }
  }
}
BENCHMARK(BM_AgainstTheOptimum)->Apply(cells)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pelton::autoscaler
