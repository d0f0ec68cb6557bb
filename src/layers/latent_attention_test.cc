// The absorbed form against the expanded one, which makes every head's keys and values, computed
// here in double precision from the same weights.
#include "layers/latent_attention.h"

#include <cmath>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "checkpoint/family_golden.h"
#include "families/kv_groups.h"
#include "kernels/weight_row.h"
#include "layers/rotary.h"

namespace pelton::layers {
namespace {

using Vector = std::vector<double>;

class Expanded {
 public:
  Expanded(const checkpoint::Checkpoint& checkpoint, int layer)
      : checkpoint_(checkpoint),
        config_(checkpoint.config()),
        prefix_("model.layers." + std::to_string(layer) + "."),
        rotary_(config_) {}

  // What attention adds to each row of x: (tokens, hidden).
  std::vector<Vector> run(const std::vector<Vector>& x) {
    const families::LatentConfig& latent = config_.latent;
    std::vector<Vector> queries;
    std::vector<Vector> parts;  // shared by all heads
    std::vector<Vector> heads;  // keys and values of each
    for (size_t t = 0; t < x.size(); ++t) {
      const Vector normed = norm(x[t], "input_layernorm.weight", config_.rms_norm_epsilon);
      const Vector compressed =
          norm(times("q_a_proj", normed), "self_attn.q_a_layernorm.weight", 1e-6);
      queries.push_back(times("q_b_proj", compressed));
      for (int h = 0; h < config_.head_count; ++h) {
        turn(queries[t].data() + h * config_.head_size + latent.nope_size, static_cast<int>(t));
      }
      Vector row = times("kv_a_proj_with_mqa", normed);
      parts.emplace_back(row.begin() + latent.kv_rank, row.end());
      turn(parts[t].data(), static_cast<int>(t));
      row.resize(static_cast<size_t>(latent.kv_rank));
      heads.push_back(times("kv_b_proj", norm(row, "self_attn.kv_a_layernorm.weight", 1e-6)));
    }
    std::vector<Vector> added;
    for (size_t t = 0; t < x.size(); ++t) {
      Vector mixed;
      for (int h = 0; h < config_.head_count; ++h) attend(queries[t], parts, heads, h, t, mixed);
      added.push_back(times("o_proj", mixed));
    }
    return added;
  }

 private:
  void attend(const Vector& queries, const std::vector<Vector>& parts,
              const std::vector<Vector>& heads, int head, size_t position, Vector& mixed) const {
    const families::LatentConfig& latent = config_.latent;
    const double* const q = queries.data() + head * config_.head_size;
    const int of_head = latent.nope_size + latent.value_size;
    Vector weights;
    double total = 0;
    for (size_t p = 0; p <= position; ++p) {
      double score = 0;
      for (int i = 0; i < latent.nope_size; ++i) score += q[i] * heads[p][head * of_head + i];
      for (int i = 0; i < latent.rope_size; ++i) score += q[latent.nope_size + i] * parts[p][i];
      weights.push_back(std::exp(score * config_.attention_scale));
      total += weights.back();
    }
    for (int i = 0; i < latent.value_size; ++i) {
      double sum = 0;
      for (size_t p = 0; p <= position; ++p) {
        sum += weights[p] / total * heads[p][head * of_head + latent.nope_size + i];
      }
      mixed.push_back(sum);
    }
  }

  // Neighbours.
  void turn(double* x, int position) const {
    for (size_t i = 0; i < rotary_.inverse_frequency().size(); ++i) {
      const double angle = position * rotary_.inverse_frequency()[i];
      const double a = x[2 * i];
      const double b = x[2 * i + 1];
      x[2 * i] = a * std::cos(angle) - b * std::sin(angle);
      x[2 * i + 1] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  Vector norm(const Vector& x, const std::string& name, double epsilon) {
    FloatVectors keep;
    const float* gains =
        load_vector(checkpoint_, prefix_ + name, static_cast<int64_t>(x.size()), keep).value();
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
    Vector out;
    for (size_t i = 0; i < x.size(); ++i) out.push_back(x[i] * scale * gains[i]);
    return out;
  }

  Vector times(const std::string& name, const Vector& x) {
    const std::string full = prefix_ + "self_attn." + name + ".weight";
    const auto rows = static_cast<int>(checkpoint_.tensors().find(full)->second.shape[0]);
    const auto cols = static_cast<int>(x.size());
    FloatVectors keep;
    const kernels::Matrix matrix = load_weight(checkpoint_, full, rows, cols, keep).value();
    std::vector<float> row(x.size());
    Vector out;
    for (int r = 0; r < rows; ++r) {
      kernels::read_weight_row(kernels::stored(matrix), r, row.data());
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) sum += x[i] * row[i];
      out.push_back(sum);
    }
    return out;
  }

  const checkpoint::Checkpoint& checkpoint_;
  const families::ModelConfig& config_;
  const std::string prefix_;
  const Rotary rotary_;
};

class LatentAttentionTest : public testing::TestWithParam<kernels::KernelChoice> {};

TEST_P(LatentAttentionTest, IsTheExpandedForm) {
  base::ThreadPool pool({.threads = 2, .pin = false});
  auto made = kernels::make_kernels(GetParam(), pool);
  if (!made.ok()) GTEST_SKIP() << made.error().message;
  const std::string folder =
      testing::TempDir() + "latent_attention_test." + std::to_string(static_cast<int>(GetParam()));
  std::filesystem::remove_all(folder);
  const std::string golden = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/deepseek-v3";
  ASSERT_TRUE(checkpoint::write_family_golden(golden, folder).ok());
  const auto checkpoint = checkpoint::Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const families::ModelConfig& config = checkpoint->config();

  constexpr int kTokens = 37;
  const auto hidden = static_cast<size_t>(config.hidden_size);
  std::mt19937 random(20261123);
  std::normal_distribution<float> normal;
  std::vector<float> x(kTokens * hidden);
  for (float& value : x) value = normal(random);
  std::vector<Vector> exact_x;
  for (size_t t = 0; t < kTokens; ++t) {
    exact_x.emplace_back(x.begin() + static_cast<ptrdiff_t>(t * hidden),
                         x.begin() + static_cast<ptrdiff_t>((t + 1) * hidden));
  }
  const std::vector<Vector> exact = Expanded(*checkpoint, 1).run(exact_x);

  const Rotary rotary(config);
  std::vector<float> cos_sin(kTokens * static_cast<size_t>(rotary.size()));
  for (int t = 0; t < kTokens; ++t) rotary.table_row(t, cos_sin.data() + t * rotary.size());
  const tensor::KvBlockShape shape = families::kv_block_shape(config, 16);
  const std::vector<int32_t> blocks = {2, 0, 1};
  std::vector<char> memory(3 *
                           static_cast<size_t>(tensor::kv_block_bytes(tensor::DType::kF32, shape)));
  const kernels::KvLayer cache{.data = memory.data(),
                               .dtype = tensor::DType::kF32,
                               .kv_heads = 1,
                               .head_size = shape.head_size,
                               .latent = true};
  AttentionWorkspace workspace(config, kTokens);
  auto attention = load_attention(*checkpoint, 1, nullptr);
  ASSERT_TRUE(attention.ok()) << attention.error().message;
  std::vector<float> got = x;
  (*made)->reserve({.tokens = kTokens});
  (*attention)
      ->forward(**made, got.data(), kTokens, cos_sin.data(), cache,
                {{.row_count = kTokens, .blocks = blocks.data()}}, {}, workspace);
  for (size_t t = 0; t < kTokens; ++t) {
    double difference = 0;
    double size = 0;
    for (size_t i = 0; i < hidden; ++i) {
      const double added = double{got[t * hidden + i]} - x[t * hidden + i];
      difference += (added - exact[t][i]) * (added - exact[t][i]);
      size += exact[t][i] * exact[t][i];
    }
    EXPECT_LT(std::sqrt(difference / size), 3e-6) << t;
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Kernels, LatentAttentionTest,
                         testing::Values(kernels::KernelChoice::kReference,
                                         kernels::KernelChoice::kAvx512,
                                         kernels::KernelChoice::kAvx2,
                                         kernels::KernelChoice::kNeon));

}  // namespace
}  // namespace pelton::layers
