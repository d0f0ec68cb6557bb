#include "rpc/session_history.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::rpc {
namespace {

v1::SessionRequest user(const std::string& words, bool continues = false) {
  v1::SessionRequest asked;
  asked.set_continues(continues);
  v1::Message& message = *asked.mutable_generate()->mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content(words);
  return asked;
}

v1::GenerateChunk text(const std::string& words) {
  v1::GenerateChunk chunk;
  chunk.set_text(words);
  return chunk;
}

// "role: content" of each message.
std::string written(const v1::GenerateRequest& request) {
  std::string all;
  for (const v1::Message& message : request.chat().messages()) {
    all += message.role() + ": " + message.content() + "; ";
  }
  return all;
}

TEST(SessionHistory, ATurnFollowsTheOneBeforeAndItsAnswer) {
  SessionHistory history(1 << 20);
  v1::SessionRequest first = user("Hi");
  first.mutable_generate()->set_model("box");
  first.mutable_generate()->mutable_sampling()->set_seed(7);
  first.mutable_generate()->mutable_chat()->add_tools()->set_name("look");
  first.mutable_generate()->mutable_chat()->set_tool_choice("required");
  first.mutable_generate()->mutable_response_format()->set_type("json_object");
  ASSERT_TRUE(history.begin(first).ok());
  history.add(text("Hel"));
  history.add(text("lo"));
  history.finish();
  const Result<v1::GenerateRequest> second = history.begin(user("So?", true));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(written(*second), "user: Hi; assistant: Hello; user: So?; ");
  EXPECT_EQ(second->model(), "box");
  EXPECT_EQ(second->sampling().seed(), 7);
  EXPECT_EQ(second->chat().tools(0).name(), "look");
  // What held for one turn.
  EXPECT_EQ(second->chat().tool_choice(), "");
  EXPECT_FALSE(second->has_response_format());
}

TEST(SessionHistory, SamplingIsTakenFieldByField) {
  SessionHistory history(1 << 20);
  v1::SessionRequest first = user("Hi");
  v1::Sampling& was = *first.mutable_generate()->mutable_sampling();
  was.set_max_tokens(5);
  was.set_temperature(0.5);
  was.add_stop("END");
  ASSERT_TRUE(history.begin(first).ok());
  history.finish();
  v1::SessionRequest next = user("So?", true);
  v1::Sampling& said = *next.mutable_generate()->mutable_sampling();
  said.set_seed(1);
  said.set_temperature(0);
  said.add_stop("STOP");
  const Result<v1::GenerateRequest> second = history.begin(next);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->sampling().max_tokens(), 5);
  EXPECT_EQ(second->sampling().temperature(), 0);
  EXPECT_EQ(second->sampling().seed(), 1);
  ASSERT_EQ(second->sampling().stop_size(), 1);
  EXPECT_EQ(second->sampling().stop(0), "STOP");
}

TEST(SessionHistory, CallsAreOfTheAnswer) {
  SessionHistory history(1 << 20);
  ASSERT_TRUE(history.begin(user("Weather?")).ok());
  v1::GenerateChunk chunk;
  v1::ToolCallDelta& begun = *chunk.add_tool_calls();
  begun.set_id("call_1");
  begun.set_name("look");
  begun.set_arguments("{\"a\":");
  chunk.set_reasoning("I must look.");
  history.add(chunk);
  v1::GenerateChunk more;
  more.add_tool_calls()->set_arguments("1}");
  history.add(more);
  history.finish();
  v1::SessionRequest result;
  result.set_continues(true);
  v1::Message& tool = *result.mutable_generate()->mutable_chat()->add_messages();
  tool.set_role("tool");
  tool.set_tool_call_id("call_1");
  const Result<v1::GenerateRequest> second = history.begin(result);
  ASSERT_TRUE(second.ok());
  const v1::Message& answer = second->chat().messages(1);
  EXPECT_EQ(answer.reasoning(), "I must look.");
  ASSERT_EQ(answer.tool_calls_size(), 1);
  EXPECT_EQ(answer.tool_calls(0).id(), "call_1");
  EXPECT_EQ(answer.tool_calls(0).arguments(), "{\"a\":1}");
}

TEST(SessionHistory, WhatDidNotEndIsForgotten) {
  SessionHistory history(1 << 20);
  ASSERT_TRUE(history.begin(user("Hi")).ok());
  history.add(text("Hello"));
  history.finish();
  ASSERT_TRUE(history.begin(user("Stop this", true)).ok());
  history.add(text("on and on"));
  EXPECT_EQ(written(*history.begin(user("So?", true))), "user: Hi; assistant: Hello; user: So?; ");
}

TEST(SessionHistory, WhatIsTooLargeIsNotKeptAndSaysSo) {
  SessionHistory history(1000);
  ASSERT_TRUE(history.begin(user("Hi")).ok());
  history.add(text("Hello"));
  history.finish();
  EXPECT_GT(history.bytes(), 0u);
  // Whatever no template renders counts as well.
  v1::SessionRequest long_one = user("So?", true);
  v1::Message& past = *long_one.mutable_generate()->mutable_chat()->add_messages();
  past.set_role("assistant");
  past.set_reasoning(std::string(2000, 'x'));
  ASSERT_TRUE(history.begin(long_one).ok());
  history.finish();
  EXPECT_EQ(history.bytes(), 0u);
  const auto refused = history.begin(user("And?", true));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("too large"), std::string::npos);
  // A new conversation is one.
  ASSERT_TRUE(history.begin(user("Hi")).ok());
  history.finish();
  EXPECT_TRUE(history.begin(user("And?", true)).ok());
}

TEST(SessionHistory, OthersBetweenChangeNothing) {
  SessionHistory history(1 << 20);
  ASSERT_TRUE(history.begin(user("Hi")).ok());
  history.add(text("Hello"));
  history.finish();
  v1::SessionRequest raw;
  raw.mutable_generate()->set_text("raw");
  ASSERT_TRUE(history.begin(raw).ok());
  history.add(text("words"));
  history.finish();
  EXPECT_EQ(written(*history.begin(user("So?", true))), "user: Hi; assistant: Hello; user: So?; ");
}

TEST(SessionHistory, WhatCannotGoOnIsNamed) {
  SessionHistory history(1 << 20);
  EXPECT_EQ(history.begin(user("Hi", true)).error().field, "continues");
  ASSERT_TRUE(history.begin(user("Hi")).ok());
  history.finish();
  v1::SessionRequest raw;
  raw.set_continues(true);
  raw.mutable_generate()->set_text("raw");
  EXPECT_EQ(history.begin(raw).error().field, "continues");
  v1::SessionRequest empty;
  empty.set_continues(true);
  empty.mutable_generate()->mutable_chat();
  EXPECT_EQ(history.begin(empty).error().field, "messages");
  // A refusal leaves what there was.
  EXPECT_TRUE(history.begin(user("So?", true)).ok());
}

}  // namespace
}  // namespace pelton::rpc
