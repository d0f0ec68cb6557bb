#include "tokenizer/post_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<PromptFrame> frame_of(std::string_view text) {
  const Json json = Json::parse(text).value();
  return read_post_processor(&json, "t.json");
}

TEST(PostProcessorExample, ATokenThatBeginsAPrompt) {
  const auto frame = frame_of(
      R"({"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":true},
          {"type":"TemplateProcessing",
           "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
           "pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[7],"tokens":["<s>"]}}}]})");
  ASSERT_TRUE(frame.ok()) << frame.error().message;
  EXPECT_THAT(frame->begin, ElementsAre(7));
  EXPECT_THAT(frame->end, IsEmpty());
}

TEST(PostProcessor, TokensOnBothSides) {
  const auto frame =
      frame_of(R"({"type":"BertProcessing","sep":["[SEP]",102],"cls":["[CLS]",101]})");
  ASSERT_TRUE(frame.ok()) << frame.error().message;
  EXPECT_THAT(frame->begin, ElementsAre(101));
  EXPECT_THAT(frame->end, ElementsAre(102));
  const auto behind = frame_of(
      R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"e"}}],
          "special_tokens":{"e":{"ids":[3,4]}}})");
  ASSERT_TRUE(behind.ok()) << behind.error().message;
  EXPECT_THAT(behind->begin, IsEmpty());
  EXPECT_THAT(behind->end, ElementsAre(3, 4));
}

TEST(PostProcessor, TwoTextsAreOnePrompt) {
  const auto bert =
      frame_of(R"({"type":"BertProcessing","sep":["[SEP]",102],"cls":["[CLS]",101]})");
  ASSERT_TRUE(bert.ok() && bert->pair);
  EXPECT_THAT(bert->pair->begin, ElementsAre(101));
  EXPECT_THAT(bert->pair->middle, ElementsAre(102));
  EXPECT_THAT(bert->pair->end, ElementsAre(102));
  const auto roberta = frame_of(R"({"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",0]})");
  ASSERT_TRUE(roberta.ok() && roberta->pair);
  EXPECT_THAT(roberta->pair->middle, ElementsAre(2, 2));
  const auto written = frame_of(
      R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}}],
          "pair":[{"SpecialToken":{"id":"b"}},{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"m"}},
                  {"Sequence":{"id":"B"}},{"SpecialToken":{"id":"m"}}],
          "special_tokens":{"b":{"ids":[5]},"m":{"ids":[6]}}})");
  ASSERT_TRUE(written.ok() && written->pair) << written.error().message;
  EXPECT_THAT(written->pair->begin, ElementsAre(5));
  EXPECT_THAT(written->pair->middle, ElementsAre(6));
  EXPECT_THAT(written->pair->end, ElementsAre(6));
  const auto three = frame_of(
      R"({"type":"TemplateProcessing","single":[{"Sequence":{}},{"Sequence":{}},{"Sequence":{}}],
          "special_tokens":{}})");
  ASSERT_FALSE(three.ok());
  EXPECT_THAT(three.error().message, HasSubstr("too many texts"));
}

TEST(PostProcessor, NothingWhereThereIsNone) {
  EXPECT_TRUE(read_post_processor(nullptr, "t.json")->begin.empty());
  EXPECT_TRUE(frame_of("null")->begin.empty());
  EXPECT_TRUE(frame_of(R"({"type":"ByteLevel"})")->begin.empty());
}

TEST(PostProcessor, WhatIsWrongIsNamed) {
  for (
      const std::string_view text :
      {R"(7)", R"({"type":"Sequence"})", R"({"type":"Riddle"})", R"({"type":"TemplateProcessing"})",
       R"({"type":"TemplateProcessing","single":[7]})",
       R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],"special_tokens":{}})",
       R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],
            "special_tokens":{"x":{"ids":[-1]}}})",
       R"({"type":"BertProcessing","cls":["a",1]})"}) {
    const auto frame = frame_of(text);
    ASSERT_FALSE(frame.ok()) << text;
    EXPECT_THAT(frame.error().message, HasSubstr("post_processor")) << text;
  }
  std::string deep = R"({"type":"ByteLevel"})";
  for (int i = 0; i < 10; ++i) deep = R"({"type":"Sequence","processors":[)" + deep + "]}";
  EXPECT_FALSE(frame_of(deep).ok());
}

}  // namespace
}  // namespace pelton::tokenizer
