#include "eval/usage.h"

#include <gtest/gtest.h>

namespace pelton::eval {
namespace {

std::string fault(const std::string& usage, const std::string& content = "four",
                  const AskedTokens& asked = {.text_bytes = 30, .completion_max = 64}) {
  return usage_fault(*Json::parse(usage), {.content = content, .calls = {}}, asked);
}

TEST(Usage, WhatCanBeIsTaken) {
  for (
      const char* usage :
      {"null", "{}", R"({"prompt_tokens":12})",
       R"({"prompt_tokens":12,"completion_tokens":64,"total_tokens":76})",
       R"({"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":12}})",
       R"({"prompt_tokens":12,"completion_tokens":3,"total_tokens":24,
           "completion_tokens_details":{"reasoning_tokens":9}})",
       R"({"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":null})"}) {
    EXPECT_EQ(fault(usage), "") << usage;
  }
  EXPECT_EQ(fault(R"({"completion_tokens":0})", ""), "");
  EXPECT_EQ(fault(R"({"completion_tokens":2})", std::string(512, ' ')), "");
}

TEST(Usage, WhatCannotBeIsNamed) {
  EXPECT_EQ(fault("7"), "usage is no object");
  EXPECT_EQ(fault(R"({"prompt_tokens":-1})"), "prompt_tokens is no number of tokens");
  EXPECT_EQ(fault(R"({"completion_tokens":1.5})"), "completion_tokens is no number of tokens");
  EXPECT_EQ(fault(R"({"completion_tokens":1e18})"), "completion_tokens is no number of tokens");
  EXPECT_EQ(fault(R"({"total_tokens":"12"})"), "total_tokens is no number of tokens");
  EXPECT_EQ(fault(R"({"prompt_tokens":5,"completion_tokens":3,"total_tokens":9})"),
            "total_tokens 9 of 5 and 3");
  EXPECT_EQ(fault(R"({"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":6}})"),
            "cached_tokens 6 of prompt_tokens 5");
  EXPECT_EQ(fault(R"({"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":6}})"),
            "reasoning_tokens 6 of completion_tokens 5");
  EXPECT_EQ(fault(R"({"completion_tokens":65})"),
            "completion_tokens 65, more than the 64 asked for");
  EXPECT_EQ(fault(R"({"completion_tokens":0})"), "completion_tokens 0 for an answer of 4 bytes");
  EXPECT_EQ(fault(R"({"completion_tokens":2})", std::string(513, 'a')),
            "completion_tokens 2 for an answer of 513 bytes");
  EXPECT_EQ(fault(R"({"prompt_tokens":0,"completion_tokens":1})"),
            "prompt_tokens 0 for messages of 30 bytes");
}

TEST(Usage, CallsAreAnswers) {
  const Answer answer{.content = "", .calls = {{.name = "f", .arguments = "{}"}}};
  EXPECT_EQ(usage_fault(*Json::parse(R"({"completion_tokens":0})"), answer, {}),
            "completion_tokens 0 for an answer of 3 bytes");
}

TEST(Usage, OfARequestTheTextsAndTheBoundCount) {
  const AskedTokens asked = asked_tokens(*Json::parse(
      R"({"max_tokens":9,"messages":[{"role":"user","content":"abc"},{"role":"user"},7,)"
      R"({"role":"user","content":[{"type":"text","text":"de"},{"type":"image_url"},3]}]})"));
  EXPECT_EQ(asked.text_bytes, 5);
  EXPECT_EQ(asked.completion_max, 9);
  EXPECT_EQ(
      asked_tokens(*Json::parse(R"({"max_completion_tokens":4,"max_tokens":9})")).completion_max,
      4);
  EXPECT_FALSE(asked_tokens(*Json::parse("{}")).completion_max);
}

}  // namespace
}  // namespace pelton::eval
