#include "cli/question_lines.h"

#include <gtest/gtest.h>

namespace pelton::cli {
namespace {

TEST(QuestionLines, ALineIsAQuestion) {
  QuestionLines question(100);
  EXPECT_EQ(question.add("  What is 12 + 30? "), "What is 12 + 30?");
  EXPECT_EQ(question.add("  \t"), std::nullopt);
}

TEST(QuestionLines, BetweenFencesAllLinesAreOne) {
  QuestionLines question(100);
  EXPECT_EQ(question.add(R"( """ )"), std::nullopt);
  EXPECT_TRUE(question.is_fenced());
  EXPECT_EQ(question.add("  indented"), std::nullopt);
  EXPECT_EQ(question.add(""), std::nullopt);
  EXPECT_EQ(question.add("/help"), std::nullopt) << "which is no command there";
  EXPECT_EQ(question.add(R"(""")"), "  indented\n\n/help\n");
  EXPECT_FALSE(question.is_fenced());
  EXPECT_EQ(question.add(R"(""")"), std::nullopt);
  EXPECT_EQ(question.add(R"(""")"), std::nullopt) << "nothing was said";
}

TEST(QuestionLines, WhatIsAttachedGoesBeforeTheNextOne) {
  QuestionLines question(100);
  question.attach("a file");
  question.attach("another");
  EXPECT_TRUE(question.has_attachment());
  EXPECT_EQ(question.add("and?"), "a file\n\nanother\n\nand?");
  EXPECT_FALSE(question.has_attachment());
  EXPECT_EQ(question.add("and now?"), "and now?");
  question.attach("a file");
  question.clear();
  EXPECT_EQ(question.add("alone?"), "alone?");
}

TEST(QuestionLines, ABlockWithoutAnEndEndsAtItsBound) {
  QuestionLines question(10);
  question.add(R"(""")");
  EXPECT_EQ(question.add("12345"), std::nullopt);
  EXPECT_EQ(question.add("67890"), "12345\n67890\n");
  EXPECT_FALSE(question.is_fenced());
}

}  // namespace
}  // namespace pelton::cli
