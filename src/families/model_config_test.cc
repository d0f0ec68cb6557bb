// Rows of the hardening plan by number (CF-xx) where a test covers one.
#include "families/model_config.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "families/expected_tensors.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json published() {
  return published_config("gpt-oss-20b").value();
}

Json parse_text(const char* text) {
  return Json::parse(text).value();
}

Json stored(const std::string& name) {
  return Json::parse(
             *base::read_file(PELTON_SOURCE_DIR "/src/families/testdata/model_config_fuzz/" + name))
      .value();
}

// The published configuration with one key replaced by the given JSON text.
Result<ModelConfig> with(const char* key, const char* value) {
  Json config = published();
  config.set(key, parse_text(value));
  return parse_model_config(config, nullptr, "config.json");
}

void expect_refused(const Result<ModelConfig>& config, ErrorCode code, const std::string& message) {
  ASSERT_FALSE(config.ok()) << message;
  EXPECT_EQ(config.error().code, code) << config.error().message;
  EXPECT_THAT(config.error().message, HasSubstr(message));
  EXPECT_THAT(config.error().message, HasSubstr("config.json"));
}

TEST(ModelConfig, ReadsThePublishedFile) {
  const Result<ModelConfig> config =
      parse_model_config(stored("gpt-oss-20b.json"), nullptr, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "GptOssForCausalLM");
  EXPECT_EQ(config->layer_count(), 24);
  EXPECT_EQ(config->hidden_size, 2880);
  EXPECT_EQ(config->expert_intermediate_size, 2880);
  EXPECT_EQ(config->intermediate_size, 0);
  EXPECT_TRUE(config->layers[1].has_experts);
  EXPECT_EQ(config->head_count, 64);
  EXPECT_EQ(config->kv_head_count, 8);
  EXPECT_EQ(config->head_size, 64);
  EXPECT_EQ(config->expert_count, 32);
  EXPECT_EQ(config->experts_per_token, 4);
  EXPECT_EQ(config->vocab_size, 201088);
  EXPECT_EQ(config->sliding_window, 128);
  EXPECT_TRUE(config->is_sliding(0));
  EXPECT_FALSE(config->is_sliding(1));
  EXPECT_EQ(config->context_max, 131072);
  EXPECT_EQ(config->rms_norm_epsilon, 1e-5);
  EXPECT_EQ(config->rope.theta, 150000.0);
  EXPECT_EQ(config->rope.factor, 32.0);
  EXPECT_EQ(config->rope.beta_fast, 32.0);
  EXPECT_EQ(config->rope.beta_slow, 1.0);
  EXPECT_EQ(config->rope.original_context, 4096.0);
  EXPECT_FALSE(config->rope.truncate);
  EXPECT_EQ(config->swiglu_limit, 7.0);
  EXPECT_EQ(config->swiglu_alpha, 1.702);
  EXPECT_THAT(config->eos_tokens, ElementsAre(200002));
}

TEST(ModelConfig, OurPublishedConfigurationIsThePublishedFile) {
  EXPECT_EQ(published().dump(), stored("gpt-oss-20b.json").dump());
}

TEST(ModelConfig, UnitesTheStopTokensOfBothFiles) {
  const Json generation = published_generation_config();
  const Result<ModelConfig> config = parse_model_config(published(), &generation, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_THAT(config->eos_tokens, ElementsAre(200002, 199999, 200012));
}

// rope_parameters, num_experts, experts_per_token alone, no layer_types.
TEST(ModelConfig, ReadsTheSpellingsOfTransformers5) {
  const Result<ModelConfig> old = parse_model_config(stored("tiny.json"), nullptr, "config.json");
  const Result<ModelConfig> config =
      parse_model_config(stored("transformers5.json"), nullptr, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->expert_count, 8);
  EXPECT_EQ(config->experts_per_token, 2);
  EXPECT_EQ(config->rope.theta, 150000.0);
  EXPECT_EQ(config->rope.factor, 32.0);
  ASSERT_EQ(config->layer_count(), old->layer_count());
  for (int i = 0; i < config->layer_count(); ++i) {
    EXPECT_EQ(config->is_sliding(i), old->is_sliding(i)) << i;
  }
  EXPECT_THAT(config->eos_tokens, ElementsAre(5, 6));
}

TEST(ModelConfig, PlainRopeIsNotScaled) {
  const Result<ModelConfig> config = with("rope_scaling", "null");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(config->rope.factor, 1.0);
  EXPECT_TRUE(with("rope_scaling", R"({"rope_type":"default"})").ok());
}

TEST(ModelConfig, UnknownArchitecturesNameWhatIsSupported) {  // CF-02
  const char* supported = "supported: GptOssForCausalLM (gpt_oss), ";
  for (const char* value : {"[]", "[\"LlamaForCausalLM\"]", "null", "3", "\"GptOssForCausalLM\""}) {
    expect_refused(with("architectures", value), ErrorCode::kUnsupported, supported);
  }
  expect_refused(with("model_type", "\"llama\""), ErrorCode::kUnsupported,
                 "model_type \"llama\"; " + std::string(supported));
}

TEST(ModelConfig, RefusesVariantsThatItWouldComputeWrongly) {
  expect_refused(with("attention_bias", "false"), ErrorCode::kUnsupported, "attention_bias");
  expect_refused(with("tie_word_embeddings", "true"), ErrorCode::kUnsupported, "tie_word");
  expect_refused(with("hidden_act", "\"gelu\""), ErrorCode::kUnsupported, "gelu");
  expect_refused(with("quantization_config", R"({"quant_method":"bnb"})"), ErrorCode::kUnsupported,
                 "mxfp4");  // CF-09
  expect_refused(with("quantization_config", R"({"quant_method":"awq"})"), ErrorCode::kUnsupported,
                 "\"awq\"");
  expect_refused(with("quantization_config", R"({"quant_method":"mxfp4","group_size":64})"),
                 ErrorCode::kUnsupported, "group_size");
  expect_refused(with("layer_types", "[\"linear_attention\"]"), ErrorCode::kBadCheckpoint,
                 "has 1 entries, but num_hidden_layers is 24");  // CF-08
}

TEST(ModelConfig, RefusesNumbersOutOfRange) {
  struct Case {
    const char* key;
    const char* value;
  };
  const Case cases[] = {
      {"hidden_size", "2147483648"},
      {"hidden_size", "0"},
      {"hidden_size", "2881"},
      {"hidden_size", "-2880"},
      {"hidden_size", "28.5"},
      {"hidden_size", "\"2880\""},
      {"num_hidden_layers", "0"},
      {"num_hidden_layers", "1e9"},
      {"head_dim", "63"},
      {"head_dim", "0"},
      {"num_attention_heads", "12"},
      {"num_key_value_heads", "0"},
      {"num_key_value_heads", "65"},
      {"num_local_experts", "0"},
      {"num_experts_per_tok", "0"},
      {"num_experts_per_tok", "33"},
      {"vocab_size", "0"},
      {"vocab_size", "1e12"},
      {"sliding_window", "0"},
      {"sliding_window", "-1"},
      {"rms_norm_eps", "-1"},
      {"max_position_embeddings", "2e9"},
      {"rope_theta", "0"},
      {"swiglu_limit", "0"},
      {"intermediate_size", "1e300"},
      {"num_local_experts", "null"},
      {"rope_scaling", "[]"},
  };
  for (const Case& c : cases) {
    const Result<ModelConfig> config = with(c.key, c.value);
    ASSERT_FALSE(config.ok()) << c.key << " = " << c.value;
    EXPECT_EQ(config.error().code, ErrorCode::kBadCheckpoint);
    EXPECT_THAT(config.error().message, HasSubstr(c.key)) << c.value;
  }
}

TEST(ModelConfig, RefusesAliasesThatDisagree) {
  expect_refused(with("experts_per_token", "2"), ErrorCode::kBadCheckpoint,
                 "num_experts_per_tok is 4, but experts_per_token, its other name, is 2");
}

TEST(ModelConfig, RefusesWrongRope) {  // CF-06
  for (const char* rope :
       {R"({"rope_type":"yarn","factor":0})", R"({"rope_type":"yarn","factor":-32.0})",
        R"({"rope_type":"yarn","factor":"32"})", R"({"rope_type":"yarn"})",
        R"({"rope_type":"yarn","factor":32,"beta_fast":1,"beta_slow":2})",
        R"({"rope_type":"yarn","factor":32,"original_max_position_embeddings":0})"}) {
    expect_refused(with("rope_scaling", rope), ErrorCode::kBadCheckpoint, "rope_scaling.");
  }
  expect_refused(with("rope_scaling", R"({"rope_type":"yarn","type":"linear","factor":2})"),
                 ErrorCode::kBadCheckpoint,
                 "rope_type is \"yarn\", but type, its older name, is \"linear\"");
  expect_refused(with("rope_scaling", R"({"rope_type":"su","factor":2})"), ErrorCode::kUnsupported,
                 "is \"su\"; supported: \"default\", \"linear\", \"llama3\", "
                 "\"yarn\"");
}

TEST(ModelConfig, RefusesStopTokensOutsideTheVocabulary) {  // CF-07
  expect_refused(with("eos_token_id", "[200002, 201088]"), ErrorCode::kBadCheckpoint, "201088");
  expect_refused(with("eos_token_id", "-1"), ErrorCode::kBadCheckpoint, "eos_token_id");
  expect_refused(with("eos_token_id", "\"a\""), ErrorCode::kBadCheckpoint, "eos_token_id");
}

TEST(ModelConfig, RefusesDuplicateKeys) {  // CF-01
  Json config = published();
  config.as_object().push_back({"hidden_size", 2880});
  expect_refused(parse_model_config(config, nullptr, "config.json"), ErrorCode::kBadCheckpoint,
                 "\"hidden_size\" is there twice");
  expect_refused(parse_model_config(Json(3), nullptr, "config.json"), ErrorCode::kBadCheckpoint,
                 "expected an object");
}

// Keys of architectures that multiply, cap or turn where ours do not: none is left out in silence.
TEST(ModelConfig, RefusesKeysThatChangeArithmetic) {
  for (const char* key :
       {"logits_scaling", "embedding_multiplier", "final_logit_softcapping", "residual_multiplier",
        "query_pre_attn_scalar", "mlp_activation", "attention_chunk_size", "num_kv_shared_layers",
        "sandwich_norm", "attn_temperature_tuning", "rope_local_base_freq"}) {
    expect_refused(with(key, "0.5"), ErrorCode::kUnsupported, key);
    EXPECT_TRUE(with(key, "null").ok()) << key;
    EXPECT_TRUE(with(key, "1.0").ok()) << key;
    EXPECT_TRUE(with(key, "false").ok()) << key;
  }
  expect_refused(with("rope_scaling", R"({"type":"linear","factor":2.0,"mrope_section":[1,2]})"),
                 ErrorCode::kUnsupported, "rope_scaling.mrope_section");
}

// Whatever the family: what another's router, norm or mask would do is not done in silence.
TEST(ModelConfig, RefusesWhatOtherFamiliesDo) {
  const std::pair<const char*, const char*> kKeys[] = {{"scoring_func", "\"sigmoid\""},
                                                       {"n_group", "4"},
                                                       {"topk_group", "2"},
                                                       {"topk_method", "\"greedy\""},
                                                       {"moe_layer_freq", "2"},
                                                       {"first_k_dense_replace", "3"},
                                                       {"norm_type", "\"layernorm\""},
                                                       {"use_mup", "true"},
                                                       {"pre_norm", "true"},
                                                       {"qk_layernorm", "true"},
                                                       {"attention_sink_size", "4"},
                                                       {"local_attention", "128"},
                                                       {"global_attn_every_n_layers", "3"},
                                                       {"attn_output_gate", "true"},
                                                       {"index_topk", "2048"},
                                                       {"apply_layernorm_1p", "true"},
                                                       {"zero_centered_gamma", "true"},
                                                       {"norm_after", "true"},
                                                       {"use_post_norm", "true"},
                                                       {"mup_width", "256"},
                                                       {"mup_attn_scale", "8"},
                                                       {"softmax1", "true"},
                                                       {"lambda_init", "0.8"},
                                                       {"num_loops", "2"},
                                                       {"new_decoder_architecture", "true"},
                                                       {"use_grouped_topk", "true"},
                                                       {"layer_types", "[\"linear_attention\"]"}};
  for (const char* model : {"llama-3.1-8b", "qwen3-30b-a3b"}) {
    for (const auto& [key, value] : kKeys) {
      Json config = published_config(model).value();
      config.set(key, Json::parse(value).value());
      expect_refused(parse_model_config(config, nullptr, "config.json"), ErrorCode::kUnsupported,
                     key);
    }
    Json config = published_config(model).value();
    config.set("layer_types", Json::Array{"full_attention", "full_attention"});
    EXPECT_TRUE(parse_model_config(config, nullptr, "config.json").ok());
  }
}

// Another norm's epsilon is not taken for ours, and not passed over where ours is missing.
TEST(ModelConfig, RefusesAnEpsilonUnderAnotherName) {
  for (const char* model : {"llama-3.1-8b", "mixtral-8x7b", "gemma-3-4b"}) {
    for (const char* key : {"layer_norm_eps", "layer_norm_epsilon", "norm_eps"}) {
      Json config = published_config(model).value();
      config.set(key, 0.1);
      EXPECT_TRUE(parse_model_config(config, nullptr, "config.json").ok()) << key;
      config.set("rms_norm_eps", nullptr);
      expect_refused(parse_model_config(config, nullptr, "config.json"), ErrorCode::kUnsupported,
                     key);
    }
  }
  Json config = published_config("llama-3.1-8b").value();
  config.set("num_warmup_steps", 100);  // no "mup_"
  EXPECT_TRUE(parse_model_config(config, nullptr, "config.json").ok());
}

// transformers 5 writes the base alone where nothing is scaled.
TEST(ModelConfig, RopeParametersWithoutATypeAreNotScaled) {
  Json config = published_config("llama-3.1-8b").value();
  config.set("rope_scaling", nullptr).set("rope_theta", nullptr);
  config.set("rope_parameters", parse_text(R"({"rope_theta": 5e5})"));
  const auto plain = parse_model_config(config, nullptr, "config.json");
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(plain->rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(plain->rope.theta, 5e5);
  config.set("rope_parameters", parse_text(R"({"rope_theta": 5e5, "factor": 4.0})"));
  expect_refused(parse_model_config(config, nullptr, "config.json"), ErrorCode::kUnsupported,
                 "rope_parameters.factor");
}

// A bias that is said and not computed, a mask that is not causal, in any family.
TEST(ModelConfig, RefusesBiasesAndMasksThatAreNotComputed) {
  for (const char* model : {"llama-3.1-8b", "mistral-7b-v0.3", "mixtral-8x7b", "qwen2.5-0.5b",
                            "qwen3-0.6b", "qwen3-30b-a3b", "gemma-3-4b", "deepseek-v3"}) {
    for (const char* key :
         {"mlp_bias", "use_qkv_bias", "lm_head_bias", "is_decoder_bidirectional"}) {
      Json config = published_config(model).value();
      config.set(key, true);
      const bool computed = model == std::string_view("llama-3.1-8b") &&  // its class has that one
                            key == std::string_view("mlp_bias");
      if (!computed) {
        expect_refused(parse_model_config(config, nullptr, "config.json"), ErrorCode::kUnsupported,
                       key);
      }
      config.set(key, false);
      EXPECT_TRUE(parse_model_config(config, nullptr, "config.json").ok()) << model << ' ' << key;
    }
    Json config = published_config(model).value();
    config.set("is_causal", false);
    expect_refused(parse_model_config(config, nullptr, "config.json"), ErrorCode::kUnsupported,
                   "is_causal");
  }
}

// As Phi-3's files have them, in Llama's architecture: the first part of each head turns, each pair
// with a divisor of its own.
TEST(ModelConfig, ReadsLongropeAndPartialRotation) {
  Json config = published_config("llama-3.1-8b").value();  // heads of 128
  config.set("partial_rotary_factor", 0.0625).set("original_max_position_embeddings", 4096);
  config.set("rope_scaling", Json::parse(R"({"type": "longrope", "short_factor": [1, 1, 1, 1],
                                             "long_factor": [1.5, 2, 4, 8]})")
                                 .value());
  const auto read = parse_model_config(config, nullptr, "config.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->rotary_size(), 8);
  EXPECT_EQ(read->rope.divisors, (std::vector<double>{1.5, 2.0, 4.0, 8.0}));
  EXPECT_DOUBLE_EQ(read->rope.attention_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
  config.set("max_position_embeddings", 4096);
  const auto shorter = parse_model_config(config, nullptr, "config.json");
  ASSERT_TRUE(shorter.ok()) << shorter.error().message;
  EXPECT_EQ(shorter->rope.divisors, (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(shorter->rope.attention_factor, 1.0);
  config.set("partial_rotary_factor", nullptr);
  expect_refused(parse_model_config(config, nullptr, "config.json"), ErrorCode::kBadCheckpoint,
                 "4 divisors, expected one for each of 64 pairs");
  config.set("partial_rotary_factor", 0.01);
  expect_refused(parse_model_config(config, nullptr, "config.json"), ErrorCode::kBadCheckpoint,
                 "partial_rotary_factor");
  config = published_config("llama-3.1-8b").value();
  config.set("rope_scaling", Json::parse(R"({"type": "dynamic", "factor": 4.0})").value());
  const auto dynamic = parse_model_config(config, nullptr, "config.json");
  ASSERT_TRUE(dynamic.ok()) << dynamic.error().message;
  EXPECT_EQ(dynamic->rope.scaling, RopeScaling::kNone);
  // transformers 5 has both in one object.
  config.set("rope_scaling", nullptr);
  config.set("rope_parameters",
             Json::parse(R"({"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5,
                             "partial_rotary_factor": 0.5})")
                 .value());
  const auto five = parse_model_config(config, nullptr, "config.json");
  ASSERT_TRUE(five.ok()) << five.error().message;
  EXPECT_EQ(five->rotary_size(), 64);
  EXPECT_EQ(five->rope.theta, 5e5);
  // The older name beside it: as a model's card advises, or as other programs repeat it.
  config.set("rope_scaling", Json::parse(R"({"type": "linear", "factor": 2.0})").value());
  EXPECT_TRUE(parse_model_config(config, nullptr, "config.json").ok());
  config.set("rope_scaling", Json::parse(R"({"rope_type": "yarn", "factor": 4.0})").value());
  expect_refused(parse_model_config(config, nullptr, "config.json"), ErrorCode::kBadCheckpoint,
                 "rope_scaling says rope_type");
}

// Sizes that no group or word divides are refused where tensors are read, and counted without a
// crash.
TEST(ModelConfig, IntegerWeightsOfOddSizesAreCounted) {
  Json config = published_config("qwen3-0.6b").value();
  config.set("hidden_size", 36).set("num_attention_heads", 1).set("num_key_value_heads", 1);
  config.set("head_dim", 2).set("intermediate_size", 3);
  for (const char* text : {R"({"quant_method":"gptq","bits":4,"group_size":1024})",
                           R"({"quant_method":"awq","bits":4})"}) {
    config.set("quantization_config", parse_text(text));
    const Result<ModelConfig> parsed = parse_model_config(config, nullptr, "config.json");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    for (const ExpectedTensor& tensor : expected_tensors(*parsed, WeightLayout::kPublished)) {
      EXPECT_GE(tensor.bytes(), 0) << tensor.name;
    }
  }
}

TEST(ModelConfig, IgnoresCustomCodeEntries) {  // CF-05
  EXPECT_TRUE(with("auto_map", R"({"AutoModel":"evil.py--Model"})").ok());
}

Json qwen3() {
  return published_config("qwen3-0.6b").value();
}

Result<ModelConfig> qwen3_with(const char* key, const char* value) {
  Json config = qwen3();
  config.set(key, parse_text(value));
  return parse_model_config(config, nullptr, "config.json");
}

TEST(Qwen3, ReadsThePublishedFile) {
  const Result<ModelConfig> config = parse_model_config(qwen3(), nullptr, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(config->layer_count(), 28);
  EXPECT_EQ(config->count(AttentionKind::kSliding), 0);
  EXPECT_EQ(config->head_size, 128);  // not 1024 / 16
  EXPECT_EQ(config->q_size(), 2048);
  EXPECT_EQ(config->intermediate_size, 3072);
  EXPECT_EQ(config->rms_norm_epsilon, 1e-6);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_TRUE(config->tied_head);
  EXPECT_TRUE(config->qk_norm);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_FALSE(config->attention_sinks);
  EXPECT_FALSE(config->has_experts());
}

TEST(Qwen3, HeadSizeIsInferredWhereItIsNull) {
  EXPECT_EQ(qwen3_with("head_dim", "null")->head_size, 64);
  EXPECT_EQ(qwen3_with("num_key_value_heads", "null")->kv_head_count, 16);
}

TEST(Qwen3, ReadsYarnAsUsersAddIt) {
  const Result<ModelConfig> config =
      qwen3_with("rope_scaling",
                 R"({"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(config->rope.original_context, 32768);
  EXPECT_TRUE(config->rope.truncate);
  EXPECT_DOUBLE_EQ(config->rope.attention_factor, 0.1 * std::log(4.0) + 1);
}

// R1-0528-Qwen3-8B: what the factor gives is taken back.
TEST(Qwen3, AnAttentionFactorMayBeATimesOfYarns) {
  const Result<ModelConfig> config =
      qwen3_with("rope_scaling", R"({"rope_type":"yarn","factor":4.0,"attn_factor":0.5,
                                     "original_max_position_embeddings":32768})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_DOUBLE_EQ(config->rope.attention_factor, 0.5 * (0.1 * std::log(4.0) + 1));
}

TEST(Qwen3, OneKeyGivesAllProductsOfAttentionBiases) {
  const Result<ModelConfig> config = qwen3_with("attention_bias", "true");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->qkv_bias);
  EXPECT_TRUE(config->attn_out_bias);
}

TEST(Qwen3, RefusesVariantsThatItWouldComputeWrongly) {
  expect_refused(qwen3_with("use_sliding_window", "true"), ErrorCode::kBadCheckpoint,
                 "sliding_window is missing");
  expect_refused(qwen3_with("hidden_act", "\"gelu\""), ErrorCode::kUnsupported, "gelu");
  expect_refused(qwen3_with("quantization_config", R"({"quant_method":"hqq"})"),
                 ErrorCode::kUnsupported, "quant_method");
}

}  // namespace
}  // namespace pelton::families
