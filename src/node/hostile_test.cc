// Row TK-11 of docs/formats/hostile_files.md, where tokenizer and model meet.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "node/loaded_model.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::node {
namespace {

TEST(Hostile, TK_11_ATokenizerLargerThanTheVocabulary) {
  const std::string folder = testing::TempDir() + "node_hostile_test";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny", folder);
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  LoadedModel::Options options;
  options.executor.context_tokens = 256;
  for (const int size : {512, 513}) {
    ASSERT_TRUE(
        base::write_file(folder + "/tokenizer.json", *tokenizer::synthetic_tokenizer_json(size))
            .ok());
    const auto loaded = LoadedModel::load(folder, options, clock, log);
    EXPECT_EQ(loaded.ok(), size == 512);
    if (loaded.ok()) continue;
    EXPECT_EQ(loaded.error().code, ErrorCode::kBadCheckpoint);
    EXPECT_THAT(loaded.error().message, testing::HasSubstr("the tokenizer has 513 ids"));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pelton::node
