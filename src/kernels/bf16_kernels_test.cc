// What hands on bf16: the inner kernels' numbers, each rounded, and nothing else touched.
#include "kernels/bf16_kernels.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/bits.h"

namespace pelton::kernels {
namespace {

bool is_bf16(float x) {
  return tensor::bf16_to_float(tensor::float_to_bf16(x)) == x;
}

std::vector<float> rounded(std::vector<float> values) {
  for (float& x : values) x = tensor::bf16_to_float(tensor::float_to_bf16(x));
  return values;
}

class Bf16KernelsTest : public testing::Test {
 protected:
  std::vector<float> random(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& x : values) x = normal_(engine_);
    return values;
  }

  static constexpr int kTokens = 3;
  static constexpr int kRows = 70;  // more than one word of marks
  static constexpr int kCols = 64;

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::unique_ptr<Kernels> inner_ =
      std::move(make_kernels(KernelChoice::kReference, pool_)).value();
  std::unique_ptr<Kernels> bf16_ = make_bf16_kernels(*inner_, kRows + 1);
  std::mt19937 engine_{11};
  std::normal_distribution<float> normal_;
  std::vector<float> weight_ = random(int64_t{kRows} * kCols);
  std::vector<float> bias_ = random(kRows);
  Matrix matrix_{weight_.data(), kRows, kCols, Format::kF32};
};

TEST_F(Bf16KernelsTest, ProductsAreTheInnerOnesRounded) {
  const std::vector<float> x = random(kTokens * kCols);
  std::vector<float> exact(kTokens * kRows);
  std::vector<float> got(exact.size());
  inner_->linear(exact.data(), x.data(), {matrix_, bias_.data()}, kTokens,
                 Kernels::Output::kOverwrite);
  bf16_->linear(got.data(), x.data(), {matrix_, bias_.data()}, kTokens,
                Kernels::Output::kOverwrite);
  EXPECT_EQ(got, rounded(exact));
  EXPECT_NE(got, exact);
}

TEST_F(Bf16KernelsTest, TheResidualStreamIsRoundedAfterAProductOfItsOwnRounding) {
  const std::vector<float> x = random(kTokens * kCols);
  const std::vector<float> before = rounded(random(kTokens * kRows));
  std::vector<float> product(before.size());
  inner_->linear(product.data(), x.data(), {matrix_, nullptr}, kTokens,
                 Kernels::Output::kOverwrite);
  product = rounded(product);
  std::vector<float> want = before;
  for (size_t i = 0; i < want.size(); ++i) want[i] += product[i];
  std::vector<float> got = before;
  bf16_->linear(got.data(), x.data(), {matrix_, nullptr}, kTokens, Kernels::Output::kAccumulate);
  EXPECT_EQ(got, rounded(want));
}

TEST_F(Bf16KernelsTest, TheHeadIsTheInnerOne) {
  const std::unique_ptr<Kernels> with_head = make_bf16_kernels(*inner_, kRows);
  const std::vector<float> x = random(kTokens * kCols);
  std::vector<float> exact(kTokens * kRows);
  std::vector<float> got(exact.size());
  inner_->linear(exact.data(), x.data(), {matrix_, nullptr}, kTokens, Kernels::Output::kOverwrite);
  with_head->linear(got.data(), x.data(), {matrix_, nullptr}, kTokens, Kernels::Output::kOverwrite);
  EXPECT_EQ(got, exact);

  std::vector<uint64_t> marks(kTokens * mark_words(kRows));
  marks[0] = 1;                          // token 0: row 0
  marks[2 * mark_words(kRows) + 1] = 2;  // token 2: row 65
  std::vector<float> want(kTokens * kRows, 0.1f);
  for (const size_t at : {size_t{0}, size_t{2 * kRows + 65}}) want[at] = exact[at];
  std::fill(got.begin(), got.end(), 0.1f);
  with_head->linear_marked(got.data(), x.data(), matrix_, marks.data(), kTokens);
  EXPECT_EQ(got, want);
}

TEST_F(Bf16KernelsTest, AttentionsOfAllSequencesAreRounded) {
  constexpr int kHeads = 4;
  constexpr int kHead = 16;
  KvLayer cache{.dtype = tensor::DType::kF32, .block_tokens = 4, .kv_heads = 2, .head_size = kHead};
  std::vector<uint8_t> room(static_cast<size_t>(2 * cache.block_bytes()));
  cache.data = room.data();
  // Two rows of one sequence, one of another.
  const int32_t blocks[] = {0, 1};
  const SequenceRows sequences[] = {{0, 2, 0, &blocks[0]}, {2, 1, 0, &blocks[1]}};
  const std::vector<float> keys = random(kTokens * 2 * kHead);
  bf16_->store_kv(cache, keys.data(), keys.data(), 2 * kHead, sequences, 2);
  const std::vector<float> sinks = random(kHeads);
  const AttentionShape shape{
      .heads = kHeads, .kv_heads = 2, .head_size = kHead, .sinks = sinks.data(), .scale = 0.25f};
  const std::vector<float> q = random(kTokens * kHeads * kHead);
  std::vector<float> exact(q.size());
  std::vector<float> got(q.size());
  inner_->attention(exact.data(), q.data(), kHeads * kHead, cache, shape, sequences, 2);
  bf16_->attention(got.data(), q.data(), kHeads * kHead, cache, shape, sequences, 2);
  EXPECT_EQ(got, rounded(exact));
}

TEST_F(Bf16KernelsTest, ExpertsAreAddedRounded) {
  const int inner = 32;
  const auto part = [&](const std::vector<float>& bias, const std::vector<uint8_t>& codes,
                        const std::vector<uint8_t>& scales, int rows, int cols) {
    return Experts{codes.data(), scales.data(), bias.data(),         1,
                   rows,         cols,          Format::kMxfp4Pairs, rows};
  };
  const auto codes = [&](int count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(engine_());
    return bytes;
  };
  const std::vector<float> up_bias = random(2 * inner);
  const std::vector<float> down_bias = random(kCols);
  const auto up_codes = codes(2 * inner * kCols / 2);
  const auto down_codes = codes(kCols * inner / 2);
  const std::vector<uint8_t> scales(2 * inner * kCols / 32, 124);
  const ExpertWeights weights{part(up_bias, up_codes, scales, 2 * inner, kCols),
                              {},
                              part(down_bias, down_codes, scales, kCols, inner)};

  const std::vector<ExpertChoice> choices(kTokens, {.expert = 0, .weight = 0.7f});
  const std::vector<float> x = random(kTokens * kCols);
  std::vector<float> sum(x.size());
  inner_->experts(sum.data(), x.data(), choices.data(), weights, {.experts_per_token = 1}, kTokens);
  sum = rounded(sum);
  const std::vector<float> before = rounded(random(kTokens * kCols));
  std::vector<float> want = before;
  for (size_t i = 0; i < want.size(); ++i) want[i] += sum[i];
  std::vector<float> got = before;
  bf16_->experts(got.data(), x.data(), choices.data(), weights, {.experts_per_token = 1}, kTokens);
  EXPECT_EQ(got, rounded(want));
}

TEST_F(Bf16KernelsTest, ExpertsWeightsAreRounded) {
  const std::vector<float> logits = random(kTokens * 8);
  std::vector<ExpertChoice> exact(kTokens * 4);
  std::vector<ExpertChoice> got(exact.size());
  inner_->route(exact.data(), logits.data(), kTokens, {.experts = 8, .k = 4});
  bf16_->route(got.data(), logits.data(), kTokens, {.experts = 8, .k = 4});
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(got[i].expert, exact[i].expert);
    EXPECT_EQ(got[i].weight, rounded({exact[i].weight})[0]);
  }
}

TEST_F(Bf16KernelsTest, NormsEmbeddingsAndRotationsComeOutInBf16) {
  const std::vector<float> table = random(int64_t{kRows} * kCols);
  const std::vector<TokenId> tokens = {5, 0, 69};
  std::vector<float> x(kTokens * kCols);
  bf16_->embed(x.data(), tokens.data(), kTokens, {table.data(), kRows, kCols, Format::kF32});
  EXPECT_EQ(x[0], rounded({table[5 * kCols]})[0]);
  for (const float value : x) ASSERT_TRUE(is_bf16(value));

  const std::vector<float> gain = random(kCols);
  bf16_->rms_norm(x.data(), x.data(), gain.data(), kTokens, kCols, 1e-5f);
  for (const float value : x) ASSERT_TRUE(is_bf16(value));

  // Two heads of 16 in rows of 64: what lies behind them stays.
  std::vector<float> rows = random(kTokens * kCols);
  const std::vector<float> before = rows;
  const std::vector<float> cos_sin = random(kTokens * 16);
  bf16_->rotate(rows.data(), kCols, cos_sin.data(), kTokens,
                {.heads = 2, .head_stride = 16, .size = 16});
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < kCols; ++i) {
      const size_t at = static_cast<size_t>(t * kCols + i);
      if (i < 32) {
        ASSERT_TRUE(is_bf16(rows[at]));
      } else {
        ASSERT_EQ(rows[at], before[at]);
      }
    }
  }
}

}  // namespace
}  // namespace pelton::kernels
