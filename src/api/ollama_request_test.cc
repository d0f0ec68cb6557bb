#include "api/ollama_request.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::api {
namespace {

std::string chat(std::string_view body) {
  const auto request = parse_ollama_chat(body, {});
  return request.ok() ? request->body : request.error().field + ": " + request.error().message;
}
std::string field_of(std::string_view body) {
  const auto request = parse_ollama_chat(body, {});
  return request.ok() ? std::string("accepted") : request.error().field;
}

TEST(OllamaRequest, AChatInTheWordsOfTheOther) {
  EXPECT_EQ(chat(R"({"model":"tiny:latest","messages":[{"role":"user","content":"Hi"}],
                     "options":{"temperature":0.5,"num_predict":-2},"keep_alive":"5m",
                     "think":"low","format":{"type":"object"}})"),
            R"({"model":"tiny","keep_alive":"5m","temperature":0.5,"num_predict":-1,"stream":true,)"
            R"("format":{"type":"object"},"think":"low",)"
            R"("messages":[{"role":"user","content":"Hi"}]})");
  // No ids in Ollama: results belong to calls by name, or in their order.
  EXPECT_EQ(chat(R"({"stream":false,"messages":[{"role":"assistant","content":"","thinking":"t",
      "tool_calls":[{"function":{"name":"a","arguments":{"x":1}}},{"function":{"name":"b"}}]},
      {"role":"tool","tool_name":"b","content":"2"},{"role":"tool","content":"1"}]})"),
            R"({"stream":false,"messages":[{"role":"assistant","content":"","thinking":"t",)"
            R"("tool_calls":[{"id":"call_0","type":"function","function":{"name":"a",)"
            R"("arguments":"{\"x\":1}"}},{"id":"call_1","type":"function","function":)"
            R"({"name":"b","arguments":"{}"}}]},{"role":"tool","content":"2","tool_call_id":)"
            R"("call_1"},{"role":"tool","content":"1","tool_call_id":"call_0"}]})");
}

TEST(OllamaRequest, RefusesByName) {
  EXPECT_EQ(field_of(R"({"messages":[{"role":"user","content":"a"}],"colour":1})"), "colour");
  EXPECT_EQ(field_of(R"({"messages":[{"role":"user","content":"a"}],"options":{"temp":1}})"),
            "options");
  EXPECT_EQ(field_of(R"({"messages":[{"role":"user","content":"a","images":["x"]}]})"),
            "messages[0].images");
  EXPECT_EQ(field_of(R"({"messages":[{"role":"user","content":"a","mood":"x"}]})"),
            "messages[0].mood");
  EXPECT_EQ(field_of(R"({"messages":[{"role":"tool","content":"a"}]})"), "messages[0]");
  EXPECT_EQ(field_of(R"({"messages":["a"]})"), "messages");
  EXPECT_EQ(field_of(R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})"),
            "messages[0].tool_calls[0].function");
  EXPECT_EQ(field_of(R"({"messages":[{"role":"user","content":"a"}],"think":3})"), "think");
}

// What fills the context ends there and what does not fit is refused, whatever of these is said.
TEST(OllamaRequest, DefaultsMayBeSaidAloud) {
  for (const char* const value : {"true", "false", "null"}) {
    const std::string more = fmt::format(R"("truncate":{0},"shift":{0})", value);
    EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":"a"}],)" + more + "}"),
              R"({"stream":true,"messages":[{"role":"user","content":"a"}]})");
    EXPECT_TRUE(parse_ollama_generate(R"({"prompt":"a",)" + more + "}", {}, true).ok()) << value;
  }
  EXPECT_EQ(field_of(R"({"messages":[{"role":"user","content":"a"}],"shift":1})"), "shift");
}

// Ollama's own client declares them, and so programs send them.
TEST(OllamaRequest, WhatItsClientsHaveIsKnown) {
  EXPECT_EQ(field_of(R"({"messages":[{"role":"user","content":"a"}],"options":{"f16_kv":false,)"
                     R"("logits_all":false,"embedding_only":false}})"),
            "accepted");
  for (const char* const key : {"width", "height", "steps"}) {
    const auto request =
        parse_ollama_generate(fmt::format(R"({{"prompt":"a","{}":8}})", key), {}, true);
    ASSERT_FALSE(request.ok()) << key;
    EXPECT_EQ(request.error().field, key);
    EXPECT_NE(request.error().message.find("images"), std::string::npos) << key;
  }
  const auto shown =
      parse_ollama_show(R"({"model":"m","system":"s","template":"t","options":{"seed":1}})", {});
  ASSERT_TRUE(shown.ok()) << shown.error().message;
  EXPECT_EQ(*shown, "m");
  EXPECT_EQ(parse_ollama_show(R"({"model":"m","colour":1})", {}).error().field, "colour");
}

TEST(OllamaRequest, LogProbabilitiesAreAskedForInTheOthersWords) {
  EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":"a"}],"logprobs":true})"),
            R"({"stream":true,"logprobs":true,"top_logprobs":0,)"
            R"("messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(
      chat(R"({"messages":[{"role":"user","content":"a"}],"logprobs":false,"top_logprobs":0})"),
      R"({"stream":true,"messages":[{"role":"user","content":"a"}]})");
  const std::string_view raw = R"({"prompt":"a","raw":true,"logprobs":true,"top_logprobs":4})";
  EXPECT_EQ(parse_ollama_generate(raw, {}, true)->body,
            R"({"stream":true,"prompt":"a","num_predict":-1,"logprobs":4})");
  EXPECT_EQ(field_of(R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":1})"),
            "top_logprobs");
  EXPECT_EQ(field_of(R"({"messages":[{"role":"user","content":"a"}],"logprobs":2})"), "logprobs");
}

TEST(OllamaRequest, WithoutMessagesTheModelIsLoaded) {
  const auto loads = parse_ollama_chat(R"({"model":"m"})", {});
  ASSERT_TRUE(loads.ok());
  EXPECT_TRUE(loads->loads);
  EXPECT_FALSE(loads->unloads);
  EXPECT_TRUE(parse_ollama_chat(R"({"model":"m","keep_alive":0})", {})->unloads);
  EXPECT_TRUE(parse_ollama_generate(R"({"model":"m","prompt":""})", {}, true)->loads);
}

TEST(OllamaRequest, APromptGoesThroughTheTemplateUnlessItIsRaw) {
  const auto generate = [](std::string_view body, bool has_chat) {
    const auto request = parse_ollama_generate(body, {}, has_chat);
    return request.ok() ? request->body : request.error().field;
  };
  EXPECT_EQ(generate(R"({"prompt":"a","system":"s"})", true),
            R"({"stream":true,"messages":[{"role":"system","content":"s"},)"
            R"({"role":"user","content":"a"}]})");
  EXPECT_EQ(generate(R"({"prompt":"a","raw":true})", true),
            R"({"stream":true,"prompt":"a","num_predict":-1})");
  EXPECT_EQ(generate(R"({"prompt":"a"})", false),
            R"({"stream":true,"prompt":"a","num_predict":-1})");
  EXPECT_EQ(generate(R"({"prompt":"a","suffix":"b","options":{"num_predict":4}})", true),
            R"({"num_predict":4,"stream":true,"prompt":"a","suffix":"b"})");
  EXPECT_EQ(generate(R"({"prompt":"a","raw":true,"system":"s"})", true), "system");
  EXPECT_EQ(generate(R"({"prompt":"a","template":"x"})", true), "template");
  EXPECT_EQ(generate(R"({"prompt":"a","context":[1]})", true), "context");
  EXPECT_EQ(generate(R"({"prompt":"a","images":["x"]})", true), "images");
  EXPECT_EQ(generate(R"({"prompt":"a","colour":"x"})", true), "colour");
}

TEST(OllamaRequest, ErrorsNameTheFieldAsItWasGiven) {
  const Error error = in_ollama_words(
      {ErrorCode::kInvalidArgument, "'temperature' must be at most 2", "temperature"});
  EXPECT_EQ(error.field, "options.temperature");
  EXPECT_EQ(error.message, "'options.temperature' must be at most 2");
  EXPECT_EQ(in_ollama_words({ErrorCode::kInvalidArgument, "'model'", "model"}).field, "model");
}

}  // namespace
}  // namespace pelton::api
