// The families that are Llama with a few properties more: what their files say, read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/expected_tensors.h"
#include "families/mistral_original.h"
#include "families/published_config.h"
#include "families/tensor_names.h"

namespace pelton::families {
namespace {

using testing::HasSubstr;

Result<ModelConfig> read(Json config) {
  return parse_model_config(config, nullptr, "config.json");
}

Result<ModelConfig> with(const char* model, const char* key, const char* value) {
  Json config = published_config(model).value();
  config.set(key, Json::parse(value).value());
  return read(config);
}

void expect_refused(const Result<ModelConfig>& config, const std::string& message) {
  ASSERT_FALSE(config.ok()) << message;
  EXPECT_THAT(config.error().message, HasSubstr(message));
}

TEST(Qwen2, HasBiasesOnQueriesKeysAndValues) {
  const Result<ModelConfig> config = read(published_config("qwen2.5-0.5b").value());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "Qwen2ForCausalLM");
  EXPECT_TRUE(config->qkv_bias);
  EXPECT_FALSE(config->attn_out_bias);
  EXPECT_TRUE(config->tied_head);
  EXPECT_EQ(config->count(AttentionKind::kSliding), 0);  // sliding_window is there, and off
}

TEST(Qwen2, UpperLayersSlideIfTheFileSaysSo) {
  Json json = published_config("qwen2.5-0.5b").value();
  json.set("use_sliding_window", true);
  const Result<ModelConfig> config = read(json);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->sliding_window, 32768);
  EXPECT_FALSE(config->is_sliding(20));
  EXPECT_TRUE(config->is_sliding(21));
  EXPECT_EQ(config->count(AttentionKind::kSliding), 3);
}

TEST(Mistral, SlidesOnEveryLayerOrNone) {
  const Result<ModelConfig> none = read(published_config("mistral-7b-v0.3").value());
  ASSERT_TRUE(none.ok()) << none.error().message;
  EXPECT_EQ(none->architecture, "MistralForCausalLM");
  EXPECT_EQ(none->count(AttentionKind::kSliding), 0);
  const Result<ModelConfig> first = with("mistral-7b-v0.3", "sliding_window", "4096");
  EXPECT_EQ(first->count(AttentionKind::kSliding), 32);
  EXPECT_EQ(first->sliding_window, 4096);
  EXPECT_EQ(with("mistral-7b-v0.3", "head_dim", "160")->q_size(), 5120);  // not hidden_size
}

// MistralConfig's window where the file says nothing; null is none.
TEST(Mistral, AWindowThatIsNotSaidIsTransformersOwn) {
  Json json = published_config("mistral-7b-v0.3").value();
  std::erase_if(json.as_object(), [](const Json::Member& m) { return m.key == "sliding_window"; });
  EXPECT_EQ(read(json)->sliding_window, 4096);
  EXPECT_EQ(read(json)->count(AttentionKind::kSliding), 32);
  json.set("sliding_window", nullptr);
  EXPECT_EQ(read(json)->sliding_window, 0);
  EXPECT_EQ(read(json)->count(AttentionKind::kSliding), 0);
}

// Mistral's own files: mistral-inference's defaults.
TEST(Mistral, ItsOwnFilesHaveABaseForLongTextsWithoutAWindow) {
  const auto from = [](const char* params) {
    return read(config_from_mistral(Json::parse(params).value(), "params.json").value());
  };
  const Result<ModelConfig> later = from(R"({"dim": 64, "n_layers": 2, "head_dim": 32,
      "hidden_dim": 64, "n_heads": 2, "n_kv_heads": 1, "norm_eps": 1e-05, "vocab_size": 64})");
  ASSERT_TRUE(later.ok()) << later.error().message;
  EXPECT_EQ(later->sliding_window, 0);
  EXPECT_EQ(later->rope.theta, 1e6);
  const Result<ModelConfig> first = from(R"({"dim": 64, "n_layers": 2, "head_dim": 32,
      "hidden_dim": 64, "n_heads": 2, "n_kv_heads": 1, "norm_eps": 1e-05, "vocab_size": 64,
      "sliding_window": 16})");
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->sliding_window, 16);
  EXPECT_EQ(first->rope.theta, 1e4);
}

// Small 3.1 and later: the text's part of a model that also sees.
TEST(Mistral, IsReadOutOfItsWrapper) {
  Json text = published_config("mistral-7b-v0.3").value();
  text.set("architectures", nullptr);
  Json whole;
  whole.set("architectures", Json::Array{"Mistral3ForConditionalGeneration"});
  whole.set("model_type", "mistral3").set("text_config", text);
  whole.set("vision_config", Json::parse(R"({"hidden_act":"gelu","patch_size":14})").value());
  const Result<ModelConfig> config = read(whole);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "MistralForCausalLM");
  EXPECT_EQ(config->layer_count(), 32);
  EXPECT_EQ(tensor_name(*config, "language_model.model.layers.3.mlp.up_proj.weight"),
            "model.layers.3.mlp.up_proj.weight");
  EXPECT_EQ(tensor_name(*config, "model.language_model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(tensor_name(*config, "language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(tensor_name(*config, "vision_tower.transformer.layers.0.x.weight"), "");
}

TEST(Mixtral, SoftmaxOverTheBestTwo) {
  const Result<ModelConfig> config = read(published_config("mixtral-8x7b").value());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "MixtralForCausalLM");
  EXPECT_EQ(config->expert_layers(), 32);
  EXPECT_EQ(config->expert_intermediate_size, 14336);
  EXPECT_EQ(config->widest_mlp(), 0);
  EXPECT_EQ(config->router.kind, RouterKind::kSoftmaxOfTopK);
}

// Not Mistral's, whose class has other ones.
TEST(Mixtral, WhatItsFileDoesNotSayIsMixtralConfigs) {
  Json json = published_config("mixtral-8x7b").value();
  std::erase_if(json.as_object(), [](const Json::Member& m) {
    return m.key == "sliding_window" || m.key == "rope_theta" || m.key == "rms_norm_eps";
  });
  const Result<ModelConfig> config = read(json);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->sliding_window, 0);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_EQ(config->rms_norm_epsilon, 1e-5);
}

TEST(Mixtral, NamesOfItsFiles) {
  const ModelConfig config = read(published_config("mixtral-8x7b").value()).value();
  const std::pair<const char*, const char*> kNames[] = {
      {"model.layers.7.block_sparse_moe.gate.weight", "model.layers.7.mlp.router.weight"},
      {"model.layers.7.block_sparse_moe.experts.3.w1.weight",
       "model.layers.7.mlp.experts.3.gate_proj.weight"},
      {"model.layers.7.block_sparse_moe.experts.31.w2.weight_scale_inv",
       "model.layers.7.mlp.experts.31.down_proj.weight_scale_inv"},
  };
  for (const auto& [stored, ours] : kNames) {
    EXPECT_EQ(tensor_name(config, stored), ours);
    EXPECT_EQ(published_name(config, ours), stored);
  }
  const std::string odd = "model.layers.7.block_sparse_moe.experts.x.w1.weight";
  EXPECT_EQ(tensor_name(config, odd), odd);  // no number: it has no place, and is refused
}

TEST(Qwen3Moe, ReadsThePublishedFile) {
  const Result<ModelConfig> config = read(published_config("qwen3-30b-a3b").value());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "Qwen3MoeForCausalLM");
  EXPECT_TRUE(config->qk_norm);
  EXPECT_EQ(config->expert_layers(), 48);
  EXPECT_EQ(config->expert_count, 128);
  EXPECT_EQ(config->experts_per_token, 8);
  EXPECT_EQ(config->expert_intermediate_size, 768);
  EXPECT_EQ(config->router.kind, RouterKind::kSoftmaxOfTopK);
  EXPECT_EQ(with("qwen3-30b-a3b", "norm_topk_prob", "false")->router.kind, RouterKind::kSoftmax);
}

TEST(Qwen3Moe, DenseLayersStandBetweenExperts) {
  Json json = published_config("qwen3-30b-a3b").value();
  json.set("decoder_sparse_step", 2).set("mlp_only_layers", Json::Array{3});
  const Result<ModelConfig> config = read(json);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_FALSE(config->layers[0].has_experts);
  EXPECT_TRUE(config->layers[1].has_experts);
  EXPECT_FALSE(config->layers[3].has_experts);
  EXPECT_TRUE(config->layers[5].has_experts);
  EXPECT_EQ(config->widest_mlp(), 6144);
  expect_refused(with("qwen3-30b-a3b", "mlp_only_layers", "7"), "mlp_only_layers");
  for (const char* layers : {"[0, \"1\"]", "[0, 48]", "[0, -1]", "[0, 1.5]"}) {
    expect_refused(with("qwen3-30b-a3b", "mlp_only_layers", layers), "mlp_only_layers[1]");
  }
}

// 128 experts of three matrices each, a router, attention's six tensors, two norms, and the three
// outside layers.
TEST(Qwen3Moe, EachExpertHasItsTensors) {
  Json json = published_config("qwen3-30b-a3b").value();
  json.set("num_hidden_layers", 1);
  const ModelConfig config = read(json).value();
  EXPECT_EQ(expected_tensors(config, WeightLayout::kPublished).size(), 3u * 128 + 1 + 6 + 2 + 3);
  EXPECT_EQ(expected_tensors(config, WeightLayout::kFusedExperts).size(), 2u + 1 + 6 + 2 + 3);
}

}  // namespace
}  // namespace pelton::families
