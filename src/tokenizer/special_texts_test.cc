#include "tokenizer/special_texts.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::tokenizer {
namespace {

SpecialTexts some() {
  SpecialTexts texts;
  EXPECT_TRUE(texts.add("<a>", 1));
  EXPECT_TRUE(texts.add("<a><b>", 2));
  EXPECT_TRUE(texts.add("b>", 3));
  EXPECT_TRUE(texts.add("<", 4));
  return texts;
}

TEST(SpecialTexts, LeftmostThenLongest) {
  const SpecialTexts texts = some();
  const auto expect = [&](std::string_view text, size_t from, size_t begin, TokenId id) {
    const auto match = texts.next(text, from);
    ASSERT_TRUE(match.has_value()) << text;
    EXPECT_EQ(match->begin, begin) << text;
    EXPECT_EQ(match->id, id) << text;
  };
  expect("x<a><b>", 0, 1, 2);
  expect("x<a><bb>", 0, 1, 1);
  expect("x<a><b>", 2, 4, 4);
  expect("x<c<a>", 0, 1, 4);
  expect("xb>", 0, 1, 3);
  EXPECT_FALSE(texts.next("ab", 0).has_value());
  EXPECT_FALSE(texts.next("<a>", 3).has_value());
}

TEST(SpecialTexts, FindsWholeTextsOnly) {
  const SpecialTexts texts = some();
  EXPECT_EQ(texts.find("<a>"), 1);
  EXPECT_EQ(texts.find("<a"), kNoToken);
  EXPECT_EQ(texts.find("<a>x"), kNoToken);
  EXPECT_EQ(texts.find(""), kNoToken);
}

TEST(SpecialTexts, NoTextTwice) {
  SpecialTexts texts = some();
  EXPECT_FALSE(texts.add("b>", 9));
  EXPECT_EQ(texts.find("b>"), 3);
}

}  // namespace
}  // namespace pelton::tokenizer
