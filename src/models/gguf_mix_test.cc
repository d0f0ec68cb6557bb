// Matrices rounded to GGUF's blocks: how much each type loses, what a file mixed as Q4_K_M holds in
// which, and that it still computes what its source computes, nearly.
#include "checkpoint/gguf_mix.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "checkpoint/block_encoder.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hash_stream.h"
#include "checkpoint/synthetic.h"
#include "families/published_config.h"
#include "kernels/kernels.h"
#include "kernels/weight_row.h"
#include "models/sequence_runner.h"

namespace pelton::models {
namespace {

using tensor::DType;

// Sums of four lanes: near enough to a normal distribution of deviation 0.1.
std::vector<float> weights_of(int rows, float mean) {
  const checkpoint::HashStream hashes(11, "weights");
  std::vector<float> weights;
  for (uint64_t i = 0; i < static_cast<uint64_t>(rows) * 256; ++i) {
    const uint64_t bits = hashes.at(i);
    const double sum = static_cast<double>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                           ((bits >> 32) & 0xFFFF) + (bits >> 48));
    weights.push_back(static_cast<float>((sum - 131070) / 378372.0 + mean));
  }
  return weights;
}

// The error of a type's blocks, as a part of the weights.
double loss_of(DType type, const std::vector<float>& weights) {
  const auto rows = static_cast<int64_t>(weights.size() / 256);
  const int64_t bytes = tensor::row_bytes(type, 256);
  std::vector<uint8_t> blocks(static_cast<size_t>(rows * bytes));
  checkpoint::encode_row(type, weights, blocks.data());
  const kernels::StoredMatrix matrix{
      .data = blocks.data(),
      .rows = rows,
      .cols = 256,
      .format = type == DType::kQ8_0 ? kernels::Format::kQ8_0 : kernels::ggml_format(type)};
  double error = 0;
  double size = 0;
  for (int64_t r = 0; r < rows; ++r) {
    float row[256];
    kernels::read_weight_row(matrix, r, row);
    for (int64_t c = 0; c < 256; ++c) {
      const float weight = weights[static_cast<size_t>(r * 256 + c)];
      error += std::pow(row[c] - weight, 2);
      size += weight * weight;
    }
  }
  return std::sqrt(error / size);
}

// llama.cpp's own quantizer loses 6.9 % with Q4_K, 3.5 % with Q5_K, 1.7 % with Q6_K, 8.2 % with
// Q4_0, 4.0 % with Q5_0 and 0.5 % with Q8_0 of such weights (testdata/golden/gguf-kquants).
TEST(BlockLoss, IsAboutThatOfLlamaCppsQuantizer) {
  const std::vector<float> weights = weights_of(64, 0.0f);
  const std::pair<DType, double> most[] = {
      {DType::kQ4_0, 0.083}, {DType::kQ4_1, 0.077}, {DType::kQ5_0, 0.042}, {DType::kQ5_1, 0.038},
      {DType::kQ8_0, 0.006}, {DType::kQ4_K, 0.070}, {DType::kQ5_K, 0.036}, {DType::kQ6_K, 0.018}};
  for (const auto& [type, loss] : most) {
    EXPECT_LT(loss_of(type, weights), loss) << tensor::dtype_name(type);
    EXPECT_GT(loss_of(type, weights), loss / 2) << tensor::dtype_name(type);
  }
  // Weights all of one sign: a minimum cannot be above zero, nor a scale below it.
  for (const float mean : {0.5f, -0.5f}) {
    for (const auto& [type, loss] : most) {
      EXPECT_LT(loss_of(type, weights_of(64, mean)), loss) << tensor::dtype_name(type) << mean;
    }
  }
}

std::string type_in(const families::ModelConfig& config, const std::string& name) {
  for (const families::ExpectedTensor& tensor :
       families::expected_tensors(config, families::WeightLayout::kGguf)) {
    if (tensor.name != name) continue;
    return std::string(tensor::dtype_name(checkpoint::mixed_type(DType::kQ4_K, tensor, config)));
  }
  return "not there";
}

families::ModelConfig published(const char* name,
                                const std::vector<std::pair<const char*, int>>& keys) {
  Json config = families::published_config(name).value();
  for (const auto& [key, value] : keys) config.set(key, value);
  return families::parse_model_config(config, nullptr, name).value();
}

TEST(Q4KM, MixesAsLlamaCppDoes) {
  const auto llama = published("llama-3.1-8b", {});  // 32 layers
  EXPECT_EQ(type_in(llama, "lm_head.weight"), "Q6_K");
  EXPECT_EQ(type_in(llama, "model.embed_tokens.weight"), "Q4_K");
  for (const char* part : {"self_attn.v_proj.weight", "mlp.down_proj.weight"}) {
    std::string larger;
    for (int i = 0; i < 32; ++i) {
      const auto type = type_in(llama, "model.layers." + std::to_string(i) + "." + part);
      EXPECT_TRUE(type == "Q6_K" || type == "Q4_K") << i << type;
      if (type == "Q6_K") larger += std::to_string(i) + " ";
    }
    EXPECT_EQ(larger, "0 1 2 3 6 9 12 15 18 21 24 27 28 29 30 31 ") << part;
  }
  for (const char* part :
       {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.o_proj.weight",
        "mlp.gate_proj.weight", "mlp.up_proj.weight"}) {
    EXPECT_EQ(type_in(llama, std::string("model.layers.0.") + part), "Q4_K") << part;
  }
}

TEST(Q4KM, SpecialShapesHaveTheirOwnTypes) {
  // The embedding is the head; rows of 1 152 are no whole number of 256, of 1 000 none of 32.
  const auto tied = published("gemma-3-4b", {});
  EXPECT_EQ(type_in(tied, "model.embed_tokens.weight"), "Q6_K");
  const auto odd = published("gemma-3-4b", {{"hidden_size", 1152}});
  EXPECT_EQ(type_in(odd, "model.embed_tokens.weight"), "Q8_0");
  EXPECT_EQ(type_in(odd, "model.layers.9.self_attn.q_proj.weight"), "Q5_0");
  EXPECT_EQ(type_in(odd, "model.layers.9.self_attn.o_proj.weight"), "Q4_K");
  const auto odder = published("gemma-3-4b", {{"hidden_size", 1000}});
  EXPECT_EQ(type_in(odder, "model.layers.9.self_attn.q_proj.weight"), "BF16");
  // Values of 70B models, and attention beside eight experts.
  const auto large = published("llama-3.1-8b", {{"num_hidden_layers", 80}});
  EXPECT_EQ(type_in(large, "model.layers.10.self_attn.v_proj.weight"), "Q5_K");
  EXPECT_EQ(type_in(large, "model.layers.12.self_attn.v_proj.weight"), "Q6_K");
  const auto eight = published("qwen3-30b-a3b", {{"num_experts", 8}, {"num_experts_per_tok", 2}});
  EXPECT_EQ(type_in(eight, "model.layers.0.self_attn.v_proj.weight"), "Q8_0");
  EXPECT_EQ(type_in(eight, "model.layers.0.self_attn.k_proj.weight"), "Q8_0");
  EXPECT_EQ(type_in(eight, "model.layers.0.self_attn.o_proj.weight"), "Q5_K");
  EXPECT_EQ(type_in(eight, "model.layers.0.mlp.experts.down_exps"), "Q6_K");
  EXPECT_EQ(type_in(eight, "model.layers.6.mlp.experts.down_exps"), "Q4_K");
}

// Logits of the tokens 0, 37, 74, ... by reference kernels, (48, vocab).
std::vector<float> logits_of(const std::string& path) {
  base::ThreadPool pool({.threads = 2, .pin = false});
  auto kernels = kernels::make_kernels(kernels::KernelChoice::kReference, pool).value();
  const auto opened = checkpoint::Checkpoint::open(path);
  CHECK(opened.ok(), opened.ok() ? "" : opened.error().message);
  const int vocab = opened->config().vocab_size;
  std::vector<TokenId> tokens;
  std::vector<int> rows;
  for (int i = 0; i < 48; ++i) {
    tokens.push_back(i * 37 % vocab);
    rows.push_back(i);
  }
  auto model = load_model(*opened, *kernels, {.batch_tokens_max = 48, .logit_rows_max = 48});
  CHECK(model.ok(), model.ok() ? "" : model.error().message);
  auto runner = SequenceRunner::make(**model, DType::kF32, 48);
  const float* got = runner->step(tokens, rows, nullptr);
  return {got, got + 48 * vocab};
}

double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += std::pow(double{got[i]} - exact[i], 2);
    size += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(difference / size);
}

// Rows of 128 and 192 take blocks of 32, the last one's those of 256.
TEST(Q4KM, FilesComputeNearlyWhatTheirSourceComputes) {
  const std::string root = PELTON_SOURCE_DIR "/testdata/golden/";
  base::ThreadPool pool({.threads = 2, .pin = false});
  const auto quiet = [](int64_t, int64_t) {};
  for (const char* name :
       {"llama3", "qwen2", "qwen3", "qwen3-moe", "mixtral", "mistral", "tiny", "llama3 of 256"}) {
    SCOPED_TRACE(name);
    const std::string shape = std::string(name).substr(0, std::string(name).find(' '));
    auto options = checkpoint::synthetic_like(root + shape + "/config.json", 0).value();
    if (shape != name) options.config.set("hidden_size", 256).set("intermediate_size", 512);
    const std::string folder = testing::TempDir() + "gguf_mix_test";
    std::filesystem::remove_all(folder);
    ASSERT_TRUE(checkpoint::write_synthetic(options, folder + "/hf", pool, quiet).ok());
    const Result<void> written = checkpoint::write_synthetic_gguf(
        options, {.matrices = DType::kQ4_K, .vocabulary = {}}, folder + "/q4.gguf", pool, quiet);
    ASSERT_TRUE(written.ok()) << written.error().message;
    const double error = relative_error(logits_of(folder + "/q4.gguf"), logits_of(folder + "/hf"));
    EXPECT_LT(error, 0.4);
    EXPECT_GT(error, 1e-3);
    std::filesystem::remove_all(folder);
  }
}

// Rows that are no whole number of blocks were a CHECK.
TEST(Gguf, OddRowsAreWrittenInEveryType) {
  base::ThreadPool pool({.threads = 2, .pin = false});
  const auto quiet = [](int64_t, int64_t) {};
  const auto options =
      checkpoint::synthetic_like(PELTON_SOURCE_DIR "/testdata/golden/shape-qwen3/config.json", 0)
          .value();
  const std::string file = testing::TempDir() + "gguf_mix_test_odd.gguf";
  for (const DType type : {DType::kBf16, DType::kQ8_0, DType::kQ4_K}) {
    std::filesystem::remove(file);
    const Result<void> written = checkpoint::write_synthetic_gguf(
        options, {.matrices = type, .vocabulary = {}}, file, pool, quiet);
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_TRUE(checkpoint::Checkpoint::open(file).ok());
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace pelton::models
