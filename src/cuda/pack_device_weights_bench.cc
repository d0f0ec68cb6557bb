// How fast weights are brought into a device's order, in bytes written a second and by threads:
// what an upload can be fed with. Sources larger than a cache, targets as large as a piece of an
// upload.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/thread_pool.h"
#include "cuda/pack_device_weights.h"

namespace pelton::cuda {
namespace {

using kernels::ExpertWeights;
using kernels::Format;
using kernels::StoredMatrix;

constexpr int kColumns = 2880;  // gpt-oss-20b's hidden and inner size
constexpr int64_t kPieceBytes = int64_t{16} << 20;

template <typename T>
std::vector<T> some(int64_t count, uint32_t mask) {
  std::vector<T> out(static_cast<size_t>(count));
  uint32_t state = 1;
  for (T& x : out) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<T>(state >> 8 & mask);
  }
  return out;
}

void bf16_tiles(benchmark::State& state) {
  base::ThreadPool pool({.threads = static_cast<int>(state.range(0)), .pin = false});
  const TiledShape shape{.rows = 40960, .columns = kColumns};
  const std::vector<uint16_t> weights = some<uint16_t>(int64_t{shape.rows} * kColumns, 0xBFFF);
  const StoredMatrix matrix{weights.data(), nullptr, shape.rows, kColumns, Format::kBf16};
  const auto row = [&](int64_t number, uint16_t* room) { return bf16_row(matrix, number, room); };
  const int64_t tile_bytes = tiles_bytes(WeightType::kBf16, shape) / tile_count(shape.rows);
  const int64_t each = kPieceBytes / tile_bytes;
  std::vector<uint8_t> out(static_cast<size_t>(each * tile_bytes));
  int64_t first = 0;
  for ([[maybe_unused]] auto _ : state) {
    pool.parallel_for(each, 1, [&](int64_t begin, int64_t end, int) {
      pack_bf16_tiles(shape, {first + begin, first + end}, row, out.data() + begin * tile_bytes);
    });
    first = first + 2 * each <= tile_count(shape.rows) ? first + each : 0;
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * each * tile_bytes);
}

void mxfp4_tiles(benchmark::State& state) {
  constexpr int kExperts = 16;
  base::ThreadPool pool({.threads = static_cast<int>(state.range(0)), .pin = false});
  const int64_t elements = int64_t{kExperts} * 2 * kColumns * kColumns;
  const std::vector<uint8_t> codes = some<uint8_t>(elements / 2, 0xFF);
  const std::vector<uint8_t> scales = some<uint8_t>(elements / 32, 0x7F);
  ExpertWeights weights;
  weights.gate = {codes.data(), scales.data(),       nullptr,     kExperts, 2 * kColumns,
                  kColumns,     Format::kMxfp4Pairs, 2 * kColumns};
  weights.down = {codes.data(), scales.data(),       nullptr, kExperts, kColumns,
                  kColumns,     Format::kMxfp4Pairs, kColumns};
  const TiledShape shape = expert_shape(weights, ExpertPart::kGateUp);
  const int64_t tiles = tile_count(shape.rows);
  const int64_t tile_bytes = tiles_bytes(WeightType::kMxfp4, shape) / tiles;
  const int64_t scale_bytes = scales_bytes(shape) / tiles;
  std::vector<uint8_t> out(static_cast<size_t>(tiles * tile_bytes));
  std::vector<uint8_t> out_scales(static_cast<size_t>(tiles * scale_bytes));
  int expert = 0;
  for ([[maybe_unused]] auto _ : state) {
    pool.parallel_for(tiles, 4, [&](int64_t begin, int64_t end, int) {
      pack_expert(weights, ExpertPart::kGateUp, expert, {begin, end}, 0,
                  out.data() + begin * tile_bytes, out_scales.data() + begin * scale_bytes);
    });
    expert = (expert + 1) % kExperts;
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * tiles *
                          (tile_bytes + scale_bytes));
}

BENCHMARK(bf16_tiles)->Arg(1)->Arg(2)->UseRealTime()->Name("pack_for_device/bf16_tiles");
BENCHMARK(mxfp4_tiles)->Arg(1)->Arg(2)->UseRealTime()->Name("pack_for_device/mxfp4_tiles");

}  // namespace
}  // namespace pelton::cuda
