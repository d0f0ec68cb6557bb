#include "checkpoint/sentence_config.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace pelton::checkpoint {
namespace {

using testing::HasSubstr;

class SentenceFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "sentence_files";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/1_Pooling");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(base::write_file(folder_ + "/" + name, text).ok());
  }
  void write_modules(const std::string& more = "") const {
    write("modules.json",
          R"([{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},
              {"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"})" +
              more + "]");
  }

  std::string folder_;
};

TEST_F(SentenceFiles, AbsentFilesSayNothing) {
  const auto config = read_sentence_config(folder_);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_FALSE(config->pooling);
  EXPECT_FALSE(config->normalises);
  EXPECT_TRUE(config->prompts.empty());
  EXPECT_FALSE(config->tokens_max);
}

TEST_F(SentenceFiles, PublishedFilesAreRead) {
  write_modules(
      R"(,{"idx":2,"path":"2_Normalize","type":"sentence_transformers.models.Normalize"})");
  write("1_Pooling/config.json",
        R"({"word_embedding_dimension":384,"pooling_mode_cls_token":true,
            "pooling_mode_mean_tokens":false,"pooling_mode_max_tokens":false})");
  write(
      "config_sentence_transformers.json",
      R"({"prompts":{"query":"query: ","document":"passage: "},"default_prompt_name":"document"})");
  write("sentence_bert_config.json", R"({"max_seq_length":512,"do_lower_case":true})");
  const auto config = read_sentence_config(folder_);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->pooling, SentencePooling::kFirst);
  EXPECT_TRUE(config->normalises);
  EXPECT_EQ(*config->prompt("query"), "query: ");
  EXPECT_EQ(config->prompt("other"), nullptr);
  EXPECT_EQ(config->default_prompt, "document");
  EXPECT_EQ(config->tokens_max, 512);
}

TEST_F(SentenceFiles, WhatIsNotDoneIsRefusedByName) {
  write_modules(R"(,{"path":"2_Dense","type":"sentence_transformers.models.Dense"})");
  write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens":true})");
  auto config = read_sentence_config(folder_);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(config.error().message, HasSubstr("Dense"));
  write_modules();
  write("1_Pooling/config.json", R"({"pooling_mode_max_tokens":true})");
  EXPECT_THAT(read_sentence_config(folder_).error().message, HasSubstr("max_tokens"));
  write("1_Pooling/config.json",
        R"({"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true})");
  EXPECT_THAT(read_sentence_config(folder_).error().message, HasSubstr("2 ways"));
  write("modules.json", R"([{"path":"../x","type":"a.Pooling"}])");
  EXPECT_EQ(read_sentence_config(folder_).error().code, ErrorCode::kBadCheckpoint);
  write("modules.json", "{");
  EXPECT_EQ(read_sentence_config(folder_).error().code, ErrorCode::kBadCheckpoint);
}

TEST_F(SentenceFiles, BrokenPromptsAndLengthsAreNamed) {
  for (const char* text : {R"({"prompts":7})", R"({"prompts":{"a":7}})",
                           R"({"prompts":{},"default_prompt_name":"query"})"}) {
    write("config_sentence_transformers.json", text);
    const auto config = read_sentence_config(folder_);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.error().message, HasSubstr("config_sentence_transformers.json"));
  }
  write("config_sentence_transformers.json", "{}");
  write("sentence_bert_config.json", R"({"max_seq_length":0})");
  EXPECT_THAT(read_sentence_config(folder_).error().message, HasSubstr("max_seq_length"));
}

}  // namespace
}  // namespace pelton::checkpoint
