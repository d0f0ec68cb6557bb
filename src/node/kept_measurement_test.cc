#include "node/kept_measurement.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace pelton::node {
namespace {

using testing::HasSubstr;

class KeptMeasurement : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "kept_measurement_" + std::to_string(::getpid());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    std::filesystem::copy(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny",
                          root_ + "/tiny");
    folder_ = root_ + "/cache/measured";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  checkpoint::Checkpoint source() const {
    return std::move(checkpoint::Checkpoint::open(root_ + "/tiny").value());
  }
  static models::PackedModel measured() {
    models::PackedModel made;
    made.coarse_head = true;
    made.measured.emplace();
    made.measured->loss = {.divergence = 2.13e-4, .agreement = 0.984};
    return made;
  }

  std::string root_;
  std::string folder_;
};

TEST_F(KeptMeasurement, IsOfTheseFiles) {
  EXPECT_EQ(kept_measurement(folder_, source()), std::nullopt);
  ASSERT_TRUE(keep_measurement(folder_, source(), measured()).ok());
  const auto kept = kept_measurement(folder_, source());
  ASSERT_TRUE(kept);
  EXPECT_THAT(*kept, HasSubstr("at 1.6 % of positions"));
  EXPECT_THAT(*kept, HasSubstr("2.1e-04 nats"));
  EXPECT_EQ(kept_measurement("", source()), std::nullopt);
  const std::string weights = root_ + "/tiny/model.safetensors";
  std::filesystem::last_write_time(
      weights, std::filesystem::last_write_time(weights) + std::chrono::seconds(1));
  EXPECT_EQ(kept_measurement(folder_, source()), std::nullopt) << "these are other files now";
}

TEST_F(KeptMeasurement, NothingIsKeptThatWasNotMeasured) {
  models::PackedModel made = measured();
  made.measured.reset();
  ASSERT_TRUE(keep_measurement(folder_, source(), made).ok());
  made = measured();
  made.coarse_head = false;
  ASSERT_TRUE(keep_measurement(folder_, source(), made).ok());
  ASSERT_TRUE(keep_measurement("", source(), measured()).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(KeptMeasurement, WhatCannotBeReadIsNone) {
  ASSERT_TRUE(keep_measurement(folder_, source(), measured()).ok());
  const std::string file = std::filesystem::directory_iterator(folder_)->path().string();
  for (const char* text :
       {"", "[]", "{", R"({"agreement":2,"divergence":0.1,"activations":"int8"})",
        R"({"agreement":0.9,"divergence":0.1,"activations":"\u001b[2J"})",
        R"({"agreement":"x","divergence":0.1,"activations":"int8"})"}) {
    std::ofstream(file) << text;
    EXPECT_EQ(kept_measurement(folder_, source()), std::nullopt) << text;
  }
}

// No text gets out of a record that is not one: numbers, in their ranges.
TEST_F(KeptMeasurement, ARecordIsOfTheseFilesAndAFormat) {
  EXPECT_TRUE(kept_records(folder_, source()).empty());
  const FormatRecord record{.format = "kv-int8",
                            .tokens = 4096,
                            .perplexity = 12.5,
                            .other_perplexity = 12.75,
                            .divergence = 3e-4,
                            .agreement = 0.99};
  ASSERT_TRUE(keep_record(folder_, source(), record).ok());
  FormatRecord other = record;
  other.format = "../elsewhere";
  ASSERT_TRUE(keep_record(folder_, source(), other).ok());
  const std::vector<FormatRecord> kept = kept_records(folder_, source());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].format, "kv-int8");
  EXPECT_THAT(kept[0].text(), HasSubstr("perplexity 12.7500 instead of 12.5000"));
  const std::string file = std::filesystem::directory_iterator(folder_)->path().string();
  for (const char* text :
       {"", "[]", R"({"tokens":1,"perplexity":0.5})",
        R"({"tokens":9,"perplexity":2,"other_perplexity":2,"kl_mean":-1,"agreement":1})"}) {
    std::ofstream(file) << text;
    EXPECT_TRUE(kept_records(folder_, source()).empty()) << text;
  }
}

// What answers cost is part of the record; where nobody has asked, it says so.
TEST_F(KeptMeasurement, ARecordSaysWhetherTasksWereAsked) {
  const FormatRecord::Tasks tasks{.count = 1500, .score = 0.92, .other_score = 0.919, .p = 0.9};
  ASSERT_TRUE(keep_task_scores(folder_, source(), "kv-int8", tasks).ok());
  EXPECT_TRUE(kept_records(folder_, source()).empty()) << "of tasks alone there is no record";
  const FormatRecord record{.format = "kv-int8",
                            .tokens = 4096,
                            .perplexity = 12.5,
                            .other_perplexity = 12.75,
                            .divergence = 3e-4,
                            .agreement = 0.99};
  EXPECT_THAT(record.text(), HasSubstr("no tasks were asked"));
  ASSERT_TRUE(keep_record(folder_, source(), record).ok());
  const std::vector<FormatRecord> kept = kept_records(folder_, source());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_THAT(kept[0].text(),
              HasSubstr("right answers 91.9 % instead of 92.0 % of 1500 tasks (p 0.9)"));
  ASSERT_TRUE(keep_task_scores(folder_, source(), "../elsewhere", tasks).ok());
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    if (file.path().string().find("-tasks") == std::string::npos) continue;
    std::ofstream(file.path()) << R"({"tasks":1,"score":2,"other_score":1,"p":1})";
  }
  EXPECT_THAT(kept_records(folder_, source()).at(0).text(), HasSubstr("no tasks were asked"));
}

// A model is the same by whatever path it is opened.
TEST_F(KeptMeasurement, IsFoundByOtherNamesOfTheModel) {
  const FormatRecord record{.format = "kv-int8",
                            .tokens = 100,
                            .perplexity = 12.5,
                            .other_perplexity = 12.6,
                            .divergence = 2e-4,
                            .agreement = 0.99};
  ASSERT_TRUE(keep_record(folder_, source(), record).ok());
  std::filesystem::create_directory_symlink(root_ + "/tiny", root_ + "/link");
  const std::string relative = std::filesystem::relative(root_ + "/tiny").string();
  for (const std::string& name :
       {root_ + "/link", root_ + "/../" + root_.substr(root_.rfind('/') + 1) + "/tiny", relative}) {
    const auto opened = checkpoint::Checkpoint::open(name);
    ASSERT_TRUE(opened.ok()) << name;
    EXPECT_EQ(kept_records(folder_, *opened).size(), 1u) << name;
  }
}

}  // namespace
}  // namespace pelton::node
