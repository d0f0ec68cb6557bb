// bf16 in 12 bits gives the bits that bf16 gives, in every kernel and for any number of tokens.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "tensor/bits.h"
#include "tensor/compact_bf16.h"

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
  std::vector<float> floats(int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = normal();
    return out;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

// The same matrix twice. Some weights are zero, some so small that their block is raw.
struct Weights {
  Weights(Random& random, int rows, int cols) {
    for (int64_t i = 0; i < int64_t{rows} * cols; ++i) {
      const int kind = random.below(20000);
      bf16.push_back(tensor::float_to_bf16(kind == 0   ? 1e-9f
                                           : kind < 40 ? 0.0f
                                                       : 0.05f * random.normal()));
    }
    // One at least, in the last row.
    bf16[bf16.size() - 3] = tensor::float_to_bf16(-1e-12f);
    compact.resize(static_cast<size_t>(tensor::compact_bytes(rows, cols)));
    tensor::CompactWriter writer(bf16.data(), rows, cols, compact.data());
    writer.write_rows(0, rows);
    EXPECT_TRUE(writer.fits());
    EXPECT_GT(writer.raw_count(), 0);
  }

  std::vector<Bf16> bf16;
  std::vector<uint8_t> compact;
};

std::vector<std::unique_ptr<Kernels>> all_kernels(base::ThreadPool& pool) {
  std::vector<std::unique_ptr<Kernels>> out;
  for (const KernelChoice choice : {KernelChoice::kReference, KernelChoice::kAvx2,
                                    KernelChoice::kAvx512, KernelChoice::kNeon}) {
    auto made = make_kernels(choice, pool);
    if (made.ok()) out.push_back(std::move(*made));
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(CompactRows, LinearHasTheBitsOfBf16) {
  Random random;
  base::ThreadPool pool({.threads = 2});
  for (const auto& kernels : all_kernels(pool)) {
    for (const int tokens : {1, 2, 6, 7, 13, 50}) {
      // Enough for a raw block in 64, and rows that no tile divides.
      const int rows = 64 + random.below(40);
      const int cols = 32 * (64 + random.below(40));
      const Weights weights(random, rows, cols);
      const std::vector<float> x = random.floats(int64_t{tokens} * cols);
      const std::vector<float> bias = random.floats(rows);
      std::vector<float> expected(static_cast<size_t>(tokens) * rows);
      std::vector<float> got(expected.size());
      const auto run = [&](const void* data, Format format, std::vector<float>& out) {
        const Linear linear{.weight = {.data = data, .rows = rows, .cols = cols, .format = format},
                            .bias = bias.data()};
        kernels->linear(out.data(), x.data(), linear, tokens, Kernels::Output::kOverwrite);
      };
      run(weights.bf16.data(), Format::kBf16, expected);
      run(weights.compact.data(), Format::kCompactBf16, got);
      EXPECT_TRUE(same_bits(got, expected)) << kernels->name() << ", " << tokens << " tokens";
    }
  }
}

// Rows too wide to be expanded beside one another.
TEST(CompactRows, WideRowsHaveThem) {
  Random random;
  base::ThreadPool pool({.threads = 1});
  constexpr int kRows = 5;
  constexpr int kCols = 32 * 1100;
  constexpr int kTokens = 14;
  const Weights weights(random, kRows, kCols);
  const std::vector<float> x = random.floats(int64_t{kTokens} * kCols);
  for (const auto& kernels : all_kernels(pool)) {
    std::vector<float> expected(size_t{kTokens} * kRows);
    std::vector<float> got(expected.size());
    Linear linear{.weight = {.data = weights.bf16.data(), .rows = kRows, .cols = kCols}};
    kernels->linear(expected.data(), x.data(), linear, kTokens, Kernels::Output::kOverwrite);
    linear.weight.data = weights.compact.data();
    linear.weight.format = Format::kCompactBf16;
    kernels->linear(got.data(), x.data(), linear, kTokens, Kernels::Output::kOverwrite);
    EXPECT_TRUE(same_bits(got, expected)) << kernels->name();
  }
}

TEST(CompactRows, MarkedRowsAndTheEmbeddingHaveThem) {
  Random random;
  base::ThreadPool pool({.threads = 2});
  constexpr int kRows = 200;
  constexpr int kCols = 32 * 40;
  constexpr int kTokens = 3;
  const Weights weights(random, kRows, kCols);
  const Matrix plain{.data = weights.bf16.data(), .rows = kRows, .cols = kCols};
  const Matrix compact{
      .data = weights.compact.data(), .rows = kRows, .cols = kCols, .format = Format::kCompactBf16};
  const std::vector<float> x = random.floats(int64_t{kTokens} * kCols);
  std::vector<uint64_t> marks(static_cast<size_t>(kTokens * mark_words(kRows)));
  for (int t = 0; t < kTokens; ++t) {
    for (const int row : {0, 3, 64, kRows - 1, random.below(kRows)}) {
      marks[static_cast<size_t>(t * mark_words(kRows) + row / 64)] |= uint64_t{1} << (row % 64);
    }
  }
  const TokenId tokens[] = {0, 77, kRows - 1};
  for (const auto& kernels : all_kernels(pool)) {
    std::vector<float> expected(size_t{kTokens} * kRows);
    std::vector<float> got(expected.size());
    kernels->linear_marked(expected.data(), x.data(), plain, marks.data(), kTokens);
    kernels->linear_marked(got.data(), x.data(), compact, marks.data(), kTokens);
    EXPECT_TRUE(same_bits(got, expected)) << kernels->name();

    std::vector<float> expected_rows(size_t{kTokens} * kCols);
    std::vector<float> rows(expected_rows.size());
    kernels->embed(expected_rows.data(), tokens, kTokens, plain);
    kernels->embed(rows.data(), tokens, kTokens, compact);
    EXPECT_TRUE(same_bits(rows, expected_rows)) << kernels->name();
  }
}

TEST(CompactRows, ExpertsApartHaveThem) {
  Random random;
  base::ThreadPool pool({.threads = 2});
  constexpr int kExperts = 3;
  constexpr int kHidden = 32 * 34;
  constexpr int kInner = 64;
  constexpr int kTokens = 20;
  std::vector<Weights> gates;
  std::vector<Weights> ups;
  std::vector<Weights> downs;
  for (int e = 0; e < kExperts; ++e) {
    gates.emplace_back(random, kInner, kHidden);
    ups.emplace_back(random, kInner, kHidden);
    downs.emplace_back(random, kHidden, kInner);
  }
  const auto apart = [](const std::vector<Weights>& all, bool compact) {
    std::vector<ExpertMatrix> out;
    for (const Weights& one : all) {
      out.push_back({.data = compact ? static_cast<const void*>(one.compact.data())
                                     : static_cast<const void*>(one.bf16.data())});
    }
    return out;
  };
  const std::vector<float> x = random.floats(int64_t{kTokens} * kHidden);
  std::vector<ExpertChoice> choices;
  for (int t = 0; t < kTokens; ++t) {
    const int first = random.below(kExperts);
    choices.push_back({first, 0.7f});
    choices.push_back({(first + 1) % kExperts, 0.3f});
  }
  for (const auto& kernels : all_kernels(pool)) {
    kernels->reserve({.tokens = kTokens,
                      .hidden = kHidden,
                      .inner = kInner,
                      .experts = kExperts,
                      .experts_per_token = 2,
                      .widest = kHidden});
    std::vector<float> outputs[2];
    for (const bool compact : {false, true}) {
      const auto gate = apart(gates, compact);
      const auto up = apart(ups, compact);
      const auto down = apart(downs, compact);
      const auto experts = [&](const std::vector<ExpertMatrix>& of, int rows, int cols) {
        return Experts{.experts = kExperts,
                       .rows = rows,
                       .cols = cols,
                       .format = compact ? Format::kCompactBf16 : Format::kBf16,
                       .expert_rows = rows,
                       .apart = of.data()};
      };
      const ExpertWeights weights{.gate = experts(gate, kInner, kHidden),
                                  .up = experts(up, kInner, kHidden),
                                  .down = experts(down, kHidden, kInner)};
      std::vector<float>& out = outputs[compact ? 1 : 0];
      out.assign(x.size(), 0.0f);
      kernels->experts(out.data(), x.data(), choices.data(), weights,
                       {.experts_per_token = 2, .glu = {.kind = GluShape::Kind::kSwiglu}}, kTokens);
    }
    EXPECT_TRUE(same_bits(outputs[1], outputs[0])) << kernels->name();
  }
}

}  // namespace
}  // namespace pelton::kernels
