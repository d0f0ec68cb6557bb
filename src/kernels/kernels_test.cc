// Fast kernels against the reference on fresh random inputs, and the promise that binds them all: a
// row's result is the same bits whatever batch, chunk or thread count it is computed in.
#include "kernels/kernels.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

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
  std::vector<Bf16> bf16(int64_t count, float scale) {
    std::vector<Bf16> out(static_cast<size_t>(count));
    for (Bf16& x : out) x = tensor::float_to_bf16(scale * normal());
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

struct Experts {
  std::vector<uint8_t> blocks;
  std::vector<uint8_t> scales;
  std::vector<Bf16> bias;
  Mxfp4Experts view;
};

Experts random_experts(Random& random, int experts, int rows, int cols) {
  Experts out;
  const int64_t groups = int64_t{experts} * rows * (cols / 32);
  out.blocks = random.bytes(groups * 16, 0, 255);
  out.scales = random.bytes(groups, 118, 123);
  out.bias = random.bf16(int64_t{experts} * rows, 0.3f);
  out.view = {out.blocks.data(), out.scales.data(), out.bias.data(), experts, rows, cols};
  return out;
}

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
  for (int round = 0; round < 12; ++round) {
    const int cols = 32 * (1 + random_.below(12));
    const int rows = 1 + random_.below(150);
    const int tokens = 1 + random_.below(round % 3 == 0 ? 120 : 14);
    const auto weight = random_.bf16(int64_t{rows} * cols, 0.1f);
    const auto bias = random_.bf16(rows, 1.0f);
    const auto x = random_.floats(int64_t{tokens} * cols, 1.0f);
    const Bf16Linear linear{weight.data(), round % 2 == 0 ? bias.data() : nullptr, rows, cols};
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

TEST_P(KernelsTest, ExpertsMatchAndAreBatchInvariant) {
  for (int round = 0; round < 6; ++round) {
    const int hidden = 32 * (1 + random_.below(5));
    const int intermediate = 32 * (1 + random_.below(5));
    const int experts = 4 + random_.below(5);
    const int k = 1 + random_.below(4);
    const int tokens = 1 + random_.below(round == 0 ? 150 : 20);
    const Experts gate_up = random_experts(random_, experts, 2 * intermediate, hidden);
    const Experts down = random_experts(random_, experts, hidden, intermediate);
    const auto x = random_.floats(int64_t{tokens} * hidden, 3.0f);
    const auto router = random_.floats(int64_t{tokens} * experts, 1.0f);
    std::vector<ExpertChoice> choices(static_cast<size_t>(tokens) * k);
    fast_->choose_experts(choices.data(), router.data(), tokens, experts, k);

    const MoeShape shape{.experts_per_token = k};
    std::vector<float> got = random_.floats(int64_t{tokens} * hidden, 1.0f);
    std::vector<float> exact = got;
    std::vector<float> single = got;
    fast_->experts(got.data(), x.data(), choices.data(), gate_up.view, down.view, shape, tokens);
    exact_->experts(exact.data(), x.data(), choices.data(), gate_up.view, down.view, shape, tokens);
    EXPECT_LT(relative_error(got, exact), 2e-6);
    for (int t = 0; t < tokens; ++t) {
      alone_->experts(single.data() + int64_t{t} * hidden, x.data() + int64_t{t} * hidden,
                      choices.data() + int64_t{t} * k, gate_up.view, down.view, shape, 1);
    }
    EXPECT_TRUE(same_bits(got, single));
  }
}

TEST_P(KernelsTest, RouterTakesTheLargestAndTheLowerOfEquals) {
  for (int round = 0; round < 50; ++round) {
    const int experts = 4 + random_.below(124);
    const int k = 1 + random_.below(4);
    std::vector<float> logits(static_cast<size_t>(experts));
    for (float& x : logits) x = static_cast<float>(random_.below(12));  // many ties
    std::vector<ExpertChoice> got(static_cast<size_t>(k));
    std::vector<ExpertChoice> exact(static_cast<size_t>(k));
    fast_->choose_experts(got.data(), logits.data(), 1, experts, k);
    exact_->choose_experts(exact.data(), logits.data(), 1, experts, k);
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
  fast_->choose_experts(got.data(), logits.data(), 1, 8, 4);
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
  const auto weight = random_.bf16(hidden, 1.0f);
  std::vector<float> got(x.size());
  std::vector<float> exact(x.size());
  fast_->rms_norm(got.data(), x.data(), weight.data(), tokens, hidden, 1e-5f);
  exact_->rms_norm(exact.data(), x.data(), weight.data(), tokens, hidden, 1e-5f);
  EXPECT_LT(relative_error(got, exact), 1e-6);

  const auto tables = random_.floats(int64_t{tokens} * 32, 1.0f);
  got = x;
  exact = x;
  fast_->rotate(got.data(), hidden, tables.data(), tokens, 3, 32);
  exact_->rotate(exact.data(), hidden, tables.data(), tokens, 3, 32);
  EXPECT_LT(relative_error(got, exact), 1e-6);
}

struct AttentionCase {
  int heads;
  int kv_heads;
  int head_size;
  int window;
};

// Several sequences at once, with scattered blocks and other tokens already cached, against the
// reference on a float32 cache; then every row alone, bit for bit.
TEST_P(KernelsTest, AttentionMatchesAndIsBatchInvariant) {
  for (const AttentionCase& shape_case :
       {AttentionCase{16, 2, 64, 0}, AttentionCase{4, 2, 32, 16}, AttentionCase{6, 2, 16, 0},
        AttentionCase{8, 8, 64, 128}, AttentionCase{5, 1, 32, 7}}) {
    const int block_tokens = 16;
    const int lengths[] = {5, 200, 33};
    const int cached[] = {0, 170, 16};
    const int blocks_each = 13;
    KvLayer layer{nullptr, DType::kF32, block_tokens, shape_case.kv_heads, shape_case.head_size};
    std::vector<int32_t> tables(3 * blocks_each);
    std::iota(tables.begin(), tables.end(), 0);
    for (size_t i = tables.size(); i > 1; --i) std::swap(tables[i - 1], tables[random_.below(i)]);
    std::vector<float> memory(tables.size() * layer.block_elements());
    // Poison: a key or value that was never written must not be read.
    std::fill(memory.begin(), memory.end(), std::nanf(""));
    layer.data = memory.data();

    const int q_width = shape_case.heads * shape_case.head_size;
    const int kv_width = shape_case.kv_heads * shape_case.head_size;
    const auto sinks = random_.bf16(shape_case.heads, 2.0f);
    const AttentionShape shape{shape_case.heads,  shape_case.kv_heads, shape_case.head_size,
                               shape_case.window, sinks.data(),        0.125f};
    std::vector<SequenceRows> past;
    std::vector<SequenceRows> step;
    int past_rows = 0;
    int rows = 0;
    for (int s = 0; s < 3; ++s) {
      const int32_t* blocks = tables.data() + s * blocks_each;
      past.push_back({past_rows, cached[s], 0, blocks});
      past_rows += cached[s];
      step.push_back({rows, lengths[s] - cached[s], cached[s], blocks});
      rows += lengths[s] - cached[s];
    }
    const auto old_k = random_.floats(int64_t{past_rows} * kv_width, 1.0f);
    const auto old_v = random_.floats(int64_t{past_rows} * kv_width, 1.0f);
    const auto k = random_.floats(int64_t{rows} * kv_width, 1.0f);
    const auto v = random_.floats(int64_t{rows} * kv_width, 1.0f);
    const auto q = random_.floats(int64_t{rows} * q_width, 2.0f);
    fast_->store_kv(layer, old_k.data(), old_v.data(), kv_width, past.data(), 3);
    fast_->store_kv(layer, k.data(), v.data(), kv_width, step.data(), 3);

    std::vector<float> got(static_cast<size_t>(rows) * q_width);
    std::vector<float> exact(got.size());
    std::vector<float> single(got.size());
    fast_->attention(got.data(), q.data(), q_width, layer, shape, step.data(), 3);
    exact_->attention(exact.data(), q.data(), q_width, layer, shape, step.data(), 3);
    EXPECT_LT(relative_error(got, exact), 2e-6) << shape_case.heads << "/" << shape_case.kv_heads;
    for (const SequenceRows& sequence : step) {
      for (int r = 0; r < sequence.row_count; ++r) {
        const SequenceRows row{sequence.row_begin + r, 1, sequence.start + r, sequence.blocks};
        alone_->attention(single.data(), q.data(), q_width, layer, shape, &row, 1);
      }
    }
    EXPECT_TRUE(same_bits(got, single)) << shape_case.heads << "/" << shape_case.kv_heads;
  }
}

TEST_P(KernelsTest, EveryCacheTypeReadsBackWhatItStored) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    KvLayer layer{nullptr, dtype, 16, 1, 32};
    std::vector<float> memory(layer.block_elements());
    layer.data = memory.data();
    const int32_t block = 0;
    const SequenceRows row{0, 1, 0, &block};
    std::vector<float> k(32, 0.0f);
    std::vector<float> v(32);
    for (int i = 0; i < 32; ++i) v[i] = static_cast<float>(i - 16) / 8.0f;  // exact in every type
    fast_->store_kv(layer, k.data(), v.data(), 32, &row, 1);
    const Bf16 sink = tensor::float_to_bf16(-1000.0f);  // no mass
    const AttentionShape shape{1, 1, 32, 0, &sink, 1.0f};
    std::vector<float> out(32);
    fast_->attention(out.data(), k.data(), 32, layer, shape, &row, 1);
    for (int i = 0; i < 32; ++i) EXPECT_NEAR(out[i], v[i], 1e-6) << tensor::dtype_name(dtype);
  }
}

// reference: attention sink examples of the model description, section 5.4.
TEST_P(KernelsTest, SinkTakesItsShare) {
  KvLayer layer{nullptr, DType::kF32, 16, 1, 32};
  std::vector<float> memory(layer.block_elements(), 0.0f);
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
  const Bf16 sink = tensor::float_to_bf16(3.0f);
  const AttentionShape shape{1, 1, 32, 0, &sink, 1.0f};
  const SequenceRows last{2, 1, 2, &block};
  fast_->attention(out.data(), q.data(), 32, layer, shape, &last, 1);
  EXPECT_NEAR(out[2 * 32 + 0], 0.05406459, 1e-6);
  EXPECT_NEAR(out[2 * 32 + 1], 0.14696280, 1e-6);
  EXPECT_NEAR(out[2 * 32 + 2], 0.39948630, 1e-6);
}

std::string kernels_name(const ::testing::TestParamInfo<KernelChoice>& info) {
  static constexpr const char* kNames[] = {"auto", "reference", "avx512", "avx2"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, KernelsTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kAvx512,
                                           KernelChoice::kAvx2),
                         kernels_name);

TEST(KernelChoice, NamesAreParsed) {
  EXPECT_EQ(*parse_kernel_choice("auto"), KernelChoice::kAuto);
  EXPECT_EQ(parse_kernel_choice("cuda9").error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pelton::kernels
