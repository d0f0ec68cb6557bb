// Row D6: nobody gets a 200 for a field that was dropped because another one was given, too. Two
// names of one thing that disagree are refused, and the message has both names.
#include <functional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/messages_request.h"
#include "api/response_request.h"

namespace pelton::api {
namespace {

using testing::HasSubstr;

constexpr RequestLimits kLimits{.vocab_size = 1000};

template <typename Request>
std::optional<Error> error_of(const Result<Request>& request) {
  if (request.ok()) return std::nullopt;
  return request.error();
}

std::optional<Error> chat(std::string_view members) {
  return error_of(parse_chat_request(
      fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],{}}})", members), kLimits));
}

std::optional<Error> completion(std::string_view members) {
  return error_of(
      parse_completion_request(fmt::format(R"({{"prompt":"x",{}}})", members), kLimits));
}

std::optional<Error> messages(std::string_view members) {
  return error_of(parse_messages_request(
      fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],{}}})", members), kLimits,
      MessagesUse::kGenerate));
}

std::optional<Error> response(std::string_view members) {
  const Result<Json> body = Json::parse(fmt::format(R"({{"input":"x",{}}})", members));
  if (!body.ok()) return body.error();
  return error_of(parse_response_request(*body, kLimits));
}

struct Case {
  std::optional<Error> (*parse)(std::string_view members);
  const char* members;
  const char* field;  // that the error names; empty: taken
  const char* other = "";
};

void expect_all(std::span<const Case> cases) {
  for (const Case& one : cases) {
    const std::optional<Error> error = one.parse(one.members);
    SCOPED_TRACE(one.members);
    if (std::string_view(one.field).empty()) {
      EXPECT_FALSE(error) << error->message;
      continue;
    }
    ASSERT_TRUE(error);
    EXPECT_EQ(error->field, one.field);
    EXPECT_THAT(error->message, HasSubstr(fmt::format("'{}'", one.field)));
    EXPECT_THAT(error->message, HasSubstr(one.other));
  }
}

TEST(ContradictingFields, D6_how_many_tokens) {
  static constexpr Case kCases[] = {
      {chat, R"("n_predict":2,"max_tokens":3)", "n_predict", "'max_tokens'"},
      {chat, R"("n_predict":2,"max_completion_tokens":3)", "n_predict", "'max_completion_tokens'"},
      {chat, R"("n_predict":3,"max_tokens":3)", ""},
      {chat, R"("n_predict":-1,"max_tokens":3)", ""},
      // As OpenAI's clients send both; the newer name wins.
      {chat, R"("max_tokens":2,"max_completion_tokens":3)", ""},
      {completion, R"("n_predict":2,"max_tokens":3)", "n_predict", "'max_tokens'"},
      {messages, R"("n_predict":2,"max_tokens":3)", "n_predict", "'max_tokens'"},
      {response, R"("max_tokens":2,"max_output_tokens":3)", "max_output_tokens", "'max_tokens'"},
      {response, R"("max_completion_tokens":2,"max_output_tokens":3)", "max_output_tokens",
       "'max_completion_tokens'"},
      {response, R"("n_predict":2,"max_output_tokens":3)", "max_output_tokens", "'n_predict'"},
      {response, R"("max_tokens":3,"max_output_tokens":3)", ""},
      {response, R"("max_output_tokens":-1)", "max_output_tokens"},
      {response, R"("max_output_tokens":3,"min_tokens":4)", "min_tokens"},
  };
  expect_all(kCases);
  const Result<Json> body = Json::parse(R"({"input":"x","max_output_tokens":7,"n_predict":-1})");
  EXPECT_EQ(parse_response_request(*body, kLimits)->generation.max_tokens, 7);
}

TEST(ContradictingFields, D6_the_penalty_of_repetitions) {
  static constexpr Case kCases[] = {
      {chat, R"("repeat_penalty":1.2,"repetition_penalty":1.3)", "repeat_penalty",
       "'repetition_penalty'"},
      {chat, R"("repeat_penalty":1.2,"repetition_penalty":1.2)", ""},
  };
  expect_all(kCases);
}

TEST(ContradictingFields, D6_how_much_a_chat_reasons) {
  static constexpr Case kCases[] = {
      {chat, R"("thinking":{"type":"disabled"},"reasoning_effort":"high")", "reasoning_effort",
       "'thinking.type'"},
      {chat, R"("thinking":{"type":"disabled"},"reasoning":{"effort":"high"})", "reasoning.effort",
       "'thinking.type'"},
      {chat, R"("thinking":{"type":"enabled","budget_tokens":1024},"reasoning_effort":"high")",
       "reasoning_effort", "'thinking.budget_tokens'"},
      {chat, R"("reasoning":{"enabled":false,"effort":"high"})", "reasoning.effort",
       "'reasoning.enabled'"},
      {chat, R"("reasoning":{"effort":"low"},"reasoning_effort":"high")", "reasoning_effort",
       "'reasoning.effort'"},
      {chat, R"("thinking":{"type":"disabled"},"reasoning_effort":"minimal")", ""},
      {chat, R"("thinking":{"type":"enabled"},"reasoning_effort":"high")", ""},
      {chat, R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"high"})", ""},
      {chat, R"("thinking":{"type":"disabled","budget_tokens":2048})", "thinking.budget_tokens",
       "'thinking.type'"},
      {chat, R"("thinking":{"type":"disabled","budget_tokens":0})", ""},
  };
  expect_all(kCases);
}

TEST(ContradictingFields, D6_the_format_of_a_message) {
#define PELTON_SCHEMA R"({"type":"json_schema","schema":{"type":"object"}})"
  static constexpr Case kCases[] = {
      {messages,
       R"("max_tokens":9,"output_config":{"format":)" PELTON_SCHEMA
       R"(},"output_format":)" PELTON_SCHEMA,
       "output_format.schema", "'output_config.format.schema'"},
      {messages, R"("max_tokens":9,"output_format":)" PELTON_SCHEMA R"(,"guided_regex":"a")",
       "output_format.schema", "'guided_regex'"},
      {messages, R"("max_tokens":9,"output_format":)" PELTON_SCHEMA, ""},
  };
#undef PELTON_SCHEMA
  expect_all(kCases);
}

// What changes no answer may still be nonsense that its sender wants to know of.
TEST(ContradictingFields, D6_odd_values_of_what_is_not_used) {
  static constexpr Case kCases[] = {
      {messages, R"("max_tokens":9,"service_tier":"gold")", "service_tier", "'standard_only'"},
      {messages, R"("max_tokens":9,"service_tier":7)", "service_tier"},
      {messages, R"("max_tokens":9,"service_tier":"standard_only")", ""},
      {messages, R"("max_tokens":9,"speed":"ludicrous")", "speed", "'fast'"},
      {messages, R"("max_tokens":9,"cache_control":"ephemeral")", "cache_control"},
      {messages, R"("max_tokens":9,"cache_control":{"type":"forever"})", "cache_control.type"},
      {messages, R"("max_tokens":9,"cache_control":{"type":"ephemeral","ttl":"1y"})",
       "cache_control.ttl", "'1h'"},
      {messages, R"("max_tokens":9,"cache_control":{"type":"ephemeral","ttl":"1h"})", ""},
      {messages, R"("max_tokens":9,"cache_control":null)", ""},
      {messages, R"("max_tokens":9,"system":[{"type":"text","text":"x","cache_control":{}}])",
       "system[0].cache_control.type"},
      {messages,
       R"("max_tokens":9,"tools":[{"name":"f","input_schema":{},"cache_control":{"type":7}}])",
       "tools[0].cache_control.type"},
      {messages, R"("max_tokens":9,"thinking":{"type":"disabled","budget_tokens":"many"})",
       "thinking.budget_tokens"},
      {messages, R"("max_tokens":9000,"thinking":{"type":"disabled","budget_tokens":2048})",
       "thinking.budget_tokens", "'thinking.type'"},
  };
  expect_all(kCases);
}

// A training file's message: nothing comes of it, and it is said so.
TEST(ContradictingFields, D6_the_weight_of_a_message_is_told_of) {
  const auto request =
      parse_chat_request(R"({"messages":[{"role":"user","content":"x","weight":0}]})", kLimits);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_THAT(request->warnings, testing::ElementsAre(HasSubstr("messages[0].weight ignored")));
}

// JB-05, at any depth and however it is written.
TEST(ContradictingFields, JB_05_a_key_stands_twice) {
  static constexpr Case kCases[] = {
      {chat, R"("model":"a","model":"b")", "model", "twice"},
      {chat, R"("model":"a","mod\u0065l":"a")", "model", "twice"},
      {chat, R"("stop":null,"stop":null)", "stop", "twice"},
      {chat, R"("tools":[{"type":"function","function":{"name":"f","name":"g"}}])",
       "tools[0].function.name", "twice"},
      {chat, R"("unknown":[1,[{"a":1,"b":{"c":1,"c":1}}]])", "unknown[1][0].b.c", "twice"},
      {chat, R"("unknown":{"a":1,"A":1,"":1,"b":{"a":1}})", ""},
      {completion, R"("n":1,"n":1)", "n", "twice"},
      {messages, R"("max_tokens":9,"max_tokens":10)", "max_tokens", "twice"},
      {response, R"("input":"y")", "input", "twice"},
  };
  expect_all(kCases);
}

// Objects of many members are looked at in another way.
TEST(ContradictingFields, JB_05_a_key_stands_twice_among_thousands) {
  for (const int count : {7, 8, 9, 100, 3000}) {
    std::string many;
    for (int i = 0; i < count; ++i) many += fmt::format("{}\"k{}\":1", i == 0 ? "" : ",", i);
    EXPECT_FALSE(chat(many)) << count;
    EXPECT_FALSE(chat(fmt::format("\"unknown\":{{{}}}", many))) << count;
    const std::optional<Error> error = chat(fmt::format("\"unknown\":{{{},\"k3\":2}}", many));
    ASSERT_TRUE(error) << count;
    EXPECT_EQ(error->field, "unknown.k3");
  }
  // A key as long as the body is not repeated in the answer as a whole, nor cut amid a character.
  std::string umlauts;
  for (int i = 0; i < 5000; ++i) umlauts += "ü";
  const std::optional<Error> error = chat(fmt::format("\"x{0}\":1,\"x{0}\":1", umlauts));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->field.size(), 199u);
  EXPECT_EQ(error->field, "x" + umlauts.substr(0, 198));
}

}  // namespace
}  // namespace pelton::api
