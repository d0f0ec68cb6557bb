// An answer that goes on with the last message: vLLM's continue_final_message, Anthropic's prefill.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "chat/tiny_chatml_tokenizer.h"
#include "server/chat_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr std::string_view kScript = R"({"rules": [{"when": "", "then": "lo there, END of it."}]})";
constexpr std::string_view kTalk =
    R"("messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Hel"}])";
constexpr std::string_view kGoesOn = R"("continue_final_message":true)";

std::string chat(std::string_view more) {
  return fmt::format("{{{},{}{}}}", kTalk, kGoesOn, more);
}

Json message_of(const net::HttpResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return *parsed(response.body).find("choices")->as_array().at(0).find("message");
}

std::string prompt_of(ServerFixture& fixture, const std::string& body) {
  const net::HttpResponse rendered = fixture.post("/v1/chat/completions/render", body);
  return parsed(rendered.body).string("prompt").value_or(rendered.body);
}

struct Format {
  tokenizer::Tokenizer (*tokenizer)();
  std::string_view ending;  // of the prompt
};

class Prefill : public testing::TestWithParam<Format> {
 protected:
  static ServerFixture::Options options() {
    ServerFixture::Options options;
    options.tokenizer = GetParam().tokenizer;
    return options;
  }
  ServerFixture fixture_{kScript, options()};
};

TEST_P(Prefill, TheAnswerIsWhatComesBehind) {
  EXPECT_THAT(prompt_of(fixture_, chat("")), EndsWith(GetParam().ending));
  const Json message = message_of(fixture_.post("/v1/chat/completions", chat("")));
  EXPECT_EQ(message.string("content"), "lo there, END of it.");
  EXPECT_EQ(message.find("reasoning_content"), nullptr);
  const std::string stream = fixture_.post("/v1/chat/completions", chat(R"(,"stream":true)")).body;
  EXPECT_EQ(streamed_text(stream, 0).content, "lo there, END of it.");
}

// vLLM's clients say both.
TEST_P(Prefill, ItsTokensAreCountedWithoutABeginning) {
  const net::HttpResponse counted =
      fixture_.post("/tokenize", chat(R"(,"add_generation_prompt":false)"));
  ASSERT_EQ(counted.status, 200) << counted.body;
  const Json tokens = *parsed(counted.body).find("tokens");
  const Json text =
      parsed(fixture_.post("/detokenize", Json(Json::Object{{"tokens", tokens}}).dump()).body);
  EXPECT_EQ(text.string("prompt"), prompt_of(fixture_, chat("")));
}

// A parser holds back what may be no text; here it is the caller's, whatever follows.
TEST_P(Prefill, SpaceAndHalfAMarkerAtTheMessagesEndAreNotShownAgain) {
  for (const std::string_view said : {"Hel ", "Hel\\n\\n", "a <", "a <tool_"}) {
    const std::string body = fmt::format(
        R"({{"messages":[{{"role":"user","content":"hi"}},{{"role":"assistant","content":"{}"}}],{},)"
        R"("tools":[{{"type":"function","function":{{"name":"f"}}}}]}})",
        said, kGoesOn);
    EXPECT_EQ(message_of(fixture_.post("/v1/chat/completions", body)).string("content"),
              "lo there, END of it.")
        << said;
  }
}

TEST_P(Prefill, AnEchoShowsTheMessageToo) {
  for (const std::string_view stream : {"false", "true"}) {
    const net::HttpResponse response = fixture_.post(
        "/v1/chat/completions", chat(fmt::format(R"(,"echo":true,"stream":{})", stream)));
    const std::string content = stream == "true"
                                    ? streamed_text(response.body, 0).content
                                    : message_of(response).string("content").value_or("");
    EXPECT_EQ(content, "Hello there, END of it.");
  }
}

TEST_P(Prefill, StopsAndLogprobsKnowTheNewTextAlone) {
  const Json message =
      message_of(fixture_.post("/v1/chat/completions", chat(R"(,"stop":["Hel","END"])")));
  EXPECT_EQ(message.string("content"), "lo there, ");
  const Json body = parsed(
      fixture_.post("/v1/chat/completions", chat(R"(,"logprobs":true,"max_tokens":3)")).body);
  const Json& choice = body.find("choices")->as_array().at(0);
  std::string shown;
  for (const Json& token : choice.find("logprobs")->find("content")->as_array()) {
    shown += token.string("token").value_or("");
  }
  EXPECT_EQ(shown, choice.find("message")->string("content"));
}

TEST_P(Prefill, AnthropicsLastMessageOfTheAssistantGoesOn) {
  const std::string body = fmt::format(R"({{{},"max_tokens":50}})", kTalk);
  const Json whole = parsed(fixture_.post("/v1/messages", body).body);
  const Json::Array& blocks = whole.find("content")->as_array();
  ASSERT_EQ(blocks.size(), 1U) << whole.dump();
  EXPECT_EQ(blocks[0].string("text"), "lo there, END of it.");
  const net::HttpResponse thinks = fixture_.post(
      "/v1/messages",
      fmt::format(
          R"({{{},"max_tokens":5000,"thinking":{{"type":"enabled","budget_tokens":1024}}}})",
          kTalk));
  EXPECT_EQ(thinks.status, 400);
  EXPECT_THAT(thinks.body, HasSubstr("'thinking'"));
}

TEST_P(Prefill, WhatCannotGoOnIsRefusedByName) {
  const std::string asks = R"({"messages":[{"role":"user","content":"hi"}],)";
  const std::pair<std::string, std::string_view> kBad[] = {
      {asks + std::string(kGoesOn) + "}", "'messages'"},
      {asks + R"("add_generation_prompt":false})", "'add_generation_prompt'"},
      {chat(R"(,"add_generation_prompt":true)"), "'continue_final_message'"},
      {chat(R"(,"response_format":{"type":"json_object"})"), "'response_format'"},
      {chat(R"(,"regex":"a+")"), "'regex'"},
      {chat(R"(,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f"}}])"),
       "'tool_choice'"},
      {fmt::format(R"({{{},"echo":true}})", kTalk), "'echo'"},
  };
  for (const auto& [body, name] : kBad) {
    const net::HttpResponse refused = fixture_.post("/v1/chat/completions", body);
    EXPECT_EQ(refused.status, 400) << body << refused.body;
    EXPECT_THAT(refused.body, HasSubstr(std::string(name))) << body;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Prefill,
    testing::Values(
        Format{chat::tiny_tokenizer, "<|start|>assistant<|channel|>final<|message|>Hel"},
        Format{chat::tiny_chatml_tokenizer, "<|im_start|>assistant\n<think>\n\n</think>\n\nHel"}),
    [](const auto& format) {
      return std::string(format.param.ending.find("channel") == std::string_view::npos ? "ChatMl"
                                                                                       : "Harmony");
    });

}  // namespace
}  // namespace pelton::server
