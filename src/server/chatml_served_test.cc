// A model whose chat format is ChatML with Qwen3's markers, over HTTP: every API shows its turns as
// it shows any other model's. And models with a chat template, without a chat format, or without a
// tokenizer.
#include <algorithm>
#include <bit>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "chat/format_of.h"
#include "chat/tiny_chatml_tokenizer.h"
#include "server/chat_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;

constexpr std::string_view kScript = R"({"context": 120000, "rules": [
  {"when": "sunny", "then": "<think>\nthe tool says it\n</think>\n\nIt is sunny."},
  {"when": "weather", "then": "<think>\nI ask\n</think>\n\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"},
  {"when": "broken", "then": "<tool_call>\nnot json\n</tool_call>"},
  {"when": "", "then": "<think>\nhm\n</think>\n\nHello."}]})";

ServerFixture::Options chatml() {
  ServerFixture::Options options;
  options.tokenizer = chat::tiny_chatml_tokenizer;
  return options;
}

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object",)"
    R"("properties":{"city":{"type":"string","maxLength":9}},"required":["city"],)"
    R"("additionalProperties":false}}}])";

std::string chat_body(std::string_view user, std::string_view more) {
  return R"({"messages":[{"role":"user","content":")" + std::string(user) + "\"}]" +
         std::string(more) + "}";
}

Json message_of(const std::string& body) {
  return *parsed(body).find("choices")->as_array().at(0).find("message");
}

TEST(ChatMlServed, ReasoningAndContentWholeAndStreamed) {
  ServerFixture fixture(kScript, chatml());
  const Json message = message_of(fixture.post("/v1/chat/completions", chat_body("hi", "")).body);
  EXPECT_EQ(message.string("content"), "Hello.");
  EXPECT_EQ(message.string("reasoning_content"), "hm");
  const std::string stream =
      fixture.post("/v1/chat/completions", chat_body("hi", R"(,"stream":true)")).body;
  const ChatText text = streamed_text(stream, 0);
  EXPECT_EQ(text.content, "Hello.");
  EXPECT_EQ(text.reasoning, "hm");
}

TEST(ChatMlServed, CallsGoOutAndResultsComeBack) {
  ServerFixture fixture(kScript, chatml());
  const std::string tools = "," + std::string(kTools);
  const Json message =
      message_of(fixture.post("/v1/chat/completions", chat_body("weather", tools)).body);
  const Json& call = message.find("tool_calls")->as_array().at(0);
  EXPECT_EQ(call.find("function")->string("arguments"), R"({"city": "Oslo"})");
  const std::string id = call.string("id").value();
  const std::string again =
      R"({"messages":[{"role":"user","content":"weather"},{"role":"assistant","tool_calls":[{"id":")" +
      id +
      R"(","type":"function","function":{"name":"look","arguments":"{\"city\":\"Oslo\"}"}}]},)"
      R"({"role":"tool","tool_call_id":")" +
      id + R"(","content":"sunny"}],)" + std::string(kTools) + "}";
  EXPECT_EQ(message_of(fixture.post("/v1/chat/completions", again).body).string("content"),
            "It is sunny.");
  // The turn stands in the prompt as it was sampled, reasoning and all.
  const Json rendered = parsed(fixture.post("/v1/chat/completions/render", again).body);
  const std::string prompt =
      rendered.find("text") != nullptr ? rendered.string("text").value() : rendered.dump();
  EXPECT_THAT(prompt, HasSubstr("I ask"));
  EXPECT_THAT(prompt, HasSubstr("<tool_response>"));
  // Without tools what looks like a call is text.
  const Json plain =
      message_of(fixture.post("/v1/chat/completions", chat_body("weather", "")).body);
  EXPECT_THAT(plain.string("content").value(), HasSubstr("<tool_call>"));
  EXPECT_EQ(message_of(fixture.post("/v1/chat/completions", chat_body("broken", tools)).body)
                .string("content"),
            "<tool_call>\nnot json\n</tool_call>");
}

TEST(ChatMlServed, ResponsesAndMessages) {
  ServerFixture fixture(kScript, chatml());
  const std::string response = fixture.post("/v1/responses", R"({"input":"hi"})").body;
  const Json whole = parsed(response);
  const Json::Array& items = whole.find("output")->as_array();
  ASSERT_EQ(items.size(), 2u) << response;
  EXPECT_EQ(items[0].string("type"), "reasoning");
  EXPECT_EQ(items[1].find("content")->as_array().at(0).string("text"), "Hello.");
  const std::string message =
      fixture
          .post("/v1/messages",
                R"({"model":"tiny","max_tokens":100,"messages":[{"role":"user","content":"hi"}]})")
          .body;
  EXPECT_THAT(message, HasSubstr("Hello."));
  EXPECT_THAT(message, HasSubstr("end_turn"));
}

TEST(ChatMlServed, ThinkingIsSwitchedOffInThePrompt) {
  ServerFixture fixture(kScript, chatml());
  const auto rendered =
      fixture.post("/v1/chat/completions/render",
                   chat_body("hi", R"(,"chat_template_kwargs":{"enable_thinking":false})"));
  EXPECT_THAT(rendered.body, HasSubstr(R"(<think>\n\n</think>\n\n)"));
  const auto counted = fixture.post(
      "/tokenize", chat_body("hi", R"(,"chat_template_kwargs":{"enable_thinking":false})"));
  EXPECT_EQ(parsed(counted.body).find("tokens")->dump(),
            parsed(rendered.body).find("token_ids")->dump());
}

// Anything that is allowed; the longer it goes on, the likelier what closes something.
TokenId any_of(const engine::ModelledExecutor::Seen& seen, TokenId end) {
  std::vector<TokenId> all;
  std::vector<TokenId> closing;
  for (size_t word = 0; word < seen.allowed.size(); ++word) {
    for (uint64_t bits = seen.allowed[word]; bits != 0; bits &= bits - 1) {
      const auto token = static_cast<TokenId>(word * 64 + std::countr_zero(bits));
      all.push_back(token);
      if (token >= 256 || token == '"' || token == '}') closing.push_back(token);
    }
  }
  if (all.empty()) return end;
  const uint64_t random = base::random_bits(seen.sampling.seed, seen.tokens.size());
  const bool close = !closing.empty() && random % 3 == 0;
  const std::vector<TokenId>& from = close ? closing : all;
  return from[(random >> 20) % from.size()];
}

// Templates whose prompt opens the reasoning unless it is switched off, and if it is switched on.
constexpr std::string_view kOpening =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n";
constexpr std::string_view kOpensByItself =
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}";
constexpr std::string_view kOpensWhenAsked =
    "{% if enable_thinking %}<think>{% else %}</think>{% endif %}";

ServerFixture::Options with_template(std::string_view ending) {
  ServerFixture::Options options = chatml();
  options.model = [ending](ServedModel& model) {
    const chat::TemplateSource source{.from = "here",
                                      .text = std::string(kOpening) + std::string(ending),
                                      .for_tools = {},
                                      .bos_token = "",
                                      .eos_token = "<|im_end|>"};
    model.chat = chat::format_of({.tokenizer = model.tokenizer, .chat_template = source}).value();
  };
  return options;
}

// [THINK] is seven tokens of this vocabulary: a budget that nobody can keep is not taken.
TEST(TemplateServed, ABudgetOfReasoningThatIsMarkedInTextIsRefused) {
  ServerFixture fixture(kScript, with_template("{{ '[THINK]' }}"));
  const auto plain = fixture.post("/v1/chat/completions", chat_body("hi", ""));
  EXPECT_EQ(plain.status, 200) << plain.body;
  const auto bounded =
      fixture.post("/v1/chat/completions", chat_body("hi", R"(,"thinking_token_budget":5)"));
  EXPECT_EQ(bounded.status, 400);
  EXPECT_THAT(bounded.body, HasSubstr("thinking_token_budget"));
  EXPECT_THAT(bounded.body, HasSubstr("max_tokens"));
}

TEST(TemplateServed, AnAnswerFollowsItsSchemaWhetherThePromptOpensReasoningOrNot) {
  const tokenizer::Tokenizer tokenizer = chat::tiny_chatml_tokenizer();
  const TokenId end = tokenizer.special_id("<|im_end|>").value();
  for (const std::string_view ending : {kOpensByItself, kOpensWhenAsked}) {
    ServerFixture::Options options = with_template(ending);
    options.executor = [end](engine::ModelledExecutor::Options& executor) {
      executor.next_token = [end](const auto& seen) { return any_of(seen, end); };
    };
    ServerFixture fixture(kScript, options);
    for (const char* thinks : {"true", "false"}) {
      for (int seed = 0; seed < 5; ++seed) {
        const std::string body = chat_body(
            "hi",
            fmt::format(R"(,"seed":{},"max_tokens":3000,"chat_template_kwargs":)"
                        R"({{"enable_thinking":{}}},"response_format":{{"type":"json_schema",)"
                        R"("json_schema":{{"name":"x","strict":true,"schema":{{"type":"object",)"
                        R"("properties":{{"a":{{"type":"boolean"}}}},"required":["a"],)"
                        R"("additionalProperties":false}}}}}})",
                        seed, thinks));
        const Json message = message_of(fixture.post("/v1/chat/completions", body).body);
        const Result<Json> content = Json::parse(message.string("content").value_or(""));
        ASSERT_TRUE(content.ok()) << ending << thinks << message.dump();
        EXPECT_TRUE(content->boolean("a").has_value()) << message.dump();
      }
    }
  }
}

TEST(TemplateServed, AnthropicsDisabledThinkingIsSwitchedOffInThePrompt) {
  ServerFixture fixture(kScript, with_template(kOpensByItself));
  const auto prompt_tokens = [&](std::string_view thinking) {
    const net::HttpResponse counted =
        fixture.post("/v1/messages/count_tokens",
                     chat_body("hi", fmt::format(R"(,"thinking":{{"type":"{}"}})", thinking)));
    EXPECT_FALSE(counted.headers.has("x-pelton-warning"));
    return parsed(counted.body).integer("input_tokens").value_or(0);
  };
  const tokenizer::Tokenizer tokenizer = chat::tiny_chatml_tokenizer();
  const auto more = tokenizer.encode_with_special("<think>\n\n</think>\n\n").size() -
                    tokenizer.encode_with_special("<think>\n").size();
  EXPECT_EQ(prompt_tokens("disabled"), prompt_tokens("adaptive") + static_cast<int64_t>(more));
}

TEST(TemplateServed, WhatTheTemplateDoesNotNameIsWarnedOfByEveryProtocol) {
  ServerFixture fixture(kScript, with_template(kOpensByItself));
  const auto warning = [&](const char* path, const std::string& body) {
    const net::HttpResponse answer = fixture.post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::string all;  // each stands in a header of its own
    for (const auto& [name, value] : answer.headers.fields()) {
      if (name == "x-pelton-warning") all += value + "\n";
    }
    return all;
  };
  EXPECT_THAT(warning("/v1/chat/completions",
                      chat_body("hi", R"(,"tools":[{"type":"function","function":{"name":"f"}}])")),
              HasSubstr("tools ignored"));
  EXPECT_THAT(
      warning(
          "/v1/messages",
          chat_body("hi",
                    R"(,"max_tokens":9,"tools":[{"name":"f","input_schema":{"type":"object"}}])")),
      HasSubstr("tools ignored"));
  const std::string asks_effort =
      warning("/v1/responses", R"({"input":"hi","store":false,"reasoning":{"effort":"high"},)"
                               R"("tools":[{"type":"function","name":"f"}]})");
  EXPECT_THAT(asks_effort, HasSubstr("reasoning.effort ignored"));
  EXPECT_THAT(asks_effort, HasSubstr("tools ignored"));
}

TEST(TemplateServed, ABudgetCountsReasoningThatThePromptHasOpened) {
  const tokenizer::Tokenizer tokenizer = chat::tiny_chatml_tokenizer();
  const TokenId end = tokenizer.special_id("<|im_end|>").value();
  const TokenId thought = tokenizer.special_id("</think>").value();
  const auto letter = [&](std::string_view text) { return tokenizer.encode(text).at(0); };
  ServerFixture::Options options = with_template(kOpensByItself);
  options.executor = [&](engine::ModelledExecutor::Options& executor) {
    executor.next_token = [=, x = letter("x"), y = letter("y")](const auto& seen) {
      const auto output = seen.tokens.subspan(static_cast<size_t>(seen.prompt_count));
      const bool is_over = std::ranges::find(output, thought) != output.end();
      if (!is_over) return x;
      return seen.tokens.back() == y ? end : y;
    };
  };
  ServerFixture fixture(kScript, options);
  for (const size_t budget : {0, 1, 5}) {
    const Json message =
        message_of(fixture
                       .post("/v1/chat/completions",
                             chat_body("hi", fmt::format(R"(,"thinking_token_budget":{})", budget)))
                       .body);
    EXPECT_EQ(message.string("reasoning_content").value_or(""), std::string(budget, 'x'));
    EXPECT_EQ(message.string("content"), "y");

    // The same prompt as tokens: rendered, and sent to where there are only tokens.
    const net::HttpResponse rendered =
        fixture.post("/v1/chat/completions/render",
                     chat_body("hi", fmt::format(R"(,"thinking_token_budget":{})", budget)));
    ASSERT_EQ(rendered.status, 200) << rendered.body;
    const net::HttpResponse generated = fixture.post("/inference/v1/generate", rendered.body);
    ASSERT_EQ(generated.status, 200) << generated.body;
    const Json body = parsed(generated.body);
    const auto& tokens = body.find("choices")->as_array().at(0).find("token_ids")->as_array();
    const auto x = static_cast<int64_t>(letter("x"));
    EXPECT_EQ(std::ranges::count_if(tokens, [x](const Json& id) { return id.as_integer() == x; }),
              static_cast<std::ptrdiff_t>(budget))
        << generated.body;
  }
}

TEST(ChatMlServed, ForcedCallsFollowTheirSchema) {
  ServerFixture::Options options = chatml();
  const tokenizer::Tokenizer tokenizer = chat::tiny_chatml_tokenizer();
  const TokenId end = tokenizer.special_id("<|im_end|>").value();
  options.executor = [end](engine::ModelledExecutor::Options& executor) {
    executor.next_token = [end](const auto& seen) { return any_of(seen, end); };
  };
  ServerFixture fixture(kScript, options);
  for (const char* choice :
       {R"("required")", R"({"type":"function","function":{"name":"look"}})"}) {
    for (int seed = 0; seed < 5; ++seed) {
      const std::string body =
          fixture
              .post("/v1/chat/completions",
                    chat_body("hi", "," + std::string(kTools) + R"(,"tool_choice":)" + choice +
                                        R"(,"max_tokens":2000,"seed":)" + std::to_string(seed)))
              .body;
      const Json message = message_of(body);
      const Json* calls = message.find("tool_calls");
      ASSERT_NE(calls, nullptr) << body;
      const Json& function = *calls->as_array().at(0).find("function");
      EXPECT_EQ(function.string("name"), "look");
      const Result<Json> arguments = Json::parse(function.string("arguments").value());
      ASSERT_TRUE(arguments.ok()) << body;
      EXPECT_TRUE(arguments->string("city").has_value()) << body;
    }
  }
}

TEST(ServedWithoutChat, ConversationsAreRefusedAndTextGoesOn) {
  ServerFixture::Options options;
  options.model = [](ServedModel& model) { model.chat = nullptr; };
  ServerFixture fixture(kScript, options);
  const char* const message = R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}]})";
  for (const auto& [route, body] :
       {std::pair<const char*, std::string>{"/v1/chat/completions", chat_body("hi", "")},
        {"/v1/chat/completions/render", chat_body("hi", "")},
        {"/v1/chat/completions/input_tokens", chat_body("hi", "")},
        {"/tokenize", chat_body("hi", "")},
        {"/v1/messages", message},
        {"/v1/messages/count_tokens", message},
        {"/v1/responses", R"({"input":"hi"})"}}) {
    const net::HttpResponse answer = fixture.post(route, body);
    EXPECT_EQ(answer.status, 400) << route << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("takes no conversations")) << route;
  }
  EXPECT_EQ(fixture.post("/v1/completions", R"({"prompt":"hi","max_tokens":3})").status, 200);
}

TEST(ServedWithoutText, TokenIdsAreAnsweredAndTextIsRefused) {
  ServerFixture::Options options;
  options.model = [](ServedModel& model) {
    model.chat = nullptr;
    model.has_text = false;
  };
  ServerFixture fixture(kScript, options);
  const net::HttpResponse answer = fixture.post(
      "/v1/completions", R"({"prompt":[65,66],"max_tokens":3,"return_token_ids":true})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr("token_ids"));
  for (const auto& [route, body, field] :
       {std::tuple<const char*, const char*, const char*>{
            "/v1/completions", R"({"prompt":"hi","max_tokens":3})", "prompt"},
        {"/v1/completions", R"({"prompt":[65],"max_tokens":3,"stop":"x"})", "stop"},
        {"/v1/completions", R"({"prompt":[65],"bad_words":["x"]})", "bad_words"},
        {"/tokenize", R"({"prompt":"hi"})", "prompt"},
        {"/detokenize", R"({"tokens":[65]})", "tokens"},
        {"/v1/embeddings", R"({"input":["d"]})", "input"},
        {"/v1/rerank", R"({"query":"q","documents":["d"]})", "query"}}) {
    const net::HttpResponse refused = fixture.post(route, body);
    EXPECT_EQ(refused.status, 400) << route << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("has no tokenizer")) << route;
    EXPECT_THAT(refused.body, HasSubstr(field)) << route;
  }
  const auto advice = [&](const char* route, const char* body, const char* words) {
    EXPECT_THAT(fixture.post(route, body).body, HasSubstr(words)) << route;
  };
  advice("/v1/embeddings", R"({"input":"d"})", "tokenizer: send it as token ids");
  EXPECT_EQ(fixture.post("/v1/embeddings", R"({"input":[[65,66]]})").status, 200);
  advice("/v1/rerank", R"({"query":"q","documents":["d"]})", "/v1/embeddings takes token ids");
  advice("/v1/score", R"({"text_1":"a","text_2":"b"})", "/v1/embeddings takes token ids");
  advice("/v1/completions", R"({"prompt":"hi"})", "send a prompt of token ids");
  advice("/v1/completions", R"({"prompt":[65],"stop":"x"})", "tokenizer: leave it out");
  advice("/tokenize", R"({"prompt":"hi"})", "nothing to tokenize with");
  EXPECT_THAT(fixture.post("/v1/chat/completions", chat_body("hi", "")).body,
              HasSubstr("have no tokenizer"));
}

}  // namespace
}  // namespace pelton::server
