#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/published_config.h"
#include "families/tensor_names.h"

namespace pelton::families {
namespace {

using testing::HasSubstr;

Result<ModelConfig> read(const Json& config) {
  return parse_model_config(config, nullptr, "config.json");
}

Result<ModelConfig> with(const char* key, const char* value) {
  Json config = published_config("gemma-3-4b").value();
  config.set(key, Json::parse(value).value());
  return read(config);
}

TEST(Gemma3, ReadsThePublishedFile) {
  const Result<ModelConfig> config = read(published_config("gemma-3-4b").value());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "Gemma3ForCausalLM");
  EXPECT_EQ(config->count(AttentionKind::kSliding), 29);
  EXPECT_TRUE(config->is_sliding(4));
  EXPECT_FALSE(config->is_sliding(5));
  EXPECT_EQ(config->sliding_window, 1024);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_EQ(config->rope.factor, 8.0);
  ASSERT_TRUE(config->sliding_rope.has_value());
  EXPECT_EQ(config->sliding_rope->theta, 10000.0);
  EXPECT_EQ(config->sliding_rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(config->glu, Glu::kGegluTanh);
  EXPECT_TRUE(config->norm_adds_one && config->post_norms && config->qk_norm && config->tied_head);
  EXPECT_EQ(config->attention_scale, 1.0 / 16);
  EXPECT_EQ(config->embedding_scale, std::sqrt(2560.0));
  EXPECT_EQ(config->attention_softcap, 0);
  EXPECT_EQ(config->logit_softcap, 0);
}

TEST(Gemma3, ReadsItsPatternUnderBothNames) {
  for (const char* name : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    Json json = published_config("gemma-3-4b").value();
    json.set("sliding_window_pattern", nullptr).set(name, 3);
    const Result<ModelConfig> config = read(json);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_TRUE(config->is_sliding(1));
    EXPECT_FALSE(config->is_sliding(2)) << name;
  }
}

// 27B: 5376 / 32 = 168, not the head size of 128.
TEST(Gemma3, ScoreScaleIsNotTheHeadSizes) {
  EXPECT_EQ(with("query_pre_attn_scalar", "168")->attention_scale, 1.0 / std::sqrt(168.0));
  EXPECT_EQ(with("final_logit_softcapping", "30.0")->logit_softcap, 30.0);
  EXPECT_EQ(with("attn_logit_softcapping", "50.0")->attention_softcap, 50.0);
}

TEST(Gemma3, WrappedFilesLeaveMostOut) {
  Json whole;
  whole.set("architectures", Json::Array{"Gemma3ForConditionalGeneration"});
  whole.set("model_type", "gemma3").set("eos_token_id", Json::Array{1, 106});
  whole.set("text_config", Json::parse(R"({
    "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
    "num_hidden_layers": 34, "sliding_window": 1024,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}})")
                               .value());
  whole.set("vision_config", Json::parse(R"({"hidden_size": 1152})").value());
  const Result<ModelConfig> config = read(whole);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->head_size, 256);
  EXPECT_EQ(config->head_count, 8);
  EXPECT_EQ(config->kv_head_count, 4);
  EXPECT_EQ(config->vocab_size, 262208);
  EXPECT_EQ(config->eos_tokens.size(), 2u);
  EXPECT_EQ(tensor_name(*config, "vision_tower.vision_model.post_layernorm.weight"), "");
}

TEST(Gemma3, ReadsBothRopesAsTransformers5WritesThem) {
  Json json = published_config("gemma-3-4b").value();
  json.set("rope_scaling", nullptr).set("rope_local_base_freq", nullptr);
  json.set("rope_parameters", Json::parse(R"({
    "full_attention": {"rope_theta": 2000000.0, "rope_type": "linear", "factor": 4.0},
    "sliding_attention": {"rope_theta": 5000.0, "rope_type": "default"}})")
                                  .value());
  const Result<ModelConfig> config = read(json);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope.theta, 2e6);
  EXPECT_EQ(config->rope.factor, 4.0);
  EXPECT_EQ(config->sliding_rope->theta, 5000.0);
}

TEST(Gemma3, OneOfBothRopesIsNotLeftOut) {
  Json json = published_config("gemma-3-4b").value();
  json.set("rope_scaling", nullptr);
  json.set("rope_parameters", Json::parse(R"({
    "full_attention": {"rope_theta": 2000000.0, "rope_type": "linear", "factor": 4.0}})")
                                  .value());
  const Result<ModelConfig> config = read(json);
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.error().message.find("rope_parameters"), std::string::npos)
      << config.error().message;
}

TEST(Gemma3, RefusesVariantsThatItWouldComputeWrongly) {
  for (const auto& [key, value] : {std::pair{"hidden_activation", "\"gelu\""},
                                   std::pair{"use_bidirectional_attention", "true"}}) {
    const Result<ModelConfig> config = with(key, value);
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(config.error().message, HasSubstr(key));
  }
}

}  // namespace
}  // namespace pelton::families
