#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "families/registry.h"

namespace pelton::families {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The 8B model of 3.1, instructed.
Json published() {
  constexpr const char* kFile =
      PELTON_SOURCE_DIR "/src/families/testdata/model_config_fuzz/llama-3.1-8b.json";
  return Json::parse(*base::read_file(kFile)).value();
}

Result<ModelConfig> with(const char* key, const char* value) {
  Json config = published();
  config.set(key, Json::parse(value).value());
  return parse_model_config(config, nullptr, "config.json");
}

void expect_refused(const Result<ModelConfig>& config, const std::string& message) {
  ASSERT_FALSE(config.ok()) << message;
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(config.error().message, HasSubstr(message));
}

TEST(Llama, ReadsThePublishedFile) {
  const Result<ModelConfig> config = parse_model_config(published(), nullptr, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->layer_count(), 32);
  EXPECT_EQ(config->count(AttentionKind::kFull), 32);
  EXPECT_EQ(config->hidden_size, 4096);
  EXPECT_EQ(config->head_count, 32);
  EXPECT_EQ(config->kv_head_count, 8);
  EXPECT_EQ(config->head_size, 128);  // the file does not say it
  EXPECT_EQ(config->intermediate_size, 14336);
  EXPECT_EQ(config->vocab_size, 128256);
  EXPECT_EQ(config->context_max, 131072);
  EXPECT_EQ(config->rms_norm_epsilon, 1e-5);
  EXPECT_EQ(config->rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(config->rope.theta, 500000.0);
  EXPECT_EQ(config->rope.factor, 8.0);
  EXPECT_EQ(config->rope.low_freq_factor, 1.0);
  EXPECT_EQ(config->rope.high_freq_factor, 4.0);
  EXPECT_EQ(config->rope.original_context, 8192.0);
  EXPECT_EQ(config->glu, Glu::kSwiglu);
  EXPECT_FALSE(config->tied_head);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_FALSE(config->attn_out_bias);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_FALSE(config->attention_sinks);
  EXPECT_FALSE(config->has_experts());
  EXPECT_THAT(config->eos_tokens, ElementsAre(128001, 128008, 128009));
}

TEST(Llama, ReadsWhatOtherFilesOfItsClassSay) {
  EXPECT_TRUE(with("tie_word_embeddings", "true")->tied_head);                // 3.2 1B and 3B
  EXPECT_EQ(with("head_dim", "64")->head_size, 64);                           // 3.2 1B
  EXPECT_EQ(with("rope_scaling", "null")->rope.scaling, RopeScaling::kNone);  // 3.0
  const Result<ModelConfig> biased = with("attention_bias", "true");
  ASSERT_TRUE(biased.ok()) << biased.error().message;
  EXPECT_TRUE(biased->qkv_bias);
  EXPECT_TRUE(biased->attn_out_bias);
  EXPECT_FALSE(biased->mlp_bias);
  EXPECT_TRUE(with("mlp_bias", "true")->mlp_bias);
  EXPECT_TRUE(with("quantization_config", R"({"quant_method":"gptq","bits":4,"desc_act":true})")
                  ->int_weights.reordered);
  // One group has one order.
  EXPECT_FALSE(with("quantization_config",
                    R"({"quant_method":"gptq","bits":4,"desc_act":true,"group_size":-1})")
                   ->int_weights.reordered);
}

TEST(Llama, RefusesVariantsThatItWouldComputeWrongly) {
  expect_refused(with("hidden_act", "\"gelu\""), "gelu");
  expect_refused(with("quantization_config", R"({"quant_method":"bitsandbytes"})"), "bitsandbytes");
  expect_refused(with("quantization_config", R"({"quant_method":"gptq","bits":3})"), "bits");
  expect_refused(with("quantization_config", R"({"quant_method":"awq","version":"gemv"})"),
                 "version");
  expect_refused(with("rope_scaling", R"({"type":"ntk","factor":2.0})"), "\"ntk\"");
}

TEST(Llama, ReadsWhatWritersOfQuantizedWeightsSay) {
  const char* const kGemm = R"({"quant_method":"awq","bits":4,"version":"GEMM","zero_point":true})";
  EXPECT_TRUE(with("quantization_config", kGemm).ok());
  Json compressed = Json::parse(R"({"quant_method":"compressed-tensors","format":"pack-quantized",
      "config_groups":{"group_0":{"targets":["Linear"],"weights":{"type":"int","num_bits":4,
      "strategy":"group","group_size":128}}}})")
                        .value();
  compressed.set("sparsity_config", Json::parse(R"({"format":"dense"})").value());
  EXPECT_TRUE(with("quantization_config", compressed.dump().c_str()).ok());
  compressed.set("sparsity_config", Json::parse(R"({"format":"sparse-24-bitmask"})").value());
  expect_refused(with("quantization_config", compressed.dump().c_str()),
                 "quantization_config.sparsity_config.format is \"sparse-24-bitmask\"");
}

// Mixtral's files say "llama" too.
TEST(Llama, ItsGgufArchitectureHasExpertsOrNot) {
  const Registry& registry = Registry::built_in();
  EXPECT_EQ(registry.find_gguf("llama", {})->model_type, "llama");
  EXPECT_EQ(registry.find_gguf("llama", {.has_window = true})->model_type, "mistral");
  const GgufKind experts{.has_experts = true};
  EXPECT_EQ(registry.find_gguf("llama", experts)->model_type, "mixtral");
  EXPECT_EQ(registry.find_gguf("llama", {.has_experts = true, .has_window = true})->model_type,
            "mixtral");
  EXPECT_EQ(registry.find_gguf("gpt-oss", experts)->model_type, "gpt_oss");
  EXPECT_EQ(registry.find_gguf("mamba", {}), nullptr);
  EXPECT_EQ(registry.find_gguf("deepseek2", experts)->model_type, "deepseek_v2");
  EXPECT_EQ(registry.find_gguf("deepseek2", {.has_experts = true, .expert_gating = 2})->model_type,
            "deepseek_v3");
}

// What is not computed because of how its weights are packed is counted all the same.
TEST(Llama, IsPlannedAsItIsComputed) {
  Json config = published();
  EXPECT_EQ(parse_planned_config(config, "config.json")->rope.scaling, RopeScaling::kLlama3);
  config.set("architectures", Json::Array{"LlamaForSequenceClassification"});
  config.set("quantization_config", Json::parse(R"({"quant_method":"awq","bits":4})").value());
  const Result<ModelConfig> planned = parse_planned_config(config, "config.json");
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_EQ(planned->other_bits, 4.125);
  EXPECT_EQ(planned->model_type, "llama");
  config.set("num_experts", 4).set("num_experts_per_tok", 2);
  EXPECT_EQ(parse_planned_config(config, "config.json")->expert_layers(), 32);
  config.set("mlp_bias", true);
  EXPECT_TRUE(parse_planned_config(config, "config.json")->mlp_bias);
}

}  // namespace
}  // namespace pelton::families
