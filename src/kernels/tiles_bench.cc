// Time, bytes per second and operations per second of the products with tiled weights, in the
// shapes of gpt-oss-20b.
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/kernels.h"
#include "kernels/tiles.h"

namespace pelton::kernels {
namespace {

constexpr int kHidden = 2880;

struct Bench {
  explicit Bench(benchmark::State& state)
      : pool({.threads = static_cast<int>(state.range(1))}),
        kernels(std::move(make_kernels(KernelChoice::kAuto, pool)).value()),
        activations(state.range(2) == 8 ? Activations::kInt8 : Activations::kInt16) {
    state.SetLabel(std::string(kernels->name()));
  }
  base::ThreadPool pool;
  std::unique_ptr<Kernels> kernels;
  Activations activations;
};

void tiled_linear_qkv(benchmark::State& state) {
  Bench bench(state);
  const int tokens = static_cast<int>(state.range(0));
  const int rows = 5120;
  const int copies = 8;  // so that one pass does not find the last one's weights in the cache
  const int64_t bytes = tiled_bytes(Format::kInt8Tiles, rows, kHidden);
  std::vector<uint8_t> weight(static_cast<size_t>(copies * bytes), 0x21);
  std::vector<float> x(size_t{1} * tokens * kHidden, 0.01f);
  std::vector<float> out(size_t{1} * tokens * rows);
  int64_t turn = 0;
  for (auto _ : state) {
    const uint8_t* from = weight.data() + (turn++ % copies) * bytes;
    const Matrix matrix{from, rows, kHidden, Format::kInt8Tiles, bench.activations};
    bench.kernels->linear(out.data(), x.data(), {matrix, nullptr}, tokens,
                          Kernels::Output::kOverwrite);
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["ops"] = benchmark::Counter(2.0 * tokens * rows * kHidden,
                                             benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(tiled_linear_qkv)->ArgsProduct({{1, 4, 6, 8, 16, 128}, {1, 2}, {8, 16}})->UseRealTime();

void tiled_experts(benchmark::State& state) {
  Bench bench(state);
  const int tokens = static_cast<int>(state.range(0));
  const int expert_count = 32;
  const auto make = [&](int rows) {
    return std::vector<uint8_t>(
        static_cast<size_t>(expert_count * tiled_bytes(Format::kMxfp4Tiles, rows, kHidden)), 0x21);
  };
  const auto up = make(2 * kHidden);
  const auto down = make(kHidden);
  const std::vector<float> bias(size_t{1} * expert_count * 2 * kHidden, 0);
  const auto view = [&](const auto& matrix, int rows) {
    return Experts{matrix.data(),       nullptr, bias.data(),      expert_count, rows, kHidden,
                   Format::kMxfp4Tiles, rows,    bench.activations};
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
  state.counters["ops"] = benchmark::Counter(2.0 * tokens * 4 * 3 * kHidden * kHidden,
                                             benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(tiled_experts)
    ->ArgsProduct({{1, 4, 16, 32, 48, 128, 512}, {1, 2}, {8, 16}})
    ->UseRealTime();

}  // namespace
}  // namespace pelton::kernels
