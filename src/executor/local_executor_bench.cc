// The whole engine on a small model, testdata/golden/tiny unless PELTON_ANSWERS_MODEL names
// another's folder. decode: tokens a second of sequences that decode beside each other, with one
// and two steps in flight; what stands between two steps counts most here. second_prompt:
// milliseconds to the first token of an 8 k prompt that shares so many tokens with one before it.
#include <cstdlib>
#include <random>

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

// Milliseconds from submit to the first token.
double first_token_ms(engine::Engine& engine, const base::Clock& clock,
                      const std::vector<TokenId>& prompt) {
  request::GenerationRequest request;
  request.prompt = prompt;
  request.stop.max_new_tokens = 1;
  const int64_t begin_ns = clock.now_ns();
  engine::TokenStream stream = engine.submit(std::move(request)).value();
  while (!stream.wait().end) {
  }
  return static_cast<double>(clock.now_ns() - begin_ns) * 1e-6;
}

void second_prompt(benchmark::State& state) {
  constexpr int kLength = 8192;
  const size_t shared = static_cast<size_t>(state.range(0));
  const checkpoint::Checkpoint checkpoint =
      std::move(checkpoint::Checkpoint::open(model_folder()).value());
  LocalExecutor::Options options;
  options.threads = 1;
  options.context_tokens = kLength + 64;
  options.kv_bytes = int64_t{1} << 30;
  const std::unique_ptr<LocalExecutor> executor =
      LocalExecutor::create(checkpoint, options).value();
  base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  engine::Engine engine({}, *executor, clock, log);
  std::mt19937 random(1);
  double first_ms = 0;
  double second_ms = 0;
  for (auto _ : state) {
    std::vector<TokenId> prompt(kLength);
    for (TokenId& token : prompt) token = static_cast<TokenId>(random() % 500);
    first_ms += first_token_ms(engine, clock, prompt);
    for (size_t i = shared; i < prompt.size(); ++i)
      prompt[i] = static_cast<TokenId>(random() % 500);
    const double ms = first_token_ms(engine, clock, prompt);
    second_ms += ms;
    state.SetIterationTime(ms * 1e-3);
  }
  state.counters["first_ms"] = first_ms / static_cast<double>(state.iterations());
  state.counters["times_lower"] = first_ms / second_ms;
}

BENCHMARK(second_prompt)
    ->ArgName("shared")
    ->Arg(7680)
    ->Arg(8160)
    ->Iterations(3)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

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
