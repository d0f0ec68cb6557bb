// Rows of the hardening plan by number (ST-xx, CF-xx) where a test covers one.
#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/thread_pool.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/synthetic.h"

namespace pelton::checkpoint {
namespace {

using testing::HasSubstr;

const std::string kTiny = PELTON_SOURCE_DIR "/testdata/golden/tiny";

TEST(Checkpoint, OpensTheGoldenTinyModel) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(kTiny);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2u * 19 + 3);
  EXPECT_EQ(checkpoint->config().layer_count(), 2);
  EXPECT_EQ(checkpoint->config().eos_tokens, (std::vector<TokenId>{510, 511}));
  const int64_t shape[] = {512, 128};
  EXPECT_TRUE(checkpoint->tensor("lm_head.weight", tensor::DType::kBf16, shape).ok());
  EXPECT_FALSE(checkpoint->tensor("lm_head.weight", tensor::DType::kF16, shape).ok());
  EXPECT_FALSE(checkpoint->tensor("lm_head", tensor::DType::kBf16, shape).ok());
}

// A folder with a model of several shards, to be damaged.
class DamagedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "checkpoint_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    SyntheticOptions options = synthetic_tiny(512);
    options.shard_bytes_max = 300'000;
    base::ThreadPool pool({.threads = 1, .pin = false});
    ASSERT_TRUE(write_synthetic(options, folder_, pool, [](int64_t, int64_t) {}).ok());
    ASSERT_TRUE(Checkpoint::open(folder_).ok());
    index_ = Json::parse(read("model.safetensors.index.json")).value();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string read(const std::string& name) { return *base::read_file(folder_ + "/" + name); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  Json& weight_map() {
    for (Json::Member& member : index_.as_object()) {
      if (member.key == "weight_map") return member.value;
    }
    ADD_FAILURE();
    return index_;
  }
  void write_index() { write("model.safetensors.index.json", index_.dump()); }
  std::string shard_of(const std::string& tensor) { return *weight_map().string(tensor); }

  void expect_refused(ErrorCode code, const std::string& message) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
    ASSERT_FALSE(checkpoint.ok()) << message;
    EXPECT_EQ(checkpoint.error().code, code) << checkpoint.error().message;
    EXPECT_THAT(checkpoint.error().message, HasSubstr(message));
    EXPECT_THAT(checkpoint.error().message, HasSubstr(folder_));
  }

  // Replaces `from` by a text of the same length in the shard's header.
  void edit_header(const std::string& shard, const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    std::string file = read(shard);
    const size_t at = file.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    file.replace(at, from.size(), to);
    write(shard, file);
  }

  std::string folder_;
  Json index_;
};

TEST_F(DamagedCheckpoint, NoModelFiles) {
  EXPECT_EQ(Checkpoint::open(folder_ + "/none").error().code, ErrorCode::kNotFound);
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().filename() != "config.json") std::filesystem::remove(entry.path());
  }
  expect_refused(ErrorCode::kNotFound,
                 "neither model.safetensors nor model.safetensors.index.json");
}

TEST_F(DamagedCheckpoint, AMissingShard) {  // CF-12
  const std::string shard = shard_of("lm_head.weight");
  std::filesystem::remove(folder_ + "/" + shard);
  expect_refused(ErrorCode::kNotFound, shard);
}

TEST_F(DamagedCheckpoint, ATruncatedShard) {
  const std::string shard = shard_of("lm_head.weight");
  const std::string file = read(shard);
  write(shard, file.substr(0, file.size() - 1));
  expect_refused(ErrorCode::kBadCheckpoint, "is it truncated?");
  write(shard, file.substr(0, 100));
  expect_refused(ErrorCode::kBadCheckpoint, shard);
}

TEST_F(DamagedCheckpoint, ATensorInAnotherShardThanTheIndexSays) {  // CF-12
  weight_map().set("lm_head.weight", shard_of("model.layers.0.input_layernorm.weight"));
  write_index();
  expect_refused(ErrorCode::kBadCheckpoint, "places tensor \"lm_head.weight\" in");
}

TEST_F(DamagedCheckpoint, ATensorInNoShard) {  // CF-12
  weight_map().set("more.weight", shard_of("lm_head.weight"));
  write_index();
  expect_refused(ErrorCode::kBadCheckpoint, "but it is in no shard");
}

TEST_F(DamagedCheckpoint, ATensorThatTheIndexForgets) {
  Json::Object& map = weight_map().as_object();
  ASSERT_EQ(map[0].key, "model.layers.0.input_layernorm.weight");
  map.erase(map.begin());
  write_index();
  expect_refused(ErrorCode::kBadCheckpoint,
                 "does not list tensor \"model.layers.0.input_layernorm.weight\"");
}

TEST_F(DamagedCheckpoint, ATotalSizeThatLies) {  // CF-12
  Json metadata;
  metadata.set("total_size", 5);
  index_.set("metadata", metadata);
  write_index();
  expect_refused(ErrorCode::kBadCheckpoint, "metadata.total_size is 5, but the shards hold");
}

TEST_F(DamagedCheckpoint, AnIndexThatLeadsElsewhere) {  // CF-13
  for (const char* name : {"../../etc/passwd", "/etc/passwd", "..", ".", "", "a/b.safetensors"}) {
    weight_map().set("lm_head.weight", name);
    write_index();
    expect_refused(ErrorCode::kBadCheckpoint, "must be the name of a file in the same folder");
  }
  weight_map().set("lm_head.weight", std::string("x\0y", 3));
  write_index();
  expect_refused(ErrorCode::kBadCheckpoint, "must be the name of a file");
  weight_map().set("lm_head.weight", 7);
  write_index();
  expect_refused(ErrorCode::kBadCheckpoint, "must be the name of a file");
}

TEST_F(DamagedCheckpoint, ABrokenIndex) {
  write("model.safetensors.index.json", "{");
  expect_refused(ErrorCode::kBadCheckpoint, "not valid JSON");
  write("model.safetensors.index.json", "{}");
  expect_refused(ErrorCode::kBadCheckpoint, "weight_map is missing");
  write("model.safetensors.index.json", R"({"weight_map":{"a":"x","a":"x"}})");
  expect_refused(ErrorCode::kBadCheckpoint, "names tensor \"a\" twice");
}

TEST_F(DamagedCheckpoint, AShardThatIsNoFile) {  // CF-14: refused at once, not waited for
  const std::string shard = folder_ + "/" + shard_of("lm_head.weight");
  std::filesystem::remove(shard);
  ASSERT_EQ(::mkfifo(shard.c_str(), 0600), 0);
  expect_refused(ErrorCode::kBadCheckpoint, "is not a regular file");
  std::filesystem::remove(shard);
  std::filesystem::create_directory(shard);
  expect_refused(ErrorCode::kBadCheckpoint, "is not a regular file");
}

TEST_F(DamagedCheckpoint, ATensorOfAnotherShapeThanTheConfiguration) {  // ST-25, CF-03
  Json config = Json::parse(read("config.json")).value();
  config.set("vocab_size", 513);
  write("config.json", config.dump());
  expect_refused(ErrorCode::kBadCheckpoint,
                 "tensor \"model.embed_tokens.weight\": expected BF16 [513, 128] from config.json, "
                 "found BF16 [512, 128]");
}

TEST_F(DamagedCheckpoint, ATensorOfAnotherType) {
  edit_header(shard_of("model.norm.weight"), "\"model.norm.weight\":{\"dtype\":\"BF16\"",
              "\"model.norm.weight\":{\"dtype\":\"F16\" ");
  expect_refused(ErrorCode::kBadCheckpoint,
                 "expected BF16 [128] from config.json, found F16 [128]");
}

TEST_F(DamagedCheckpoint, MoreLayersThanTheConfiguration) {  // ST-25
  Json config = Json::parse(read("config.json")).value();
  config.set("num_hidden_layers", 1).set("layer_types", Json::Array{"sliding_attention"});
  write("config.json", config.dump());
  expect_refused(ErrorCode::kBadCheckpoint, "has no place in a GptOssForCausalLM of 1 layers");
}

TEST_F(DamagedCheckpoint, FewerLayersThanTheConfiguration) {  // ST-25
  Json config = Json::parse(read("config.json")).value();
  config.set("num_hidden_layers", 3);
  config.set("layer_types", Json());
  write("config.json", config.dump());
  expect_refused(
      ErrorCode::kBadCheckpoint,
      "tensor \"model.layers.2.input_layernorm.weight\" is missing; expected BF16 [128]");
}

// A header whose length is odd puts every bf16 at an odd address; such files are copied.
TEST(Checkpoint, ReadsTensorsAtOddOffsets) {
  const std::string folder = testing::TempDir() + "checkpoint_test_odd";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const char* name : {"config.json", "generation_config.json"}) {
    std::filesystem::copy(kTiny + "/" + name, folder);
  }
  std::string file = *base::read_file(kTiny + "/model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), 8);
  file = file.substr(0, 8 + header_bytes) + " " + file.substr(8 + header_bytes);
  ++header_bytes;
  std::memcpy(file.data(), &header_bytes, 8);
  ASSERT_TRUE(base::write_file(folder + "/model.safetensors", file).ok());

  const Result<Checkpoint> odd = Checkpoint::open(folder);
  ASSERT_TRUE(odd.ok()) << odd.error().message;
  const Result<Checkpoint> even = Checkpoint::open(kTiny);
  EXPECT_EQ(odd->weight_bytes(), even->weight_bytes());
  for (const auto& [name, view] : odd->tensors()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.bytes.data()) % tensor::dtype_bytes(view.dtype), 0u);
    const std::span<const uint8_t> other = even->tensors().find(name)->second.bytes;
    EXPECT_TRUE(std::equal(view.bytes.begin(), view.bytes.end(), other.begin(), other.end()));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pelton::checkpoint
