// Fast kernels against the reference on fresh random inputs, and the promise that binds them all: a
// row's result is the same bits whatever batch, chunk or thread count it is computed in.
#include "kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "base/check.h"
#include "kernels/weight_row.h"
#include "tensor/bits.h"

namespace pelton::kernels {
namespace {

using tensor::DType;

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
  std::vector<float> floats(int64_t count, float scale) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = scale * normal();
    return out;
  }
  std::vector<uint8_t> bytes(int64_t count, int low, int high) {
    std::vector<uint8_t> out(static_cast<size_t>(count));
    for (uint8_t& x : out) x = static_cast<uint8_t>(low + below(high - low + 1));
    return out;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

// A random matrix of that format, and room for its bytes. Rows of all experts lie one after the
// other.
struct Stored {
  std::vector<uint8_t> data;
  std::vector<uint8_t> scales;
  std::vector<float> block_scales;
  int scale_rows = 128;  // as DeepSeek publishes them; otherwise a scale has whole rows

  Matrix matrix(Format format, int rows, int cols) const {
    return {.data = data.data(),
            .rows = rows,
            .cols = cols,
            .format = format,
            .block_scales = {.data = block_scales.data(),
                             .rows = scale_rows,
                             .cols = scale_rows == 128 ? 128 : cols}};
  }
};

template <typename T>
void append(std::vector<uint8_t>& to, T value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

// Any codes, with scales of a sensible size.
void append_ggml_blocks(Random& random, DType dtype, int64_t elements, std::vector<uint8_t>& to) {
  const int64_t bytes = tensor::row_bytes(dtype, tensor::block_elements(dtype));
  const tensor::HalfPlaces halves = tensor::ggml_scales_at(dtype);
  for (int64_t i = 0; i < elements; i += tensor::block_elements(dtype)) {
    std::vector<uint8_t> block = random.bytes(bytes, 0, 255);
    for (const int at : {halves.first, halves.second}) {
      const uint16_t scale = tensor::float_to_f16(0.001f * (1.0f + std::fabs(random.normal())));
      if (at >= 0) std::memcpy(block.data() + at, &scale, sizeof scale);
    }
    to.insert(to.end(), block.begin(), block.end());
  }
}

Stored random_stored(Random& random, Format format, int64_t rows, int64_t cols) {
  Stored out;
  const int64_t groups = rows * (cols / 32);
  switch (format) {
    case Format::kF32:
      for (int64_t i = 0; i < rows * cols; ++i) append(out.data, 0.1f * random.normal());
      break;
    case Format::kF16:
      for (int64_t i = 0; i < rows * cols; ++i) {
        append(out.data, tensor::float_to_f16(0.1f * random.normal()));
      }
      break;
    case Format::kBf16:
    case Format::kBf16Columns:
      for (int64_t i = 0; i < rows * cols; ++i) {
        append(out.data, tensor::float_to_bf16(0.1f * random.normal()));
      }
      break;
    case Format::kQ8_0:
      for (int64_t i = 0; i < groups; ++i) {
        append(out.data, tensor::float_to_f16(0.001f * (1.0f + std::fabs(random.normal()))));
        for (const uint8_t byte : random.bytes(32, 0, 255)) out.data.push_back(byte);
      }
      break;
    case Format::kMxfp4Blocks:
      for (int64_t i = 0; i < groups; ++i) {
        out.data.push_back(random.bytes(1, 118, 123)[0]);
        for (const uint8_t byte : random.bytes(16, 0, 255)) out.data.push_back(byte);
      }
      break;
    case Format::kMxfp4Pairs:
      out.data = random.bytes(groups * 16, 0, 255);
      out.scales = random.bytes(groups, 118, 123);
      break;
    case Format::kF8Blocks:
      for (int64_t i = 0; i < rows * cols; ++i) {
        out.data.push_back(
            static_cast<uint8_t>(random.below(0x7F) | (random.below(2) == 0 ? 0 : 0x80)));
      }
      if (random.below(2) == 0) out.scale_rows = random.below(2) == 0 ? 1 : static_cast<int>(rows);
      for (int64_t i = 0; i < rows * ((cols + 127) / 128); ++i) {  // enough for any
        out.block_scales.push_back(0.001f * (1.0f + std::fabs(random.normal())));
      }
      break;
    case Format::kInt8Tiles:
    case Format::kMxfp4Tiles:
    case Format::kInt4Tiles:
      CHECK(false, "tiles_test.cc does these");
      break;
    default:
      append_ggml_blocks(random, ggml_dtype(format), rows * cols, out.data);
  }
  return out;
}

struct RandomExperts {
  RandomExperts(Random& random, Format format, int experts, int rows, int cols)
      : stored(random_stored(random, format, int64_t{experts} * rows, cols)),
        bias(random.floats(int64_t{experts} * rows, 0.3f)),
        view{stored.data.data(),
             format == Format::kMxfp4Pairs ? stored.scales.data() : nullptr,
             bias.data(),
             experts,
             rows,
             cols,
             format,
             rows} {}

  Stored stored;
  std::vector<float> bias;
  Experts view;
};

// The same weights in GGUF's nibble order.
std::vector<uint8_t> as_blocks(const Stored& pairs) {
  std::vector<uint8_t> out;
  for (size_t group = 0; group < pairs.scales.size(); ++group) {
    uint8_t codes[32];
    for (int b = 0; b < 16; ++b) {
      codes[2 * b] = pairs.data[group * 16 + b] & 15;
      codes[2 * b + 1] = pairs.data[group * 16 + b] >> 4;
    }
    out.push_back(pairs.scales[group]);
    for (int j = 0; j < 16; ++j) {
      out.push_back(static_cast<uint8_t>(codes[j] | codes[j + 16] << 4));
    }
  }
  return out;
}

constexpr Format kLinearFormats[] = {Format::kBf16, Format::kF32, Format::kF16, Format::kQ8_0,
                                     Format::kF8Blocks};
constexpr Format kExpertFormats[] = {Format::kMxfp4Pairs,  Format::kMxfp4Blocks, Format::kBf16,
                                     Format::kBf16Columns, Format::kQ8_0,        Format::kF32,
                                     Format::kF16};

double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
  double difference = 0;
  double norm = 1e-30;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
    norm += double{exact[i]} * exact[i];
  }
  return std::sqrt(difference / norm);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class KernelsTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Kernels>> made = make_kernels(GetParam(), pool_);
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    fast_ = std::move(made).value();
    alone_ = std::move(make_kernels(GetParam(), one_)).value();
    exact_ = std::move(make_kernels(KernelChoice::kReference, pool_)).value();
  }

  base::ThreadPool pool_{{.threads = 3, .pin = false}};
  base::ThreadPool one_{{.threads = 1, .pin = false}};
  std::unique_ptr<Kernels> fast_;
  std::unique_ptr<Kernels> alone_;  // the same kernels on one thread
  std::unique_ptr<Kernels> exact_;
  Random random_;
};

TEST_P(KernelsTest, LinearMatchesAndIsBatchInvariant) {
  for (int round = 0; round < 24; ++round) {
    const int cols = 32 * (1 + random_.below(12));
    const int rows = 1 + random_.below(150);
    const int tokens = 1 + random_.below(round % 3 == 0 ? 120 : 14);
    const Format format = kLinearFormats[round / 2 % std::size(kLinearFormats)];
    const Stored weight = random_stored(random_, format, rows, cols);
    const auto bias = random_.floats(rows, 1.0f);
    const auto x = random_.floats(int64_t{tokens} * cols, 1.0f);
    const Linear linear{weight.matrix(format, rows, cols), round % 2 == 0 ? bias.data() : nullptr};
    std::vector<float> got(static_cast<size_t>(tokens) * rows, 0.5f);
    std::vector<float> exact = got;
    std::vector<float> single = got;
    const auto output = round % 4 == 0 ? Kernels::Output::kAccumulate : Kernels::Output::kOverwrite;
    fast_->linear(got.data(), x.data(), linear, tokens, output);
    exact_->linear(exact.data(), x.data(), linear, tokens, output);
    EXPECT_LT(relative_error(got, exact), 1e-6) << rows << "x" << cols << " tokens " << tokens;
    for (int t = 0; t < tokens; ++t) {
      alone_->linear(single.data() + int64_t{t} * rows, x.data() + int64_t{t} * cols, linear, 1,
                     output);
    }
    EXPECT_TRUE(same_bits(got, single)) << rows << "x" << cols << " tokens " << tokens;
  }
}

// GGUF's other blocks: rows of whole super-blocks.
TEST_P(KernelsTest, GgmlBlocksMatchAndAreBatchInvariant) {
  for (int f = static_cast<int>(Format::kQ4_0); f <= static_cast<int>(Format::kIq4Xs); ++f) {
    const auto format = static_cast<Format>(f);
    const int cols = 256 * (1 + random_.below(3));
    const int rows = 1 + random_.below(70);
    const int tokens = 1 + random_.below(70);
    const Stored weight = random_stored(random_, format, rows, cols);
    const Linear linear{weight.matrix(format, rows, cols), nullptr};
    const auto x = random_.floats(int64_t{tokens} * cols, 1.0f);
    std::vector<float> got(static_cast<size_t>(tokens) * rows);
    std::vector<float> exact = got;
    std::vector<float> single = got;
    fast_->linear(got.data(), x.data(), linear, tokens, Kernels::Output::kOverwrite);
    exact_->linear(exact.data(), x.data(), linear, tokens, Kernels::Output::kOverwrite);
    EXPECT_LT(relative_error(got, exact), 2e-6) << f;
    for (int64_t t = 0; t < tokens; ++t) {
      alone_->linear(single.data() + t * rows, x.data() + t * cols, linear, 1,
                     Kernels::Output::kOverwrite);
    }
    EXPECT_TRUE(same_bits(got, single)) << f;
  }
}

TEST_P(KernelsTest, ExpertsMatchAndAreBatchInvariant) {
  for (int round = 0; round < 21; ++round) {
    const Format format = kExpertFormats[round % std::size(kExpertFormats)];
    const bool interleaved = round < 14;
    const int hidden = 32 * (1 + random_.below(5));
    const int inner = 32 * (1 + random_.below(5));
    const int experts = 4 + random_.below(5);
    const int k = 1 + random_.below(4);
    const int tokens = 1 + random_.below(round % 4 == 0 ? 150 : 20);
    const RandomExperts gate(random_, format, experts, interleaved ? 2 * inner : inner, hidden);
    const RandomExperts up(random_, format, experts, inner, hidden);
    const RandomExperts down(random_, round % 3 == 0 ? Format::kQ8_0 : format, experts, hidden,
                             inner);
    const ExpertWeights weights{gate.view, interleaved ? Experts{} : up.view, down.view};
    const auto x = random_.floats(int64_t{tokens} * hidden, 3.0f);
    const auto router = random_.floats(int64_t{tokens} * experts, 1.0f);
    std::vector<ExpertChoice> choices(static_cast<size_t>(tokens) * k);
    fast_->route(choices.data(), router.data(), tokens, {.experts = experts, .k = k});

    const MoeShape shape{.experts_per_token = k};
    std::vector<float> got = random_.floats(int64_t{tokens} * hidden, 1.0f);
    std::vector<float> exact = got;
    std::vector<float> single = got;
    fast_->experts(got.data(), x.data(), choices.data(), weights, shape, tokens);
    exact_->experts(exact.data(), x.data(), choices.data(), weights, shape, tokens);
    EXPECT_LT(relative_error(got, exact), 2e-6) << "format " << static_cast<int>(format);
    for (int t = 0; t < tokens; ++t) {
      alone_->experts(single.data() + int64_t{t} * hidden, x.data() + int64_t{t} * hidden,
                      choices.data() + int64_t{t} * k, weights, shape, 1);
    }
    EXPECT_TRUE(same_bits(got, single)) << "format " << static_cast<int>(format);
  }
}

// Experts that lie apart, without biases, give what they give in one piece.
TEST_P(KernelsTest, ExpertsApartGiveTheSameBits) {
  const int hidden = 96;
  const int inner = 64;
  const int experts = 5;
  const int tokens = 23;
  const RandomExperts gate(random_, Format::kBf16, experts, inner, hidden);
  const RandomExperts up(random_, Format::kBf16, experts, inner, hidden);
  const RandomExperts down(random_, Format::kBf16, experts, hidden, inner);
  ExpertWeights whole{gate.view, up.view, down.view};
  ExpertWeights parts = whole;
  std::vector<ExpertMatrix> places[3];
  Experts* const views[] = {&parts.gate, &parts.up, &parts.down};
  Experts* const wholes[] = {&whole.gate, &whole.up, &whole.down};
  for (int i = 0; i < 3; ++i) {
    for (int e = 0; e < experts; ++e) places[i].push_back({expert_matrix(*views[i], e).data});
    views[i]->data = nullptr;
    views[i]->apart = places[i].data();
    wholes[i]->bias = views[i]->bias = nullptr;
  }
  const auto x = random_.floats(int64_t{tokens} * hidden, 2.0f);
  std::vector<ExpertChoice> choices;
  for (int i = 0; i < 2 * tokens; ++i)
    choices.push_back({random_.below(experts), random_.normal()});
  const MoeShape shape{.experts_per_token = 2, .glu = {.kind = GluShape::Kind::kSwiglu}};
  std::vector<float> got(x.size());
  std::vector<float> same(x.size());
  std::vector<float> exact(x.size());
  fast_->experts(got.data(), x.data(), choices.data(), parts, shape, tokens);
  fast_->experts(same.data(), x.data(), choices.data(), whole, shape, tokens);
  exact_->experts(exact.data(), x.data(), choices.data(), parts, shape, tokens);
  EXPECT_TRUE(same_bits(got, same));
  EXPECT_LT(relative_error(got, exact), 2e-6);
}

// One model in Hugging Face's and in GGUF's layout: other bytes, other order, the same result.
TEST_P(KernelsTest, BothMxfp4OrdersGiveTheSameBits) {
  const int hidden = 96;
  const int inner = 64;
  const int experts = 5;
  const int tokens = 23;
  const RandomExperts both(random_, Format::kMxfp4Pairs, experts, 2 * inner, hidden);
  const RandomExperts down(random_, Format::kMxfp4Pairs, experts, hidden, inner);
  const std::vector<uint8_t> both_blocks = as_blocks(both.stored);
  const std::vector<uint8_t> down_blocks = as_blocks(down.stored);
  const size_t row = static_cast<size_t>(row_bytes(Format::kMxfp4Blocks, hidden));
  std::vector<uint8_t> half_data[2];
  std::vector<float> half_bias[2];
  for (size_t r = 0; r < both.bias.size(); ++r) {
    half_data[r % 2].insert(half_data[r % 2].end(), both_blocks.data() + r * row,
                            both_blocks.data() + (r + 1) * row);
    half_bias[r % 2].push_back(both.bias[r]);
  }
  const auto half = [&](int i) {
    return Experts{half_data[i].data(),  nullptr, half_bias[i].data(), experts, inner, hidden,
                   Format::kMxfp4Blocks, inner};
  };
  const Experts down_view{down_blocks.data(),   nullptr, down.bias.data(), experts, hidden, inner,
                          Format::kMxfp4Blocks, hidden};
  const auto x = random_.floats(int64_t{tokens} * hidden, 2.0f);
  std::vector<ExpertChoice> choices;
  for (int i = 0; i < 2 * tokens; ++i) {
    choices.push_back({random_.below(experts), random_.normal()});
  }
  std::vector<float> pairs(x.size());
  std::vector<float> blocks(x.size());
  const MoeShape shape{.experts_per_token = 2};
  fast_->experts(pairs.data(), x.data(), choices.data(), {both.view, {}, down.view}, shape, tokens);
  fast_->experts(blocks.data(), x.data(), choices.data(), {half(0), half(1), down_view}, shape,
                 tokens);
  EXPECT_TRUE(same_bits(pairs, blocks));
}

TEST_P(KernelsTest, EmbeddingReadsEveryFormat) {
  for (const Format format : kLinearFormats) {
    const Stored table = random_stored(random_, format, 9, 64);
    const TokenId tokens[] = {8, 0, 3};
    std::vector<float> got(3 * 64);
    const Matrix matrix = table.matrix(format, 9, 64);
    fast_->embed(got.data(), tokens, 3, matrix);
    std::vector<float> row(64);
    for (int t = 0; t < 3; ++t) {
      read_weight_row(pelton::kernels::stored(matrix), tokens[t], row.data());
      EXPECT_TRUE(std::equal(row.begin(), row.end(), got.begin() + 64 * t));
    }
  }
}

// The worked block of docs/formats/gpt_oss.md: Hugging Face's bytes and GGUF's.
TEST(WeightRow, BothOrdersOfThePublishedBlock) {
  const uint8_t pairs[] = {0xbf, 0x2c, 0xe0, 0x37, 0x53, 0xc9, 0xbd, 0xfa,
                           0x0f, 0xf0, 0x16, 0x9d, 0xc9, 0x57, 0x56, 0x74};
  const uint8_t blocks[] = {0x6e, 0xff, 0x0b, 0x0c, 0xf2, 0x60, 0x1e, 0xd7, 0x93,
                            0x93, 0xc5, 0x79, 0x5c, 0x6d, 0x5b, 0x4a, 0x7f};
  const uint8_t scale = 0x6e;
  float from_pairs[32];
  float from_blocks[32];
  read_weight_row({pairs, &scale, 1, 32, Format::kMxfp4Pairs}, 0, from_pairs);
  read_weight_row({blocks, nullptr, 1, 32, Format::kMxfp4Blocks}, 0, from_blocks);
  EXPECT_EQ(from_pairs[0], -4.57763671875e-05f);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(from_pairs[i], from_blocks[i]) << i;
}

TEST(WeightRow, Q8_0IsScaleTimesByte) {
  uint8_t block[34] = {};
  const uint16_t half = tensor::float_to_f16(0.5f);
  std::memcpy(block, &half, 2);
  block[2] = 3;
  block[33] = 0x80;  // -128
  float row[32];
  read_weight_row({block, nullptr, 1, 32, Format::kQ8_0}, 0, row);
  EXPECT_EQ(row[0], 1.5f);
  EXPECT_EQ(row[1], 0.0f);
  EXPECT_EQ(row[31], -64.0f);
}

TEST_P(KernelsTest, RouterTakesTheLargestAndTheLowerOfEquals) {
  for (int round = 0; round < 50; ++round) {
    const int experts = 4 + random_.below(124);
    const int k = 1 + random_.below(4);
    std::vector<float> logits(static_cast<size_t>(experts));
    for (float& x : logits) x = static_cast<float>(random_.below(12));  // many ties
    std::vector<ExpertChoice> got(static_cast<size_t>(k));
    std::vector<ExpertChoice> exact(static_cast<size_t>(k));
    fast_->route(got.data(), logits.data(), 1, {.experts = experts, .k = k});
    exact_->route(exact.data(), logits.data(), 1, {.experts = experts, .k = k});
    for (int j = 0; j < k; ++j) {
      EXPECT_EQ(got[j].expert, exact[j].expert);
      EXPECT_NEAR(got[j].weight, exact[j].weight, 1e-6);
    }
  }
}

// docs/formats: the reference's own example (g = [0.1,-0.3,2,1.5,0,1,-2,0.9]).
TEST_P(KernelsTest, RouterReproducesThePublishedExample) {
  const std::vector<float> logits = {0.1f, -0.3f, 2.0f, 1.5f, 0.0f, 1.0f, -2.0f, 0.9f};
  std::vector<ExpertChoice> got(4);
  fast_->route(got.data(), logits.data(), 1, {.experts = 8, .k = 4});
  const int experts[] = {2, 3, 5, 7};
  const double weights[] = {0.43341055, 0.26287678, 0.15944283, 0.14426984};
  for (int j = 0; j < 4; ++j) {
    EXPECT_EQ(got[j].expert, experts[j]);
    EXPECT_NEAR(got[j].weight, weights[j], 1e-6);
  }
}

TEST_P(KernelsTest, NormAndRotationMatch) {
  const int tokens = 37;
  const int hidden = 96;
  const auto x = random_.floats(int64_t{tokens} * hidden, 5.0f);
  const auto weight = random_.floats(hidden, 1.0f);
  std::vector<float> got(x.size());
  std::vector<float> exact(x.size());
  fast_->rms_norm(got.data(), x.data(), weight.data(), tokens, hidden, 1e-5f);
  exact_->rms_norm(exact.data(), x.data(), weight.data(), tokens, hidden, 1e-5f);
  EXPECT_LT(relative_error(got, exact), 1e-6);

  const auto tables = random_.floats(int64_t{tokens} * 32, 1.0f);
  got = x;
  exact = x;
  for (const auto pairs : {RotaryShape::Pairs::kHalves, RotaryShape::Pairs::kNeighbours}) {
    for (const int size : {32, 24}) {  // whole heads, and a part of each
      const RotaryShape shape{.heads = 3, .head_stride = 32, .size = size, .pairs = pairs};
      fast_->rotate(got.data(), hidden, tables.data(), tokens, shape);
      exact_->rotate(exact.data(), hidden, tables.data(), tokens, shape);
      EXPECT_LT(relative_error(got, exact), 1e-6);
    }
  }

  fast_->add_rms_norm(got.data(), x.data(), weight.data(), tokens, hidden, 1e-5f);
  exact_->add_rms_norm(exact.data(), x.data(), weight.data(), tokens, hidden, 1e-5f);
  EXPECT_LT(relative_error(got, exact), 1e-6);
}

// Two heads of four elements, a quarter turn of every pair: (a, b) becomes (-b, a).
TEST_P(KernelsTest, NeighboursTurnTogether) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> quarter = {0, 0, 1, 1};  // two cosines, two sines
  const RotaryShape shape{
      .heads = 2, .head_stride = 4, .size = 4, .pairs = RotaryShape::Pairs::kNeighbours};
  for (Kernels* kernels : {fast_.get(), exact_.get()}) {
    std::vector<float> rotated = x;
    kernels->rotate(rotated.data(), 8, quarter.data(), 1, shape);
    EXPECT_EQ(rotated, (std::vector<float>{-2, 1, -4, 3, -6, 5, -8, 7}));
  }
}

// Each head by itself, and what lies between the heads of two rows untouched.
TEST_P(KernelsTest, HeadNormMatches) {
  const int tokens = 23;
  const int heads = 3;
  for (const int head_size : {64, 72, 100, 6}) {
    const int64_t stride = 5 * head_size;
    const auto weight = random_.floats(head_size, 1.0f);
    const auto x = random_.floats(tokens * stride, 5.0f);
    std::vector<float> got = x;
    std::vector<float> exact = x;
    fast_->rms_norm_heads(got.data(), stride, weight.data(), tokens, heads, head_size, 1e-6f);
    exact_->rms_norm_heads(exact.data(), stride, weight.data(), tokens, heads, head_size, 1e-6f);
    EXPECT_LT(relative_error(got, exact), 1e-6) << head_size;
    for (int64_t i = 0; i < tokens * stride; ++i) {
      if (i % stride < int64_t{heads} * head_size) continue;
      EXPECT_EQ(got[i], x[i]) << i;
    }
  }
}

// A projection from heads of 24, 72 or 100 elements: what lies behind a row's last 32 columns.
TEST_P(KernelsTest, PlainRowsOfAnyLengthMatchAndAreBatchInvariant) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kBf16}) {
    for (const int cols : {6, 24, 72, 100, 350}) {
      const int rows = 1 + random_.below(60), tokens = 1 + random_.below(20);
      const Stored weight = random_stored(random_, format, rows, cols);
      const auto x = random_.floats(int64_t{tokens} * cols, 1.0f);
      const Linear linear{weight.matrix(format, rows, cols), nullptr};
      std::vector<float> got(static_cast<size_t>(tokens) * rows);
      std::vector<float> exact = got;
      std::vector<float> single = got;
      fast_->linear(got.data(), x.data(), linear, tokens, Kernels::Output::kOverwrite);
      exact_->linear(exact.data(), x.data(), linear, tokens, Kernels::Output::kOverwrite);
      EXPECT_LT(relative_error(got, exact), 1e-6) << rows << "x" << cols;
      for (int t = 0; t < tokens; ++t) {
        alone_->linear(single.data() + int64_t{t} * rows, x.data() + int64_t{t} * cols, linear, 1,
                       Kernels::Output::kOverwrite);
      }
      EXPECT_TRUE(same_bits(got, single)) << rows << "x" << cols << " tokens " << tokens;
    }
  }
}

TEST_P(KernelsTest, GatedUnitsMatchAndAreBatchInvariant) {
  for (const GluShape::Kind kind :
       {GluShape::Kind::kSwiglu, GluShape::Kind::kClampedSwiglu, GluShape::Kind::kGegluTanh}) {
    const GluShape shape{.kind = kind};
    const int64_t count = 32 * 517;
    const auto gate = random_.floats(count, 6.0f);
    const auto up = random_.floats(count, 6.0f);
    std::vector<float> got = gate;
    std::vector<float> exact = gate;
    fast_->glu(got.data(), up.data(), count, shape);
    exact_->glu(exact.data(), up.data(), count, shape);
    EXPECT_LT(relative_error(got, exact), 1e-6);

    std::vector<float> cut = gate;
    for (int64_t begin = 0; begin < count; begin += 32 * 11) {
      alone_->glu(cut.data() + begin, up.data() + begin, std::min<int64_t>(32 * 11, count - begin),
                  shape);
    }
    EXPECT_TRUE(same_bits(cut, got));
  }
}

// A gate of -1e4 closes, one of 1e4 lets `up` through: no infinity on the way becomes a NaN.
TEST_P(KernelsTest, GatedUnitsOfLargeNumbersAreFinite) {
  std::vector<float> gate(32);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = i % 2 == 0 ? -1e4f : 1e4f;
  const std::vector<float> up(32, 2.0f);
  fast_->glu(gate.data(), up.data(), 32, {.kind = GluShape::Kind::kSwiglu});
  for (size_t i = 0; i < gate.size(); ++i) {
    EXPECT_NEAR(gate[i], i % 2 == 0 ? 0.0f : 2e4f, 1e-30f) << i;
  }
}

struct AttentionCase {
  int heads;
  int kv_heads;
  int head_size;
  int window;
};

constexpr DType kCacheTypes[] = {DType::kF32, DType::kF16, DType::kBf16, DType::kF8E4m3,
                                 DType::kI8};

// Keys and values as real models have them: a few channels are much larger than the rest, and the
// tokens differ in size.
std::vector<float> with_outliers(Random& random, int64_t rows, int heads, int head_size) {
  std::vector<float> out = random.floats(rows * heads * head_size, 1.0f);
  for (int h = 0; h < heads; ++h) {
    const int outlier = random.below(head_size);
    for (int64_t row = 0; row < rows; ++row) {
      float* head = out.data() + (row * heads + h) * head_size;
      head[outlier] *= 30.0f;
      const float size = std::exp(0.7f * random.normal());
      for (int i = 0; i < head_size; ++i) head[i] *= size;
    }
  }
  return out;
}

// Several sequences in one cache of scattered blocks, part of them stored before the step.
struct AttentionStep {
  AttentionStep(Random& random, const AttentionCase& a_case, DType dtype)
      : tables(3 * kBlocksEach),
        layer{nullptr, dtype, 16, a_case.kv_heads, a_case.head_size},
        q_width(a_case.heads * a_case.head_size),
        kv_width(a_case.kv_heads * a_case.head_size),
        sinks(random.floats(a_case.heads, 2.0f)),
        shape{a_case.heads,  a_case.kv_heads, a_case.head_size,
              a_case.window, sinks.data(),    0.125f} {
    std::iota(tables.begin(), tables.end(), 0);
    for (size_t i = tables.size(); i > 1; --i)
      std::swap(tables[i - 1], tables[random.below(static_cast<int>(i))]);
    clear(dtype);
    int past_rows = 0;
    for (int s = 0; s < 3; ++s) {
      const int32_t* blocks = tables.data() + s * kBlocksEach;
      past.push_back({past_rows, kCached[s], 0, blocks});
      past_rows += kCached[s];
      step.push_back({rows, kLengths[s] - kCached[s], kCached[s], blocks});
      rows += kLengths[s] - kCached[s];
    }
    old_k = with_outliers(random, past_rows, a_case.kv_heads, a_case.head_size);
    old_v = with_outliers(random, past_rows, a_case.kv_heads, a_case.head_size);
    k = with_outliers(random, rows, a_case.kv_heads, a_case.head_size);
    v = with_outliers(random, rows, a_case.kv_heads, a_case.head_size);
    q = random.floats(int64_t{rows} * q_width, 0.5f);
  }

  // Poison: a key, value or scale that was never written must not be read.
  void clear(DType dtype) {
    layer.dtype = dtype;
    memory.assign(tables.size() * layer.block_bytes(), 0xFF);
    layer.data = memory.data();
  }
  void store(Kernels& kernels) {
    kernels.store_kv(layer, old_k.data(), old_v.data(), kv_width, past.data(), 3);
    kernels.store_kv(layer, k.data(), v.data(), kv_width, step.data(), 3);
  }
  std::vector<float> attend(Kernels& kernels) {
    std::vector<float> out(static_cast<size_t>(rows) * q_width);
    kernels.attention(out.data(), q.data(), q_width, layer, shape, step.data(), 3);
    return out;
  }
  std::vector<float> attend_one_by_one(Kernels& kernels) {
    std::vector<float> out(static_cast<size_t>(rows) * q_width);
    for (const SequenceRows& sequence : step) {
      for (int r = 0; r < sequence.row_count; ++r) {
        const SequenceRows row{sequence.row_begin + r, 1, sequence.start + r, sequence.blocks};
        kernels.attention(out.data(), q.data(), q_width, layer, shape, &row, 1);
      }
    }
    return out;
  }

  static constexpr int kBlocksEach = 19;
  static constexpr int kLengths[] = {5, 290, 33};
  static constexpr int kCached[] = {0, 268, 16};

  std::vector<int32_t> tables;
  KvLayer layer;
  int q_width;
  int kv_width;
  std::vector<float> sinks;
  AttentionShape shape;
  std::vector<uint8_t> memory;
  std::vector<SequenceRows> past;
  std::vector<SequenceRows> step;
  int rows = 0;
  std::vector<float> old_k, old_v, k, v, q;
};

constexpr AttentionCase kAttentionCases[] = {{16, 2, 64, 0},  {4, 2, 32, 16}, {6, 2, 16, 0},
                                             {8, 8, 64, 128}, {5, 1, 48, 7},  {12, 1, 80, 0},
                                             {3, 1, 72, 0},   {4, 2, 100, 9}, {2, 1, 6, 0}};

// Several sequences at once, with scattered blocks and other tokens already cached, against the
// reference on the same cache; then every row alone, bit for bit.
TEST_P(KernelsTest, AttentionMatchesAndIsBatchInvariant) {
  for (const AttentionCase& a_case : kAttentionCases) {
    for (const DType dtype : kCacheTypes) {
      SCOPED_TRACE(std::string(tensor::kv_type_name(dtype)) + " " + std::to_string(a_case.heads) +
                   "/" + std::to_string(a_case.kv_heads));
      AttentionStep step(random_, a_case, dtype);
      step.store(*fast_);
      const std::vector<float> got = step.attend(*fast_);
      EXPECT_LT(relative_error(got, step.attend(*exact_)), 2e-6);
      EXPECT_TRUE(same_bits(got, step.attend_one_by_one(*alone_)));
    }
  }
}

// One format: what one implementation wrote, another may read.
TEST_P(KernelsTest, TheCacheHoldsTheReferencesBytes) {
  for (const AttentionCase& a_case : kAttentionCases) {
    for (const DType dtype : kCacheTypes) {
      AttentionStep step(random_, a_case, dtype);
      // Hard ones: nothing, next to nothing, and what does not fit.
      std::fill_n(step.k.begin(), step.kv_width, 0.0f);
      std::fill_n(step.v.begin(), step.kv_width, 1e-38f);
      std::fill_n(step.k.begin() + step.kv_width, step.kv_width, 1e30f);
      step.v[step.kv_width] = HUGE_VALF;
      step.k[2 * step.kv_width] = std::nanf("");
      step.store(*fast_);
      const std::vector<uint8_t> got = step.memory;
      step.clear(dtype);
      step.store(*exact_);
      EXPECT_TRUE(got == step.memory) << tensor::kv_type_name(dtype) << a_case.head_size;
    }
  }
}

// What each type costs in exactness: attention on outlier channels against a float32 cache, the
// mean of the cases. The bounds are some 1.5 times the largest of 300 runs.
TEST_P(KernelsTest, CacheTypesLoseOnlySoMuch) {
  struct Bound {
    DType dtype;
    double error;
  };
  for (const Bound& bound : {Bound{DType::kF16, 2e-3},
                             {DType::kBf16, 1.6e-2},
                             {DType::kI8, 2.3e-2},
                             {DType::kF8E4m3, 1.5e-1}}) {
    double sum = 0;
    for (const AttentionCase& a_case : kAttentionCases) {
      AttentionStep step(random_, a_case, DType::kF32);
      step.store(*fast_);
      const std::vector<float> wanted = step.attend(*fast_);
      step.clear(bound.dtype);
      step.store(*fast_);
      sum += relative_error(step.attend(*fast_), wanted);
    }
    const double error = sum / std::size(kAttentionCases);
    EXPECT_LT(error, bound.error) << tensor::kv_type_name(bound.dtype);
  }
}

// A key or value that is not a number must be seen in the result, not rounded to one.
TEST_P(KernelsTest, NotANumberIsKept) {
  for (const DType dtype : kCacheTypes) {
    AttentionStep step(random_, {4, 2, 32, 0}, dtype);
    step.v[0] = std::nanf("");  // first row's first head
    step.store(*fast_);
    const std::vector<float> got = step.attend(*fast_);
    EXPECT_TRUE(std::isnan(got[0])) << tensor::kv_type_name(dtype);
    EXPECT_FALSE(std::isnan(got[2 * 32])) << tensor::kv_type_name(dtype);  // the other kv head
  }
}

TEST_P(KernelsTest, EveryCacheTypeReadsBackWhatItStored) {
  for (const DType dtype : kCacheTypes) {
    KvLayer layer{nullptr, dtype, 16, 1, 32};
    std::vector<uint8_t> memory(layer.block_bytes());
    layer.data = memory.data();
    const int32_t block = 0;
    const SequenceRows row{0, 1, 0, &block};
    std::vector<float> k(32, 0.0f);
    std::vector<float> v(32, 0.0f);
    v[0] = 127.0f;  // rotated, all elements are of one size
    fast_->store_kv(layer, k.data(), v.data(), 32, &row, 1);
    const float sink = -1000.0f;  // no mass
    const AttentionShape shape{1, 1, 32, 0, &sink, 1.0f};
    std::vector<float> out(32);
    fast_->attention(out.data(), k.data(), 32, layer, shape, &row, 1);
    for (int i = 0; i < 32; ++i) EXPECT_NEAR(out[i], v[i], 1.0) << tensor::kv_type_name(dtype);
  }
}

// reference: attention sink examples of the model description, section 5.4.
TEST_P(KernelsTest, SinkTakesItsShare) {
  KvLayer layer{nullptr, DType::kF32, 16, 1, 32};
  std::vector<uint8_t> memory(layer.block_bytes(), 0);
  layer.data = memory.data();
  const int32_t block = 0;
  const SequenceRows all{0, 3, 0, &block};
  std::vector<float> k(3 * 32, 0.0f);
  std::vector<float> v(3 * 32, 0.0f);
  for (int t = 0; t < 3; ++t) {
    k[t * 32] = static_cast<float>(t + 1);  // scores 1, 2, 3
    v[t * 32 + t] = 1.0f;                   // so the output is the weights
  }
  fast_->store_kv(layer, k.data(), v.data(), 32, &all, 1);
  std::vector<float> q(3 * 32, 0.0f);
  q[2 * 32] = 1.0f;
  std::vector<float> out(3 * 32);
  const float sink = 3.0f;
  const AttentionShape shape{1, 1, 32, 0, &sink, 1.0f};
  const SequenceRows last{2, 1, 2, &block};
  fast_->attention(out.data(), q.data(), 32, layer, shape, &last, 1);
  EXPECT_NEAR(out[2 * 32 + 0], 0.05406459, 1e-6);
  EXPECT_NEAR(out[2 * 32 + 1], 0.14696280, 1e-6);
  EXPECT_NEAR(out[2 * 32 + 2], 0.39948630, 1e-6);
}

std::string kernels_name(const ::testing::TestParamInfo<KernelChoice>& info) {
  static constexpr const char* kNames[] = {"auto", "reference", "avx512", "avx2", "neon"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, KernelsTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kAvx512,
                                           KernelChoice::kAvx2, KernelChoice::kNeon),
                         kernels_name);

}  // namespace
}  // namespace pelton::kernels
