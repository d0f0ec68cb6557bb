// Time to sample one token from a row of gpt-oss' width, one core. Rows: "text" is shaped like a
// model's (a bell curve with a few tokens far above it), "bell" has no such tokens, "equal" is one
// number throughout; the last two are the worst cases.
#include <cmath>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "sampling/sampler.h"

namespace pelton::sampling {
namespace {

using request::SamplingParams;

constexpr int kVocab = 201088;

std::vector<float> row_of(std::string_view shape) {
  std::mt19937 random(1);
  std::normal_distribution<float> bell(0.0f, shape == "text" ? 2.5f : 1.0f);
  std::vector<float> row(kVocab, 1.5f);
  if (shape == "equal") return row;
  for (float& logit : row) logit = bell(random);
  if (shape == "bell") return row;
  for (int i = 0; i < 12; ++i) row[random() % kVocab] = 22.0f - 0.7f * static_cast<float>(i);
  return row;
}

// The environment's PELTON_KERNELS, as --kernels; auto without.
Sampler make_sampler() {
  const char* given = std::getenv("PELTON_KERNELS");
  Sampler sampler(kernels::parse_kernel_choice(given == nullptr ? "auto" : given).value());
  sampler.reserve(kVocab);
  return sampler;
}

void sample(benchmark::State& state, std::string_view shape, const SamplingParams& params) {
  std::vector<float> row = row_of(shape);
  Sampler sampler = make_sampler();
  int position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.sample(row, {.params = params, .position = position++}).token);
  }
  state.SetBytesProcessed(state.iterations() * kVocab * static_cast<int64_t>(sizeof(float)));
}

#define SAMPLE(name, shape, ...) \
  BENCHMARK_CAPTURE(sample, name, shape, SamplingParams __VA_ARGS__)->Unit(benchmark::kMicrosecond)
SAMPLE(text_greedy, "text", {.temperature = 0});
SAMPLE(text_uncut, "text", {});
SAMPLE(text_top_p_90, "text", {.top_p = 0.9f});
SAMPLE(text_top_p_95, "text", {.top_p = 0.95f});
SAMPLE(text_top_p_999, "text", {.top_p = 0.999f});
SAMPLE(text_top_k_40, "text", {.top_k = 40});
SAMPLE(text_top_k_40_top_p_95, "text", {.top_k = 40, .top_p = 0.95f});
SAMPLE(text_min_p_05, "text", {.min_p = 0.05f});
SAMPLE(text_logprobs_20, "text", {.top_p = 0.95f, .logprobs = 20});
SAMPLE(bell_uncut, "bell", {});
SAMPLE(bell_top_p_90, "bell", {.top_p = 0.9f});
SAMPLE(bell_top_p_95, "bell", {.top_p = 0.95f});
SAMPLE(bell_top_k_40, "bell", {.top_k = 40});
SAMPLE(bell_min_p_05, "bell", {.min_p = 0.05f});
SAMPLE(bell_logprobs_20, "bell", {.top_p = 0.95f, .logprobs = 20});
SAMPLE(equal_top_p_95, "equal", {.top_p = 0.95f});
SAMPLE(equal_top_k_40, "equal", {.top_k = 40});
#undef SAMPLE

// As a grammar's mask leaves a row: about half, or 20 tokens.
void sample_with_mask(benchmark::State& state) {
  std::vector<float> row = row_of("text");
  std::vector<uint64_t> allowed(kVocab / 64);
  std::mt19937_64 random(3);
  if (state.range(0) == 0) {
    for (uint64_t& word : allowed) word = random();
  }
  for (int i = 0; i < state.range(0); ++i) allowed[random() % allowed.size()] |= 1;
  const SamplingParams params{.top_p = 0.95f};
  Sampler sampler = make_sampler();
  int position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        sampler.sample(row, {.params = params, .allowed = allowed, .position = position++}).token);
  }
}
BENCHMARK(sample_with_mask)->ArgName("allowed")->Arg(0)->Arg(20)->Unit(benchmark::kMicrosecond);

// With penalties over a conversation of this many tokens, a third of them different.
void sample_with_penalties(benchmark::State& state) {
  std::vector<float> row = row_of("text");
  std::mt19937 random(2);
  std::vector<TokenId> prompt(static_cast<size_t>(state.range(0)));
  for (TokenId& token : prompt) {
    token = static_cast<TokenId>(random() % static_cast<unsigned>(state.range(0) / 3));
  }
  TokenHistory history;
  history.add_prompt(prompt);
  for (int i = 0; i < 500; ++i) history.add_output(prompt[static_cast<size_t>(i)]);
  const SamplingParams params{
      .top_p = 0.95f, .repetition_penalty = 1.0001f, .frequency_penalty = 1e-6f};
  Sampler sampler = make_sampler();
  int position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        sampler.sample(row, {.params = params, .history = &history, .position = position++}).token);
  }
}
BENCHMARK(sample_with_penalties)->Arg(1000)->Arg(30000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pelton::sampling
