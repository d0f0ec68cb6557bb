// OpenAI's functions of before there were tools, in requests, histories and answers (row B7).
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Plain.<|return|>"},
  {"when": "weather", "then": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Bern\"}<|call|>"},
  {"when": "both", "then": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Bern\"}<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Chur\"}<|call|>"},
  {"when": "functions.first<|channel|>commentary <|constrain|>json<|message|>", "then": "{\"a\":1}<|call|>"},
  {"when": "sunny, 21", "then": "<|channel|>final<|message|>It is sunny.<|return|>"}
]})";

constexpr std::string_view kPath = "/v1/chat/completions";
constexpr std::string_view kFunctions =
    R"("functions":[{"name":"get_weather","description":"d","parameters":{"type":"object"}}])";

std::string body(std::string_view question, std::string_view more) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}],{}}})", question, more);
}

Json choice_of(ServerFixture& fixture, const std::string& body) {
  const net::HttpResponse response = fixture.post(std::string(kPath), body);
  EXPECT_EQ(response.status, 200) << response.body;
  return parsed(response.body).find("choices")->as_array().at(0);
}

TEST(LegacyFunctions, B7_a_call_is_the_messages_function_call) {
  ServerFixture fixture(kScript, {});
  for (const char* question : {"weather", "both"}) {  // of two calls the first
    const Json choice = choice_of(fixture, body(question, kFunctions));
    EXPECT_EQ(choice.string("finish_reason"), "function_call");
    const Json& message = *choice.find("message");
    EXPECT_EQ(message.find("tool_calls"), nullptr);
    EXPECT_TRUE(message.find("content")->is_null());
    EXPECT_EQ(message.find("function_call")->string("name"), "get_weather");
    EXPECT_EQ(message.find("function_call")->string("arguments"), R"({"city":"Bern"})");
  }
  const Json plain = choice_of(fixture, body("hi", R"("functions":[{"name":"other"}])"));
  EXPECT_EQ(plain.string("finish_reason"), "stop");
  EXPECT_EQ(plain.find("message")->find("function_call"), nullptr);
}

TEST(LegacyFunctions, B7_streamed_as_whole) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse response = fixture.post(
      std::string(kPath), body("weather", std::string(kFunctions) + R"(,"stream":true)"));
  std::string name;
  std::string arguments;
  std::string finish;
  for (const std::string& event : events_of(response.body)) {
    if (event == "[DONE]") continue;
    const Json json = parsed(event);
    const Json& choice = json.find("choices")->as_array().at(0);
    const Json& delta = *choice.find("delta");
    EXPECT_EQ(delta.find("tool_calls"), nullptr);
    if (const Json* call = delta.find("function_call")) {
      name += call->string("name").value_or("");
      arguments += call->string("arguments").value_or("no arguments");
    }
    if (const auto reason = choice.string("finish_reason")) finish = *reason;
  }
  EXPECT_EQ(name, "get_weather");
  EXPECT_EQ(arguments, R"({"city":"Bern"})");
  EXPECT_EQ(finish, "function_call");
}

TEST(LegacyFunctions, B7_function_call_is_obeyed) {
  ServerFixture fixture(kScript, {});
  const Json forced =
      choice_of(fixture, body("hi", R"("functions":[{"name":"first"},{"name":"second"}],)"
                                    R"("function_call":{"name":"first"})"));
  EXPECT_EQ(forced.find("message")->find("function_call")->string("name"), "first");
  EXPECT_EQ(forced.find("message")->find("function_call")->string("arguments"), R"({"a":1})");
  const Json none =
      choice_of(fixture, body("weather", std::string(kFunctions) + R"(,"function_call":"none")"));
  EXPECT_EQ(none.find("message")->find("function_call"), nullptr);
  for (const char* nothing : {R"("functions":[])", R"("functions":null,"function_call":null)",
                              R"("functions":[],"function_call":"none")",
                              R"("functions":[],"tools":[],"tool_choice":"auto")"}) {
    EXPECT_EQ(choice_of(fixture, body("hi", nothing)).string("finish_reason"), "stop") << nothing;
  }
}

TEST(LegacyFunctions, B7_what_contradicts_itself_is_refused_by_name) {
  ServerFixture fixture(kScript, {});
  const std::string functions(kFunctions);
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const std::pair<std::string, const char*> cases[] = {
      {functions + "," + tools, "functions"},
      {functions + R"(,"tool_choice":"auto")", "tool_choice"},
      {functions + R"(,"function_call":"some")", "function_call"},
      {functions + R"(,"function_call":7)", "function_call"},
      {functions + R"(,"function_call":{"name":"other"})", "function_call.name"},
      {tools + R"(,"function_call":"auto")", "function_call"},
      {R"("function_call":{"name":"f"})", "function_call"},
      {R"("functions":[{"description":"no name"}])", "functions[0].name"},
      {R"("functions":[{"name":"f"},{"name":"f"}])", "functions[1].name"},
      {R"("functions":{"name":"f"})", "functions"},
  };
  for (const auto& [more, param] : cases) {
    const net::HttpResponse response = fixture.post(std::string(kPath), body("hi", more));
    EXPECT_EQ(response.status, 400) << more;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), param) << response.body;
  }
}

// The same prompt as the same conversation told with tools.
TEST(LegacyFunctions, B7_a_history_is_read) {
  ServerFixture fixture(kScript, {});
  const auto tokens = [&](const std::string& messages, const std::string& offered) {
    const net::HttpResponse response = fixture.post(
        "/v1/chat/completions/render",
        R"({"messages":[{"role":"user","content":"weather"},)" + messages + "]," + offered + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return parsed(response.body).find("token_ids")->dump();
  };
  const std::string older =
      R"({"role":"assistant","content":null,"function_call":{"name":"get_weather","arguments":"{}"}},)"
      R"({"role":"function","name":"get_weather","content":"sunny, 21"},)"
      R"({"role":"assistant","function_call":{"name":"get_weather","arguments":"{}"}},)"
      R"({"role":"function","name":"get_weather","content":null})";
  const std::string newer =
      R"({"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"sunny, 21"},)"
      R"({"role":"assistant","tool_calls":[{"id":"2","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"2","content":""})";
  EXPECT_EQ(tokens(older, std::string(kFunctions)),
            tokens(newer, R"("tools":[{"type":"function","function":{"name":"get_weather",)"
                          R"("description":"d","parameters":{"type":"object"}}}])"));
  const std::pair<const char*, const char*> bad[] = {
      {R"({"role":"function","name":"f","content":"x"})", "messages[0].name"},
      {R"({"role":"function","content":"x"})", "messages[0].name"},
      {R"({"role":"assistant","function_call":{"arguments":"{}"}})",
       "messages[0].function_call.name"},
      {R"({"role":"assistant","function_call":"f"})", "messages[0].function_call"},
      {R"({"role":"assistant","function_call":{"name":"f","arguments":""},"tool_calls":
          [{"id":"1","type":"function","function":{"name":"f","arguments":""}}]})",
       "messages[0].function_call"},
  };
  for (const auto& [message, param] : bad) {
    const net::HttpResponse response =
        fixture.post(std::string(kPath), fmt::format(R"({{"messages":[{}]}})", message));
    EXPECT_EQ(response.status, 400) << message;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), param) << response.body;
  }
}

}  // namespace
}  // namespace pelton::server
