// What one turn of the scheduler costs: plan and commit of a step in which every sequence decodes,
// at a length of about `tokens`. The executor is left out; its results are made up beforehand.
#include <benchmark/benchmark.h>

#include "base/check.h"
#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

void plan_and_commit(benchmark::State& state) {
  const int sequences = static_cast<int>(state.range(0));
  const int tokens = static_cast<int>(state.range(1));
  const int output = 4096;  // more than the iterations below, so that nobody ends
  const ExecutorCapacity capacity{
      .block_tokens = 16,
      .groups = {{{.name = "full"}, {sequences * (tokens + output) / 16}},
                 {{.name = "window", .sliding_window = 128}, {sequences * (10 + tokens / 16)}}},

      .sequences_max = sequences,
      .batch_tokens_max = sequences * tokens,
      .context_tokens_max = tokens + output};
  Scheduler scheduler(capacity, {});
  for (int i = 0; i < sequences; ++i) {
    request::GenerationRequest request;
    request.prompt.assign(static_cast<size_t>(tokens), i);
    request.stop.max_new_tokens = output;
    request.stop.stop_tokens = {200002, 199999, 200012};
    CHECK(scheduler.submit(std::move(request)).ok());
  }
  StepResult result;
  std::vector<Scheduler::Event> events;
  for (auto _ : state) {
    const StepPlan plan = scheduler.plan(0);
    state.PauseTiming();
    result.step = plan.step;
    result.sequences.clear();
    result.tokens.clear();
    for (const ScheduledRow& row : plan.sequences) {
      SequenceResult& one = result.sequences.emplace_back();
      one.slot = row.slot;
      one.tokens = {static_cast<int32_t>(result.tokens.size()), 1};
      result.tokens.push_back({.token = 7});
    }
    state.ResumeTiming();
    scheduler.commit(std::move(result));
    scheduler.take_events(events);
    benchmark::DoNotOptimize(events.data());
  }
  CHECK(scheduler.running_count() == sequences);
}

BENCHMARK(plan_and_commit)
    ->ArgNames({"sequences", "tokens"})
    ->Args({1, 512})
    ->Args({32, 512})
    ->Args({256, 512})
    ->Args({256, 8192})
    ->Args({1024, 512})
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(2000);

}  // namespace
}  // namespace pelton::engine
