#include "checkpoint/generation_defaults.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace pelton::checkpoint {
namespace {

GenerationDefaults parsed(std::string_view text) {
  return parse_generation_defaults(Json::parse(text).value());
}

TEST(GenerationDefaults, ReadsWhatIsThere) {
  const GenerationDefaults all = parsed(
      R"({"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0.05,"repetition_penalty":1.1,"do_sample":true})");
  EXPECT_EQ(all.temperature, 0.6);
  EXPECT_EQ(all.top_p, 0.95);
  EXPECT_EQ(all.top_k, 20);
  EXPECT_EQ(all.min_p, 0.05);
  EXPECT_EQ(all.repetition_penalty, 1.1);
  EXPECT_TRUE(all.warnings.empty());
  EXPECT_EQ(parsed(R"({"top_k":-1})").top_k, 0);
  EXPECT_EQ(parsed(R"({"temperature":0})").temperature, 0.0);
  const GenerationDefaults none = parsed(R"({"temperature":null})");
  EXPECT_FALSE(none.temperature || none.top_p || none.top_k || none.min_p ||
               none.repetition_penalty);
  EXPECT_TRUE(none.warnings.empty());
}

// Row CF-11: never used unchecked.
TEST(GenerationDefaults, CF_11_WhatCannotBeIsIgnoredAndTold) {
  const GenerationDefaults odd =
      parsed(R"({"temperature":-1,"top_p":7,"top_k":1e12,"min_p":"x","repetition_penalty":0})");
  EXPECT_FALSE(odd.temperature || odd.top_p || odd.top_k || odd.min_p || odd.repetition_penalty);
  EXPECT_THAT(odd.warnings, testing::UnorderedElementsAre(
                                testing::HasSubstr("'temperature' is not a number from 0 to 2"),
                                testing::HasSubstr("'top_p' is not a number above 0 to 1"),
                                testing::HasSubstr("'top_k'"), testing::HasSubstr("'min_p'"),
                                testing::HasSubstr("'repetition_penalty'")));
  EXPECT_FALSE(parsed("[1]").temperature);
}

TEST(GenerationDefaults, OfTheFirstFolderThatHasTheFile) {
  const std::string folder = testing::TempDir() + "generation_defaults_test";
  std::filesystem::create_directories(folder + "/a");
  std::filesystem::create_directories(folder + "/b");
  const std::vector<std::string> folders = {folder + "/none", folder + "/a", folder + "/b"};
  ASSERT_TRUE(base::write_file(folder + "/b/generation_config.json", R"({"top_p":0.5})").ok());
  EXPECT_EQ(read_generation_defaults(folders).top_p, 0.5);
  ASSERT_TRUE(base::write_file(folder + "/a/generation_config.json", R"({"top_p":0.6})").ok());
  EXPECT_EQ(read_generation_defaults(folders).top_p, 0.6);
  ASSERT_TRUE(base::write_file(folder + "/a/generation_config.json", "{").ok());
  EXPECT_EQ(read_generation_defaults(folders).warnings.size(), 1u);
  EXPECT_FALSE(read_generation_defaults({}).top_p);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pelton::checkpoint
