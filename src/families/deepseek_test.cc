#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/expected_tensors.h"
#include "families/kv_groups.h"
#include "families/published_config.h"
#include "families/tensor_names.h"

namespace pelton::families {
namespace {

using testing::HasSubstr;

Json v3() {
  return published_config("deepseek-v3").value();
}

Result<ModelConfig> read(const Json& config) {
  return parse_model_config(config, nullptr, "config.json");
}

Result<ModelConfig> with(Json config, const char* key, const char* value) {
  config.set(key, Json::parse(value).value());
  return read(config);
}

// V2-Lite: queries whole, greedy, one group, weights as the softmax gives them.
Json v2_lite() {
  return Json::parse(R"({
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
    "attention_bias": false, "first_k_dense_replace": 1, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
    "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "moe_layer_freq": 1,
    "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "q_lora_rank": null, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_theta": 10000,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
      "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096, "type": "yarn"},
    "routed_scaling_factor": 1.0, "scoring_func": "softmax", "tie_word_embeddings": false,
    "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128, "vocab_size": 102400})")
      .value();
}

TEST(DeepseekV3, ReadsThePublishedFile) {
  const Result<ModelConfig> config = read(v3());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "DeepseekV3ForCausalLM");
  EXPECT_EQ(config->count(AttentionKind::kLatent), 61);
  EXPECT_EQ(config->expert_layers(), 58);
  EXPECT_FALSE(config->layers[2].has_experts);
  EXPECT_EQ(config->head_size, 192);
  EXPECT_EQ(config->rotary_size(), 64);
  EXPECT_EQ(config->rope.pairs, RopePairs::kNeighbours);
  EXPECT_EQ(config->rope.attention_factor, 1.0);
  const double grown = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(config->attention_scale, grown * grown / std::sqrt(192.0));
  EXPECT_EQ(config->router.kind, RouterKind::kSigmoid);
  EXPECT_TRUE(config->router.normalises && config->router.correction);
  EXPECT_TRUE(config->router.group_by_two);
  EXPECT_EQ(config->router.groups, 8);
  EXPECT_EQ(config->router.groups_kept, 4);
  EXPECT_EQ(config->router.scale, 2.5);
  EXPECT_EQ(config->quantization, WeightQuantization::kF8Blocks);
  EXPECT_EQ(config->draft_layer_count, 1);
}

// What a head has is said by the parts of latent attention alone.
TEST(DeepseekV3, HeadsNeedNotDivideTheHiddenSize) {
  Json config = v3();
  config.set("num_attention_heads", 96).set("num_key_value_heads", 96);  // 7168 / 96 = 74.67
  EXPECT_EQ(read(config)->head_size, 192);
  config.set("num_attention_heads", 1024).set("num_key_value_heads", 1024);  // 7
  EXPECT_EQ(read(config)->head_size, 192);
  config.set("head_dim", 64);  // as transformers 5 writes it: qk_rope_head_dim
  EXPECT_EQ(read(config)->head_size, 192);
}

// 576 numbers a token and layer, for all heads together.
TEST(DeepseekV3, CachesOneRowOfEachToken) {
  const ModelConfig config = read(v3()).value();
  const KvGroups groups = kv_groups(config, {.dtype = tensor::DType::kF16, .block_tokens = 16});
  ASSERT_EQ(groups.specs.size(), 1);
  EXPECT_EQ(groups.layer_block_bytes[0], 576 * 16 * 2);
  EXPECT_EQ(groups.specs[0].block_bytes, 61 * 576 * 16 * 2);
  const KvGroups scaled = kv_groups(config, {.dtype = tensor::DType::kI8, .block_tokens = 16});
  EXPECT_EQ(scaled.layer_block_bytes[0], (576 + 2) * 16);
}

TEST(DeepseekV3, WeightsComeWithScalesOfBlocksThatAreCutAtEdges) {
  const ModelConfig config = read(v3()).value();
  int found = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config, WeightLayout::kPublished)) {
    if (tensor.name != "model.layers.0.self_attn.kv_a_proj_with_mqa.weight_scale_inv") continue;
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{5, 56}));  // 576 = 4.5 blocks
    EXPECT_EQ(tensor.dtype, tensor::DType::kF32);
    EXPECT_EQ(tensor.parameters(), 0);
    ++found;
  }
  EXPECT_EQ(found, 1);
}

TEST(DeepseekV3, LayersThatDraftAreLeftOut) {
  const ModelConfig config = read(v3()).value();
  EXPECT_EQ(tensor_name(config, "model.layers.61.eh_proj.weight"), "");
  EXPECT_EQ(tensor_name(config, "model.layers.60.mlp.gate.weight"),
            "model.layers.60.mlp.router.weight");
  EXPECT_NE(tensor_name(config, "model.layers.62.eh_proj.weight"), "");  // has no place: refused
}

TEST(DeepseekV3, RefusesVariantsThatItWouldComputeWrongly) {
  for (const auto& [key, value] :
       {std::pair{"scoring_func", "\"softmax\""}, std::pair{"topk_method", "\"greedy\""},
        std::pair{"rope_interleave", "false"}, std::pair{"moe_layer_freq", "2"},
        std::pair{"attention_bias", "true"}, std::pair{"partial_rotary_factor", "0.5"},
        std::pair{"use_grouped_topk", "false"}}) {
    const Result<ModelConfig> config = with(v3(), key, value);
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(config.error().message, HasSubstr(key));
  }
  EXPECT_TRUE(with(v3(), "use_grouped_topk", "true").ok());
  Json one_group = v3();
  one_group.set("n_group", 1).set("topk_group", 1).set("use_grouped_topk", false);
  EXPECT_TRUE(read(one_group).ok());
  EXPECT_FALSE(with(v3(), "n_group", "7").ok());
  EXPECT_FALSE(with(v3(), "num_experts_per_tok", "200").ok());  // 4 of 8 groups have 128
  EXPECT_FALSE(with(v3(), "qk_rope_head_dim", "63").ok());
}

TEST(DeepseekV3, KimiComesUnderAnotherName) {
  const Result<ModelConfig> config = with(v3(), "model_type", "\"kimi_k2\"");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "DeepseekV3ForCausalLM");
}

TEST(DeepseekV2, ReadsTheLiteModelsFile) {
  const Result<ModelConfig> config = read(v2_lite());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "DeepseekV2ForCausalLM");
  EXPECT_EQ(config->latent.q_rank, 0);
  EXPECT_EQ(config->router.kind, RouterKind::kSoftmax);
  EXPECT_FALSE(config->router.normalises || config->router.correction);
  EXPECT_EQ(config->shared_expert_count, 2);
  EXPECT_EQ(config->widest_mlp(), 10944);
  EXPECT_EQ(config->rope.attention_factor, 1.0);
  const double grown = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(config->attention_scale, grown * grown / std::sqrt(192.0));
}

TEST(DeepseekV2, GroupsCountWhereTheMethodSaysSo) {
  Json json = v2_lite();
  json.set("n_group", 8).set("topk_group", 3).set("topk_method", "group_limited_greedy");
  json.set("routed_scaling_factor", 16.0);
  const Result<ModelConfig> config = read(json);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->router.groups, 8);
  EXPECT_EQ(config->router.groups_kept, 3);
  EXPECT_FALSE(config->router.group_by_two);
  EXPECT_EQ(config->router.scale, 16.0);
  json.set("norm_topk_prob", true);
  EXPECT_FALSE(read(json).ok());
}

}  // namespace
}  // namespace pelton::families
