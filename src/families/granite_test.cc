#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/published_config.h"

namespace pelton::families {
namespace {

using testing::HasSubstr;

Result<ModelConfig> with(const char* key, const char* value) {
  Json config = published_config("granite-3.3-8b").value();
  config.set(key, Json::parse(value).value());
  return parse_model_config(config, nullptr, "config.json");
}

TEST(Granite, ReadsThePublishedFile) {
  const Result<ModelConfig> config =
      parse_model_config(published_config("granite-3.3-8b").value(), nullptr, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "GraniteForCausalLM");
  EXPECT_EQ(config->layer_count(), 40);
  EXPECT_EQ(config->head_size, 128);
  EXPECT_EQ(config->kv_head_count, 8);
  EXPECT_EQ(config->rope.theta, 1e7);
  EXPECT_TRUE(config->tied_head);
  EXPECT_EQ(config->embedding_scale, 12.0);
  EXPECT_EQ(config->attention_scale, 1.0 / 128);
  EXPECT_EQ(config->residual_scale, 0.22);
  EXPECT_EQ(config->logit_scale, 1.0 / 16);
}

// The published code's: the scores' multiplier does not follow from the head size.
TEST(Granite, MultipliersThatAreLeftOutAreOne) {
  EXPECT_EQ(with("embedding_multiplier", "null")->embedding_scale, 1.0);
  EXPECT_EQ(with("attention_multiplier", "null")->attention_scale, 1.0);
  EXPECT_EQ(with("residual_multiplier", "null")->residual_scale, 1.0);
  EXPECT_EQ(with("logits_scaling", "null")->logit_scale, 1.0);
}

TEST(Granite, RefusesByName) {
  EXPECT_THAT(with("hidden_act", "\"gelu\"").error().message, HasSubstr("hidden_act"));
  EXPECT_THAT(with("logits_scaling", "0").error().message, HasSubstr("logits_scaling"));
  EXPECT_THAT(with("residual_multiplier", "-1").error().message, HasSubstr("residual_multiplier"));
  EXPECT_THAT(with("shared_multiplier", "2.0").error().message, HasSubstr("shared_multiplier"));
}

}  // namespace
}  // namespace pelton::families
