// What hands on bf16: the inner kernels' numbers, each rounded, and nothing else touched.
#include "kernels/bf16_kernels.h"

#include <cstdint>
#include <cstring>
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
  std::unique_ptr<Kernels> bf16_ = make_bf16_kernels(*inner_);
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

TEST_F(Bf16KernelsTest, OfMarkedRowsOnlyThoseAreRounded) {
  const std::vector<float> x = random(kTokens * kCols);
  std::vector<uint64_t> marks(kTokens * mark_words(kRows));
  marks[0] = 1;                          // token 0: row 0
  marks[2 * mark_words(kRows) + 1] = 2;  // token 2: row 65
  const std::vector<float> before = random(kTokens * kRows);
  std::vector<float> exact = before;
  std::vector<float> got = before;
  inner_->linear_marked(exact.data(), x.data(), matrix_, marks.data(), kTokens);
  bf16_->linear_marked(got.data(), x.data(), matrix_, marks.data(), kTokens);
  std::vector<float> want = before;
  for (const size_t at : {size_t{0}, size_t{2 * kRows + 65}}) want[at] = rounded({exact[at]})[0];
  EXPECT_EQ(got, want);
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
  bf16_->rotate(rows.data(), kCols, cos_sin.data(), kTokens, 2, 16);
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
