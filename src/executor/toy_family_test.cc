// docs/add_a_model_family.md in one file: a family that the program does not know, from its
// config.json to answers. Its arithmetic is Qwen 3's, its keys and tensors have other names; so the
// same weights under Qwen 3's names must answer the same.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/synthetic.h"
#include "engine/engine.h"
#include "executor/local_executor.h"
#include "families/registry.h"

namespace pelton::executor {
namespace {

using families::ConfigFields;
using families::Family;
using families::ModelConfig;
using families::NamePair;
using testing::HasSubstr;

// Step 1 of the page: what the family's file would hold.
Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_decoder(fields, config));
  TRY_ASSIGN(config.qk_norm, fields.boolean("toy_norm_of_heads", false));
  return {};
}

// Step 2: what its files call a layer's tensors.
constexpr NamePair kLayerNames[] = {{"toy_norm.weight", "input_layernorm.weight"},
                                    {"toy.query.weight", "self_attn.q_proj.weight"},
                                    {"toy.query_norm.weight", "self_attn.q_norm.weight"},
                                    {"toy.up.weight", "mlp.up_proj.weight"}};

constexpr Family kToy{.architecture = "ToyForCausalLM",
                      .model_type = "toy",
                      .read = read,
                      .layer_names = kLayerNames};

// The line in registry.cc.
constexpr const Family* kFamilies[] = {&kToy};
constexpr families::Registry kRegistry{kFamilies};

// Sizes that both families' files say alike; `model_type` and what is the family's own come last.
Json config_of(const char* architecture, const char* model_type) {
  Json config;
  config.set("architectures", Json::Array{architecture}).set("model_type", model_type);
  config.set("head_dim", 32).set("hidden_act", "silu").set("hidden_size", 128);
  config.set("intermediate_size", 192).set("max_position_embeddings", 512);
  config.set("num_attention_heads", 4).set("num_hidden_layers", 2).set("num_key_value_heads", 2);
  config.set("rms_norm_eps", 1e-6).set("rope_theta", 10000.0).set("tie_word_embeddings", true);
  return std::move(config.set("vocab_size", 512).set("eos_token_id", 511));
}

class ToyFamily : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    checkpoint::SyntheticOptions options;
    options.config = config_of("ToyForCausalLM", "toy");
    options.config.set("toy_norm_of_heads", true);
    options.generation.set("eos_token_id", 511);
    options.seed = 7;
    options.registry = &kRegistry;
    base::ThreadPool pool({.threads = 1, .pin = false});
    const Result<void> written =
        checkpoint::write_synthetic(options, toy_, pool, [](int64_t, int64_t) {});
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::vector<TokenId> answer(const checkpoint::Checkpoint& checkpoint) {
    auto executor = LocalExecutor::create(checkpoint, {.threads = 1,
                                                       .sequences_max = 2,
                                                       .batch_tokens_max = 16,
                                                       .context_tokens = 128,
                                                       .kv_bytes = int64_t{1} << 26});
    CHECK(executor.ok(), executor.ok() ? "" : executor.error().message);
    base::SystemClock clock;
    base::Log log(clock, {.level = base::LogLevel::kNone});
    engine::Engine engine({}, **executor, clock, log);
    request::GenerationRequest request;
    for (int i = 0; i < 40; ++i) request.prompt.push_back(i * 37 % 500);
    request.stop.max_new_tokens = 24;
    auto stream = engine.submit(request);
    CHECK(stream.ok(), stream.ok() ? "" : stream.error().message);
    std::vector<TokenId> tokens;
    while (true) {
      const engine::TokenStream::Batch batch = stream->wait();
      for (const engine::SampledToken& token : batch.tokens) tokens.push_back(token.token);
      if (!batch.end) continue;
      EXPECT_FALSE(batch.end->error.has_value()) << batch.end->error->message;
      return tokens;
    }
  }

  const std::string folder_ = testing::TempDir() + "toy_family_test";
  const std::string toy_ = folder_ + "/toy";
};

TEST_F(ToyFamily, IsServedFromOneFile) {
  const auto toy = checkpoint::Checkpoint::open(toy_, kRegistry);
  ASSERT_TRUE(toy.ok()) << toy.error().message;
  EXPECT_EQ(toy->config().architecture, "ToyForCausalLM");
  EXPECT_THAT(*base::read_file(toy_ + "/model.safetensors"),
              HasSubstr("\"model.layers.1.toy.query.weight\""));

  // The same weights, by a family that the program has.
  const std::string qwen = folder_ + "/qwen";
  std::vector<checkpoint::PlannedTensor> plan;
  std::string data;
  for (const auto& [name, view] : toy->tensors()) {
    plan.push_back({name, view.dtype, view.shape});
    data.append(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size());
  }
  std::filesystem::create_directories(qwen);
  ASSERT_TRUE(
      base::write_file(qwen + "/config.json", config_of("Qwen3ForCausalLM", "qwen3").dump()).ok());
  ASSERT_TRUE(
      base::write_file(qwen + "/model.safetensors", checkpoint::safetensors_header(plan) + data)
          .ok());
  const auto twin = checkpoint::Checkpoint::open(qwen);
  ASSERT_TRUE(twin.ok()) << twin.error().message;

  const std::vector<TokenId> tokens = answer(*toy);
  EXPECT_EQ(tokens.size(), 24u);
  EXPECT_EQ(tokens, answer(*twin));
}

// A registry belongs to who made it.
TEST_F(ToyFamily, IsUnknownToTheProgram) {
  const auto refused = checkpoint::Checkpoint::open(toy_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("ToyForCausalLM"));
  EXPECT_THAT(refused.error().message, HasSubstr("GptOssForCausalLM"));
}

// What its layers do not compute, and a tensor that its configuration does not ask for.
TEST_F(ToyFamily, IsCheckedAsOthersAre) {
  Json config = Json::parse(*base::read_file(toy_ + "/config.json")).value();
  const auto open_with = [&](const char* key, Json value) {
    Json changed = config;
    changed.set(key, std::move(value));
    CHECK(base::write_file(toy_ + "/config.json", changed.dump()).ok());
    return checkpoint::Checkpoint::open(toy_, kRegistry).error().message;
  };
  EXPECT_THAT(open_with("hidden_act", "relu"), HasSubstr("hidden_act"));
  EXPECT_THAT(open_with("toy_logit_scale", 2.0), HasSubstr("toy_logit_scale"));
  EXPECT_THAT(open_with("toy_norm_of_heads", false), HasSubstr("norm"));
}

}  // namespace
}  // namespace pelton::executor
