// The bits of the kernels with 8 lanes, AVX2's and NEON's, of numbers that are the same everywhere:
// each line of the tables was written by AVX2, and a processor of either kind must give it.
// (kernels_test.cc holds all kernels against the reference within a tolerance; lanes of 8 and of 16
// add in different orders.)
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "kernels/tiles.h"
#include "kernels/weight_row.h"
#include "tensor/bits.h"
#include "tensor/compact_bf16.h"

namespace pelton::kernels {
namespace {

using tensor::DType;

#if defined(__aarch64__)
constexpr KernelChoice kEightLanes = KernelChoice::kNeon;
#else
constexpr KernelChoice kEightLanes = KernelChoice::kAvx2;
#endif

// Numbers without the library's functions, whose last bit is each library's own.
class Numbers {
 public:
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }
  int below(int bound) { return static_cast<int>(next() % static_cast<uint32_t>(bound)); }
  // In [-2, 2), mostly near 0.
  float number() {
    const auto uniform = [this] {
      return static_cast<float>(below(1 << 20) - (1 << 19)) * 0x1p-19f;
    };
    return 2.0f * uniform() * uniform() * uniform();
  }
  std::vector<float> floats(int64_t count, float scale = 1.0f) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = scale * number();
    return out;
  }
  // The same without those very near to 0: exponents lie together, as compact_bf16.h wants them.
  float even_number() {
    float sum = 0.0f;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(below(1 << 20) - (1 << 19)) * 0x1p-20f;
    return sum;
  }
  uint8_t byte() { return static_cast<uint8_t>(next() >> 24); }

 private:
  uint64_t state_ = 43;
};

// FNV-1a
class Hash {
 public:
  void add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      value_ = (value_ ^ static_cast<const uint8_t*>(data)[i]) * 1099511628211u;
    }
  }
  template <typename T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size() * sizeof(T));
  }
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value_));
    return digits;
  }

 private:
  uint64_t value_ = 14695981039346656037u;
};

struct Weights {
  std::vector<uint8_t> data;
  std::vector<uint8_t> scales;
  std::vector<float> block_scales;

  Matrix matrix(Format format, int rows, int cols) const {
    return {.data = data.data(),
            .rows = rows,
            .cols = cols,
            .format = format,
            .block_scales = {.data = block_scales.data(), .rows = 128, .cols = 128}};
  }
};

template <typename T>
void append(std::vector<uint8_t>& to, T value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

uint16_t small_half(Numbers& numbers) {
  return tensor::float_to_f16(0.001f * (1.0f + static_cast<float>(numbers.below(64)) / 32.0f));
}

void append_blocks(Numbers& numbers, DType dtype, int64_t elements, std::vector<uint8_t>& to) {
  const int64_t bytes = tensor::row_bytes(dtype, tensor::block_elements(dtype));
  const tensor::HalfPlaces halves = tensor::ggml_scales_at(dtype);
  for (int64_t i = 0; i < elements; i += tensor::block_elements(dtype)) {
    std::vector<uint8_t> block;
    for (int64_t b = 0; b < bytes; ++b) block.push_back(numbers.byte());
    for (const int at : {halves.first, halves.second}) {
      const uint16_t scale = small_half(numbers);
      if (at >= 0) std::memcpy(block.data() + at, &scale, sizeof scale);
    }
    to.insert(to.end(), block.begin(), block.end());
  }
}

// (rows, cols), or of kCompactBf16 what compact_bf16.h makes of bf16.
Weights make_weights(Numbers& numbers, Format format, int64_t rows, int64_t cols) {
  Weights out;
  const int64_t count = rows * cols;
  switch (format) {
    case Format::kF32:
      for (int64_t i = 0; i < count; ++i) append(out.data, numbers.number());
      break;
    case Format::kF16:
      for (int64_t i = 0; i < count; ++i) append(out.data, tensor::float_to_f16(numbers.number()));
      break;
    case Format::kBf16:
    case Format::kBf16Columns:
      for (int64_t i = 0; i < count; ++i) append(out.data, tensor::float_to_bf16(numbers.number()));
      break;
    case Format::kCompactBf16: {
      std::vector<uint16_t> plain;
      for (int64_t i = 0; i < count; ++i)
        plain.push_back(tensor::float_to_bf16(numbers.even_number()));
      out.data.resize(static_cast<size_t>(tensor::compact_bytes(rows, cols)));
      tensor::CompactWriter writer(plain.data(), rows, cols, out.data.data());
      writer.write_rows(0, rows);
      EXPECT_TRUE(writer.fits());
      break;
    }
    case Format::kQ8_0:
      for (int64_t i = 0; i < count / 32; ++i) {
        append(out.data, small_half(numbers));
        for (int b = 0; b < 32; ++b) out.data.push_back(numbers.byte());
      }
      break;
    case Format::kMxfp4Blocks:
      for (int64_t i = 0; i < count / 32; ++i) {
        out.data.push_back(static_cast<uint8_t>(118 + numbers.below(6)));
        for (int b = 0; b < 16; ++b) out.data.push_back(numbers.byte());
      }
      break;
    case Format::kMxfp4Pairs:
      for (int64_t i = 0; i < count / 2; ++i) out.data.push_back(numbers.byte());
      for (int64_t i = 0; i < count / 32; ++i) {
        out.scales.push_back(static_cast<uint8_t>(118 + numbers.below(6)));
      }
      break;
    case Format::kF8Blocks:
      for (int64_t i = 0; i < count; ++i) {
        out.data.push_back(static_cast<uint8_t>(numbers.below(0x7F) | numbers.below(2) << 7));
      }
      for (int64_t i = 0; i < rows * ((cols + 127) / 128); ++i) {
        out.block_scales.push_back(0.001f * (1.0f + static_cast<float>(numbers.below(64)) / 32.0f));
      }
      break;
    default:
      append_blocks(numbers, ggml_dtype(format), count, out.data);
  }
  return out;
}

// Tiles of a matrix that was made in `from`.
std::vector<uint8_t> make_tiles(Numbers& numbers, Format from, Format to, int64_t rows,
                                int64_t cols) {
  const Weights weights = make_weights(numbers, from, rows, cols);
  const StoredMatrix source{weights.data.data(), weights.scales.data(), rows, cols, from};
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  std::vector<uint8_t> out(static_cast<size_t>(tiles * tile_bytes(to, cols)) + 64);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    int64_t of_tile[kTileRows];
    for (int64_t r = 0; r < kTileRows; ++r) {
      of_tile[r] = tile * kTileRows + r < rows ? tile * kTileRows + r : -1;
    }
    pack_tile(to, source, of_tile, out.data() + tile * tile_bytes(to, cols));
  }
  return out;
}

class KernelBits : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Kernels>> made = make_kernels(kEightLanes, pool_);
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    kernels_ = std::move(made).value();
  }

  // Whether the bits are those of `lines`, in order; otherwise what they are.
  static void expect(const std::vector<std::pair<std::string, std::string>>& lines,
                     const std::vector<std::pair<std::string, Hash>>& got) {
    std::vector<std::pair<std::string, std::string>> texts;
    for (const auto& [name, hash] : got) texts.emplace_back(name, hash.text());
    EXPECT_EQ(lines, texts);
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::unique_ptr<Kernels> kernels_;
  Numbers numbers_;
};

// Written by AVX2. A line is what is computed and the hash of its results.
const std::vector<std::pair<std::string, std::string>> kProducts = {
    {"f32", "f50e1a68bf88a21c"},    {"f16", "70a725aae86472e6"},
    {"bf16", "865349745f5a18de"},   {"bf16-12", "4da3fc1e4cf2d5fb"},
    {"f8", "679c6feadfce962d"},     {"q8_0", "4100d89766d3b33f"},
    {"q4_0", "39708acb9c3f2267"},   {"q4_1", "44fcbe3b4e4292e2"},
    {"q5_0", "9aa19e9415aa830b"},   {"q5_1", "46db762bac799518"},
    {"q2_k", "b15d073da3b411eb"},   {"q3_k", "89368320d51f496a"},
    {"q4_k", "b38d8778b15bdac6"},   {"q5_k", "7d986ec4be352415"},
    {"q6_k", "781e01b5fcad7e60"},   {"iq4_nl", "46aec5f872cbab64"},
    {"iq4_xs", "edccf5634971d70d"}, {"uneven", "0a6e4273c8d41ff7"}};
const std::vector<std::pair<std::string, std::string>> kProductsOfTiles = {
    {"int8", "0ff82c7e2aac6005"}, {"int4", "053197ba908a4c4a"}, {"mxfp4", "c5fbf7f8470dcf87"}};
const std::vector<std::pair<std::string, std::string>> kExpertBits = {
    {"pairs", "650d1c4e74ae1df2"},
    {"blocks", "17ccf1916cad0f09"},
    {"columns", "1759307c23d41f1a"},
    {"tiles", "009e3562e591e1ca"}};
const std::vector<std::pair<std::string, std::string>> kAttention = {{"f32", "24aa93ba4a364ec7"},
                                                                     {"f16", "79ecddfe0e67f52a"},
                                                                     {"bf16", "c02023f6b199f52a"},
                                                                     {"fp8", "01b54f637dc04af2"},
                                                                     {"int8", "5056d72bd7bfbe1d"}};
const std::vector<std::pair<std::string, std::string>> kLatentAttention = {
    {"bf16", "209fcd303df7ff63"}, {"fp8", "ca5bbef82297ed91"}};
const std::vector<std::pair<std::string, std::string>> kRowBits = {
    {"rms_norm", "b698f37c7393db7b"},   {"add_rms_norm", "07c7a0f98ea14c58"},
    {"add_scaled", "9b491d9fb32a11ba"}, {"layer_norm", "39e700ecd25566b4"},
    {"gelu", "3e5e4ad269020566"},       {"gelu_tanh", "4073c818a4537463"},
    {"relu", "4c85388fd90aed86"},       {"swiglu", "703e1e1a297be3d9"},
    {"clamped", "0c90179d4beae500"},    {"geglu", "318c099f92aeafa9"},
    {"rotate", "de6be43371859838"},     {"low_rank", "abece64bb63bbc19"}};

using Lines = std::vector<std::pair<std::string, Hash>>;

TEST_F(KernelBits, Products) {
  constexpr std::pair<const char*, Format> kFormats[] = {
      {"f32", Format::kF32},     {"f16", Format::kF16},
      {"bf16", Format::kBf16},   {"bf16-12", Format::kCompactBf16},
      {"f8", Format::kF8Blocks}, {"q8_0", Format::kQ8_0},
      {"q4_0", Format::kQ4_0},   {"q4_1", Format::kQ4_1},
      {"q5_0", Format::kQ5_0},   {"q5_1", Format::kQ5_1},
      {"q2_k", Format::kQ2_K},   {"q3_k", Format::kQ3_K},
      {"q4_k", Format::kQ4_K},   {"q5_k", Format::kQ5_K},
      {"q6_k", Format::kQ6_K},   {"iq4_nl", Format::kIq4Nl},
      {"iq4_xs", Format::kIq4Xs}};
  Lines got;
  for (const auto& [name, format] : kFormats) {
    constexpr int kRows = 37;
    constexpr int kCols = 512;
    const Weights weights = make_weights(numbers_, format, kRows, kCols);
    const auto bias = numbers_.floats(kRows);
    Hash hash;
    for (const int tokens : {1, 5, 53}) {
      const auto x = numbers_.floats(int64_t{tokens} * kCols);
      std::vector<float> out(static_cast<size_t>(tokens) * kRows);
      kernels_->linear(out.data(), x.data(), {weights.matrix(format, kRows, kCols), bias.data()},
                       tokens, Kernels::Output::kOverwrite);
      hash.add(out);
    }
    uint64_t marks = 0x1248105421;
    std::vector<float> picked(kRows, 0.0f);
    const auto x = numbers_.floats(kCols);
    kernels_->linear_marked(picked.data(), x.data(), weights.matrix(format, kRows, kCols), &marks,
                            1);
    hash.add(picked);
    got.emplace_back(name, hash);
  }
  // Rows that end within a block.
  const Weights uneven = make_weights(numbers_, Format::kBf16, 9, 77);
  const auto x = numbers_.floats(77 * 6);
  std::vector<float> out(9 * 6);
  kernels_->linear(out.data(), x.data(), {uneven.matrix(Format::kBf16, 9, 77)}, 6,
                   Kernels::Output::kOverwrite);
  Hash hash;
  hash.add(out);
  got.emplace_back("uneven", hash);
  expect(kProducts, got);
}

TEST_F(KernelBits, ProductsOfTiles) {
  constexpr std::tuple<const char*, Format, Format> kWays[] = {
      {"int8", Format::kBf16, Format::kInt8Tiles},
      {"int4", Format::kBf16, Format::kInt4Tiles},
      {"mxfp4", Format::kMxfp4Pairs, Format::kMxfp4Tiles}};
  Lines got;
  for (const auto& [name, from, to] : kWays) {
    constexpr int kRows = 77;
    constexpr int kCols = 352;
    const auto tiles = make_tiles(numbers_, from, to, kRows, kCols);
    Hash hash;
    for (const Activations activations : {Activations::kInt8, Activations::kInt16}) {
      for (const int tokens : {1, 2, 3, 5, 8, 33}) {
        const auto x = numbers_.floats(int64_t{tokens} * kCols);
        std::vector<float> out(static_cast<size_t>(tokens) * kRows);
        kernels_->linear(out.data(), x.data(), {{tiles.data(), kRows, kCols, to, activations}},
                         tokens, Kernels::Output::kOverwrite);
        hash.add(out);
      }
    }
    got.emplace_back(name, hash);
  }
  expect(kProductsOfTiles, got);
}

TEST_F(KernelBits, Experts) {
  constexpr std::pair<const char*, Format> kFormats[] = {{"pairs", Format::kMxfp4Pairs},
                                                         {"blocks", Format::kMxfp4Blocks},
                                                         {"columns", Format::kBf16Columns},
                                                         {"tiles", Format::kMxfp4Tiles}};
  constexpr int kExperts = 3;
  constexpr int kHidden = 160;
  constexpr int kInner = 96;
  constexpr int kTokens = 11;
  Lines got;
  for (const auto& [name, format] : kFormats) {
    const bool tiled = format == Format::kMxfp4Tiles;
    const auto make = [&, format = format](int rows, int cols) {
      if (!tiled) return make_weights(numbers_, format, kExperts * rows, cols);
      return Weights{.data =
                         make_tiles(numbers_, Format::kMxfp4Pairs, format, kExperts * rows, cols)};
    };
    const Weights up = make(2 * kInner, kHidden);
    const Weights down = make(kHidden, kInner);
    const auto up_bias = numbers_.floats(kExperts * 2 * kInner);
    const auto down_bias = numbers_.floats(kExperts * kHidden);
    const ExpertWeights weights{{up.data.data(), up.scales.data(), up_bias.data(), kExperts,
                                 2 * kInner, kHidden, format, 2 * kInner},
                                {},
                                {down.data.data(), down.scales.data(), down_bias.data(), kExperts,
                                 kHidden, kInner, format, kHidden}};
    const auto x = numbers_.floats(kTokens * kHidden);
    const auto logits = numbers_.floats(kTokens * kExperts);
    std::vector<ExpertChoice> choices(kTokens * 2);
    kernels_->route(choices.data(), logits.data(), kTokens, {.experts = kExperts, .k = 2});
    std::vector<float> out(kTokens * kHidden, 0.25f);
    kernels_->experts(out.data(), x.data(), choices.data(), weights, {.experts_per_token = 2},
                      kTokens);
    Hash hash;
    for (const ExpertChoice& choice : choices) hash.add(&choice.weight, sizeof choice.weight);
    hash.add(out);
    got.emplace_back(name, hash);
  }
  expect(kExpertBits, got);
}

TEST_F(KernelBits, Attention) {
  constexpr std::pair<const char*, DType> kTypes[] = {{"f32", DType::kF32},
                                                      {"f16", DType::kF16},
                                                      {"bf16", DType::kBf16},
                                                      {"fp8", DType::kF8E4m3},
                                                      {"int8", DType::kI8}};
  constexpr int kHeads = 10;
  constexpr int kKvHeads = 2;
  constexpr int kKeys = 293;
  Lines got;
  for (const auto& [name, type] : kTypes) {
    Hash hash;
    for (const int size : {64, 40, 20}) {
      KvLayer layer{.dtype = type, .kv_heads = kKvHeads, .head_size = size};
      constexpr int kBlocks = (kKeys + 15) / 16;
      std::vector<uint8_t> cache(static_cast<size_t>(layer.block_bytes() * kBlocks));
      layer.data = cache.data();
      std::vector<int32_t> table;
      for (int b = 0; b < kBlocks; ++b) table.push_back(kBlocks - 1 - b);
      const auto k = numbers_.floats(int64_t{kKeys} * kKvHeads * size);
      const auto v = numbers_.floats(int64_t{kKeys} * kKvHeads * size);
      const SequenceRows all{
          .row_begin = 0, .row_count = kKeys, .start = 0, .blocks = table.data()};
      kernels_->store_kv(layer, k.data(), v.data(), int64_t{kKvHeads} * size, &all, 1);
      hash.add(cache);
      constexpr int kRows = 3;
      const auto q = numbers_.floats(int64_t{kRows} * kHeads * size, 4.0f);
      const auto sinks = numbers_.floats(kHeads);
      const SequenceRows last{
          .row_begin = 0, .row_count = kRows, .start = kKeys - kRows, .blocks = table.data()};
      for (const int window : {0, 100}) {
        const AttentionShape shape{.heads = kHeads,
                                   .kv_heads = kKvHeads,
                                   .head_size = size,
                                   .window = window,
                                   .sinks = window == 0 ? nullptr : sinks.data(),
                                   .scale = 0.125f,
                                   .softcap = window == 0 ? 0.0f : 30.0f};
        std::vector<float> out(static_cast<size_t>(kRows) * kHeads * size);
        kernels_->attention(out.data(), q.data(), int64_t{kHeads} * size, layer, shape, &last, 1);
        hash.add(out);
      }
    }
    got.emplace_back(name, hash);
  }
  expect(kAttention, got);
}

TEST_F(KernelBits, LatentAttention) {
  Lines got;
  for (const auto& [name, type] :
       {std::pair{"bf16", DType::kBf16}, std::pair{"fp8", DType::kF8E4m3}}) {
    const LatentShape shape{.heads = 6, .rank = 64, .rope_size = 16, .scale = 0.1f};
    KvLayer layer{.dtype = type, .kv_heads = 1, .head_size = shape.width(), .latent = true};
    constexpr int kKeys = 75;
    constexpr int32_t kTable[] = {4, 1, 3, 0, 2};
    std::vector<uint8_t> cache(static_cast<size_t>(layer.block_bytes() * 5));
    layer.data = cache.data();
    const auto rows = numbers_.floats(int64_t{kKeys} * shape.width());
    const SequenceRows all{.row_count = kKeys, .blocks = kTable};
    kernels_->store_latent(layer, rows.data(), shape.width(), &all, 1);
    const auto q = numbers_.floats(int64_t{2} * shape.heads * shape.width(), 2.0f);
    std::vector<float> out(static_cast<size_t>(2) * shape.heads * shape.rank);
    const SequenceRows last{.row_count = 2, .start = kKeys - 2, .blocks = kTable};
    kernels_->latent_attention(out.data(), q.data(), layer, shape, &last, 1);
    Hash hash;
    hash.add(cache);
    hash.add(out);
    got.emplace_back(name, hash);
  }
  expect(kLatentAttention, got);
}

TEST_F(KernelBits, Rows) {
  constexpr int kTokens = 3;
  constexpr int kHidden = 93;
  const auto x = numbers_.floats(kTokens * kHidden);
  const auto weight = numbers_.floats(kHidden);
  const auto bias = numbers_.floats(kHidden);
  Lines got;
  const auto of = [&](const char* name, const auto& body) {
    std::vector<float> out(x.size(), 0.5f);
    body(out.data());
    Hash hash;
    hash.add(out);
    got.emplace_back(name, hash);
  };
  of("rms_norm", [&](float* out) {
    kernels_->rms_norm(out, x.data(), weight.data(), kTokens, kHidden, 1e-5f);
  });
  of("add_rms_norm", [&](float* out) {
    kernels_->add_rms_norm(out, x.data(), weight.data(), kTokens, kHidden, 1e-5f);
  });
  of("add_scaled",
     [&](float* out) { kernels_->add_scaled(out, x.data(), 0.3f, kTokens, kHidden); });
  of("layer_norm", [&](float* out) {
    kernels_->layer_norm(out, x.data(), weight.data(), bias.data(), kTokens, kHidden, 1e-5f);
  });
  for (const auto& [name, kind] :
       {std::pair{"gelu", ActivationKind::kGelu}, std::pair{"gelu_tanh", ActivationKind::kGeluTanh},
        std::pair{"relu", ActivationKind::kRelu}}) {
    of(name, [&, kind = kind](float* out) {
      std::memcpy(out, x.data(), x.size() * sizeof(float));
      kernels_->activate(out, kTokens * kHidden, kind);
    });
  }
  const auto gates = numbers_.floats(kTokens * 64, 3.0f);
  const auto ups = numbers_.floats(kTokens * 64, 3.0f);
  for (const auto& [name, kind] : {std::pair{"swiglu", GluShape::Kind::kSwiglu},
                                   std::pair{"clamped", GluShape::Kind::kClampedSwiglu},
                                   std::pair{"geglu", GluShape::Kind::kGegluTanh}}) {
    of(name, [&, kind = kind](float* out) {
      std::memcpy(out, gates.data(), gates.size() * sizeof(float));
      kernels_->glu(out, ups.data(), kTokens * 64, {.kind = kind});
    });
  }
  const auto turns = numbers_.floats(kTokens * 16);
  of("rotate", [&](float* out) {
    std::memcpy(out, x.data(), x.size() * sizeof(float));
    kernels_->rotate(out, kHidden, turns.data(), kTokens,
                     {.heads = 3, .head_stride = 30, .size = 16});
  });
  const auto a = make_weights(numbers_, Format::kBf16, 5, 64);
  const auto b = make_weights(numbers_, Format::kBf16, 5, kHidden);
  const LowRank adapter{.a = a.data.data(),
                        .b = b.data.data(),
                        .rank = 5,
                        .rows = kHidden,
                        .cols = 64,
                        .scale = 0.7f};
  constexpr int32_t kAdapted[] = {0, 2};
  const AdaptedRows rows{&adapter, kAdapted, 2};
  of("low_rank", [&](float* out) { kernels_->add_low_rank(out, kHidden, gates.data(), &rows, 1); });
  expect(kRowBits, got);
}

}  // namespace
}  // namespace pelton::kernels
