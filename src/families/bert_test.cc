#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "families/expected_tensors.h"
#include "families/registry.h"
#include "families/tensor_names.h"

namespace pelton::families {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json published(const std::string& name) {
  return Json::parse(
             *base::read_file(PELTON_SOURCE_DIR "/src/families/testdata/model_config_fuzz/" + name))
      .value();
}

Result<ModelConfig> with(const char* key, const char* value) {
  Json config = published("bge-small-en.json");
  config.set(key, Json::parse(value).value());
  return parse_model_config(config, nullptr, "config.json");
}

TEST(Bert, ReadsThePublishedFile) {
  const auto config = parse_model_config(published("bge-small-en.json"), nullptr, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->is_encoder());
  EXPECT_EQ(config->layer_count(), 12);
  EXPECT_EQ(config->hidden_size, 384);
  EXPECT_EQ(config->head_size, 32);
  EXPECT_EQ(config->intermediate_size, 1536);
  EXPECT_EQ(config->context_max, 512);
  EXPECT_EQ(config->encoder.position_rows, 512);
  EXPECT_EQ(config->encoder.first_position, 0);
  EXPECT_EQ(config->encoder.type_rows, 2);
  EXPECT_EQ(config->encoder.activation, Activation::kGelu);
  EXPECT_EQ(config->encoder.layer_norm_epsilon, 1e-12);
  EXPECT_EQ(config->label_count, 0);
}

TEST(Bert, RobertasPositionsBeginBehindThePadding) {
  const auto config =
      parse_model_config(published("bge-reranker-v2-m3.json"), nullptr, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->encoder.position_rows, 8194);
  EXPECT_EQ(config->encoder.first_position, 2);
  EXPECT_EQ(config->context_max, 8192);
  EXPECT_EQ(config->encoder.type_rows, 1);
  EXPECT_EQ(config->encoder.layer_norm_epsilon, 1e-5);
  EXPECT_EQ(config->label_count, 1);
  EXPECT_THAT(config->labels, ElementsAre("LABEL_0"));
}

TEST(Bert, WhatIsNotComputedIsRefusedByName) {
  for (const auto& [key, value] : {std::pair("position_embedding_type", "\"relative_key\""),
                                   {"is_decoder", "true"},
                                   {"hidden_act", "\"swish\""},
                                   {"add_cross_attention", "true"},
                                   {"rope_theta", "10000"},
                                   {"quantization_config", "{\"quant_method\": \"gptq\"}"}}) {
    const auto config = with(key, value);
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_EQ(config.error().code, ErrorCode::kUnsupported) << key;
    EXPECT_THAT(config.error().message, HasSubstr(key));
  }
  for (const auto& [key, value] : {std::pair("num_attention_heads", "7"),
                                   {"hidden_size", "-1"},
                                   {"type_vocab_size", "0"},
                                   {"layer_norm_eps", "\"small\""}}) {
    const auto config = with(key, value);
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_EQ(config.error().code, ErrorCode::kBadCheckpoint) << key;
  }
  EXPECT_EQ(with("hidden_act", "\"gelu_new\"")->encoder.activation, Activation::kGeluTanh);
}

TEST(Bert, LabelsAreCounted) {
  Json json = published("bge-reranker-v2-m3.json");
  json.set("id2label", Json::parse(R"({"0": "no", "2": "yes"})").value());
  const auto gap = parse_model_config(json, nullptr, "config.json");
  ASSERT_FALSE(gap.ok());
  EXPECT_THAT(gap.error().message, HasSubstr("id2label"));
  json.set("id2label", nullptr);
  EXPECT_EQ(parse_model_config(json, nullptr, "config.json")->label_count, 2);
}

TEST(Bert, TensorNamesOfPublishedFilesAreFound) {
  const auto config = parse_model_config(published("bge-small-en.json"), nullptr, "c").value();
  const auto name = [&](std::string_view stored) { return tensor_name(config, stored); };
  EXPECT_EQ(name("embeddings.word_embeddings.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(name("bert.embeddings.LayerNorm.gamma"), "model.embed_norm.weight");
  EXPECT_EQ(name("encoder.layer.11.attention.self.query.bias"),
            "model.layers.11.self_attn.q_proj.bias");
  EXPECT_EQ(name("bert.encoder.layer.0.attention.output.LayerNorm.beta"),
            "model.layers.0.post_attention_layernorm.bias");
  EXPECT_EQ(name("encoder.layer.0.intermediate.dense.weight"), "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(name("encoder.layer.0.output.dense.weight"), "model.layers.0.mlp.down_proj.weight");
  // What nobody needs, and what nobody knows.
  for (const char* unused : {"pooler.dense.weight", "embeddings.position_ids",
                             "cls.predictions.bias", "lm_head.dense.weight"}) {
    EXPECT_EQ(name(unused), "") << unused;
  }
  EXPECT_EQ(name("encoder.layer.0.attention.self.rotary.weight"),
            "encoder.layer.0.attention.self.rotary.weight");
  EXPECT_EQ(name("encoder.layer.0"), "encoder.layer.0");
}

TEST(Bert, ExpectedTensorsHaveNamesThatAreReadBack) {
  for (const char* file : {"bge-small-en.json", "bge-reranker-v2-m3.json"}) {
    for (const char* architecture : {"", "BertForSequenceClassification"}) {
      Json json = published(file);
      const bool is_bert = json.string("model_type") == "bert";
      if (*architecture != '\0' && is_bert) json.set("architectures", Json::Array{architecture});
      const auto config = parse_model_config(json, nullptr, "c").value();
      for (const ExpectedTensor& tensor : expected_tensors(config, WeightLayout::kPublished)) {
        const std::string stored = published_name(config, tensor.name);
        EXPECT_EQ(tensor_name(config, stored), tensor.name) << stored;
      }
    }
  }
}

TEST(Bert, TensorNamesOfHeadsAreFound) {
  const auto roberta =
      parse_model_config(published("bge-reranker-v2-m3.json"), nullptr, "c").value();
  EXPECT_EQ(tensor_name(roberta, "classifier.dense.weight"), "classifier.dense.weight");
  EXPECT_EQ(tensor_name(roberta, "classifier.out_proj.bias"), "classifier.out_proj.bias");
  EXPECT_EQ(tensor_name(roberta, "roberta.pooler.dense.bias"), "");
  Json json = published("bge-small-en.json");
  json.set("architectures", Json::Array{"BertForSequenceClassification"});
  const auto bert = parse_model_config(json, nullptr, "c").value();
  EXPECT_EQ(tensor_name(bert, "bert.pooler.dense.weight"), "classifier.dense.weight");
  EXPECT_EQ(tensor_name(bert, "classifier.weight"), "classifier.out_proj.weight");
}

}  // namespace
}  // namespace pelton::families
