// What encoders ask of the kernels (LayerNorm, activations, attention in both directions): fast
// ones against the reference, and a row's result the same bits whatever it is computed with.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "kernels/kernels.h"

namespace pelton::kernels {
namespace {

double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
  double apart = 0;
  double length = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    apart += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
    length += double{exact[i]} * exact[i];
  }
  return std::sqrt(apart / length);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class Random {
 public:
  Random() {
    const char* given = std::getenv("PELTON_SEED");
    const uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
    engine_.seed(seed);
  }
  std::vector<float> floats(int64_t count, float scale) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = scale * normal_(engine_);
    return out;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

class EncoderKernels : public ::testing::TestWithParam<KernelChoice> {
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

// Of decoders whose blocks are scaled; it lies beside what is like it.
TEST_P(EncoderKernels, ScaledAdditionMatchesAndIsBatchInvariant) {
  constexpr float kScale = 0.22f;
  for (const int hidden : {6, 32, 100, 192}) {
    const int tokens = 23;
    const auto x = random_.floats(int64_t{tokens} * hidden, 5.0f);
    const auto stream = random_.floats(int64_t{tokens} * hidden, 1.0f);
    std::vector<float> got = stream;
    std::vector<float> exact = stream;
    fast_->add_scaled(got.data(), x.data(), kScale, tokens, hidden);
    exact_->add_scaled(exact.data(), x.data(), kScale, tokens, hidden);
    EXPECT_LT(relative_error(got, exact), 1e-6) << hidden;
    std::vector<float> cut = stream;  // one row at a time
    for (int t = 0; t < tokens; ++t) {
      const int64_t at = int64_t{t} * hidden;
      fast_->add_scaled(cut.data() + at, x.data() + at, kScale, 1, hidden);
    }
    EXPECT_EQ(cut, got) << hidden;
  }
}

TEST_P(EncoderKernels, LayerNormMatchesAndIsBatchInvariant) {
  for (const int hidden : {96, 64, 20, 1}) {
    const int tokens = 37;
    std::vector<float> x = random_.floats(int64_t{tokens} * hidden, 5.0f);
    for (float& value : x) value += 30.0f;  // far from zero
    const auto weight = random_.floats(hidden, 1.0f);
    const auto bias = random_.floats(hidden, 1.0f);
    std::vector<float> got(x.size());
    std::vector<float> exact(x.size());
    fast_->layer_norm(got.data(), x.data(), weight.data(), bias.data(), tokens, hidden, 1e-5f);
    exact_->layer_norm(exact.data(), x.data(), weight.data(), bias.data(), tokens, hidden, 1e-5f);
    EXPECT_LT(relative_error(got, exact), 2e-6) << hidden;
    std::vector<float> alone = x;
    for (int64_t t = 0; t < tokens; ++t) {
      float* const row = alone.data() + t * hidden;
      alone_->layer_norm(row, row, weight.data(), bias.data(), 1, hidden, 1e-5f);
    }
    EXPECT_TRUE(same_bits(got, alone)) << hidden;
  }
}

TEST_P(EncoderKernels, ActivationsMatchAndAreBatchInvariant) {
  for (const auto kind :
       {ActivationKind::kGelu, ActivationKind::kGeluTanh, ActivationKind::kRelu}) {
    std::vector<float> x = random_.floats(1003, 3.0f);
    for (const float edge : {0.0f, -0.0f, 30.0f, -30.0f, 1e-20f, -1e-20f}) x.push_back(edge);
    std::vector<float> got = x;
    std::vector<float> exact = x;
    fast_->activate(got.data(), static_cast<int64_t>(got.size()), kind);
    exact_->activate(exact.data(), static_cast<int64_t>(exact.size()), kind);
    EXPECT_LT(relative_error(got, exact), 1e-6);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(got[i], exact[i], 1e-6 + 2e-6 * fabs(x[i]));
    std::vector<float> alone = x;
    for (float& value : alone) alone_->activate(&value, 1, kind);
    EXPECT_TRUE(same_bits(got, alone));
  }
}

// Texts of several lengths in one step, against the reference; then each row alone, bit for bit.
TEST_P(EncoderKernels, EveryRowSeesEveryKey) {
  constexpr int kLengths[] = {5, 290, 33, 1};
  for (const auto& [heads, size] : {std::pair(4, 32), {2, 64}, {3, 72}, {1, 6}}) {
    const int width = heads * size;
    std::vector<SequenceRows> texts;
    std::vector<int32_t> blocks(40);
    std::iota(blocks.begin(), blocks.end(), 0);
    int rows = 0;
    int taken = 0;
    for (const int length : kLengths) {
      texts.push_back({rows, length, 0, blocks.data() + taken, length});
      rows += length;
      taken += (length + 15) / 16;
    }
    KvLayer layer{
        .dtype = tensor::DType::kF32, .block_tokens = 16, .kv_heads = heads, .head_size = size};
    // What was never written is no number, and must not be read.
    std::vector<float> memory(static_cast<size_t>(taken * layer.block_bytes()) / sizeof(float),
                              std::nanf(""));
    layer.data = memory.data();
    const AttentionShape shape{.heads = heads, .kv_heads = heads, .head_size = size, .scale = 0.3f};
    const auto q = random_.floats(int64_t{rows} * width, 0.5f);
    const auto k = random_.floats(int64_t{rows} * width, 1.0f);
    const auto v = random_.floats(int64_t{rows} * width, 1.0f);
    fast_->store_kv(layer, k.data(), v.data(), width, texts.data(), 4);
    std::vector<float> got(q.size());
    std::vector<float> exact(q.size());
    std::vector<float> alone(q.size());
    fast_->attention(got.data(), q.data(), width, layer, shape, texts.data(), 4);
    exact_->attention(exact.data(), q.data(), width, layer, shape, texts.data(), 4);
    EXPECT_LT(relative_error(got, exact), 2e-6) << heads << " " << size;
    for (const SequenceRows& text : texts) {
      for (int r = 0; r < text.row_count; ++r) {
        const SequenceRows row{text.row_begin + r, 1, r, text.blocks, text.key_count};
        alone_->attention(alone.data(), q.data(), width, layer, shape, &row, 1);
      }
    }
    EXPECT_TRUE(same_bits(got, alone)) << heads << " " << size;
    // A decoder's first row sees itself alone.
    for (SequenceRows& text : texts) text.key_count = 0;
    fast_->attention(exact.data(), q.data(), width, layer, shape, texts.data(), 4);
    EXPECT_NE(exact[0], got[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EncoderKernels,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kAvx512,
                                           KernelChoice::kAvx2, KernelChoice::kNeon));

}  // namespace
}  // namespace pelton::kernels
