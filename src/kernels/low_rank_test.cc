// What adapters add, by the fast kernels against the reference, of every type and of ranks and
// widths that fit no vector; and that neither company nor an adapter of zeros changes a bit.
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "kernels/kernels.h"
#include "tensor/bits.h"

namespace pelton::kernels {
namespace {

std::vector<float> random_floats(uint64_t seed, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(base::random_bits(seed, i) >> 40) / (1 << 23) - 1.0f;
  }
  return values;
}

// An adapter's numbers in one of the three types.
struct OwnedLowRank {
  LowRank view;
  std::vector<float> floats;
  std::vector<uint16_t> halves;
};

OwnedLowRank make_low_rank(uint64_t seed, Format format, int rank, int rows, int cols,
                           int experts) {
  OwnedLowRank made;
  const size_t a_count = size_t{1} * experts * rank * cols;
  made.floats = random_floats(seed, a_count + size_t{1} * experts * rank * rows);
  const void* data = made.floats.data();
  size_t element = sizeof(float);
  if (format != Format::kF32) {
    for (const float value : made.floats) {
      made.halves.push_back(format == Format::kF16 ? tensor::float_to_f16(value)
                                                   : tensor::float_to_bf16(value));
    }
    data = made.halves.data();
    element = sizeof(uint16_t);
  }
  made.view = {.a = data,
               .b = static_cast<const char*>(data) + a_count * element,
               .format = format,
               .rank = rank,
               .rows = rows,
               .cols = cols,
               .scale = 0.75f};
  return made;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
    size += double{exact[i]} * exact[i];
  }
  return std::sqrt(difference / size);
}

class LowRankProducts : public testing::TestWithParam<KernelChoice> {
 protected:
  void SetUp() override {
    auto fast = make_kernels(GetParam(), pool_);
    if (!fast.ok()) GTEST_SKIP() << fast.error().message;
    fast_ = *std::move(fast);
    exact_ = *make_kernels(KernelChoice::kReference, pool_);
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::unique_ptr<Kernels> fast_;
  std::unique_ptr<Kernels> exact_;
};

TEST_P(LowRankProducts, AddWhatTheReferenceAdds) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kBf16}) {
    for (const auto& [rank, rows, cols] :
         {std::tuple(1, 64, 32), std::tuple(8, 96, 128), std::tuple(19, 1100, 200)}) {
      constexpr int kTokens = 60;
      const OwnedLowRank first = make_low_rank(1, format, rank, rows, cols, 1);
      const OwnedLowRank second = make_low_rank(2, format, rank + 3, rows, cols, 1);
      const std::vector<float> x = random_floats(3, size_t{1} * kTokens * cols);
      const int64_t stride = rows + 5;
      const std::vector<float> before = random_floats(4, static_cast<size_t>(kTokens * stride));
      std::vector<int32_t> many(50);
      std::iota(many.begin(), many.end(), 0);
      const std::vector<int32_t> few = {52, 59};
      const std::vector<AdaptedRows> groups = {{&first.view, many.data(), 50},
                                               {&second.view, few.data(), 2}};
      std::vector<float> got = before;
      std::vector<float> exact = before;
      fast_->add_low_rank(got.data(), stride, x.data(), groups.data(), 2);
      exact_->add_low_rank(exact.data(), stride, x.data(), groups.data(), 2);
      EXPECT_LT(relative_error(got, exact), 1e-6);
      for (int t = 0; t < kTokens; ++t) {
        const float* const row = got.data() + t * stride;
        const bool adapted = t < 50 || t == 52 || t == 59;
        const int64_t from = adapted ? rows : 0;  // the rest is nobody's to touch
        EXPECT_EQ(std::memcmp(row + from, before.data() + t * stride + from,
                              static_cast<size_t>(stride - from) * sizeof(float)),
                  0)
            << t;
        if (!adapted) continue;
        const int32_t alone = t;
        const AdaptedRows one{t < 50 ? &first.view : &second.view, &alone, 1};
        std::vector<float> single = before;
        fast_->add_low_rank(single.data(), stride, x.data(), &one, 1);
        EXPECT_EQ(std::memcmp(row, single.data() + t * stride, rows * sizeof(float)), 0) << t;
      }
    }
  }
}

TEST_P(LowRankProducts, WithinExpertsAddWhatTheReferenceAdds) {
  constexpr int kExperts = 4;
  constexpr int kHidden = 96;
  constexpr int kInner = 64;
  constexpr int kTokens = 13;
  constexpr int kChosen = 2;
  const std::vector<float> gate = random_floats(1, kExperts * 2 * kInner * kHidden);
  const std::vector<float> down = random_floats(2, kExperts * kHidden * kInner);
  const ExpertWeights weights{{.data = gate.data(),
                               .experts = kExperts,
                               .rows = 2 * kInner,
                               .cols = kHidden,
                               .format = Format::kF32,
                               .expert_rows = 2 * kInner},
                              {},
                              {.data = down.data(),
                               .experts = kExperts,
                               .rows = kHidden,
                               .cols = kInner,
                               .format = Format::kF32,
                               .expert_rows = kHidden}};
  const std::vector<float> x = random_floats(3, kTokens * kHidden);
  std::vector<ExpertChoice> choices;
  for (int t = 0; t < kTokens; ++t) {
    choices.push_back({t % kExperts, 0.625f});
    choices.push_back({(t + 1 + t / 5) % kExperts, 0.375f});
  }
  const OwnedLowRank gates = make_low_rank(5, Format::kBf16, 3, kInner, kHidden, kExperts);
  const OwnedLowRank ups = make_low_rank(6, Format::kF16, 9, kInner, kHidden, kExperts);
  const OwnedLowRank downs = make_low_rank(7, Format::kF32, 5, kHidden, kInner, kExperts);
  ExpertLowRank shared{.gate = gates.view, .up = gates.view, .down = {}};
  const ExpertLowRank apart{.gate = gates.view, .up = ups.view, .down = downs.view};
  const ExpertLowRank last{.gate = {}, .up = {}, .down = downs.view};
  std::vector<const ExpertLowRank*> adapters;
  for (int t = 0; t < kTokens; ++t) {
    const ExpertLowRank* const all[] = {nullptr, &shared, &apart, &last};
    adapters.push_back(all[t % 4]);
  }
  MoeShape shape{.experts_per_token = kChosen, .glu = {.kind = GluShape::Kind::kClampedSwiglu}};
  std::vector<float> base(x.size(), 0.5f);
  fast_->experts(base.data(), x.data(), choices.data(), weights, shape, kTokens);
  shape.adapters = adapters.data();
  std::vector<float> got(x.size(), 0.5f);
  std::vector<float> exact(x.size(), 0.5f);
  fast_->experts(got.data(), x.data(), choices.data(), weights, shape, kTokens);
  exact_->experts(exact.data(), x.data(), choices.data(), weights, shape, kTokens);
  EXPECT_LT(relative_error(got, exact), 1e-5);
  for (int t = 0; t < kTokens; ++t) {
    const float* const row = got.data() + t * kHidden;
    const bool is_base = std::memcmp(row, base.data() + t * kHidden, kHidden * sizeof(float)) == 0;
    EXPECT_EQ(is_base, t % 4 == 0) << t;
    MoeShape one = shape;
    one.adapters = adapters.data() + t;
    std::vector<float> alone(kHidden, 0.5f);
    fast_->experts(alone.data(), x.data() + t * kHidden, choices.data() + t * kChosen, weights, one,
                   1);
    EXPECT_EQ(std::memcmp(row, alone.data(), kHidden * sizeof(float)), 0) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Fast, LowRankProducts,
                         testing::Values(KernelChoice::kAvx512, KernelChoice::kAvx2,
                                         KernelChoice::kNeon),
                         [](const testing::TestParamInfo<KernelChoice>& info) {
                           if (info.param == KernelChoice::kNeon) return "neon";
                           return info.param == KernelChoice::kAvx512 ? "avx512" : "avx2";
                         });

}  // namespace
}  // namespace pelton::kernels
