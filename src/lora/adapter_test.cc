// Adapters of every layout against each other and against published hashes; and what is refused,
// each by its name.
#include "lora/adapter.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "checkpoint/config_file.h"
#include "checkpoint/golden_checkpoint.h"
#include "families/published_config.h"
#include "lora/adapter_file.h"
#include "lora/random_adapter.h"
#include "tensor/bits.h"

namespace pelton::lora {
namespace {

using testing::HasSubstr;

const std::string kGolden = PELTON_SOURCE_DIR "/testdata/golden/lora/";

families::ModelConfig config_of(const Json& json) {
  Result<families::ModelConfig> config = families::parse_model_config(json, nullptr, "test");
  CHECK(config.ok(), config.ok() ? "" : config.error().message);
  return *std::move(config);
}
families::ModelConfig tiny() {
  return config_of(checkpoint::golden_config(checkpoint::GoldenCase::kTiny));
}
families::ModelConfig mid() {
  return config_of(checkpoint::golden_config(checkpoint::GoldenCase::kMid));
}

std::string fresh_folder(const std::string& name) {
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  std::string folder = fmt::format("{}lora_{}_{}", testing::TempDir(), test->name(), name);
  std::filesystem::remove_all(folder);
  return folder;
}

RandomAdapter golden_adapter(const std::string& name) {
  const Json json = *Json::parse(*base::read_file(kGolden + name + "/case.json"));
  return *random_adapter_of(json);
}

Adapter load(const std::string& folder, const families::ModelConfig& base) {
  Result<Adapter> adapter = Adapter::load(folder, base, {});
  CHECK(adapter.ok(), adapter.ok() ? "" : adapter.error().message);
  return *std::move(adapter);
}

Adapter written(const RandomAdapter& random, const families::ModelConfig& base,
                WrittenLayout layout) {
  const std::string folder = fresh_folder("written");
  CHECK(write_random_adapter(random, base, layout, folder).ok());
  return load(folder, base);
}

float element(const void* data, kernels::Format format, int64_t index) {
  if (format == kernels::Format::kF32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return format == kernels::Format::kF16 ? tensor::f16_to_float(bits) : tensor::bf16_to_float(bits);
}

// --- what is written is what others wrote, and read the same in every layout ---

TEST(RandomAdapter, WritesTheGoldenFilesByteForByte) {
  std::ifstream sums(kGolden + "SHA256SUMS");
  std::string hash;
  std::string file;
  int checked = 0;
  while (sums >> hash >> file) {
    const size_t slash = file.find('/');
    const std::string name = file.substr(0, slash);
    const std::string layout = file.substr(slash + 1, file.rfind('/') - slash - 1);
    const families::ModelConfig base = name.starts_with("mid") ? mid() : tiny();
    const std::string folder = fresh_folder("golden");
    ASSERT_TRUE(
        write_random_adapter(golden_adapter(name), base, *parse_written_layout(layout), folder)
            .ok());
    EXPECT_EQ(base::sha256(*base::read_file(folder + "/adapter_model.safetensors")), hash) << file;
    ++checked;
    std::filesystem::remove_all(folder);
  }
  EXPECT_EQ(checked, 13);
}

TEST(Adapter, IsTheSameInEveryLayout) {
  const RandomAdapter experts = golden_adapter("experts");
  const Adapter peft = written(experts, tiny(), WrittenLayout::kPeft);
  EXPECT_EQ(peft.rank_max(), 4);
  EXPECT_TRUE(peft.adds_to_experts());
  EXPECT_GT(peft.identity(), 0);
  EXPECT_EQ(peft.digest().size(), 64u);
  EXPECT_LE(peft.bytes(), peft.tensor_bytes() * 102 / 100);
  for (const WrittenLayout layout :
       {WrittenLayout::kPeftOuter, WrittenLayout::kPerExpert, WrittenLayout::kStacked,
        WrittenLayout::kNested3d, WrittenLayout::kTransposed}) {
    EXPECT_EQ(written(experts, tiny(), layout).digest(), peft.digest()) << static_cast<int>(layout);
  }
  const RandomAdapter patterns = golden_adapter("patterns");
  EXPECT_EQ(written(patterns, tiny(), WrittenLayout::kPerExpert).digest(),
            written(patterns, tiny(), WrittenLayout::kPeft).digest());
}

TEST(Adapter, HasAnIdentityOfItsNumbersAndTheirScale) {
  RandomAdapter random{.seed = 7, .parts = {"q"}, .rank = 2, .alpha = 4};
  const std::string first = written(random, tiny(), WrittenLayout::kPeft).digest();
  EXPECT_EQ(written(random, tiny(), WrittenLayout::kPeft).digest(), first);
  random.base = "another name";  // says nothing of what it does
  EXPECT_EQ(written(random, tiny(), WrittenLayout::kPeft).digest(), first);
  random.alpha = 5;
  EXPECT_NE(written(random, tiny(), WrittenLayout::kPeft).digest(), first);
  random.alpha = 4;
  random.seed = 8;
  EXPECT_NE(written(random, tiny(), WrittenLayout::kPeft).digest(), first);
}

TEST(Adapter, ScalesByTheFirstPatternThatFits) {
  const Adapter adapter = written(golden_adapter("patterns"), tiny(), WrittenLayout::kPeft);
  const auto linear = [&](int layer, Linear which) {
    return adapter.layer(layer).linear[static_cast<size_t>(which)];
  };
  EXPECT_EQ(linear(0, Linear::kQ).rank, 2);
  EXPECT_EQ(linear(1, Linear::kQ).rank, 9);
  EXPECT_EQ(linear(0, Linear::kO).rank, 1);
  EXPECT_FLOAT_EQ(linear(0, Linear::kQ).scale, 6 / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(linear(0, Linear::kV).scale, 12 / std::sqrt(4.0f));
  EXPECT_EQ(adapter.layer(0).experts.down.rank, 3);
  EXPECT_FLOAT_EQ(adapter.layer(0).experts.gate.scale, 2 / std::sqrt(4.0f));
  EXPECT_FLOAT_EQ(adapter.layer(1).experts.up.scale, 6 / std::sqrt(4.0f));
  EXPECT_EQ(adapter.layer(0).experts.up.a, adapter.layer(0).experts.gate.a);
}

TEST(Adapter, LiesAsKernelsReadIt) {
  const RandomAdapter random{
      .seed = 3, .dtype = tensor::DType::kF32, .parts = {"gate_up", "down"}, .rank = 2, .alpha = 2};
  const families::ModelConfig base = tiny();
  const std::string folder = fresh_folder("stacked");
  ASSERT_TRUE(write_random_adapter(random, base, WrittenLayout::kStacked, folder).ok());
  const std::string file = *base::read_file(folder + "/adapter_model.safetensors");
  const auto tensors = *checkpoint::parse_safetensors(
      {reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "test");
  const auto stored = [&](const std::string& end, int64_t index) {
    for (const checkpoint::StoredTensor& tensor : tensors) {
      if (!tensor.name.ends_with("layers.1.mlp.experts." + end)) continue;
      float value = 0;
      std::memcpy(&value, file.data() + tensor.begin + static_cast<size_t>(index) * 4, 4);
      return value;
    }
    return std::nanf("");
  };
  const Adapter adapter = load(folder, base);
  const kernels::ExpertLowRank& experts = adapter.layer(1).experts;
  const int64_t hidden = base.hidden_size;
  const int64_t inner = base.expert_intermediate_size;
  for (const int e : {0, 5}) {
    for (const int64_t rho : {0, 1}) {
      for (const int64_t j : {0, 1, 77}) {
        const auto at = [&](const kernels::LowRank& matrix, bool a) {
          const kernels::LowRank one = matrix.of_expert(e);
          const int64_t columns = a ? one.cols : one.rows;
          return element(a ? one.a : one.b, one.format, rho * columns + j);
        };
        EXPECT_EQ(at(experts.gate, true),
                  stored("gate_up_proj.lora_A.weight", (e * 2 + rho) * hidden + j));
        EXPECT_EQ(at(experts.gate, false),
                  stored("gate_up_proj.lora_B.weight", (e * 2 * inner + 2 * j) * 2 + rho));
        EXPECT_EQ(at(experts.up, false),
                  stored("gate_up_proj.lora_B.weight", (e * 2 * inner + 2 * j + 1) * 2 + rho));
        EXPECT_EQ(at(experts.down, true),
                  stored("down_proj.lora_A.weight", (e * 2 + rho) * inner + j));
        EXPECT_EQ(at(experts.down, false),
                  stored("down_proj.lora_B.weight", (e * hidden + j) * 2 + rho));
      }
    }
  }
}

// down alone fits both ways where an expert is as wide within as without: PEFT's version decides.
TEST(Adapter, KnowsByTheVersionWhatShapesLeaveOpen) {
  const RandomAdapter down{.seed = 5, .parts = {"down"}, .rank = 2, .alpha = 2};
  const families::ModelConfig base = tiny();
  ASSERT_EQ(base.hidden_size, base.expert_intermediate_size);
  EXPECT_EQ(written(down, base, WrittenLayout::kTransposed).digest(),
            written(down, base, WrittenLayout::kPeft).digest());
}

// GGUF files of Llama hold the rows of a head in neighbours' order.
TEST(Adapter, FollowsTheRowsOfARotationOfNeighbours) {
  const Json json =
      *Json::parse(*base::read_file(PELTON_SOURCE_DIR "/testdata/golden/llama3/config.json"));
  families::ModelConfig base = config_of(json);
  const RandomAdapter random{.seed = 9, .parts = {"q", "v", "gate", "down"}, .rank = 2, .alpha = 2};
  const Adapter halves = written(random, base, WrittenLayout::kPeft);
  base.rope.pairs = families::RopePairs::kNeighbours;
  const Adapter neighbours = written(random, base, WrittenLayout::kPeft);
  const auto b = [&](const Adapter& adapter, Linear which, int64_t row) {
    const kernels::LowRank& matrix = adapter.layer(0).linear[static_cast<size_t>(which)];
    return element(matrix.b, matrix.format, row);
  };
  const int64_t half = base.head_size / 2;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t head = base.head_size;  // the second one's
    EXPECT_EQ(b(neighbours, Linear::kQ, head + 2 * i), b(halves, Linear::kQ, head + i));
    EXPECT_EQ(b(neighbours, Linear::kQ, head + 2 * i + 1), b(halves, Linear::kQ, head + half + i));
    EXPECT_EQ(b(neighbours, Linear::kV, i), b(halves, Linear::kV, i));
  }
  EXPECT_FALSE(halves.adds_to_experts());
}

TEST(Adapter, OfExpertsThatHaveMatricesEach) {
  const Json json =
      *Json::parse(*base::read_file(PELTON_SOURCE_DIR "/testdata/golden/qwen3-moe/config.json"));
  const families::ModelConfig base = config_of(json);
  const RandomAdapter random{
      .seed = 9, .parts = {"q", "gate", "up", "down"}, .rank = 2, .alpha = 2};
  const Adapter adapter = written(random, base, WrittenLayout::kApart);
  int layers = 0;
  for (int i = 0; i < base.layer_count(); ++i) {
    if (!base.layers[static_cast<size_t>(i)].has_experts) continue;
    ++layers;
    EXPECT_TRUE(adapter.layer(i).experts.gate.adds());
    EXPECT_NE(adapter.layer(i).experts.gate.a, adapter.layer(i).experts.up.a);
  }
  EXPECT_GT(layers, 0);
}

// --- what reading takes ---

// A tensor of several tiles, of which one ends within a row, is what it is in one: written in two
// layouts whose tensors are cut at other places.
TEST(Adapter, IsReadInTiles) {
  Json json = checkpoint::golden_config(checkpoint::GoldenCase::kTiny);
  json.set("hidden_size", 832).set("intermediate_size", 704);  // B of up: [1408, 8 * 24]
  const families::ModelConfig base = config_of(json);
  const RandomAdapter random{.seed = 11,
                             .dtype = tensor::DType::kF32,
                             .parts = {"q", "gate_up", "down"},
                             .rank = 24,
                             .alpha = 24,
                             .layers = {0}};
  const std::string folder = fresh_folder("large");
  ASSERT_TRUE(write_random_adapter(random, base, WrittenLayout::kPeft, folder).ok());
  Result<AdapterFile> file = AdapterFile::open(folder, int64_t{1} << 30);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::string whole = *base::read_file(file->path());
  int largest = 0;
  for (const checkpoint::StoredTensor& tensor : file->tensors()) {
    int tiles = 0;
    std::string read;
    ASSERT_TRUE(file->read(tensor,
                           [&](const AdapterFile::Tile& tile) -> Result<void> {
                             EXPECT_EQ(tile.first * 4, static_cast<int64_t>(read.size()));
                             EXPECT_LE(static_cast<int64_t>(tile.bytes.size()), kFileTileBytes);
                             read += tile.bytes;
                             ++tiles;
                             return {};
                           })
                    .ok());
    EXPECT_EQ(read, whole.substr(tensor.begin, tensor.end - tensor.begin));
    largest = std::max(largest, tiles);
  }
  EXPECT_GE(largest, 2);
  const Adapter peft = load(folder, base);
  EXPECT_EQ(written(random, base, WrittenLayout::kStacked).digest(), peft.digest());
  EXPECT_EQ(written(random, base, WrittenLayout::kPerExpert).digest(), peft.digest());
}

TEST(Adapter, HoldsNoFileThatIsCutShortMeanwhile) {
  const RandomAdapter random{.seed = 3, .parts = {"q"}, .rank = 2, .alpha = 2};
  const std::string folder = fresh_folder("cut");
  ASSERT_TRUE(write_random_adapter(random, tiny(), WrittenLayout::kPeft, folder).ok());
  Result<AdapterFile> file = AdapterFile::open(folder, int64_t{1} << 30);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(file->path(), file->tensors().front().end - 1);
  const Result<void> read =
      file->read(file->tensors().front(), [](const AdapterFile::Tile&) { return Result<void>(); });
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("was cut short"));
}

// --- what is refused ---

struct TestTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// A sound adapter of rank 2 on q of both layers, of which each test spoils something.
class Refusal : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder("refused");
    std::filesystem::create_directories(folder_);
    config_.set("r", 2).set("lora_alpha", 4).set("peft_type", "LORA").set("bias", "none");
    config_.set("target_modules", Json::Array{"q_proj"});
    config_.set("target_parameters", Json::Array{"mlp.experts.gate_up_proj", "experts.down_proj"});
    for (const int layer : {0, 1}) {
      add(fmt::format("layers.{}.self_attn.q_proj", layer), {2, 128}, {128, 2});
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string name(const std::string& module, char which) {
    return fmt::format("base_model.model.model.{}.lora_{}.weight", module, which);
  }
  void put(const std::string& full_name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    tensors_[full_name] = {std::move(shape), std::vector<float>(static_cast<size_t>(count), 0.5f)};
  }
  void add(const std::string& module, std::vector<int64_t> a, std::vector<int64_t> b) {
    put(name(module, 'A'), std::move(a));
    put(name(module, 'B'), std::move(b));
  }
  void add_nested_experts() {
    add("layers.0.mlp.experts.base_layer", {16, 128}, {256, 16});
    add("layers.0.mlp.experts", {16, 128}, {128, 16});
  }

  void write_config(const std::string& text) {
    std::ofstream(folder_ + "/adapter_config.json", std::ios::binary) << text;
  }
  std::string tensor_file() const {
    std::vector<checkpoint::PlannedTensor> planned;
    std::string bytes;
    for (const auto& [tensor_name, tensor] : tensors_) {
      planned.push_back({tensor_name, tensor::DType::kF32, tensor.shape});
      bytes.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * 4);
    }
    return checkpoint::safetensors_header(planned) + bytes;
  }
  void write_tensors(const std::string& bytes) {
    std::ofstream(folder_ + "/adapter_model.safetensors", std::ios::binary) << bytes;
  }
  Result<Adapter> load_written(const Limits& limits = {}) {
    write_config(config_.dump());
    write_tensors(tensor_file());
    return Adapter::load(folder_, tiny(), limits);
  }
  // The message.
  std::string refusal() {
    const Result<Adapter> adapter = load_written();
    return adapter.ok() ? "it was loaded" : adapter.error().message;
  }

  std::string folder_;
  Json config_;
  std::map<std::string, TestTensor> tensors_;
};

TEST_F(Refusal, NotOfWhatIsSound) {
  const Result<Adapter> adapter = load_written();
  ASSERT_TRUE(adapter.ok()) << adapter.error().message;
  EXPECT_EQ(adapter->rank_max(), 2);
  EXPECT_FALSE(adapter->adds_to_experts());
}

TEST_F(Refusal, NotOfActivatedOnes) {
  const std::string everywhere = load_written()->digest();
  config_.set("alora_invocation_tokens", Json::Array{7, 8});
  const Result<Adapter> adapter = load_written();
  ASSERT_TRUE(adapter.ok()) << adapter.error().message;
  EXPECT_EQ(adapter->invocation(), (std::vector<TokenId>{7, 8}));
  EXPECT_NE(adapter->digest(), everywhere) << "it does something else";
}

TEST_F(Refusal, LR_10_OfFieldsThatMakeMoreThanALowRankSum) {
  const Json sound = config_;
  const std::vector<std::pair<std::string, Json>> fields = {
      {"use_dora", true},
      {"use_qalora", true},
      {"use_something_new", true},
      {"lora_bias", true},
      {"bias", "lora_only"},
      {"bias", "all"},
      {"fan_in_fan_out", true},
      {"modules_to_save", Json::Array{"router"}},
      {"trainable_token_indices", Json::Array{3, 4}},
      {"layer_replication", Json::Array{Json::Array{0, 1}}},
      {"arrow_config", Json(Json::Object{{"top_k", 2}})},
      {"auto_map", Json(Json::Object{{"AutoModel", "modeling.Model"}})},
      {"peft_type", "LOHA"},
      {"init_lora_weights", "pissa_niter_4"},
      {"init_lora_weights", "loftq"},
      {"init_lora_weights", "something_new"},
      {"init_lora_weights", 3},
      {"layers_pattern", "blocks"},
      {"peft_type", nullptr},
      {"loftq_config", Json(Json::Object{{"loftq_bits", 4}})},
      {"megatron_config", Json(Json::Object{{"tensor_model_parallel_size", 2}})},
      {"monteclora_config", Json(Json::Object{{"samples", 2}})},
      {"velora_config", Json(Json::Object{{"rank", 2}})},
      {"scaling_by_layer", Json::Array{1, 2}},
      {"lora_scale_factor", 2},
  };
  for (const auto& [field, value] : fields) {
    config_ = sound;
    config_.set(field, value);
    EXPECT_THAT(refusal(), HasSubstr(field)) << value.dump();
    EXPECT_THAT(refusal(), HasSubstr("adapter_config.json")) << value.dump();
  }
}

TEST_F(Refusal, NotOfFieldsThatSayNothing) {
  for (const char* field :
       {"modules_to_save", "auto_map", "layers_pattern", "rank_pattern", "alpha_pattern",
        "layers_to_transform", "target_parameters", "trainable_token_indices", "exclude_modules",
        "arrow_config", "velora_config", "something_new"}) {
    config_.set(field, nullptr);
  }
  config_.set("auto_mapping", Json(Json::Object{{"base_model_class", "GptOssForCausalLM"}}));
  config_.set("eva_config", Json(Json::Object{{"rho", 2.0}})).set("megatron_core", "megatron.core");
  config_.set("qalora_group_size", 16).set("ensure_weight_tying", true);
  config_.set("use_dora", false).set("loftq_config", Json(Json::Object{}));
  config_.set("init_lora_weights", "gaussian").set("unsloth_fixed", true);
  config_.set("lora_dropout", 0.05).set("revision", nullptr);
  EXPECT_EQ(refusal(), "it was loaded");
}

TEST_F(Refusal, LR_01_OfNumbersThatMakeNoSense) {
  const Json sound = config_;
  const std::vector<std::pair<std::string, Json>> fields = {
      {"r", 0},
      {"r", -1},
      {"r", 2.5},
      {"r", "2"},
      {"r", nullptr},
      {"r", int64_t{1} << 40},
      {"lora_alpha", 0},
      {"lora_alpha", -4},
      {"lora_alpha", "4"},
      {"lora_alpha", 1e300},
      {"use_rslora", "yes"},
      {"rank_pattern", Json(Json::Object{{"q_proj", 0}})},
      {"rank_pattern", Json(Json::Object{{"q_proj", 1.5}})},
      {"rank_pattern", Json(Json::Object{{"(q_proj", 2}})},
      {"rank_pattern", Json::Array{1}},
      {"alpha_pattern", Json(Json::Object{{"q_proj", 0}})},
      {"alpha_pattern", Json(Json::Object{{"q_proj", "x"}})},
      {"alora_invocation_tokens", "the"},
      {"alora_invocation_tokens", Json::Array{1, "the"}},
      {"alora_invocation_tokens", Json::Array{1, -1}},
      {"alora_invocation_tokens", Json::Array{1, 512}},  // the base has 512
      {"layers_to_transform", Json::Array{"0"}},
      {"layers_to_transform", -1},
  };
  for (const auto& [field, value] : fields) {
    config_ = sound;
    config_.set(field, value);
    EXPECT_THAT(refusal(), HasSubstr(field)) << value.dump();
  }
  // NaN is no JSON.
  write_config(R"({"r": 2, "lora_alpha": NaN})");
  const Result<Adapter> nan = Adapter::load(folder_, tiny(), {});
  ASSERT_FALSE(nan.ok());
  EXPECT_THAT(nan.error().message, HasSubstr("JSON"));
}

TEST_F(Refusal, OfAPatternThatBacktracksWithoutEnd) {
  const Json sound = config_;
  config_.set("rank_pattern", Json(Json::Object{{"([a-z_.0-9]+)+[A-Z]", 2}}));
  EXPECT_THAT(refusal(), HasSubstr("takes too long"));
  for (const char* field : {"target_modules", "exclude_modules"}) {
    config_ = sound;
    config_.set(field, "([a-z_.0-9]+)+[A-Z]");
    EXPECT_THAT(refusal(), HasSubstr(std::string(field) + " takes too long"));
    config_.set(field, "(q_proj");
    EXPECT_THAT(refusal(), HasSubstr(std::string(field) + " is not a regular expression"));
    config_.set(field, 3);
    EXPECT_THAT(refusal(), HasSubstr(field));
  }
}

// PEFT would compute without the tensors' module: by its rules of names and of patterns.
TEST_F(Refusal, OfTensorsThatTargetsLeaveOut) {
  struct Case {
    Json value;
    int matches = 0;  // of the adapter's two modules
  };
  const std::vector<Case> cases = {
      {Json::Array{"q_proj"}, 2},
      {Json::Array{"self_attn.q_proj", "k_proj"}, 2},
      {Json::Array{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"}, 2},
      {"all-linear", 2},
      {R"(.*\.self_attn\.(q|k)_proj)", 2},
      {R"(model\.layers\.\d+\.self_attn\.q_proj)", 2},
      {Json::Array{"model.layers.0.self_attn.q_proj"}, 1},
      {R"(.*\.0\.self_attn\.q_proj)", 1},
      {Json::Array{}, 0},
      {Json::Array{"k_proj"}, 0},
      {Json::Array{"proj"}, 0},
      {"q_proj", 0},  // a pattern of the whole path
      {R"(.*\.q_pro)", 0},
  };
  const Json sound = config_;
  for (const Case& one : cases) {
    config_ = sound;
    config_.set("target_modules", one.value);
    const char* const targeted = one.matches == 2 ? "it was loaded" : "not among target_modules";
    EXPECT_THAT(refusal(), HasSubstr(targeted)) << one.value.dump();
    config_ = sound;
    config_.set("exclude_modules", one.value);
    const char* const excluded = one.matches == 0 ? "it was loaded" : "is among exclude_modules";
    EXPECT_THAT(refusal(), HasSubstr(excluded)) << one.value.dump();
  }
  config_ = sound;
  config_.set("exclude_modules", Json::Array{"model.layers.1.self_attn.q_proj"});
  EXPECT_THAT(refusal(), HasSubstr("layers.1.self_attn.q_proj"));
}

TEST_F(Refusal, OfExpertsThatTargetsLeaveOut) {
  add_nested_experts();
  EXPECT_EQ(refusal(), "it was loaded");
  config_.set("target_parameters", Json::Array{"mlp.experts.gate_up_proj"});
  EXPECT_THAT(refusal(), HasSubstr("is among neither target_parameters nor target_modules"));
  config_.set("target_parameters", nullptr);
  EXPECT_THAT(refusal(), HasSubstr("is among neither"));
  config_.set("target_modules", Json::Array{"q_proj", "experts"});
  EXPECT_EQ(refusal(), "it was loaded");
}

TEST_F(Refusal, LR_09_OfModulesWithoutAdapters) {
  const auto sound = tensors_;
  for (const char* module :
       {"layers.0.mlp.router", "layers.0.mlp.gate_proj", "layers.0.self_attn.sinks",
        "layers.0.input_layernorm", "lm_head", "layers.0.mlp.experts.0.gate_proj",
        "layers.00.self_attn.q_proj", "layers.0.mlp.experts.base_layer.base_layer"}) {
    tensors_ = sound;
    add(module, {2, 128}, {128, 2});
    EXPECT_THAT(refusal(), HasSubstr(module));
  }
  tensors_ = sound;
  put("base_model.model.model.embed_tokens.lora_embedding_A", {2, 512});
  EXPECT_THAT(refusal(), HasSubstr("embed_tokens"));
  tensors_ = sound;
  put("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", {128});
  EXPECT_THAT(refusal(), HasSubstr("lora_magnitude_vector"));
  tensors_ = sound;
  put("base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", {128});
  EXPECT_THAT(refusal(), HasSubstr("lora_B.bias"));
  tensors_ = sound;
  config_.set("target_modules", Json::Array{"q_proj", "lm_head"});
  EXPECT_THAT(refusal(), HasSubstr("lm_head"));
}

TEST_F(Refusal, LR_01_OfTensorsOfAnotherBase) {
  const auto sound = tensors_;
  add("layers.7.self_attn.q_proj", {2, 128}, {128, 2});
  EXPECT_THAT(refusal(), HasSubstr("layers.7"));
  tensors_ = sound;
  put(name("layers.0.self_attn.q_proj", 'A'), {2, 512});
  EXPECT_THAT(refusal(), HasSubstr("[2, 512]"));
  tensors_ = sound;
  tensors_.erase(name("layers.0.self_attn.q_proj", 'B'));
  EXPECT_THAT(refusal(), HasSubstr("lora_B"));
  tensors_ = sound;
  put("base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight", {2, 128});
  EXPECT_THAT(refusal(), HasSubstr("twice"));
  tensors_ = sound;
  config_.set("r", 4);
  EXPECT_THAT(refusal(), HasSubstr("rank"));
  config_.set("r", 2).set("layers_to_transform", Json::Array{1});
  EXPECT_THAT(refusal(), HasSubstr("layers_to_transform"));
  config_.set("layers_to_transform", Json::Array{0, 1, 99});
  EXPECT_THAT(refusal(), HasSubstr("the base has no layer 99"));
  config_.set("layers_to_transform", nullptr);
  tensors_.clear();
  EXPECT_THAT(refusal(), HasSubstr("no tensor"));
}

TEST_F(Refusal, OfExpertsInNoLayoutOrTwo) {
  const auto sound = tensors_;
  add_nested_experts();
  EXPECT_EQ(refusal(), "it was loaded");
  add("layers.0.mlp.experts.gate_up_proj", {8, 2, 128}, {8, 256, 2});
  EXPECT_THAT(refusal(), HasSubstr("two layouts"));
  tensors_ = sound;
  add("layers.0.mlp.experts.base_layer", {18, 128}, {256, 18});  // of nine experts
  add("layers.0.mlp.experts", {18, 128}, {128, 18});
  EXPECT_THAT(refusal(), HasSubstr("experts: has the shape"));
  tensors_ = sound;
  add("layers.0.mlp.experts", {16, 192}, {128, 16});
  EXPECT_THAT(refusal(), HasSubstr("experts: the shapes"));
  tensors_ = sound;
  add("layers.0.mlp.experts.base_layer", {16, 128}, {256, 16});
  EXPECT_THAT(refusal(), HasSubstr("base_layer"));
  tensors_ = sound;
  add("layers.0.mlp.experts.gate_up_projs.3", {2, 128}, {256, 2});
  EXPECT_THAT(refusal(), HasSubstr("7 of 8"));
  tensors_ = sound;
  add("layers.0.mlp.experts.gate_up_projs.8", {2, 128}, {256, 2});
  EXPECT_THAT(refusal(), HasSubstr("expert 8"));
  tensors_ = sound;
  add_nested_experts();
  add("layers.1.mlp.experts.base_layer", {16, 256}, {128, 16});  // in and out exchanged
  add("layers.1.mlp.experts", {16, 128}, {128, 16});
  EXPECT_THAT(refusal(), HasSubstr("experts: the shapes"));
}

TEST_F(Refusal, LR_02_OfNumbersThatAreNotFinite) {
  for (const float value : {std::nanf(""), INFINITY, -INFINITY}) {
    tensors_[name("layers.1.self_attn.q_proj", 'B')].values[17] = value;
    EXPECT_THAT(refusal(), HasSubstr("lora_B"));
    EXPECT_THAT(refusal(), HasSubstr("number 17"));
  }
}

TEST_F(Refusal, LR_10_OfPicklesAndFilesThatAreNotThere) {
  EXPECT_THAT(Adapter::load(folder_, tiny(), {}).error().message, HasSubstr("adapter_config.json"));
  write_config(config_.dump());
  EXPECT_THAT(Adapter::load(folder_, tiny(), {}).error().message,
              HasSubstr("adapter_model.safetensors"));
  std::ofstream(folder_ + "/adapter_model.bin") << "pickle";
  EXPECT_THAT(Adapter::load(folder_, tiny(), {}).error().message, HasSubstr("adapter_model.bin"));
  write_config("{\"r\": 2,");
  EXPECT_THAT(Adapter::load(folder_, tiny(), {}).error().message, HasSubstr("adapter_config.json"));
}

TEST_F(Refusal, OfAFileThatIsCutAnywhere) {
  write_config(config_.dump());
  const std::string whole = tensor_file();
  for (size_t size = 0; size < whole.size(); size += 97) {
    write_tensors(whole.substr(0, size));
    const Result<Adapter> adapter = Adapter::load(folder_, tiny(), {});
    ASSERT_FALSE(adapter.ok()) << size;
    EXPECT_THAT(adapter.error().message, HasSubstr("adapter_model.safetensors"));
  }
}

TEST_F(Refusal, OfAHeaderBeyondItsLimit) {
  write_config(config_.dump());
  std::string bytes = tensor_file();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const uint64_t padding = (uint64_t{64} << 20) - length + 8;
  bytes.insert(8 + length, padding, ' ');
  length += padding;
  std::memcpy(bytes.data(), &length, sizeof length);
  write_tensors(bytes);
  const Result<Adapter> adapter = Adapter::load(folder_, tiny(), {});
  ASSERT_FALSE(adapter.ok());
  EXPECT_THAT(adapter.error().message, HasSubstr("the limit of an adapter's is 67108864"));
}

TEST_F(Refusal, OfAPipe) {
  write_config(config_.dump());
  ASSERT_EQ(mkfifo((folder_ + "/adapter_model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(Adapter::load(folder_, tiny(), {}).error().message, HasSubstr("no regular file"));
  EXPECT_EQ(AdapterFile::tensor_bytes_of(folder_), 0) << "nobody waits for a writer";
}

// It stays one, and is not tried again as a disk is that does not read.
TEST_F(Refusal, OfALinkToItself) {
  write_config(config_.dump());
  const std::string path = folder_ + "/adapter_model.safetensors";
  ASSERT_EQ(symlink(path.c_str(), path.c_str()), 0);
  EXPECT_EQ(Adapter::load(folder_, tiny(), {}).error().code, ErrorCode::kBadCheckpoint);
}

TEST_F(Refusal, OfWhatIsBeyondTheLimits) {
  const Result<Adapter> rank = load_written({.rank_max = 1});
  ASSERT_FALSE(rank.ok());
  EXPECT_EQ(rank.error().code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(rank.error().message, HasSubstr("--max-lora-rank"));
  const Result<Adapter> target = load_written({.targets = Targets::kExperts});
  ASSERT_FALSE(target.ok());
  EXPECT_THAT(target.error().message, HasSubstr("--lora-targets"));
  EXPECT_TRUE(load_written({.rank_max = 2, .targets = Targets::kAttention}).ok());
  add_nested_experts();
  EXPECT_FALSE(load_written({.targets = Targets::kAttention}).ok());
}

}  // namespace
}  // namespace pelton::lora
