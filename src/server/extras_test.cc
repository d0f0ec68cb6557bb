// What requests may ask beyond OpenAI's own fields, whole and streamed, over HTTP.
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/chat_stream_text.h"
#include "server/response_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello there.<|return|>"},
  {"when": "ponder", "then": ["<|channel|>analysis<|message|>", {"text": "thinking ", "times": 300}]},
  {"when": "repeat", "then": ["<|channel|>final<|message|>", {"text": "ab", "times": 300}]},
  {"when": "twice", "then": "<|channel|>commentary to=functions.a <|constrain|>json<|message|>{}<|end|><|start|>assistant<|channel|>commentary to=functions.b <|constrain|>json<|message|>{}<|call|>"},
  {"when": "raw", "then": "one two three<|return|>"}]})";

std::string chat(const char* words, const std::string& more) {
  return std::string(R"({"messages":[{"role":"user","content":")") + words + "\"}]" + more + "}";
}

const Json& choice_of(const Json& body) {
  return body.find("choices")->as_array().at(0);
}

Json ask(ServerFixture& fixture, const char* path, const std::string& body) {
  const net::HttpResponse response = fixture.post(path, body);
  EXPECT_EQ(response.status, 200) << response.body;
  return parsed(response.body);
}

std::vector<int64_t> ids_of(const Json& array) {
  std::vector<int64_t> ids;
  for (const Json& id : array.as_array()) ids.push_back(id.as_integer());
  return ids;
}

TEST(Extras, ARequestNamesItsAnswer) {
  ServerFixture fixture(kScript, {});
  EXPECT_EQ(
      ask(fixture, "/v1/chat/completions", chat("hi", R"(,"request_id":"mine-7")")).string("id"),
      "chatcmpl-mine-7");
  EXPECT_EQ(ask(fixture, "/v1/completions", R"({"prompt":"raw","request_id":"x"})").string("id"),
            "cmpl-x");
  for (const char* bad : {R"("")", R"("a b")", R"("\n")", "7"}) {
    EXPECT_EQ(
        fixture.post("/v1/chat/completions", chat("hi", std::string(",\"request_id\":") + bad))
            .status,
        400)
        << bad;
  }
}

TEST(Extras, ATextShowsItsMarks) {
  ServerFixture fixture(
      R"({"rules":[{"when":"","then":"one<|end|><|start|>assistant<|channel|>final<|message|>two<|return|>"}]})",
      {});
  const std::string shown = R"({"prompt":"raw","max_tokens":40,"skip_special_tokens":false)";
  EXPECT_EQ(choice_of(ask(fixture, "/v1/completions", shown + "}")).string("text"),
            "one<|end|><|start|>assistant<|channel|>final<|message|>two");
  const Json stopped = ask(fixture, "/v1/completions", shown + R"(,"stop":"<|channel|>"})");
  EXPECT_EQ(choice_of(stopped).string("text"), "one<|end|><|start|>assistant");
  EXPECT_EQ(choice_of(ask(fixture, "/v1/completions", R"({"prompt":"raw","max_tokens":40})"))
                .string("text"),
            "oneassistantfinaltwo");
}

TEST(Extras, CountsAChatsTokens) {
  ServerFixture fixture(kScript, {});
  const Json counted = ask(fixture, "/v1/chat/completions/input_tokens", chat("hi", ""));
  EXPECT_EQ(counted.string("object"), "response.input_tokens");
  EXPECT_EQ(
      counted.integer("input_tokens"),
      ask(fixture, "/v1/chat/completions", chat("hi", "")).find("usage")->integer("prompt_tokens"));
  EXPECT_EQ(fixture.post("/v1/chat/completions/input_tokens", "{}").status, 400);
}

TEST(Extras, TokenizesAChatThatBeginsNoAnswer) {
  ServerFixture fixture(kScript, {});
  const auto text_of = [&](const char* more) {
    const std::vector<int64_t> ids =
        ids_of(*ask(fixture, "/tokenize", chat("hi", more)).find("tokens"));
    return fixture.model().tokenizer.decode(std::vector<TokenId>(ids.begin(), ids.end()));
  };
  const std::string whole = text_of("");
  EXPECT_EQ(text_of(R"(,"add_generation_prompt":false)") + "<|start|>assistant", whole);
  EXPECT_EQ(text_of(R"(,"add_generation_prompt":true)"), whole);
}

TEST(Extras, TellsWhatStoppedIt) {
  ServerFixture fixture(kScript, {});
  const Json by_string =
      ask(fixture, "/v1/chat/completions", chat("hi", R"(,"stop":["there","x"])"));
  EXPECT_EQ(choice_of(by_string).string("stop_reason"), "there");
  const Json by_end = ask(fixture, "/v1/chat/completions", chat("hi", ""));
  EXPECT_TRUE(choice_of(by_end).find("stop_reason")->is_null());
  // 'o' is a token of the tiny vocabulary.
  const Json by_token =
      ask(fixture, "/v1/completions", R"({"prompt":"raw","stop_token_ids":[119]})");
  EXPECT_EQ(choice_of(by_token).integer("stop_reason"), 119);
  EXPECT_EQ(choice_of(by_token).string("finish_reason"), "stop");
  EXPECT_EQ(choice_of(by_token).string("text"), "one tw");
  const net::HttpResponse streamed =
      fixture.post("/v1/chat/completions", chat("hi", R"(,"stop":"there","stream":true)"));
  const std::vector<std::string> events = events_of(streamed.body);
  EXPECT_EQ(choice_of(parsed(events.at(events.size() - 2))).string("stop_reason"), "there");
}

TEST(Extras, TellsTokens) {
  ServerFixture fixture(kScript, {});
  const Json whole =
      ask(fixture, "/v1/chat/completions", chat("hi", R"(,"return_token_ids":true)"));
  const std::vector<int64_t> sampled = ids_of(*choice_of(whole).find("token_ids"));
  EXPECT_EQ(static_cast<int64_t>(sampled.size()),
            whole.find("usage")->integer("completion_tokens"));
  const std::vector<int64_t> prompt = ids_of(*whole.find("prompt_token_ids"));
  EXPECT_EQ(static_cast<int64_t>(prompt.size()), whole.find("usage")->integer("prompt_tokens"));
  const Json tokenized = ask(fixture, "/tokenize", chat("hi", ""));
  EXPECT_EQ(ids_of(*tokenized.find("tokens")), prompt);

  const net::HttpResponse streamed =
      fixture.post("/v1/chat/completions", chat("hi", R"(,"return_token_ids":true,"stream":true)"));
  std::vector<int64_t> streamed_ids;
  int prompts = 0;
  for (const std::string& event : events_of(streamed.body)) {
    if (event == "[DONE]") continue;
    const Json chunk = parsed(event);
    if (const Json* told = chunk.find("prompt_token_ids")) {
      ++prompts;
      EXPECT_EQ(ids_of(*told), prompt);
    }
    if (const Json* ids = choice_of(chunk).find("token_ids")) {
      for (const int64_t id : ids_of(*ids)) streamed_ids.push_back(id);
    }
  }
  EXPECT_EQ(prompts, 1);
  EXPECT_EQ(streamed_ids, sampled);

  const Json raw = ask(
      fixture, "/v1/completions",
      R"({"prompt":["raw","raw a"],"return_token_ids":true,"logprobs":0,"return_tokens_as_token_ids":true})");
  EXPECT_EQ(ids_of(*raw.find("choices")->as_array().at(0).find("prompt_token_ids")).size(), 3u);
  EXPECT_EQ(ids_of(*raw.find("choices")->as_array().at(1).find("prompt_token_ids")).size(), 5u);
  EXPECT_EQ(choice_of(raw).find("logprobs")->find("tokens")->as_array().at(0).as_string(),
            "token_id:111");
}

TEST(Extras, TellsHowLongItTook) {
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return std::nullopt;
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  const auto check = [](const Json& timings, int64_t completion_tokens) {
    EXPECT_GE(timings.number("prefill_ms"), 2.0);
    EXPECT_GE(timings.number("decode_ms"), 2.0 * static_cast<double>(completion_tokens - 2));
    EXPECT_GE(timings.number("queue_ms"), 0.0);
    EXPECT_LT(timings.number("queue_ms"), 1000.0);
    EXPECT_EQ(timings.integer("predicted_n"), completion_tokens);
    EXPECT_GT(timings.integer("prompt_n").value_or(0) + timings.integer("cache_n").value_or(0), 0);
    EXPECT_GT(timings.number("predicted_per_second"), 1.0);
    EXPECT_NEAR(*timings.number("prompt_per_token_ms") * *timings.number("prompt_per_second"),
                1000.0, 1.0);
    EXPECT_NEAR(*timings.number("predicted_per_token_ms") * *timings.number("predicted_per_second"),
                1000.0, 1.0);
  };
  const Json whole = ask(fixture, "/v1/chat/completions", chat("hi", R"(,"timings":true)"));
  check(*whole.find("timings"), *whole.find("usage")->integer("completion_tokens"));
  const Json raw = ask(fixture, "/v1/completions", R"({"prompt":"raw","timings":true})");
  check(*raw.find("timings"), *raw.find("usage")->integer("completion_tokens"));
  for (const bool usage : {false, true}) {
    const net::HttpResponse streamed =
        fixture.post("/v1/chat/completions",
                     chat("hi", std::string(R"(,"timings":true,"stream":true)") +
                                    (usage ? R"(,"stream_options":{"include_usage":true})" : "")));
    const std::vector<std::string> events = events_of(streamed.body);
    const Json last = parsed(events.at(events.size() - 2));
    EXPECT_TRUE(last.find("choices")->as_array().empty());
    EXPECT_EQ(last.find("usage") != nullptr, usage);
    check(*last.find("timings"), *whole.find("usage")->integer("completion_tokens"));
  }
  EXPECT_EQ(ask(fixture, "/v1/chat/completions", chat("hi", "")).find("timings"), nullptr);

  // The other protocols say it where their usage is.
  for (const bool stream : {false, true}) {
    const std::string rest =
        std::string(R"(,"timings":true,"stream":)") + (stream ? "true}" : "false}");
    const net::HttpResponse response =
        fixture.post("/v1/responses", R"({"input":"hi","store":false)" + rest);
    const Json last =
        stream ? *parsed(events_of(response.body).back()).find("response") : parsed(response.body);
    ASSERT_NE(last.find("timings"), nullptr) << response.body;
    check(*last.find("timings"), *last.find("usage")->integer("output_tokens"));
    const net::HttpResponse message = fixture.post(
        "/v1/messages", R"({"max_tokens":99,"messages":[{"role":"user","content":"hi"}])" + rest);
    const std::vector<std::string> events =
        stream ? events_of(message.body) : std::vector<std::string>{message.body, ""};
    const Json told = parsed(events.at(events.size() - 2));
    ASSERT_NE(told.find("timings"), nullptr) << message.body;
    check(*told.find("timings"), *told.find("usage")->integer("output_tokens"));
  }
  EXPECT_EQ(ask(fixture, "/v1/responses", R"({"input":"hi"})").find("timings"), nullptr);
}

TEST(Extras, EchoesThePrompt) {
  ServerFixture fixture(kScript, {});
  const Json whole = ask(fixture, "/v1/completions", R"({"prompt":"raw ","echo":true})");
  EXPECT_EQ(choice_of(whole).string("text"), "raw one two three");
  const net::HttpResponse streamed =
      fixture.post("/v1/completions", R"({"prompt":"raw ","echo":true,"stream":true})");
  std::string text;
  for (const std::string& event : events_of(streamed.body)) {
    if (event != "[DONE]") text += choice_of(parsed(event)).string("text").value_or("");
  }
  EXPECT_EQ(text, "raw one two three");
  // A stop string is looked for in what the model writes.
  const Json stopped =
      ask(fixture, "/v1/completions", R"({"prompt":"raw two ","echo":true,"stop":"two"})");
  EXPECT_EQ(choice_of(stopped).string("text"), "raw two one ");
}

TEST(Extras, NoTokensMeansThePromptAlone) {
  ServerFixture fixture(kScript, {});
  for (const char* more : {"", R"(,"echo":true)", R"(,"n":2)"}) {
    const Json whole = ask(fixture, "/v1/completions",
                           std::string(R"({"prompt":["raw","more"],"max_tokens":0)") + more + "}");
    const bool echo = std::string_view(more).find("echo") != std::string_view::npos;
    EXPECT_EQ(choice_of(whole).string("text"), echo ? "raw" : "");
    EXPECT_EQ(choice_of(whole).string("finish_reason"), "length");
    EXPECT_EQ(whole.find("usage")->integer("completion_tokens"), 0);
    EXPECT_EQ(whole.find("usage")->integer("prompt_tokens"), 7);
    EXPECT_EQ(whole.find("choices")->as_array().size(),
              std::string_view(more).find("\"n\"") != std::string_view::npos ? 4u : 2u);
  }
  const net::HttpResponse streamed = fixture.post(
      "/v1/completions", R"({"prompt":"raw","max_tokens":0,"echo":true,"stream":true})");
  const std::vector<std::string> events = events_of(streamed.body);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(choice_of(parsed(events[0])).string("text"), "raw");
  EXPECT_EQ(events[1], "[DONE]");
  EXPECT_EQ(fixture.engine().stats().steps.count, 0);
  const net::HttpResponse long_prompt = fixture.post(
      "/v1/completions", "{\"max_tokens\":0,\"prompt\":\"" + std::string(5000, 'x') + "\"}");
  EXPECT_EQ(long_prompt.status, 400);
}

TEST(Extras, RepetitionEndsAnAnswer) {
  ServerFixture fixture(kScript, {});
  const char* rule = R"(,"repetition_detection":{"max_pattern_size":4,"min_count":6})";
  const Json whole = ask(fixture, "/v1/chat/completions", chat("repeat", rule));
  EXPECT_EQ(choice_of(whole).string("finish_reason"), "repetition");
  EXPECT_EQ(choice_of(whole).find("message")->string("content"), "abababababab");
  const ChatText streamed = streamed_text(
      fixture.post("/v1/chat/completions", chat("repeat", std::string(rule) + R"(,"stream":true)"))
          .body);
  EXPECT_EQ(streamed.content, "abababababab");
  EXPECT_EQ(streamed.finish_reason, "repetition");
  // A pattern of one token is none here.
  const Json other =
      ask(fixture, "/v1/chat/completions",
          chat("repeat",
               R"(,"repetition_detection":{"max_pattern_size":1,"min_count":2},"max_tokens":50)"));
  EXPECT_EQ(choice_of(other).string("finish_reason"), "length");
  for (const char* bad : {R"({"max_pattern_size":4})", R"({"max_pattern_size":300,"min_count":3})",
                          R"({"max_pattern_size":2,"min_pattern_size":3,"min_count":3})",
                          R"({"max_pattern_size":2,"min_count":1})", "7"}) {
    EXPECT_EQ(fixture
                  .post("/v1/chat/completions",
                        chat("hi", std::string(",\"repetition_detection\":") + bad))
                  .status,
              400)
        << bad;
  }
}

using Calls = std::vector<std::pair<std::string, std::string>>;

TEST(Extras, OneCallAtMostIfAsked) {
  ServerFixture fixture(kScript, {});
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}])";
  for (const bool stream : {false, true}) {
    const std::string streamed = stream ? R"(,"stream":true)" : "";
    const auto calls = [&](const std::string& more) {
      const std::string body =
          fixture.post("/v1/chat/completions", chat("twice", tools + more + streamed)).body;
      return (stream ? streamed_text(body) : whole_text(body)).calls;
    };
    EXPECT_EQ(calls(""), (Calls{{"a", "{}"}, {"b", "{}"}}));
    EXPECT_EQ(calls(R"(,"parallel_tool_calls":false)"), (Calls{{"a", "{}"}}));
  }
}

// Of the model's "twice", as a response and as a message, whole or streamed.
Calls response_calls(ServerFixture& fixture, const std::string& more, bool stream) {
  const std::string body =
      fixture
          .post("/v1/responses", R"({"input":"twice","tools":[{"type":"function","name":"a"},)"
                                 R"({"type":"function","name":"b"}])" +
                                     more + (stream ? R"(,"stream":true})" : "}"))
          .body;
  Calls calls;
  for (const ResponseText::Item& item :
       (stream ? text_of_stream(body) : text_of_response(parsed(body))).items) {
    if (item.type == "function_call") calls.emplace_back(item.name, item.text);
  }
  return calls;
}

Calls message_calls(ServerFixture& fixture, const std::string& choice) {
  const Json answer = parsed(
      fixture
          .post(
              "/v1/messages",
              R"({"model":"tiny","max_tokens":200,"messages":[{"role":"user","content":"twice"}],)"
              R"("tools":[{"name":"a","input_schema":{"type":"object"}},)"
              R"({"name":"b","input_schema":{"type":"object"}}],"tool_choice":)" +
                  choice + "}")
          .body);
  Calls calls;
  for (const Json& block : answer.find("content")->as_array()) {
    if (block.string("type") != "tool_use") continue;
    calls.emplace_back(block.string("name").value_or(""), block.find("input")->dump());
  }
  return calls;
}

TEST(Extras, OneCallAtMostInEveryProtocol) {
  ServerFixture fixture(kScript, {});
  const Calls both{{"a", "{}"}, {"b", "{}"}};
  for (const bool stream : {false, true}) {
    EXPECT_EQ(response_calls(fixture, "", stream), both);
    EXPECT_EQ(response_calls(fixture, R"(,"parallel_tool_calls":false)", stream),
              (Calls{{"a", "{}"}}));
  }
  EXPECT_EQ(message_calls(fixture, R"({"type":"auto"})"), both);
  EXPECT_EQ(message_calls(fixture, R"({"type":"auto","disable_parallel_tool_use":true})"),
            (Calls{{"a", "{}"}}));
}

// A model may call though it was reported no function; who asked for none hears text.
TEST(Extras, ToolChoiceNoneIsNoCall) {
  ServerFixture fixture(kScript, {});
  for (const bool stream : {false, true}) {
    const std::string body =
        fixture
            .post("/v1/chat/completions",
                  chat("twice", R"(,"tool_choice":"none","tools":[{"type":"function",)"
                                R"("function":{"name":"a"}}])" +
                                    std::string(stream ? R"(,"stream":true)" : "")))
            .body;
    const ChatText text = stream ? streamed_text(body) : whole_text(body);
    EXPECT_EQ(text.calls, Calls());
    EXPECT_EQ(text.content, "{}\n\n{}");
    EXPECT_EQ(text.finish_reason, "stop");
    EXPECT_EQ(response_calls(fixture, R"(,"tool_choice":"none")", stream), Calls());
  }
  EXPECT_EQ(message_calls(fixture, R"({"type":"none"})"), Calls());
}

TEST(Extras, StopStringsWaitForTheLeastTokens) {
  ServerFixture fixture(kScript, {});
  const auto text_for = [&](const std::string& more) {
    return choice_of(ask(fixture, "/v1/completions", R"({"prompt":"raw")" + more + "}"))
        .string("text")
        .value_or("");
  };
  EXPECT_EQ(text_for(R"(,"stop":"e")"), "on");
  EXPECT_EQ(text_for(R"(,"stop":"e","min_tokens":3)"), "one two thr");
  const auto content_for = [&](const std::string& more) {
    return whole_text(fixture.post("/v1/chat/completions", chat("hi", more)).body).content;
  };
  EXPECT_EQ(content_for(R"(,"stop":"e")"), "H");
  const std::string late = content_for(R"(,"stop":"e","min_tokens":30)");
  EXPECT_GT(late.size(), 1u);
  const Json response =
      parsed(fixture.post("/v1/responses", R"({"input":"hi","stop":"e","min_tokens":30})").body);
  std::string told;
  for (const ResponseText::Item& item : text_of_response(response).items) {
    if (item.type == "message") told += item.text;
  }
  EXPECT_EQ(told, late);
}

TEST(Extras, ReasoningKeepsToItsBudget) {
  ServerFixture fixture(kScript, {});
  for (const int budget : {1, 2, 5, 40}) {
    for (const bool stream : {false, true}) {
      const std::string body =
          fixture
              .post("/v1/chat/completions",
                    chat("ponder",
                         ",\"max_tokens\":200,\"thinking_token_budget\":" + std::to_string(budget) +
                             (stream ? R"(,"stream":true)" : "")))
              .body;
      const ChatText text = stream ? streamed_text(body) : whole_text(body);
      if (!stream) {
        EXPECT_EQ(text.reasoning_tokens, budget);
      }
      EXPECT_FALSE(text.content.empty()) << "it goes on with the answer";
      EXPECT_EQ(text.content.find("<|"), std::string::npos);
    }
  }
  // With functions to call it has its choice once; this one goes on in the same breath.
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"a"}}])";
  const ChatText text = whole_text(
      fixture
          .post("/v1/chat/completions",
                chat("ponder", tools + R"(,"max_tokens":200,"thinking_token_budget":10)"))
          .body);
  EXPECT_EQ(text.reasoning_tokens, 10);
  // Nothing at all: one token at most is on its way when the engine sees it begin.
  const ChatText none =
      whole_text(fixture
                     .post("/v1/chat/completions",
                           chat("ponder", R"(,"max_tokens":100,"thinking_token_budget":0)"))
                     .body);
  EXPECT_LE(none.reasoning_tokens, 1);
  EXPECT_FALSE(none.content.empty());
  for (const char* bad : {"-1", "1.5", "\"many\""}) {
    EXPECT_EQ(fixture
                  .post("/v1/chat/completions",
                        chat("hi", std::string(",\"thinking_token_budget\":") + bad))
                  .status,
              400);
  }
}

TEST(Extras, ReasoningEndsWhenSomebodySaysSo) {
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::nullopt;
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  const auto control = [&](const char* id) {
    return fixture
        .post("/v1/chat/completions/control",
              std::string(R"({"action":"reasoning_end","id":")") + id + "\"}")
        .status;
  };
  EXPECT_EQ(control("chatcmpl-live"), 404);
  std::string body;
  std::thread client([&] {
    body = fixture
               .post("/v1/chat/completions",
                     chat("ponder", R"(,"request_id":"live","stream":true,"max_tokens":500)"))
               .body;
  });
  for (int i = 0; i < 500 && control("chatcmpl-live") != 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  client.join();
  const ChatText text = streamed_text(body);
  EXPECT_LT(text.reasoning.size(), 400u);  // of 500 tokens, a byte each
  EXPECT_FALSE(text.content.empty());
  EXPECT_EQ(control("chatcmpl-live"), 404);  // it is over
  for (const char* bad : {"", "[]", "{}", R"({"id":"x"})", R"({"id":7,"action":"reasoning_end"})",
                          R"({"id":"x","action":"jump"})"}) {
    EXPECT_EQ(fixture.post("/v1/chat/completions/control", bad).status, 400) << bad;
  }
}

}  // namespace
}  // namespace pelton::server
