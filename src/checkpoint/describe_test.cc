#include "checkpoint/describe.h"

#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "checkpoint/convert.h"
#include "checkpoint/family_golden.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/synthetic.h"
#include "families/expected_tensors.h"
#include "families/published_config.h"

namespace pelton::checkpoint {
namespace {

families::ModelConfig published(const char* name) {
  return families::parse_model_config(*families::published_config(name), nullptr, name).value();
}

// The published counts: total_size of both index files, the hub's parameter counters, and table 1
// of the model card (arXiv 2508.10925).
TEST(Describe, CountsWhatWasPublished) {
  const WeightCounts small = count_weights(published("gpt-oss-20b"));
  EXPECT_EQ(small.tensor_count, 459);
  EXPECT_EQ(small.total_bytes, 13'761'264'768);
  EXPECT_EQ(small.parameters, 20'914'757'184);
  EXPECT_EQ(small.active_parameters, 3'608'307'264);
  EXPECT_EQ(small.type_bytes.at("MXFP4"), 10'152'345'600);
  EXPECT_EQ(small.type_bytes.at("MXFP4") + small.type_bytes.at("BF16"), small.total_bytes);
  EXPECT_EQ(small.expert_bytes + small.attention_bytes + small.embedding_bytes + small.head_bytes +
                small.other_bytes,
            small.total_bytes);
  EXPECT_EQ(small.head_bytes, 2 * 579'133'440);
  EXPECT_EQ(small.attention_bytes, 2 * 637'203'456);
  EXPECT_EQ(small.other_bytes, 2 * (2'212'608 + 141'120));

  const WeightCounts large = count_weights(published("gpt-oss-120b"));
  EXPECT_EQ(large.tensor_count, 687);
  EXPECT_EQ(large.total_bytes, 65'248'815'744);
  EXPECT_EQ(large.parameters, 116'829'156'672);
  EXPECT_EQ(large.active_parameters, 5'132'849'472);
}

TEST(Describe, KvBytesAreThoseOfTwentyFourLayers) {
  const KvBytes small = count_kv_bytes(published("gpt-oss-20b"));
  EXPECT_EQ(small.per_token, 24 * 1024);
  EXPECT_EQ(small.per_sequence, 3 << 20);
  const KvBytes large = count_kv_bytes(published("gpt-oss-120b"));
  EXPECT_EQ(large.per_token, 36 * 1024);
  EXPECT_EQ(large.per_sequence, 9 << 19);
}

TEST(Describe, SpeaksOfARealFolder) {
  const Result<Checkpoint> tiny = Checkpoint::open(PELTON_SOURCE_DIR "/testdata/golden/tiny");
  ASSERT_TRUE(tiny.ok()) << tiny.error().message;
  const Json json = describe_json(*tiny);
  EXPECT_EQ(json.find("weight_bytes")->integer("total"), tiny->weight_bytes());
  EXPECT_EQ(json.integer("shards"), 1);
  EXPECT_EQ(json.find("stop_tokens")->dump(), "[510,511]");
  EXPECT_THAT(describe(*tiny), testing::HasSubstr("2: 1 sliding (window 16), 1 full"));
  EXPECT_THAT(describe(*tiny), testing::HasSubstr("in 1 file\n"));
  EXPECT_THAT(describe(*tiny), testing::HasSubstr("attention heads   4 x 32, KV heads 2\n"));
}

// Its folder may hold others.
TEST(Describe, SaysWhichGgufFile) {
  const std::string file = testing::TempDir() + fmt::format("described_{}.gguf", ::getpid());
  base::ThreadPool pool({.threads = 1, .pin = false});
  const Result<void> written =
      write_synthetic_gguf(synthetic_tiny(512), {}, file, pool, [](int64_t, int64_t) {});
  ASSERT_TRUE(written.ok()) << written.error().message;
  const Result<Checkpoint> checkpoint = Checkpoint::open(file);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_THAT(describe(*checkpoint), testing::StartsWith("file              " + file + "\n"));
  EXPECT_EQ(describe_json(*checkpoint).string("file"), file);
  std::filesystem::remove(file);
}

// transformers ignores such a head, too; whoever has trained one wants to know.
TEST(Describe, SaysThatAHeadOfItsOwnIsLeftOutOfATiedModel) {
  const std::string folder = testing::TempDir() + fmt::format("described_{}", ::getpid());
  Json config = Json::parse(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama",
      "hidden_act":"silu","num_hidden_layers":1,"num_attention_heads":2,"hidden_size":64,
      "intermediate_size":64,"vocab_size":64,"max_position_embeddings":64,"rms_norm_eps":1e-05,
      "tie_word_embeddings":false})")
                    .value();
  const auto untied =
      family_golden_safetensors(config, Json::parse(R"({"seed":1})").value()).value();
  const auto warning_of = [&](bool tied, bool same) {
    std::filesystem::create_directories(folder + "/source");
    CHECK(base::write_file(folder + "/source/config.json", config.dump()).ok());
    CHECK(base::write_file(folder + "/source/model.safetensors",
                           {reinterpret_cast<const char*>(untied.data()), untied.size()})
              .ok());
    const Checkpoint source = Checkpoint::open(folder + "/source").value();
    std::vector<PlannedTensor> plan;
    std::string data;
    for (const auto& [name, view] : source.tensors()) {
      const bool copies = same && name == "lm_head.weight";
      const auto& bytes =
          copies ? source.tensors().at("model.embed_tokens.weight").bytes : view.bytes;
      plan.push_back({name, view.dtype, view.shape});
      data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    Json made = config;
    made.set("tie_word_embeddings", tied);
    CHECK(base::write_file(folder + "/config.json", made.dump()).ok());
    CHECK(base::write_file(folder + "/model.safetensors", safetensors_header(plan) + data).ok());
    const Checkpoint checkpoint = Checkpoint::open(folder).value();
    const std::string warning = left_out_warning(checkpoint);
    EXPECT_EQ(describe(checkpoint).find("  warning") != std::string::npos, !warning.empty());
    return warning;
  };
  EXPECT_THAT(warning_of(true, false), testing::HasSubstr("lm_head.weight is left out"));
  EXPECT_EQ(warning_of(true, true), "");
  EXPECT_EQ(warning_of(false, false), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pelton::checkpoint
