// Time, bytes per second and operations per second of the kernels that matter, in the shapes of
// gpt-oss-20b. Compare with the machine's peaks: docs/performance.md.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/kernels.h"

namespace pelton::kernels {
namespace {

constexpr int kHidden = 2880;

// The environment's PELTON_KERNELS, as --kernels; auto without.
KernelChoice choice() {
  const char* given = std::getenv("PELTON_KERNELS");
  return given == nullptr ? KernelChoice::kAuto : parse_kernel_choice(given).value();
}

struct Bench {
  explicit Bench(benchmark::State& state)
      : pool({.threads = static_cast<int>(state.range(1))}),
        kernels(std::move(make_kernels(choice(), pool)).value()) {
    state.SetLabel(std::string(kernels->name()));
  }
  base::ThreadPool pool;
  std::unique_ptr<Kernels> kernels;
};

void linear_qkv(benchmark::State& state) {
  Bench bench(state);
  const int tokens = static_cast<int>(state.range(0));
  const int rows = 5120;
  // Several copies, so that one pass does not find the last one's weights in the cache.
  const int copies = 8;
  std::vector<Bf16> weight(size_t{1} * copies * rows * kHidden, 0x3C00);
  std::vector<float> x(size_t{1} * tokens * kHidden, 0.01f);
  std::vector<float> out(size_t{1} * tokens * rows);
  int64_t turn = 0;
  for (auto _ : state) {
    const Bf16* from = weight.data() + (turn++ % copies) * rows * kHidden;
    bench.kernels->linear(out.data(), x.data(), {{from, rows, kHidden}, nullptr}, tokens,
                          Kernels::Output::kOverwrite);
  }
  state.SetBytesProcessed(state.iterations() * int64_t{2} * rows * kHidden);
  state.counters["flops"] = benchmark::Counter(2.0 * tokens * rows * kHidden,
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(linear_qkv)->ArgsProduct({{1, 4, 16, 128}, {1, 2}})->UseRealTime();

// A quarter of Llama 3.1 8B's gate, in the encoding given.
void linear_as_shipped(benchmark::State& state) {
  Bench bench(state);
  const auto format = static_cast<Format>(state.range(2));
  const int tokens = static_cast<int>(state.range(0));
  const int rows = 3584;
  const int cols = 4096;
  const int copies = 8;
  const int64_t bytes = rows * row_bytes(format, cols);
  std::vector<uint8_t> weight(static_cast<size_t>(copies * bytes), 0x3C);  // every float16: 1.06
  std::vector<float> scales(static_cast<size_t>(rows / 128 * (cols / 128)), 0.5f);
  std::vector<float> x(size_t{1} * tokens * cols, 0.01f);
  std::vector<float> out(size_t{1} * tokens * rows);
  int64_t turn = 0;
  for (auto _ : state) {
    Matrix matrix{weight.data() + turn++ % copies * bytes, rows, cols, format};
    matrix.block_scales = {.data = scales.data()};
    bench.kernels->linear(out.data(), x.data(), {matrix, nullptr}, tokens,
                          Kernels::Output::kOverwrite);
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["flops"] =
      benchmark::Counter(2.0 * tokens * rows * cols, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(linear_as_shipped)
    ->ArgsProduct({{1, 4, 16, 128},
                   {1, 2},
                   {static_cast<int>(Format::kBf16), static_cast<int>(Format::kQ8_0),
                    static_cast<int>(Format::kF8Blocks), static_cast<int>(Format::kQ4_0),
                    static_cast<int>(Format::kQ4_K), static_cast<int>(Format::kQ5_K),
                    static_cast<int>(Format::kQ6_K)}})
    ->ArgNames({"tokens", "threads", "format"})
    ->UseRealTime();

void experts(benchmark::State& state) {
  Bench bench(state);
  const int tokens = static_cast<int>(state.range(0));
  const int expert_count = 32;
  const auto make = [&](int rows) {
    return std::pair(std::vector<uint8_t>(size_t{1} * expert_count * rows * (kHidden / 2), 0x21),
                     std::vector<uint8_t>(size_t{1} * expert_count * rows * (kHidden / 32), 120));
  };
  const auto up = make(2 * kHidden);
  const auto down = make(kHidden);
  const std::vector<float> bias(size_t{1} * expert_count * 2 * kHidden, 0);
  const auto view = [&](const auto& matrix, int rows) {
    return Experts{matrix.first.data(),
                   matrix.second.data(),
                   bias.data(),
                   expert_count,
                   rows,
                   kHidden,
                   Format::kMxfp4Pairs,
                   rows};
  };
  std::vector<float> x(size_t{1} * tokens * kHidden, 0.01f);
  std::vector<float> out(x.size());
  std::vector<ExpertChoice> choices(size_t{4} * tokens);
  int64_t turn = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < choices.size(); ++i) {
      choices[i] = {static_cast<int32_t>((turn + i) % expert_count), 0.25f};
    }
    turn += 4;
    bench.kernels->experts(out.data(), x.data(), choices.data(),
                           {view(up, 2 * kHidden), {}, view(down, kHidden)},
                           {.experts_per_token = 4}, tokens);
  }
  const int64_t touched = std::min(4 * tokens, expert_count);
  state.SetBytesProcessed(state.iterations() * touched * 3 * kHidden * (kHidden / 32 * 17));
  state.counters["flops"] = benchmark::Counter(2.0 * tokens * 4 * 3 * kHidden * kHidden,
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(experts)->ArgsProduct({{1, 4, 16, 128}, {1, 2}})->UseRealTime();

// The exact rows of a head: of 201 088 rows some 1 650 for each token, wherever they lie.
void head_rows(benchmark::State& state) {
  Bench bench(state);
  const auto tokens = static_cast<int>(state.range(0));
  constexpr int kVocab = 201088;
  constexpr int kPicked = 1650;
  constexpr int kTurns = 4;
  const std::vector<Bf16> weight(size_t{kVocab} * kHidden, 0x3C00);
  const std::vector<float> x(static_cast<size_t>(tokens) * kHidden, 0.01f);
  std::vector<float> out(static_cast<size_t>(tokens) * kVocab);
  const auto words = static_cast<size_t>(tokens * mark_words(kVocab));
  std::vector<uint64_t> marks(kTurns * words);
  std::mt19937_64 random(1);
  for (size_t row = 0; row < static_cast<size_t>(kTurns * tokens); ++row) {
    for (int i = 0; i < kPicked; ++i) {
      const auto token = static_cast<size_t>(random() % kVocab);
      marks[row * mark_words(kVocab) + token / 64] |= uint64_t{1} << token % 64;
    }
  }
  size_t turn = 0;
  for (auto _ : state) {
    bench.kernels->linear_marked(out.data(), x.data(), {weight.data(), kVocab, kHidden},
                                 marks.data() + turn++ % kTurns * words, tokens);
  }
  state.SetBytesProcessed(state.iterations() * int64_t{2} * tokens * kPicked * kHidden);
}
BENCHMARK(head_rows)->ArgsProduct({{1, 8, 32}, {1, 2}})->UseRealTime();

// Bytes per second at which all threads together read memory, the best of a few passes, once for
// each count of threads.
double read_bandwidth(base::ThreadPool& pool) {
  static std::map<int, double> known;
  double& best = known[pool.size()];
  if (best > 0) return best;
  const std::vector<uint64_t> words(size_t{32} << 20, 1);  // 256 MiB, far more than any cache
  const int64_t share = static_cast<int64_t>(words.size()) / pool.size();
  for (int pass = 0; pass < 5; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](int worker) {
      uint64_t sum = 0;
      for (int64_t i = worker * share; i < (worker + 1) * share; ++i) sum += words[i];
      benchmark::DoNotOptimize(sum);
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(words.size()) * sizeof(uint64_t) / seconds.count());
  }
  return best;
}

constexpr tensor::DType kCacheTypes[] = {tensor::DType::kF16, tensor::DType::kBf16,
                                         tensor::DType::kF8E4m3, tensor::DType::kI8};

// Keys and values of several layers, so that one pass does not find the last one's in the cache.
struct CacheBench : Bench {
  explicit CacheBench(benchmark::State& state)
      : Bench(state),
        context(static_cast<int>(state.range(0))),
        layer{nullptr, kCacheTypes[state.range(2)], 16, 8, 64},
        blocks(context / 16 + 1),
        memory(static_cast<size_t>(kLayers * blocks * layer.block_bytes())) {
    state.SetLabel(std::string(kernels->name()) + " " +
                   std::string(tensor::kv_type_name(layer.dtype)));
    for (int i = 0; i < blocks; ++i) table.push_back(i);
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> k(static_cast<size_t>(context) * 512);
    for (float& x : k) x = normal(random);
    const SequenceRows all{0, context, 0, table.data()};
    for (int i = 0; i < kLayers; ++i) {
      next_layer();
      kernels->store_kv(layer, k.data(), k.data(), 512, &all, 1);
    }
  }
  void next_layer() {
    layer.data = memory.data() + turn++ % kLayers * blocks * layer.block_bytes();
  }

  static constexpr int kLayers = 12;
  int context;
  KvLayer layer;
  int blocks;
  std::vector<char> memory;
  std::vector<int32_t> table;
  int turn = 0;
};

// One token of one sequence, a full layer. share: of the bandwidth at which memory is read.
void attention_decode(benchmark::State& state) {
  CacheBench bench(state);
  const std::vector<float> sinks(64, 0);
  const std::vector<float> q(4096, 0.01f);
  std::vector<float> out(4096);
  const SequenceRows row{0, 1, bench.context - 1, bench.table.data()};
  for (auto _ : state) {
    bench.next_layer();
    bench.kernels->attention(out.data(), q.data(), 4096, bench.layer,
                             {64, 8, 64, 0, sinks.data(), 0.125f}, &row, 1);
  }
  const int64_t bytes = bench.context * bench.layer.block_bytes() / 16;
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["share"] =
      benchmark::Counter(static_cast<double>(bytes) / read_bandwidth(bench.pool),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(attention_decode)->ArgsProduct({{128, 1024, 8192}, {1, 2}, {0, 1, 2, 3}})->UseRealTime();

// One token of each of so many sequences with a context of 1 000, all of it or a window of 128;
// blocks lie anywhere, and memory holds more layers than any cache.
void attention_streams(benchmark::State& state) {
  Bench bench(state);
  const auto streams = static_cast<int>(state.range(0));
  const int window = state.range(2) == 1 ? 128 : 0;
  constexpr int kContext = 1000;
  constexpr int kBlocks = (kContext + 15) / 16;
  constexpr int kLayers = 8;
  KvLayer layer{nullptr, tensor::DType::kF16, 16, 8, 64};
  const int64_t layer_bytes = streams * kBlocks * layer.block_bytes();
  std::vector<char> memory(static_cast<size_t>(kLayers * layer_bytes));
  std::vector<int32_t> table(static_cast<size_t>(streams * kBlocks));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  std::vector<SequenceRows> rows;
  for (int s = 0; s < streams; ++s) {
    rows.push_back({s, 1, kContext - 1, table.data() + s * kBlocks});
  }
  const std::vector<float> sinks(64, 0);
  const std::vector<float> q(static_cast<size_t>(streams) * 4096, 0.01f);
  std::vector<float> out(q.size());
  bench.kernels->reserve({.tokens = streams, .widest = 64});
  int turn = 0;
  for (auto _ : state) {
    layer.data = memory.data() + turn++ % kLayers * layer_bytes;
    bench.kernels->attention(out.data(), q.data(), 4096, layer,
                             {64, 8, 64, window, sinks.data(), 0.125f}, rows.data(), streams);
  }
  const int64_t bytes = streams * (window > 0 ? window : kContext) * layer.block_bytes() / 16;
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["share"] =
      benchmark::Counter(static_cast<double>(bytes) / read_bandwidth(bench.pool),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(attention_streams)->ArgsProduct({{1, 8, 32}, {1, 2}, {0, 1}})->UseRealTime();

// Writing the keys and values of so many tokens.
void store_kv(benchmark::State& state) {
  CacheBench bench(state);
  const std::vector<float> k(static_cast<size_t>(bench.context) * 512, 0.7f);
  const SequenceRows all{0, bench.context, 0, bench.table.data()};
  for (auto _ : state) bench.kernels->store_kv(bench.layer, k.data(), k.data(), 512, &all, 1);
  state.SetItemsProcessed(state.iterations() * bench.context);
}
BENCHMARK(store_kv)->ArgsProduct({{1, 512}, {1, 2}, {0, 1, 2, 3}})->UseRealTime();

}  // namespace
}  // namespace pelton::kernels
