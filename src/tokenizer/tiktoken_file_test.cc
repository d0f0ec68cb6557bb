#include "tokenizer/tiktoken_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"

namespace pelton::tokenizer {
namespace {

using testing::HasSubstr;

void expect_bad(const std::string& text, const std::string& field, const std::string& what) {
  const Result<TokenizerParts> parts = read_tiktoken(text, "x.tiktoken");
  ASSERT_FALSE(parts.ok()) << text;
  EXPECT_EQ(parts.error().code, ErrorCode::kBadCheckpoint);
  EXPECT_EQ(parts.error().field, field);
  EXPECT_THAT(parts.error().message, HasSubstr("x.tiktoken"));
  EXPECT_THAT(parts.error().message, HasSubstr(what));
}

TEST(TiktokenFile, ReadsTokensAndRanks) {
  const TokenizerParts parts = read_tiktoken("YQ== 0\nYg== 1\r\nYWI= 2\nYWJh 3", "f").value();
  EXPECT_EQ(parts.tokens[0], "a");
  EXPECT_EQ(parts.tokens[2], "ab");
  EXPECT_EQ(parts.tokens[3], "aba");
  EXPECT_EQ(parts.merges.rank(0, 1), 2u);
  EXPECT_EQ(parts.merges.rank(2, 0), 3u);
  EXPECT_EQ(parts.merges.rank(1, 0), MergeTable::kNoMerge);
  EXPECT_EQ(parts.merges.size(), 2u);
}

TEST(TiktokenFile, NamesTheLineAtFault) {
  expect_bad("YQ==", "line 1", "BASE64 RANK");
  expect_bad("YQ== 0\n\nYg== 1\n", "line 2", "BASE64 RANK");
  expect_bad("YQ== 0\nY!== 1\n", "line 2", "not valid base64");
  expect_bad("YQ== 0\nYg= 1\n", "line 2", "not valid base64");
  expect_bad("YQ== 0\n 1\n", "line 2", "not valid base64");
  expect_bad("Y=== 0\n", "line 1", "not valid base64");
  expect_bad("YQ== zero\n", "line 1", "not a number");
  expect_bad("YQ== 99999999999999\n", "line 1", "not a number");
  expect_bad("YQ== 0 \n", "line 1", "not a number");
  expect_bad("YQ== 0\nYg== 2\n", "line 2", "rank 2, expected 1");
  expect_bad("YQ== 0\nYg== 0\n", "line 2", "rank 0, expected 1");
  expect_bad("YQ== 0\nYQ== 1\n", "line 2", "same token as on line 1");
  expect_bad(std::string(4000, 'A') + " 0\n", "line 1", "over 1024 bytes");
}

TEST(TiktokenFile, EveryByteMustBeThere) {
  for (const char* text : {"", "YQ== 0\n"}) {
    const Result<Tokenizer> tokenizer = Tokenizer::from_tiktoken(text, "x.tiktoken");
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kBadCheckpoint);
    EXPECT_THAT(tokenizer.error().message, HasSubstr("no token for the byte"));
  }
}

}  // namespace
}  // namespace pelton::tokenizer
