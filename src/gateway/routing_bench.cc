// What a decision takes: writing and naming a prompt as its workers will (must: 60 us for 8 KB and
// 0.5 ms for 220 KB of which all but the end is known), finding it in the index over 1 000 workers
// (5 us for 512 blocks), choosing among 64; and what workers' news take (2 M updates a second).
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/file.h"
#include "base/json_writer.h"
#include "base/random.h"
#include "chat/format_of.h"
#include "gateway/block_view.h"
#include "gateway/cost_router.h"
#include "gateway/prefix_index.h"
#include "gateway/prompt_namer.h"

namespace pelton::gateway {
namespace {

constexpr int kWorkers = 1000;
constexpr size_t kIndexBytes = size_t{256} << 20;

std::vector<kv::BlockHash> random_names(uint64_t seed, size_t count) {
  std::vector<kv::BlockHash> names;
  for (uint64_t i = 0; i < count; ++i) {
    names.push_back({.low = base::random_bits(seed, i), .high = i});
  }
  return names;
}

// A block is stored by one worker and another one lets it go.
void index_update(benchmark::State& state) {
  PrefixIndex index(kIndexBytes);
  const std::vector<kv::BlockHash> names = random_names(1, 1 << 20);
  size_t at = 0;
  for (auto _ : state) {
    index.add(names[at % names.size()], static_cast<int>(at % kWorkers));
    if (at >= names.size() / 2) {
      const size_t old = at - names.size() / 2;
      index.remove(names[old % names.size()], static_cast<int>(old % kWorkers));
    }
    ++at;
  }
  state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(index_update);

void index_lookup(benchmark::State& state) {
  PrefixIndex index(kIndexBytes);
  const std::vector<kv::BlockHash> prompt = random_names(2, 512);
  for (int worker = 0; worker < kWorkers; ++worker) {
    // Each holds some other beginning of it, as workers do of a prompt that many share.
    const auto held =
        static_cast<size_t>(base::random_bits(3, static_cast<uint64_t>(worker)) % 512);
    for (size_t i = 0; i < held; ++i) index.add(prompt[i], worker);
  }
  std::vector<int> hits(kWorkers);
  for (auto _ : state) {
    index.find(prompt, nullptr, hits);
    benchmark::DoNotOptimize(hits.data());
  }
}
BENCHMARK(index_lookup)->Unit(benchmark::kMicrosecond);

// The same where a few hold it.
void index_lookup_of_few(benchmark::State& state) {
  PrefixIndex index(kIndexBytes);
  const std::vector<kv::BlockHash> prompt = random_names(2, 512);
  for (int worker = 0; worker < 3; ++worker) {
    for (const kv::BlockHash& name : prompt) index.add(name, worker * 300);
  }
  std::vector<int> hits(kWorkers);
  for (auto _ : state) {
    index.find(prompt, nullptr, hits);
    benchmark::DoNotOptimize(hits.data());
  }
}
BENCHMARK(index_lookup_of_few)->Unit(benchmark::kMicrosecond);

// English, as the tokenizer's own benchmark has it.
std::string words(size_t bytes) {
  const std::string page =
      base::read_file(PELTON_SOURCE_DIR "/testdata/tokenizer/README.md", 1 << 20).value();
  std::string text;
  while (text.size() < bytes) text += page;
  text.resize(bytes);
  std::ranges::replace_if(
      text, [](char c) { return (c & 0x80) != 0; }, ' ');
  return text;
}

// A conversation of so many bytes. Nothing is kept of the one before: what is "warm" takes as long.
void name_prompt(benchmark::State& state, const std::string& vocabulary) {
  const PromptNamer namer(7);
  auto text = std::make_shared<ModelText>();
  text->tokenizer = std::make_unique<const tokenizer::Tokenizer>(
      *tokenizer::Tokenizer::load(std::string(PELTON_SOURCE_DIR) + vocabulary));
  text->chat = *chat::format_of(*text->tokenizer);
  std::string body;
  base::JsonWriter json(body);
  json.begin_object().key("messages").begin_array().begin_object();
  json.key("role").string("user").key("content");
  json.string(words(static_cast<size_t>(state.range(0)))).end_object().end_array().end_object();
  const net::HttpRequest request{.method = "POST",
                                 .path = "/v1/chat/completions",
                                 .query = {},
                                 .headers = {},
                                 .body = body,
                                 .remote = {}};
  for (auto _ : state) {
    const RoutedPrompt prompt =
        namer.name(request, {.text = text, .block_tokens = 16, .date = "2026-11-28"});
    benchmark::DoNotOptimize(prompt.names.data());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK_CAPTURE(name_prompt, o200k, "/testdata/tokenizer/o200k_base.tiktoken")
    ->Arg(8 << 10)
    ->Arg(220 << 10)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(name_prompt, box, "/models/pelton-box/tokenizer.json")
    ->Arg(8 << 10)
    ->Arg(220 << 10)
    ->Unit(benchmark::kMicrosecond);

void choose_worker(benchmark::State& state) {
  std::vector<CostCandidate> candidates(static_cast<size_t>(state.range(0)));
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i] = {.slots = 64,
                     .rows = static_cast<int>(base::random_bits(5, i) % 64),
                     .context_tokens = 20'000,
                     .hit_tokens = static_cast<int64_t>(base::random_bits(6, i) % 2000)};
  }
  uint64_t draw = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        choose_by_cost({.prompt_tokens = 2000, .output_tokens = 256}, candidates, ++draw, nullptr));
  }
}
BENCHMARK(choose_worker)->Arg(64)->Arg(1000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pelton::gateway
