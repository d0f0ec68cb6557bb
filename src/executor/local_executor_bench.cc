// Tokens a second through the whole engine on a small model, where what stands between two steps
// counts most: sequences that decode beside each other, with one and two steps in flight.
// PELTON_ANSWERS_MODEL names another model's folder.
#include <cstdlib>

#include <benchmark/benchmark.h>

#include "engine/engine.h"
#include "executor/local_executor.h"

namespace pelton::executor {
namespace {

std::string model_folder() {
  const char* named = std::getenv("PELTON_ANSWERS_MODEL");
  return named != nullptr ? named : std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";
}

void decode(benchmark::State& state) {
  const int sequences = static_cast<int>(state.range(0));
  const int output = 128;
  const checkpoint::Checkpoint checkpoint =
      std::move(checkpoint::Checkpoint::open(model_folder()).value());
  LocalExecutor::Options options;
  options.threads = static_cast<int>(state.range(1));
  options.sequences_max = sequences;
  options.context_tokens = 1024;
  options.kv_bytes = int64_t{1} << 28;
  const std::unique_ptr<LocalExecutor> executor =
      LocalExecutor::create(checkpoint, options).value();
  base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  engine::Engine engine({.steps_in_flight_max = static_cast<int>(state.range(2))}, *executor, clock,
                        log);
  for (auto _ : state) {
    std::vector<engine::TokenStream> streams;
    for (int i = 0; i < sequences; ++i) {
      request::GenerationRequest request;
      request.prompt.assign(16, 1 + i);
      request.stop.max_new_tokens = output;
      request.sampling.seed = static_cast<uint64_t>(i);
      streams.push_back(engine.submit(std::move(request)).value());
    }
    for (engine::TokenStream& stream : streams) {
      while (!stream.wait().end) {
      }
    }
  }
  state.SetItemsProcessed(state.iterations() * sequences * output);
}

BENCHMARK(decode)
    ->ArgNames({"sequences", "threads", "steps_in_flight"})
    ->Args({1, 1, 1})
    ->Args({1, 1, 2})
    ->Args({16, 1, 1})
    ->Args({16, 1, 2})
    ->Args({1, 2, 1})
    ->Args({1, 2, 2})
    ->Args({16, 2, 1})
    ->Args({16, 2, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pelton::executor
