// Encoding, decoding and loading speed. bytes_per_second is of the text.
#include <cstdlib>
#include <optional>
#include <string>

#include <benchmark/benchmark.h>

#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/o200k_splitter.h"
#include "tokenizer/regex_splitter.h"
#include "tokenizer/tokenizer.h"

namespace pelton::tokenizer {
namespace {

constexpr const char* kRanks = PELTON_SOURCE_DIR "/testdata/tokenizer/o200k_base.tiktoken";

const Tokenizer& o200k() {
  static const Tokenizer tokenizer = Tokenizer::load(kRanks).value();
  return tokenizer;
}

std::string repeated(const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

// The file that the environment names, if it names one.
std::optional<std::string> given_text(const char* variable) {
  const char* path = std::getenv(variable);
  if (path == nullptr) return std::nullopt;
  return base::read_file(path, 1 << 28).value();
}

// This project's own words: prose, code and numbers as they occur.
std::string english() {
  if (auto text = given_text("PELTON_BENCH_ENGLISH")) return *std::move(text);
  return repeated(
      base::read_file(PELTON_SOURCE_DIR "/src/rooms.txt", 1 << 20).value() +
          base::read_file(PELTON_SOURCE_DIR "/testdata/tokenizer/README.md", 1 << 20).value(),
      1 << 20);
}

std::string code() {
  if (auto text = given_text("PELTON_BENCH_CODE")) return *std::move(text);
  return repeated(
      base::read_file(PELTON_SOURCE_DIR "/src/tokenizer/o200k_splitter.cc", 1 << 20).value(),
      1 << 20);
}

std::string many_scripts() {
  return repeated(
      base::read_file(PELTON_SOURCE_DIR "/testdata/tokenizer/vectors.json", 1 << 20).value() +
          "\xE4\xB8\xAD\xE6\x96\x87\xE5\xAD\x97\xE7\xAC\xA6 \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2 "
          "\xE0\xA4\xA8\xE0\xA4\xAE\xF0\x9F\x92\x96",
      1 << 20);
}

void encode(benchmark::State& state, const std::string& text) {
  std::vector<TokenId> ids;
  for (auto _ : state) {
    ids.clear();
    o200k().encode(text, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.counters["tokens"] = static_cast<double>(ids.size());
}

BENCHMARK_CAPTURE(encode, english, english())->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, code, code())->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, many_scripts, many_scripts())->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, one_long_word, repeated("a", 1 << 20))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, emoji, repeated("\xF0\x9F\x92\x96", 1 << 20))
    ->Unit(benchmark::kMillisecond);

void split(benchmark::State& state, const Splitter& splitter) {
  const std::string text = english();
  for (auto _ : state) {
    size_t pieces = 0;
    splitter.split(text, [&](std::string_view) { ++pieces; });
    benchmark::DoNotOptimize(pieces);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void split_by_scanner(benchmark::State& state) {
  split(state, O200kSplitter());
}
BENCHMARK(split_by_scanner)->Unit(benchmark::kMillisecond);

void split_by_pcre2(benchmark::State& state) {
  split(state, *RegexSplitter::compile({std::string(kO200kPattern)}).value());
}
BENCHMARK(split_by_pcre2)->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) {
  const std::string text = english();
  const std::vector<TokenId> ids = o200k().encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(o200k().decode(ids));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

void load_ranks(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(kRanks).ok());
}
BENCHMARK(load_ranks)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pelton::tokenizer
