#include "checkpoint/config_file.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/published_config.h"

namespace pelton::checkpoint {
namespace {

using testing::HasSubstr;

void expect_refused(const Result<families::ModelConfig>& config, const std::string& message) {
  ASSERT_FALSE(config.ok()) << message;
  EXPECT_EQ(config.error().code, ErrorCode::kBadCheckpoint) << config.error().message;
  EXPECT_THAT(config.error().message, HasSubstr(message));
}

TEST(ConfigFile, ReadsFoldersAndNamesTheFileAtFault) {  // CF-01
  const std::string folder = testing::TempDir() + "model_config_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_EQ(read_model_config(folder).error().code, ErrorCode::kNotFound);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
  };
  write("config.json", "{\"rope_theta\": 1e400}");
  expect_refused(read_model_config(folder), folder + "/config.json: not");
  write("config.json", families::published_config("gpt-oss-20b")->dump());
  EXPECT_TRUE(read_model_config(folder).ok());
  write("generation_config.json", families::published_generation_config().dump());
  EXPECT_EQ(read_model_config(folder)->eos_tokens.size(), 3u);
  write("generation_config.json", "{");
  expect_refused(read_model_config(folder), "generation_config.json");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pelton::checkpoint
