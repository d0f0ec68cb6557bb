// Weights whose files hold them otherwise than a product wants them: GPTQ's act order, integers of
// 8 bits, and the two matrices of latent attention in GGUF files of 2025 on, the keys' transposed.
#include <cmath>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_names.h"
#include "families/registry.h"
#include "models/int_weights_file.h"
#include "models/sequence_runner.h"

namespace pelton::models {
namespace {

constexpr int kTokens = 48;

std::vector<float> logits_of(const std::string& model, kernels::KernelChoice choice) {
  base::ThreadPool pool({.threads = 2, .pin = false});
  auto kernels = kernels::make_kernels(choice, pool).value();
  const auto checkpoint = checkpoint::Checkpoint::open(model);
  CHECK(checkpoint.ok(), checkpoint.ok() ? "" : checkpoint.error().message);
  std::vector<TokenId> tokens;
  std::vector<int> rows;
  for (int i = 0; i < kTokens; ++i) {
    tokens.push_back(i * 37 % checkpoint->config().vocab_size);
    rows.push_back(i);
  }
  auto loaded =
      load_model(*checkpoint, *kernels, {.batch_tokens_max = kTokens, .logit_rows_max = kTokens});
  CHECK(loaded.ok(), loaded.ok() ? "" : loaded.error().message);
  auto runner = SequenceRunner::make(**loaded, tensor::DType::kF32, kTokens);
  CHECK(runner.ok());
  const float* got = runner->step(tokens, rows, nullptr);
  return {got, got + kTokens * checkpoint->config().vocab_size};
}

double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
  CHECK(got.size() == exact.size());
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += std::pow(double{got[i]} - exact[i], 2);
    size += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(difference / size);
}

class ReorderedWeights : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "reordered_weights_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(ReorderedWeights, GptqGroupsOfInputsInAnyOrderComputeTheirValues) {
  for (const bool symmetric : {true, false}) {
    const std::string integers = folder_ + (symmetric ? "/symmetric" : "/with_zeros");
    const std::string widened = integers + "_f32";
    IntWeightsFile::write(integers, {.symmetric = symmetric});
    IntWeightsFile::write(widened, {.symmetric = symmetric, .widened = true});
    for (const auto choice : {kernels::KernelChoice::kReference, kernels::KernelChoice::kAuto}) {
      EXPECT_LT(relative_error(logits_of(integers, choice), logits_of(widened, choice)), 2e-6)
          << (symmetric ? "symmetric" : "with zero points");
    }
  }
}

TEST_F(ReorderedWeights, CompressedTensorsComputeTheirValues) {
  using Kind = IntWeightsFile::Kind;
  for (const Kind kind : {Kind::kPacked4, Kind::kPacked8, Kind::kBytes}) {
    const std::string integers = folder_ + "/" + std::to_string(static_cast<int>(kind));
    IntWeightsFile::write(integers, {.kind = kind});
    IntWeightsFile::write(integers + "_f32", {.kind = kind, .widened = true});
    for (const auto choice : {kernels::KernelChoice::kReference, kernels::KernelChoice::kAuto}) {
      EXPECT_LT(relative_error(logits_of(integers, choice), logits_of(integers + "_f32", choice)),
                2e-6)
          << static_cast<int>(kind);
    }
  }
}

// Rows of 128, 160 and 192 inputs: the last group of some has half as many as the others.
TEST_F(ReorderedWeights, TheLastGroupOfARowMayBeSmaller) {
  using Kind = IntWeightsFile::Kind;
  for (const Kind kind : {Kind::kGptqInAnyOrder, Kind::kPacked4, Kind::kPacked8}) {
    for (const int64_t group : {64, 128}) {
      const std::string integers =
          folder_ + "/" + std::to_string(static_cast<int>(kind)) + "_" + std::to_string(group);
      IntWeightsFile::write(integers, {.kind = kind, .group = group});
      IntWeightsFile::write(integers + "_f32", {.kind = kind, .widened = true, .group = group});
      const auto choice = kernels::KernelChoice::kReference;
      EXPECT_LT(relative_error(logits_of(integers, choice), logits_of(integers + "_f32", choice)),
                2e-6)
          << static_cast<int>(kind) << " in groups of " << group;
    }
  }
}

TEST_F(ReorderedWeights, AnOrderThatTheConfigurationDoesNotSayIsRefused) {
  IntWeightsFile::write(folder_, {.marked = false});
  base::ThreadPool pool({.threads = 1, .pin = false});
  auto kernels = kernels::make_kernels(kernels::KernelChoice::kReference, pool).value();
  const auto checkpoint = checkpoint::Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto model = load_model(*checkpoint, *kernels, {.batch_tokens_max = 1});
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("g_idx"), std::string::npos) << model.error().message;
  EXPECT_NE(model.error().message.find("desc_act"), std::string::npos) << model.error().message;
}

std::vector<float> widened(const tensor::TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.element_count()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = view.dtype == tensor::DType::kF32 ? view.as<float>()[i]
                                                  : tensor::bf16_to_float(view.as<uint16_t>()[i]);
  }
  return values;
}

// A GGUF file by hand, of float32 and in llama.cpp's names; `apart`: keys and values of the latent
// in two matrices.
void write_latent_gguf(const checkpoint::Checkpoint& source, const Json& config, bool apart,
                       const std::string& path) {
  const families::Family& family = *source.config().family;
  const families::LatentConfig& latent = source.config().latent;
  const int64_t heads = source.config().head_count;
  const int64_t rank = latent.kv_rank;
  const int64_t nope = latent.nope_size;
  const int64_t value_size = latent.value_size;
  checkpoint::GgufHeader header;
  Json shown = config;
  if (apart) {  // llama.cpp says the cache's row in the place of a head
    shown.set("num_key_value_heads", 1).set("v_head_dim", rank).set("qk_nope_head_dim", rank);
  }
  checkpoint::config_to_gguf(family, shown, header);
  if (apart) {
    header.u32("deepseek2.attention.key_length_mla",
               static_cast<uint32_t>(nope + latent.rope_size));
    header.u32("deepseek2.attention.value_length_mla", static_cast<uint32_t>(value_size));
  }
  std::string data;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape,
                       const std::vector<float>& values) {
    header.tensor(checkpoint::name_to_gguf(family, name), tensor::DType::kF32, shape);
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    data.resize(checkpoint::gguf_padded(data.size()));
  };
  const std::string experts = "experts.";
  std::map<std::string, std::vector<float>> stacked;
  for (const auto& [name, view] : source.tensors()) {
    const std::vector<float> values = widened(view);
    const size_t at = name.find("kv_b_proj.weight");
    if (apart && at != std::string::npos) {
      std::vector<float> keys(static_cast<size_t>(heads * rank * nope));
      std::vector<float> last;
      for (int64_t h = 0; h < heads; ++h) {
        const float* const head = values.data() + h * (nope + value_size) * rank;
        for (int64_t n = 0; n < nope; ++n) {
          for (int64_t c = 0; c < rank; ++c) {
            keys[static_cast<size_t>((h * rank + c) * nope + n)] = head[n * rank + c];
          }
        }
        last.insert(last.end(), head + nope * rank, head + (nope + value_size) * rank);
      }
      const std::string front = name.substr(0, at);
      add(front + "k_b_proj.weight", {heads, rank, nope}, keys);
      add(front + "v_b_proj.weight", {heads, value_size, rank}, last);
    } else if (const size_t each = name.find(".mlp." + experts); each != std::string::npos) {
      // "N.gate_proj.weight" of all N, which come as texts are sorted.
      const size_t number = each + 5 + experts.size();
      const size_t dot = name.find('.', number);
      const int64_t e = std::stoll(name.substr(number, dot - number));
      const std::string kind = name.substr(dot + 1, name.find('_', dot) - dot - 1);
      std::vector<float>& all = stacked[name.substr(0, number) + kind + "_exps"];
      all.resize(values.size() * static_cast<size_t>(source.config().expert_count));
      std::copy(values.begin(), values.end(),
                all.begin() + e * static_cast<int64_t>(values.size()));
    } else {
      add(name, view.shape, values);
    }
  }
  const int64_t hidden = source.config().hidden_size;
  const int64_t inner = source.config().expert_intermediate_size;
  for (const auto& [name, values] : stacked) {
    const bool down = name.find("down_exps") != std::string::npos;
    add(name, {source.config().expert_count, down ? hidden : inner, down ? inner : hidden}, values);
  }
  CHECK(base::write_file(path, header.bytes() + data).ok());
}

TEST_F(ReorderedWeights, KeysAndValuesOfTheLatentInTwoMatricesComputeTheSame) {
  const std::string golden = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/deepseek-v3";
  Json config = Json::parse(*base::read_file(golden + "/config.json")).value();
  config.set("quantization_config", nullptr).set("num_nextn_predict_layers", 0);
  const Json seed = Json::parse(*base::read_file(golden + "/case.json")).value();
  const auto made = checkpoint::family_golden_safetensors(config, seed);
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::filesystem::create_directories(folder_);
  ASSERT_TRUE(base::write_file(folder_ + "/config.json", config.dump()).ok());
  ASSERT_TRUE(base::write_file(folder_ + "/model.safetensors",
                               {reinterpret_cast<const char*>(made->data()), made->size()})
                  .ok());
  const auto source = checkpoint::Checkpoint::open(folder_);
  ASSERT_TRUE(source.ok()) << source.error().message;
  write_latent_gguf(*source, config, false, folder_ + "/one.gguf");
  write_latent_gguf(*source, config, true, folder_ + "/two.gguf");
  const auto two = checkpoint::Checkpoint::open(folder_ + "/two.gguf");
  ASSERT_TRUE(two.ok()) << two.error().message;
  EXPECT_TRUE(two->config().latent.keys_transposed);
  EXPECT_EQ(two->config().latent.nope_size, source->config().latent.nope_size);
  EXPECT_EQ(two->config().latent.value_size, source->config().latent.value_size);
  for (const auto choice : {kernels::KernelChoice::kReference, kernels::KernelChoice::kAuto}) {
    const std::vector<float> wanted = logits_of(folder_, choice);
    EXPECT_LT(relative_error(logits_of(folder_ + "/one.gguf", choice), wanted), 2e-6);
    EXPECT_LT(relative_error(logits_of(folder_ + "/two.gguf", choice), wanted), 2e-6);
  }
}

}  // namespace
}  // namespace pelton::models
