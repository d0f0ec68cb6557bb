// What an allocation takes: some entries, kinds of machines that run every model, models.
#include <benchmark/benchmark.h>

#include "capacity/allocation.h"
#include "capacity/test_needs.h"

namespace pelton::capacity {
namespace {

void BM_Allocate(benchmark::State& state) {
  const auto count = [&](size_t i) { return static_cast<int>(state.range(i)); };
  uint64_t seed = 0;
  double gaps = 0;
  double plans = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const FleetNeeds needs = random_large_needs(seed++ % 16, count(0), count(1), count(2));
    state.ResumeTiming();
    const Plan plan = allocate(needs);
    if (!plan.is_possible()) continue;
    gaps += (plan.cost - plan.bound) / plan.cost;
    ++plans;
  }
  state.counters["gap"] = gaps / plans;
}
BENCHMARK(BM_Allocate)
    ->Args({12, 6, 1})
    ->Args({50, 20, 10})
    ->Args({200, 20, 20})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pelton::capacity
