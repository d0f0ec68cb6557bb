// The whole engine on a small model, testdata/golden/tiny unless PELTON_ANSWERS_MODEL names
// another's folder. decode: tokens a second of sequences that decode beside each other, with one
// and two steps in flight; what stands between two steps counts most here. second_prompt:
// milliseconds to the first token of an 8 k prompt that shares so many tokens with one before it.
// short_of_room: sixteen sequences where three quarters of their blocks exist, with and without
// room to swap.
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

void short_of_room(benchmark::State& state) {
  constexpr int kSequences = 16;
  constexpr int kPrompt = 256;
  constexpr int kOutput = 256;
  const checkpoint::Checkpoint checkpoint =
      std::move(checkpoint::Checkpoint::open(model_folder()).value());
  LocalExecutor::Options options;
  options.threads = 1;
  options.sequences_max = kSequences;
  options.context_tokens = kPrompt + kOutput;
  options.prefix_cache = false;
  options.kv_bytes = int64_t{1} << 30;
  const auto ample = cost_model::footprint(checkpoint, *LocalExecutor::memory_request(options));
  const int64_t blocks = kSequences * (kPrompt + kOutput) / options.block_tokens;
  options.kv_bytes =
      ample->kv.groups[0].spec.block_bytes * blocks * 3 / 4 + ample->kv.groups[1].bytes();
  options.swap_bytes = state.range(0) * (ample->kv.groups[0].spec.block_bytes * blocks);
  const std::unique_ptr<LocalExecutor> executor =
      LocalExecutor::create(checkpoint, options).value();
  base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  engine::Engine engine({.prefix_cache = false}, *executor, clock, log);
  std::mt19937 random(1);
  for (auto _ : state) {
    std::vector<engine::TokenStream> streams;
    for (int i = 0; i < kSequences; ++i) {
      request::GenerationRequest request;
      for (int k = 0; k < kPrompt; ++k) {
        request.prompt.push_back(static_cast<TokenId>(random() % 500));
      }
      request.stop.max_new_tokens = kOutput;
      streams.push_back(engine.submit(std::move(request)).value());
    }
    for (engine::TokenStream& stream : streams) {
      while (!stream.wait().end) {
      }
    }
  }
  const engine::SchedulerCounters counters = engine.stats().scheduler;
  const double runs = static_cast<double>(state.iterations());
  state.counters["tokens_lost"] = static_cast<double>(counters.tokens_lost) / runs;
  state.counters["blocks_out"] = static_cast<double>(counters.blocks_swapped_out) / runs;
  state.SetItemsProcessed(state.iterations() * kSequences * kOutput);
}

BENCHMARK(short_of_room)
    ->ArgName("swaps")
    ->Arg(0)
    ->Arg(1)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

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
