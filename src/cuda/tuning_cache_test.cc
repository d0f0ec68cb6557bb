// Tables of configs in files: read as written, and refused if anything about them is wrong.
#include "cuda/tuning_cache.h"

#include <cstdlib>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "cuda/gpt_oss_shape.h"

namespace pelton::cuda {
namespace {

constexpr KernelDevice kDevice = {227 << 10, true};
const ModelShape kShape = gpt_oss_shape();

TuningKey key(const char* name = "NVIDIA H100 80GB HBM3") {
  DeviceInfo info = {};
  std::snprintf(info.name, sizeof info.name, "%s", name);
  info.compute_major = 9;
  info.driver_version = 13000;
  info.runtime_version = 13000;
  return tuning_key(info, "cuda 2, abc", kShape, {.rows_max = 512, .logit_rows_max = 64});
}

// A usable table, drawn.
KernelConfigs random_configs(std::mt19937& random) {
  KernelConfigs configs;
  for (const ProductKind kind : kAllProducts) {
    for (KernelConfig& config : configs.config[static_cast<int>(kind)]) {
      const auto known = configs_of(kind);
      do {
        config = known[random() % known.size()];
      } while (!is_usable(kShape, kind, config, kDevice));
    }
  }
  for (int b = 0; b < kRowBucketCount; ++b) {
    configs.config[static_cast<int>(ProductKind::kDown)][b] =
        configs.config[static_cast<int>(ProductKind::kGateUp)][b];
  }
  for (int32_t& is_persistent : configs.persistent)
    is_persistent = static_cast<int32_t>(random() % 2);
  return configs;
}

class TuningCacheTest : public ::testing::Test {
 protected:
  TuningCacheTest() {
    folder_ = (std::filesystem::temp_directory_path() /
               ("pelton_configs_" + std::to_string(std::random_device{}())))
                  .string();
  }
  ~TuningCacheTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::mt19937 random_{std::random_device{}()};
};

TEST_F(TuningCacheTest, ReadAsWritten) {
  for (int run = 0; run < 50; ++run) {
    const KernelConfigs configs = random_configs(random_);
    const std::string file = tuning_file(folder_ + "/deep/er", key());
    ASSERT_TRUE(write_tuning(file, key(), configs).ok());
    const auto read = read_tuning(file, key(), kShape, kDevice);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, configs);
  }
  // Nothing but the file is left.
  int files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder_ + "/deep/er")) {
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(TuningCacheTest, WhatItIsForDecides) {
  const std::string text = tuning_text(key(), default_configs(kShape, kDevice));
  const auto refused = [&](const TuningKey& other) {
    EXPECT_NE(tuning_file(folder_, other), tuning_file(folder_, key()));
    const auto parsed = parse_tuning(text, other, kShape, kDevice);
    return !parsed.ok() && parsed.error().message.find("another GPU") != std::string::npos;
  };
  TuningKey other = key();
  other.driver = 12080;
  EXPECT_TRUE(refused(other));
  other = key();
  other.runtime = 12080;
  EXPECT_TRUE(refused(other));
  other = key();
  other.library = "cuda 2, abd";
  EXPECT_TRUE(refused(other));
  other = key();
  other.compute = "10.0";
  EXPECT_TRUE(refused(other));
  EXPECT_TRUE(refused(key("NVIDIA H200")));
  other = key();
  ModelShape shape = kShape;
  shape.layers = 3;
  other.model = tuning_key({}, "", shape, {.rows_max = 512, .logit_rows_max = 64}).model;
  EXPECT_TRUE(refused(other));
  other.model = tuning_key({}, "", kShape, {.rows_max = 1024, .logit_rows_max = 64}).model;
  EXPECT_TRUE(refused(other));
}

TEST_F(TuningCacheTest, AnotherShapesOrSmallerDevicesConfigsAreRefused) {
  KernelConfigs configs = default_configs(kShape, kDevice);
  configs.config[static_cast<int>(ProductKind::kQkv)][2] = {32, 2};
  const std::string text = tuning_text(key(), configs);
  EXPECT_TRUE(parse_tuning(text, key(), kShape, kDevice).ok());
  const auto parsed = parse_tuning(text, key(), kShape, {163 << 10, true});
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.error().message.find("cannot take"), std::string::npos);
}

TEST_F(TuningCacheTest, DamageIsAnErrorThatNamesTheFile) {
  const KernelConfigs configs = default_configs(kShape, kDevice);
  const std::string good = tuning_text(key(), configs);
  const auto broken = [&](const std::string& text) {
    const auto parsed = parse_tuning(text, key(), kShape, kDevice);
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    }
    return !parsed.ok();
  };
  ASSERT_FALSE(broken(good));
  for (size_t length = 0; length + 1 < good.size(); ++length) {
    EXPECT_TRUE(broken(good.substr(0, length))) << length;
  }
  EXPECT_TRUE(broken(good + "x"));
  EXPECT_TRUE(broken(std::string(kTuningFileBytesMax + 1, ' ')));
  const auto change = [&](const std::function<void(Json&)>& edit) {
    Json json = *Json::parse(good);
    edit(json);
    return json.dump();
  };
  EXPECT_TRUE(broken(change([](Json& json) { json.set("format", 1); })));
  for (const Json& persistent :
       {Json(1), Json(Json::Array(1, Json(0))), Json(Json::Array(3, Json(0))),
        Json(Json::Array(2, Json(2))), Json(Json::Array(2, Json("1")))}) {
    EXPECT_TRUE(broken(change([&](Json& json) { json.set("persistent", persistent); })));
  }
  EXPECT_TRUE(broken(change([](Json& json) { json.set("more", 1); })));
  EXPECT_TRUE(broken(change([](Json& json) { json.set("configs", 1); })));
  const auto with_row = [&](Json row) {
    return change([&](Json& json) {
      for (Json::Member& member : json.as_object()) {
        if (member.key == "configs") member.value.set("head", row);
      }
    });
  };
  EXPECT_TRUE(broken(with_row("8x1")));
  EXPECT_TRUE(broken(with_row(Json::Array(9, Json("8x1")))));
  EXPECT_TRUE(broken(with_row(Json::Array(11, Json("8x1")))));
  EXPECT_TRUE(broken(with_row(Json::Array(10, Json("8x3")))));
  EXPECT_TRUE(broken(with_row(Json::Array(10, Json(8)))));
  EXPECT_FALSE(broken(with_row(Json::Array(10, Json("8x1")))));

  const std::string file = tuning_file(folder_, key());
  EXPECT_EQ(read_tuning(file, key(), kShape, kDevice).error().code, ErrorCode::kNotFound);
  std::filesystem::create_directories(folder_);
  ASSERT_TRUE(base::write_file(file, "{}").ok());
  const auto read = read_tuning(file, key(), kShape, kDevice);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find(file), std::string::npos);
  ASSERT_TRUE(base::write_file(file, std::string(1 << 20, 'x')).ok());
  EXPECT_FALSE(read_tuning(file, key(), kShape, kDevice).ok());
}

// A driver's name for a GPU is foreign text too.
TEST_F(TuningCacheTest, AGpusNameMakesAFileNameOfThisFolder) {
  for (const char* name : {"../../etc/passwd", "a/b", "\xff\xfe", "", "..", "GPU \"x\"\n"}) {
    const std::string file = tuning_file(folder_, key(name));
    EXPECT_EQ(std::filesystem::path(file).parent_path().string(), folder_);
    ASSERT_TRUE(write_tuning(file, key(name), default_configs(kShape, kDevice)).ok()) << name;
    EXPECT_TRUE(read_tuning(file, key(name), kShape, kDevice).ok()) << name;
  }
}

TEST_F(TuningCacheTest, AFolderThatCannotBeIsAnError) {
  const auto written =
      write_tuning("/proc/nowhere/x.json", key(), default_configs(kShape, kDevice));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace pelton::cuda
