// Tiles keep their weights, and the products with them are near the reference, the same bits in any
// batch, on any number of threads and with either instruction set.
#include "kernels/tiles.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "kernels/cpu/processor.h"
#include "kernels/cpu/tile_choice.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tiles_amx_emulated.h"
#include "kernels/kernels.h"
#include "tensor/bits.h"
#include "tensor/dtype.h"

namespace pelton::kernels {
namespace {

class Random {
 public:
  Random() {
    const char* given = std::getenv("PELTON_SEED");
    const uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
    engine_.seed(seed);
  }
  int below(int bound) { return static_cast<int>(engine_() % static_cast<uint64_t>(bound)); }
  float normal() { return normal_(engine_); }
  // Normal, but every 50th or so a hundred times larger.
  std::vector<float> with_outliers(int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = normal() * (below(50) == 0 ? 100.0f : 1.0f);
    return out;
  }
  std::vector<float> floats(int64_t count, float scale) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = scale * normal();
    return out;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

// A random matrix as files have it.
struct Source {
  std::vector<uint8_t> data;
  std::vector<uint8_t> scales;
  StoredMatrix matrix;

  Source(Random& random, Format format, int64_t rows, int64_t cols) {
    const int64_t blocks = rows * cols / 32;
    if (format == Format::kBf16) {
      for (int64_t i = 0; i < rows * cols; ++i) {
        const uint16_t bits = tensor::float_to_bf16(0.1f * random.normal());
        data.push_back(static_cast<uint8_t>(bits));
        data.push_back(static_cast<uint8_t>(bits >> 8));
      }
    } else if (format == Format::kF32) {
      const std::vector<float> values = random.floats(rows * cols, 0.1f);
      data.resize(values.size() * sizeof(float));
      std::memcpy(data.data(), values.data(), data.size());
    } else if (format == Format::kQ8_0) {
      for (int64_t i = 0; i < blocks; ++i) {
        const uint16_t bits = tensor::float_to_f16(0.001f + 0.001f * std::fabs(random.normal()));
        data.push_back(static_cast<uint8_t>(bits));
        data.push_back(static_cast<uint8_t>(bits >> 8));
        for (int j = 0; j < 32; ++j) data.push_back(static_cast<uint8_t>(random.below(256)));
      }
    } else {
      for (int64_t i = 0; i < blocks; ++i) {
        const auto scale = static_cast<uint8_t>(118 + random.below(6));
        (format == Format::kMxfp4Blocks ? data : scales).push_back(scale);
        for (int j = 0; j < 16; ++j) data.push_back(static_cast<uint8_t>(random.below(256)));
      }
    }
    matrix = {data.data(), scales.data(), rows, cols, format};
  }
};

std::vector<uint8_t> pack(Format to, const StoredMatrix& from) {
  std::vector<uint8_t> tiles(static_cast<size_t>(tiled_bytes(to, from.rows, from.cols)));
  for (int64_t first = 0; first < from.rows; first += kTileRows) {
    int64_t rows[kTileRows];
    for (int64_t r = 0; r < kTileRows; ++r) rows[r] = first + r < from.rows ? first + r : -1;
    pack_tile(to, from, rows, tiles.data() + first / kTileRows * tile_bytes(to, from.cols));
  }
  return tiles;
}

TEST(Tiles, ExactFormatsKeepTheirWeights) {
  Random random;
  for (const Format from : {Format::kMxfp4Pairs, Format::kMxfp4Blocks, Format::kQ8_0}) {
    const Format to = from == Format::kQ8_0 ? Format::kInt8Tiles : Format::kMxfp4Tiles;
    const int64_t rows = 1 + random.below(50);
    const int64_t cols = 32 * (1 + random.below(5));
    const Source source(random, from, rows, cols);
    const std::vector<uint8_t> tiles = pack(to, source.matrix);
    std::vector<float> expected(cols);
    std::vector<float> got(cols);
    for (int64_t row = 0; row < rows; ++row) {
      read_weight_row(source.matrix, row, expected.data());
      read_tiled_row(to, tiles.data(), row, cols, got.data());
      ASSERT_EQ(expected, got) << "row " << row;
    }
  }
}

TEST(Tiles, RoundingIsHalfAStepOfTheBlocksScale) {
  Random random;
  const Source source(random, Format::kBf16, 37, 96);
  const std::vector<uint8_t> tiles = pack(Format::kInt8Tiles, source.matrix);
  std::vector<float> expected(96);
  std::vector<float> got(96);
  for (int64_t row = 0; row < 37; ++row) {
    read_weight_row(source.matrix, row, expected.data());
    read_tiled_row(Format::kInt8Tiles, tiles.data(), row, 96, got.data());
    for (int b = 0; b < 96; b += 32) {
      float largest = 0;
      for (int i = b; i < b + 32; ++i) largest = std::max(largest, std::fabs(expected[i]));
      for (int i = b; i < b + 32; ++i) {
        // The scale itself was rounded up to a float16: at most one part in 1024.
        ASSERT_NEAR(got[i], expected[i], 0.501f * largest / 127.0f) << row << ", " << i;
      }
    }
  }
}

std::vector<std::unique_ptr<Kernels>> fast_kernels(base::ThreadPool& pool) {
  std::vector<std::unique_ptr<Kernels>> out;
  for (const KernelChoice choice :
       {KernelChoice::kAvx512, KernelChoice::kAvx2, KernelChoice::kNeon}) {
    auto made = make_kernels(choice, pool);
    if (made.ok()) out.push_back(std::move(*made));
  }
  return out;
}

// No error is over half a step but for what is cut off at the far end, and a block's errors
// together are no more; evenly spread, they have a deviation of step / sqrt(12). A matrix that 4
// bits can hold stays as it is.
TEST(Tiles, FourBitsLoseHalfAStep) {
  Random random;
  const int64_t cols = 64;
  std::vector<float> values(16 * cols);
  for (float& value : values) value = 0.25f * static_cast<float>(random.below(16) - 8);
  for (int64_t i = 0; i < 16 * cols; i += 32) values[i] = -2.0f;  // so that the step is 0.25
  const StoredMatrix exact{values.data(), nullptr, 16, cols, Format::kF32};
  std::vector<uint8_t> tiles = pack(Format::kInt4Tiles, exact);
  std::vector<float> got(cols);
  for (int64_t row = 0; row < 16; ++row) {
    read_tiled_row(Format::kInt4Tiles, tiles.data(), row, cols, got.data());
    ASSERT_EQ(got,
              std::vector<float>(values.begin() + row * cols, values.begin() + (row + 1) * cols));
  }
  for (float& value : values) value = random.floats(1, 1.0f)[0];
  tiles = pack(Format::kInt4Tiles, exact);
  double sum = 0;  // of squares, in steps
  for (int64_t row = 0; row < 16; ++row) {
    read_tiled_row(Format::kInt4Tiles, tiles.data(), row, cols, got.data());
    for (int64_t b = 0; b < cols; b += 32) {
      float extreme = 0;
      for (int64_t i = b; i < b + 32; ++i) {
        const float value = values[row * cols + i];
        if (std::fabs(value) > std::fabs(extreme)) extreme = value;
      }
      const double step = extreme / -8.0;
      double off = 0;
      double most = 0;
      for (int64_t i = b; i < b + 32; ++i) {
        const double value = values[row * cols + i] / step;
        off += (got[i] / step - value) * (got[i] / step - value);
        most += value > 7.5 ? 1.0 : 0.25;
      }
      ASSERT_LE(off, 1.01 * most) << row << ", " << b;
      sum += off;
    }
  }
  EXPECT_LE(sum / (16 * cols), 1.25 / 12);  // of 1 024 errors the mean is within 3 % mostly
}

TEST(Tiles, MarkedElementsOfAProductHaveTheBitsOfAll) {
  Random random;
  base::ThreadPool pool({.threads = 2, .pin = false});
  std::vector<std::unique_ptr<Kernels>> all = fast_kernels(pool);
  all.push_back(std::move(make_kernels(KernelChoice::kReference, pool)).value());
  constexpr Format kFormats[] = {Format::kBf16, Format::kF32, Format::kQ8_0};
  for (int turn = 0; turn < 24; ++turn) {
    const int rows = 1 + random.below(1'000);
    const int cols = 32 * (1 + random.below(6));
    const int tokens = 1 + random.below(5);
    const int one_in = 1 + random.below(12);
    const Format format = kFormats[turn % 3];
    const Source source(random, format, rows, cols);
    const Matrix matrix{source.matrix.data, rows, cols, format};
    const std::vector<float> x = random.with_outliers(tokens * cols);
    const int64_t words = mark_words(rows);
    std::vector<uint64_t> marks(static_cast<size_t>(tokens * words));
    const auto word_of = [&](int t, int row) -> uint64_t& { return marks[t * words + row / 64]; };
    for (int t = 0; t + 1 < tokens || t == 0; ++t) {  // the last of several has none
      for (int row = 0; row < rows; ++row) {
        if (random.below(one_in) == 0) word_of(t, row) |= uint64_t{1} << (row % 64);
      }
    }
    for (const auto& kernels : all) {
      std::vector<float> whole(size_t{1} * tokens * rows);
      kernels->linear(whole.data(), x.data(), {matrix}, tokens, Kernels::Output::kOverwrite);
      std::vector<float> got(whole.size(), -1.5f);
      kernels->linear_marked(got.data(), x.data(), matrix, marks.data(), tokens);
      for (int t = 0; t < tokens; ++t) {
        for (int row = 0; row < rows; ++row) {
          const bool is_marked = (word_of(t, row) >> (row % 64) & 1) != 0;
          ASSERT_EQ(got[t * rows + row], is_marked ? whole[t * rows + row] : -1.5f)
              << kernels->name() << ", token " << t << ", row " << row << " of " << rows;
        }
      }
    }
  }
}

double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
    norm += double{exact[i]} * exact[i];
  }
  return std::sqrt(difference / norm);
}

// What 8 and 15 bits of an activation leave of a product's precision; outliers in a block cost the
// small ones theirs.
double allowed(Activations activations) {
  return activations == Activations::kInt8 ? 6e-2 : 6e-4;
}

TEST(Tiles, LinearIsNearTheReferenceAndTheSameBitsEverywhere) {
  Random random;
  base::ThreadPool pool({.threads = 2, .pin = false});
  base::ThreadPool single({.threads = 1, .pin = false});
  const auto reference = std::move(make_kernels(KernelChoice::kReference, pool)).value();
  const auto kinds = fast_kernels(pool);
  const auto alone = fast_kernels(single);
  for (int turn = 0; turn < 12; ++turn) {
    constexpr std::pair<Format, Format> kWays[] = {{Format::kBf16, Format::kInt8Tiles},
                                                   {Format::kQ8_0, Format::kInt8Tiles},
                                                   {Format::kMxfp4Pairs, Format::kMxfp4Tiles},
                                                   {Format::kBf16, Format::kInt4Tiles}};
    const auto [from, to] = kWays[turn % 4];
    const int rows = 1 + random.below(300);
    const int cols = 32 * (1 + random.below(10));
    const int tokens = 1 + random.below(30);
    const Source source(random, from, rows, cols);
    const std::vector<uint8_t> tiles = pack(to, source.matrix);
    const std::vector<float> bias = random.floats(rows, 0.3f);
    const std::vector<float> x = random.with_outliers(int64_t{tokens} * cols);
    const std::vector<float> before = random.floats(int64_t{tokens} * rows, 1.0f);
    for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
      const Linear linear{{tiles.data(), rows, cols, to, activations}, bias.data()};
      std::vector<float> exact = before;
      reference->linear(exact.data(), x.data(), linear, tokens, Kernels::Output::kAccumulate);
      std::vector<std::vector<float>> all;
      for (const auto& kernels : kinds) {
        std::vector<float> got = before;
        kernels->linear(got.data(), x.data(), linear, tokens, Kernels::Output::kAccumulate);
        EXPECT_LE(relative_error(got, exact), allowed(activations)) << kernels->name();
        all.push_back(got);
      }
      for (const auto& kernels : alone) {
        std::vector<float> one_by_one = before;
        for (int t = 0; t < tokens; ++t) {
          kernels->linear(one_by_one.data() + int64_t{t} * rows, x.data() + int64_t{t} * cols,
                          linear, 1, Kernels::Output::kAccumulate);
        }
        all.push_back(one_by_one);
      }
      for (const std::vector<float>& other : all) {
        EXPECT_EQ(std::memcmp(other.data(), all[0].data(), other.size() * sizeof(float)), 0)
            << rows << " x " << cols << ", " << tokens << " tokens";
      }
    }
  }
}

// What the processor makes of a dot product of bytes, of codes of four bits: the answer is the
// same.
std::vector<std::unique_ptr<TileKernels>> every_kind(base::ThreadPool& pool) {
  std::vector<std::unique_ptr<TileKernels>> kinds;
#if defined(__x86_64__)
  if (has_avx2()) kinds.push_back(make_avx2_tiles(pool));
  if (has_avxvnni()) kinds.push_back(make_avxvnni_tiles(pool));
  if (has_vnni()) kinds.push_back(make_avx512_vnni_tiles(pool));
  if (has_vbmi()) kinds.push_back(make_avx512_vbmi_tiles(pool));
  if (has_vbmi()) kinds.push_back(make_emulated_amx_tiles(pool));
  if (ask_for_amx() == Amx::kThere) kinds.push_back(make_amx_tiles(pool));
  std::printf("%zu of 6 kinds\n", kinds.size());
#elif defined(__aarch64__)
  kinds.push_back(make_neon_tiles(pool));
  if (has_dotprod()) kinds.push_back(make_dotprod_tiles(pool));
  if (has_i8mm()) kinds.push_back(make_i8mm_tiles(pool));
  std::printf("%zu of 3 kinds\n", kinds.size());
#endif
  return kinds;
}

TEST(Tiles, EveryInstructionSetGivesTheSameBits) {
  Random random;
  base::ThreadPool pool({.threads = 2, .pin = false});
  const std::vector<std::unique_ptr<TileKernels>> kinds = every_kind(pool);
  if (kinds.size() < 2) GTEST_SKIP() << "nothing to compare on this processor";
  for (const std::unique_ptr<TileKernels>& made : kinds) ASSERT_NE(made, nullptr);
  constexpr std::pair<Format, Format> kWays[] = {{Format::kBf16, Format::kInt8Tiles},
                                                 {Format::kQ8_0, Format::kInt8Tiles},
                                                 {Format::kBf16, Format::kInt4Tiles},
                                                 {Format::kMxfp4Pairs, Format::kMxfp4Tiles}};
  for (const auto& [from, to] : kWays) {
    // 5 tiles; up to 3 chunks of columns.
    const Source source(random, from, 80, 32 * (1 + random.below(40)));
    const std::vector<uint8_t> tiles = pack(to, source.matrix);
    for (const int tokens : {1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 33, 60, 1 + random.below(70)}) {
      const std::vector<float> x = random.with_outliers(tokens * source.matrix.cols);
      for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
        const Linear linear{
            {tiles.data(), 80, static_cast<int>(source.matrix.cols), to, activations}, nullptr};
        std::vector<float> first;
        for (const auto& kernels : kinds) {
          std::vector<float> got(static_cast<size_t>(tokens) * 80);
          kernels->linear(got.data(), x.data(), linear, tokens, Kernels::Output::kOverwrite);
          if (first.empty()) first = got;
          ASSERT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)), 0)
              << tokens << " tokens, format " << static_cast<int>(to);
        }
      }
    }
  }
}

// The gates and ups of `source`, whose rows 2i and 2i + 1 they are, 16 and 16 in turn.
std::vector<uint8_t> pack_gate_up(const StoredMatrix& source, int experts, int inner) {
  const int64_t bytes = tile_bytes(Format::kMxfp4Tiles, source.cols);
  std::vector<uint8_t> tiles(static_cast<size_t>(experts * 2 * inner / kTileRows * bytes));
  for (int64_t i = 0; i < experts * 2 * inner / kTileRows; ++i) {
    int64_t rows[kTileRows];
    for (int64_t r = 0; r < kTileRows; ++r) rows[r] = 2 * (i / 2 * kTileRows + r) + i % 2;
    pack_tile(Format::kMxfp4Tiles, source, rows, tiles.data() + i * bytes);
  }
  return tiles;
}

#if defined(__x86_64__)
// Emulated: no processor with AMX has run them.
class AmxTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_vbmi()) GTEST_SKIP() << "the emulation takes VBMI";
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
};

TEST_F(AmxTiles, MultiplyByTilesFromEightTokensOnAndLeaveNoneConfigured) {
  Random random;
  base::ThreadPool alone({.threads = 1, .pin = false});
  const auto tiles_kernels = make_emulated_amx_tiles(alone);
  ASSERT_NE(tiles_kernels, nullptr);
  constexpr int kRows = 80;
  constexpr int kCols = 96;
  const Source source(random, Format::kBf16, kRows, kCols);
  const std::vector<uint8_t> tiles = pack(Format::kInt8Tiles, source.matrix);
  for (const auto& [tokens, groups] : {std::pair{7, 0}, {8, 1}, {16, 1}, {17, 2}, {70, 5}}) {
    for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
      const std::vector<float> x = random.floats(int64_t{tokens} * kCols, 1.0f);
      std::vector<float> out(static_cast<size_t>(tokens) * kRows);
      const Linear linear{{tiles.data(), kRows, kCols, Format::kInt8Tiles, activations}, nullptr};
      const int64_t before = emulated_products();
      tiles_kernels->linear(out.data(), x.data(), linear, tokens, Kernels::Output::kOverwrite);
      const int planes = activations == Activations::kInt8 ? 1 : 2;
      EXPECT_EQ(emulated_products() - before, groups * planes * (kRows / 16) * (kCols / 32))
          << tokens << " tokens";
      EXPECT_TRUE(emulated_tiles_are_released());
    }
  }
}

TEST_F(AmxTiles, ExpertsHaveTheBitsOfVectors) {
  Random random;
  const auto vectors = make_avx512_vbmi_tiles(pool_);
  const auto tiles = make_emulated_amx_tiles(pool_);
  ASSERT_NE(tiles, nullptr);
  constexpr int kExperts = 3;
  constexpr int kInner = 96;
  constexpr int kHidden = 544;  // 17 blocks: two chunks
  const Source up(random, Format::kMxfp4Pairs, kExperts * 2 * kInner, kHidden);
  const Source down(random, Format::kMxfp4Blocks, kExperts * kHidden, kInner);
  const std::vector<uint8_t> up_tiles = pack_gate_up(up.matrix, kExperts, kInner);
  const std::vector<uint8_t> down_tiles = pack(Format::kMxfp4Tiles, down.matrix);
  const std::vector<float> up_bias = random.floats(kExperts * 2 * kInner, 0.3f);
  const std::vector<float> down_bias = random.floats(kExperts * kHidden, 0.3f);
  for (const int tokens : {13, 40, 70}) {
    const std::vector<float> x = random.with_outliers(int64_t{tokens} * kHidden);
    std::vector<ExpertChoice> choices;
    for (int t = 0; t < tokens; ++t) {  // the first for all, one other
      choices.push_back({0, 0.5f});
      choices.push_back({1 + random.below(kExperts - 1), 0.25f});
    }
    for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
      const ExpertWeights weights{{up_tiles.data(), nullptr, up_bias.data(), kExperts, 2 * kInner,
                                   kHidden, Format::kMxfp4Tiles, 2 * kInner, activations},
                                  {},
                                  {down_tiles.data(), nullptr, down_bias.data(), kExperts, kHidden,
                                   kInner, Format::kMxfp4Tiles, kHidden, activations}};
      const MoeShape shape{.experts_per_token = 2};
      std::vector<float> expected(x.size(), 0.5f);
      vectors->experts(expected.data(), x.data(), choices.data(), weights, shape, tokens, nullptr);
      std::vector<float> got(x.size(), 0.5f);
      const int64_t before = emulated_products();
      tiles->experts(got.data(), x.data(), choices.data(), weights, shape, tokens, nullptr);
      EXPECT_GT(emulated_products(), before);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << tokens << " tokens";
    }
  }
}

TEST_F(AmxTiles, NanStaysInItsToken) {
  Random random;
  const auto tiles_kernels = make_emulated_amx_tiles(pool_);
  ASSERT_NE(tiles_kernels, nullptr);
  const Source source(random, Format::kMxfp4Pairs, 48, 64);
  const std::vector<uint8_t> tiles = pack(Format::kMxfp4Tiles, source.matrix);
  const Linear linear{{tiles.data(), 48, 64, Format::kMxfp4Tiles, Activations::kInt8}, nullptr};
  std::vector<float> x = random.floats(20 * 64, 1.0f);
  x[11 * 64 + 5] = NAN;
  std::vector<float> out(20 * 48);
  tiles_kernels->linear(out.data(), x.data(), linear, 20, Kernels::Output::kOverwrite);
  for (int i = 0; i < 20 * 48; ++i) EXPECT_EQ(std::isnan(out[i]), i / 48 == 11) << i;
}

std::unique_ptr<TileKernels> right_amx(base::ThreadPool& pool) {
  return make_emulated_amx_tiles(pool);
}
std::unique_ptr<TileKernels> wrong_amx(base::ThreadPool& pool) {
  return make_emulated_amx_tiles(pool, UnitFault::kWrongProduct);
}

TEST_F(AmxTiles, AreTakenOnlyIfAllowedAndRight) {
  const auto name = [&](Amx amx, TileFactory factory) {
    const TileChoice choice = choose_wide_tiles(pool_, amx, factory);
    EXPECT_NE(choice.tiles, nullptr);
    return choice.kernels_name;
  };
  EXPECT_EQ(name(Amx::kThere, right_amx), "avx512+amx");
  EXPECT_EQ(name(Amx::kThere, wrong_amx), "avx512 (amx: it computes other bits)");
  EXPECT_EQ(name(Amx::kRefused, nullptr), "avx512 (amx: the system refuses it)");
  EXPECT_EQ(name(Amx::kAbsent, nullptr), "avx512");
}

// What a processor faults at, so that the other tests would see it.
TEST(AmxTilesEmulation, IsStrict) {  // without threads, which death tests do not like
  if (!has_vbmi()) GTEST_SKIP() << "the emulation takes VBMI";
  EXPECT_DEATH(misuse_emulated_unit(UnitMisuse::kNotConfigured), "tiles are not configured");
  EXPECT_DEATH(misuse_emulated_unit(UnitMisuse::kReleased), "tiles are not configured");
  EXPECT_DEATH(misuse_emulated_unit(UnitMisuse::kTooManyRows), "too many rows");
  EXPECT_DEATH(misuse_emulated_unit(UnitMisuse::kTooWide), "too wide");
  EXPECT_DEATH(misuse_emulated_unit(UnitMisuse::kShapesDoNotFit), "shapes do not fit");
  EXPECT_DEATH(misuse_emulated_unit(UnitMisuse::kSameTile), "a tile used twice");
}
#endif

TEST(Tiles, ExpertsAreNearTheReferenceAndTheSameBitsInAnyBatch) {
  Random random;
  base::ThreadPool pool({.threads = 2, .pin = false});
  const auto reference = std::move(make_kernels(KernelChoice::kReference, pool)).value();
  const auto kinds = fast_kernels(pool);
  for (int turn = 0; turn < 6; ++turn) {
    const int experts = 1 + random.below(6);
    const int k = 1 + random.below(experts);
    const int inner = 32 * (1 + random.below(3));
    const int hidden = 32 * (1 + random.below(4));
    const int tokens = 1 + random.below(40);
    const Source up(random, Format::kMxfp4Pairs, int64_t{experts} * 2 * inner, hidden);
    const Source down(random, Format::kMxfp4Blocks, int64_t{experts} * hidden, inner);
    const std::vector<uint8_t> up_tiles = pack_gate_up(up.matrix, experts, inner);
    const std::vector<uint8_t> down_tiles = pack(Format::kMxfp4Tiles, down.matrix);
    const std::vector<float> up_bias = random.floats(int64_t{experts} * 2 * inner, 0.3f);
    const std::vector<float> down_bias = random.floats(int64_t{experts} * hidden, 0.3f);
    const std::vector<float> x = random.floats(int64_t{tokens} * hidden, 1.0f);
    std::vector<ExpertChoice> choices;
    for (int t = 0; t < tokens; ++t) {
      std::vector<int> order(experts);
      std::iota(order.begin(), order.end(), 0);
      for (int j = 0; j < k; ++j) {
        std::swap(order[j], order[j + random.below(experts - j)]);
        choices.push_back({order[j], 1.0f / static_cast<float>(j + 2)});
      }
    }
    for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
      const ExpertWeights weights{{up_tiles.data(), nullptr, up_bias.data(), experts, 2 * inner,
                                   hidden, Format::kMxfp4Tiles, 2 * inner, activations},
                                  {},
                                  {down_tiles.data(), nullptr, down_bias.data(), experts, hidden,
                                   inner, Format::kMxfp4Tiles, hidden, activations}};
      const MoeShape shape{.experts_per_token = k};
      std::vector<float> exact(x.size(), 0.5f);
      reference->experts(exact.data(), x.data(), choices.data(), weights, shape, tokens);
      for (const auto& kernels : kinds) {
        std::vector<float> got(x.size(), 0.5f);
        kernels->experts(got.data(), x.data(), choices.data(), weights, shape, tokens);
        EXPECT_LE(relative_error(got, exact), allowed(activations)) << kernels->name();
        std::vector<float> one_by_one(x.size(), 0.5f);
        for (int t = 0; t < tokens; ++t) {
          kernels->experts(one_by_one.data() + int64_t{t} * hidden, x.data() + int64_t{t} * hidden,
                           choices.data() + int64_t{t} * k, weights, shape, 1);
        }
        EXPECT_EQ(std::memcmp(got.data(), one_by_one.data(), got.size() * sizeof(float)), 0)
            << kernels->name() << ", " << tokens << " tokens";
      }
    }
  }
}

// Garbage in, garbage out, where it came in and nowhere else.
TEST(Tiles, NanStaysNanAndLeavesOtherRowsAlone) {
  Random random;
  base::ThreadPool pool({.threads = 1, .pin = false});
  const Source source(random, Format::kMxfp4Pairs, 48, 64);
  const std::vector<uint8_t> tiles = pack(Format::kMxfp4Tiles, source.matrix);
  for (const auto& kernels : fast_kernels(pool)) {
    for (const float bad : {NAN, INFINITY}) {
      for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
        std::vector<float> x = random.floats(3 * 64, 1.0f);
        const Linear linear{{tiles.data(), 48, 64, Format::kMxfp4Tiles, activations}, nullptr};
        std::vector<float> before(3 * 48);
        kernels->linear(before.data(), x.data(), linear, 3, Kernels::Output::kOverwrite);
        x[64 + random.below(64)] = bad;
        std::vector<float> after(3 * 48);
        kernels->linear(after.data(), x.data(), linear, 3, Kernels::Output::kOverwrite);
        for (int row = 0; row < 48; ++row) {
          EXPECT_EQ(before[row], after[row]);
          EXPECT_TRUE(std::isnan(after[48 + row])) << row;
          EXPECT_EQ(before[96 + row], after[96 + row]);
        }
      }
    }
  }
}

TEST(Tiles, TheSmallestFloatsAreNoTrouble) {
  Random random;
  base::ThreadPool pool({.threads = 1, .pin = false});
  const Source source(random, Format::kMxfp4Pairs, 16, 32);
  const std::vector<uint8_t> tiles = pack(Format::kMxfp4Tiles, source.matrix);
  for (const auto& kernels : fast_kernels(pool)) {
    for (const float tiny : {0.0f, 1e-45f, 1e-39f, 1e-31f, 1e-29f}) {
      const std::vector<float> x(32, tiny);
      std::vector<float> out(16);
      const Linear linear{{tiles.data(), 16, 32, Format::kMxfp4Tiles}, nullptr};
      kernels->linear(out.data(), x.data(), linear, 1, Kernels::Output::kOverwrite);
      for (const float value : out) EXPECT_LE(std::fabs(value), 1e-25f) << tiny;
    }
  }
}

TEST(Tiles, NanStaysNanThroughAnExpert) {
  Random random;
  base::ThreadPool pool({.threads = 1, .pin = false});
  const Source up(random, Format::kMxfp4Pairs, 64, 32);
  const Source down(random, Format::kMxfp4Pairs, 32, 32);
  const std::vector<uint8_t> up_tiles = pack_gate_up(up.matrix, 1, 32);
  const std::vector<uint8_t> down_tiles = pack(Format::kMxfp4Tiles, down.matrix);
  for (const int place : {3, 16 + 3}) {  // a gate, an up
    std::vector<float> up_bias(64, 0.1f);
    up_bias[static_cast<size_t>(place)] = NAN;
    const std::vector<float> down_bias(32, 0.0f);
    const ExpertWeights weights{
        {up_tiles.data(), nullptr, up_bias.data(), 1, 64, 32, Format::kMxfp4Tiles, 64},
        {},
        {down_tiles.data(), nullptr, down_bias.data(), 1, 32, 32, Format::kMxfp4Tiles, 32}};
    const std::vector<float> x(32, 1.0f);
    const ExpertChoice choice{0, 1.0f};
    for (const auto& kernels : fast_kernels(pool)) {
      std::vector<float> out(32, 0.0f);
      kernels->experts(out.data(), x.data(), &choice, weights, {.experts_per_token = 1}, 1);
      for (const float value : out) EXPECT_TRUE(std::isnan(value)) << kernels->name();
    }
  }
}

}  // namespace
}  // namespace pelton::kernels
