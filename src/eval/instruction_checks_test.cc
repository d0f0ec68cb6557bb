#include "eval/instruction_checks.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace pelton::eval {
namespace {

bool follows(const std::string& id, const char* arguments, std::string_view answer) {
  const Instruction instruction{.id = id, .arguments = *Json::parse(arguments)};
  const Result<void> known = check_instruction(instruction);
  EXPECT_TRUE(known.ok()) << (known.ok() ? "" : known.error().message);
  return known.ok() && follows_instruction(instruction, answer);
}

TEST(InstructionChecks, each_is_held_by_one_answer_and_not_by_another) {
  struct Case {
    const char* id;
    const char* arguments;
    const char* yes;
    const char* no;
  };
  const Case cases[] = {
      {"keywords:existence", R"({"keywords": ["sun", "moon"]})", "The Sun and the moon", "the sun"},
      {"keywords:forbidden_words", R"({"forbidden_words": ["sun"]})", "sunny days", "The sun."},
      {"keywords:frequency", R"({"keyword": "sun", "frequency": 2, "relation": "at least"})",
       "sun, sun", "sun, sunny"},
      {"keywords:letter_frequency",
       R"({"letter": "e", "let_frequency": 2, "let_relation": "less than"})", "tent", "tree"},
      {"length_constraints:number_words", R"({"num_words": 3, "relation": "less than"})",
       "two words", "now three words"},
      {"length_constraints:number_sentences", R"({"num_sentences": 2, "relation": "at least"})",
       "One. Two!", "Only 1.5 of them"},
      {"length_constraints:number_paragraphs", R"({"num_paragraphs": 2})", "one\n***\ntwo",
       "one\n\ntwo"},
      {"detectable_content:number_placeholders", R"({"num_placeholders": 2})", "[name] of [city]",
       "[name] of []"},
      {"detectable_content:postscript", R"({"postscript_marker": "P.S."})", "Bye\nP.S. more",
       "Bye"},
      {"detectable_format:number_bullet_lists", R"({"num_bullets": 2})", "* a\n- b", "* a\n*b"},
      {"detectable_format:title", "{}", "<<Title>>\ntext", "<<>> text"},
      {"detectable_format:json_format", "{}", "```json\n{\"a\": 1}\n```", "a: 1"},
      {"detectable_format:number_highlighted_sections", R"({"num_highlights": 2})", "*a* and *b*",
       "*a* and * *"},
      {"change_case:english_lowercase", "{}", "all low, 1", "One"},
      {"change_case:english_capital", "{}", "ALL, 1", "ALL, one"},
      {"punctuation:no_comma", "{}", "none; here", "one, here"},
      {"startend:quotation", "{}", "\"said\"", "\"said\" he"},
      {"language:response_language", R"({"language": "de"})", "Das ist die Antwort auf die Frage.",
       "That is the answer to the question."},
      {"length_constraints:nth_paragraph_first_word",
       R"({"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "weekend"})",
       "One.\n\n*Weekend* plans", "One.\n\nWeekends\n\nThree"},
      {"detectable_format:constrained_response", "{}", "My answer is maybe.", "Maybe."},
      {"detectable_format:multiple_sections",
       R"({"section_spliter": "Section", "num_sections": 2})", "**Section 1**\none\nSection 2: two",
       "Section 1\nas in Section 2\nSection 1"},
      {"combination:two_responses", "{}", "one\n******\ntwo", "one\n******\none"},
      {"combination:repeat_prompt", R"({"prompt_to_repeat": "Write a poem."})",
       "write a poem.\n\nRoses are red", "Sure! Write a poem."},
      {"change_case:capital_word_frequency",
       R"({"capital_frequency": 2, "capital_relation": "less than"})", "I have ONE", "ONE or TWO"},
      {"startend:end_checker", R"({"end_phrase": "the end"})", "It was. The End",
       "The end, they say"},
  };
  std::vector<std::string_view> tried;
  for (const Case& one : cases) {
    EXPECT_TRUE(follows(one.id, one.arguments, one.yes)) << one.id;
    EXPECT_FALSE(follows(one.id, one.arguments, one.no)) << one.id;
    tried.push_back(one.id);
  }
  // A word that is none stands nowhere.
  EXPECT_FALSE(follows("keywords:frequency", R"({"keyword": "", "frequency": 1})", "sun"));
  EXPECT_TRUE(follows("keywords:forbidden_words", R"({"forbidden_words": [""]})", "sun"));
  std::sort(tried.begin(), tried.end());
  EXPECT_EQ(tried.size(), 25u);  // as many as were published
  EXPECT_EQ(tried, known_instructions());
}

TEST(InstructionChecks, what_is_not_known_is_refused_by_name) {
  const Result<void> unknown = check_instruction({.id = "keywords:rhyme", .arguments = {}});
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("keywords:rhyme"), std::string::npos);
  const Result<void> without =
      check_instruction({.id = "keywords:existence", .arguments = Json(Json::Object{})});
  ASSERT_FALSE(without.ok());
  EXPECT_NE(without.error().message.find("`keywords`"), std::string::npos);
  EXPECT_FALSE(check_instruction({.id = "language:response_language",
                                  .arguments = *Json::parse(R"({"language": "tlh"})")})
                   .ok());
  // As it is published at the hub: each instruction with the arguments of all, unset ones null.
  EXPECT_TRUE(follows("length_constraints:number_words",
                      R"({"num_words": 2.0, "relation": "at least", "keywords": null})", "a b"));
  EXPECT_FALSE(check_instruction(
                   {.id = "keywords:existence", .arguments = *Json::parse(R"({"keywords": [1]})")})
                   .ok());
}

}  // namespace
}  // namespace pelton::eval
