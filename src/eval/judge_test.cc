#include "eval/judge.h"

#include <gtest/gtest.h>

namespace pelton::eval {
namespace {

bool right(const Expectation& expected, const std::string& content) {
  return is_right(expected, {.content = content, .calls = {}});
}

TEST(Judge, the_last_number_counts_however_it_is_written) {
  EXPECT_EQ(last_number("It was 3, now it is $1,234.50."), "1234.5");
  EXPECT_EQ(last_number("x = -7"), "-7");
  EXPECT_EQ(last_number("10-7"), "7");  // a difference, no sign
  EXPECT_EQ(last_number("(-0.50)"), "-0.5");
  EXPECT_EQ(last_number("-0"), "0");
  EXPECT_EQ(last_number("1, 2, 3"), "3");
  EXPECT_EQ(last_number("the 12,34"), "34");  // no groups of three
  EXPECT_EQ(last_number("007"), "7");
  EXPECT_EQ(last_number("none"), std::nullopt);
  EXPECT_EQ(last_number("1e+05"), "100000");
  EXPECT_EQ(last_number("-1.5E3."), "-1500");
  EXPECT_EQ(last_number("12.5e-3"), "0.0125");
  EXPECT_EQ(last_number("1,250e2"), "125000");
  EXPECT_EQ(last_number("0e5"), "0");
  EXPECT_EQ(last_number("1.25e1"), "12.5");
  EXPECT_EQ(last_number("3e"), "3");
  EXPECT_EQ(last_number("3 eggs, 2eggs"), "2");
  EXPECT_EQ(last_number("0x1e5f"), "5");  // a word, not a number
  EXPECT_TRUE(right(ExpectNumber{"18"}, "She makes **$18** every day."));
  EXPECT_TRUE(right(ExpectNumber{"18"}, "18.00"));
  EXPECT_FALSE(right(ExpectNumber{"18"}, "18 eggs in 2 days"));
  EXPECT_FALSE(right(ExpectNumber{"18"}, "I do not know."));
}

TEST(Judge, a_letter_is_chosen_in_the_ways_that_models_write_it) {
  EXPECT_EQ(chosen_letter("Answer: B", 4), 'B');
  EXPECT_EQ(chosen_letter("The answer is (C).", 4), 'C');
  EXPECT_EQ(chosen_letter("First I thought the answer is A. No: the answer is **D**", 4), 'D');
  EXPECT_EQ(chosen_letter("**B**", 4), 'B');
  EXPECT_EQ(chosen_letter("Reasons.\n\nB", 4), 'B');
  EXPECT_EQ(chosen_letter("B) Paris", 4), 'B');
  EXPECT_EQ(chosen_letter("I pick C because of it", 4), 'C');
  EXPECT_EQ(chosen_letter("I think B", 26), 'B');
  EXPECT_EQ(chosen_letter("A or B", 4), 'B');  // "A or": may be an article
  EXPECT_EQ(chosen_letter("Both B and C", 4), 0);
  EXPECT_EQ(chosen_letter("E", 4), 0);  // there is none
  EXPECT_EQ(chosen_letter("", 4), 0);
}

TEST(Judge, texts_are_equal_but_for_case_and_what_stands_around) {
  EXPECT_TRUE(right(ExpectText{{"Paris", "the city of Paris"}}, " PARIS.\n"));
  EXPECT_FALSE(right(ExpectText{{"Paris"}}, "Paris, France"));
}

TEST(Judge, json_is_equal_whatever_the_order_and_the_fence_around_it) {
  const ExpectJson expected{*Json::parse(R"({"a": 1, "b": [true, {"c": "x"}]})")};
  EXPECT_TRUE(right(expected, R"({"b": [true, {"c": "x"}], "a": 1.0})"));
  EXPECT_TRUE(right(expected, "Here:\n```json\n{\"a\":1,\"b\":[true,{\"c\":\"x\"}]}\n```\nDone."));
  EXPECT_FALSE(right(expected, R"({"a": 1, "b": [{"c": "x"}, true]})"));
  EXPECT_FALSE(right(expected, R"({"a": 1, "b": [true, {"c": "x"}], "d": 0})"));
  EXPECT_FALSE(right(expected, "no JSON"));
}

TEST(Judge, a_document_follows_its_schema) {
  const ExpectSchema expected{*Json::parse(
      R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}},
          "required": ["n"], "additionalProperties": false})")};
  EXPECT_TRUE(right(expected, "{\"n\": 3}"));
  EXPECT_TRUE(right(expected, "```\n{\"n\":\n 12}\n```"));
  EXPECT_FALSE(right(expected, "{\"n\": 2}"));
  EXPECT_FALSE(right(expected, "{\"n\": 3, \"m\": 1}"));
  EXPECT_FALSE(right(expected, "{\"n\": 3} and more"));
}

TEST(Judge, calls_are_equal_in_any_order_with_accepted_values) {
  ExpectCalls expected;
  expected.calls.push_back(
      {.name = "weather",
       .arguments = {{.name = "city", .accepted = {Json("Paris"), Json("Paris, France")}},
                     {.name = "unit", .accepted = {Json("celsius"), Json("")}}}});
  expected.calls.push_back({.name = "time", .arguments = {}});
  const auto judged = [&](std::vector<Answer::Call> calls) {
    return is_right(expected, {.content = "", .calls = std::move(calls)});
  };
  EXPECT_TRUE(judged({{"time", "{}"}, {"weather", R"({"city": "paris"})"}}));
  EXPECT_TRUE(
      judged({{"weather", R"({"city": "Paris, France", "unit": "celsius"})"}, {"time", ""}}));
  EXPECT_FALSE(judged({{"weather", R"({"city": "Paris"})"}}));                    // one is missing
  EXPECT_FALSE(judged({{"weather", R"({"unit": "celsius"})"}, {"time", "{}"}}));  // no city
  EXPECT_FALSE(judged({{"weather", R"({"city": "Rome"})"}, {"time", "{}"}}));
  EXPECT_FALSE(judged({{"weather", R"({"city": "Paris", "day": 1})"}, {"time", "{}"}}));
  EXPECT_FALSE(judged({{"weather", "half"}, {"time", "{}"}}));
  // An answer where a call is wanted, and the other way round.
  EXPECT_FALSE(is_right(expected, {.content = "sunny", .calls = {}}));
  EXPECT_FALSE(is_right(ExpectNumber{"1"}, {.content = "1", .calls = {{"time", "{}"}}}));
}

// Of a recorded request: as a client could use it.
TEST(Judge, an_answer_is_whole_or_not) {
  const Expectation any = ExpectAnswer{};
  EXPECT_TRUE(is_right(any, {.content = "Hello.", .finish_reason = "stop"}));
  EXPECT_FALSE(is_right(any, {.content = "Hel", .finish_reason = "length"}));
  EXPECT_FALSE(is_right(any, {.content = " ", .finish_reason = "stop"}));
  EXPECT_FALSE(is_right(any, {.content = "", .calls = {{"f", "{}"}}, .finish_reason = "stop"}));
  const Expectation calls = ExpectAnswer{.tools = {"f"}};
  EXPECT_TRUE(is_right(calls, {.content = "", .calls = {{"f", "{}"}}}));
  EXPECT_FALSE(is_right(calls, {.content = "", .calls = {{"f", "{"}}}));
  EXPECT_TRUE(is_right(calls, {.content = "No tool is needed."}));
  const Expectation json = ExpectAnswer{.is_json = true};
  EXPECT_TRUE(is_right(json, {.content = "{\"a\": 1}"}));
  EXPECT_FALSE(is_right(json, {.content = "a is 1"}));
  const Expectation schema =
      ExpectAnswer{.is_json = true, .schema = *Json::parse(R"({"type":"array"})")};
  EXPECT_TRUE(is_right(schema, {.content = "[1]"}));
  EXPECT_FALSE(is_right(schema, {.content = "{}"}));
}

}  // namespace
}  // namespace pelton::eval
