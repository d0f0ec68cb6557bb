#include "server/server.h"

#include <atomic>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "server/chat_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello world, END of it.<|return|>"},
  {"when": "weather", "then": "<|channel|>analysis<|message|>Call.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Bern\"}<|call|>"},
  {"when": "sunny", "then": "<|channel|>final<|message|>It is sunny \ud83d\udc96.<|return|>"},
  {"when": "control", "then": "<|start|><|message|><|channel|><|call|>"},
  {"when": "endless", "then": ["<|channel|>analysis<|message|>", {"text": "on and on ", "times": 2000}]},
  {"when": "raw prompt", "then": "text END more<|return|>"},
  {"when": "assistant to=functions", "then": ".second<|channel|>commentary json<|message|>{}<|call|>"},
  {"when": "functions.first<|channel|>commentary <|constrain|>json<|message|>", "then": "{\"a\":1}<|call|>"}
]})";

std::string chat(std::string_view words, std::string_view extra) {
  return R"({"messages":[{"role":"user","content":")" + std::string(words) + "\"}]" +
         (extra.empty() ? "" : ",") + std::string(extra) + "}";
}

// The same request, whole and streamed; both must say the same.
ChatText ask(ServerFixture& fixture, std::string_view words, const std::string& extra) {
  const std::string comma = extra.empty() ? "" : ",";
  const net::HttpResponse whole = fixture.post("/v1/chat/completions", chat(words, extra));
  EXPECT_EQ(whole.status, 200) << whole.body;
  const net::HttpResponse streamed = fixture.post(
      "/v1/chat/completions",
      chat(words, extra + comma + R"("stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(streamed.status, 200) << streamed.body;
  EXPECT_EQ(streamed.headers.get("X-Accel-Buffering"), "no");
  EXPECT_TRUE(streamed.headers.get("Content-Type").starts_with("text/event-stream"));
  const ChatText text = whole_text(whole.body);
  EXPECT_EQ(streamed_text(streamed.body), text) << streamed.body;
  EXPECT_EQ(whole.body.find("<|"), std::string::npos);
  return text;
}

std::string error_code(const net::HttpResponse& response) {
  const Json json = parsed(response.body);
  const Json* error = json.find("error");
  EXPECT_NE(error, nullptr) << response.body;
  return error == nullptr ? "" : error->string("code").value_or("null");
}

TEST(Server, ChatsWholeAndStreamed) {
  ServerFixture fixture(kScript, {});
  const ChatText text = ask(fixture, "hi", "");
  EXPECT_EQ(text.reasoning, "Think.");
  EXPECT_EQ(text.content, "Hello world, END of it.");
  EXPECT_EQ(text.finish_reason, "stop");
  EXPECT_TRUE(text.calls.empty());
  EXPECT_EQ(text.reasoning_tokens, 6);
  EXPECT_GT(text.completion_tokens, text.reasoning_tokens);
}

TEST(Server, NamesTheReasoningAsTold) {
  ServerFixture::Options options;
  options.model = [](ServedModel& model) { model.reasoning_field = "reasoning"; };
  ServerFixture fixture(kScript, std::move(options));
  const auto message = [&](std::string_view extra) {
    const Json json = parsed(fixture.post("/v1/chat/completions", chat("hi", extra)).body);
    return *json.find("choices")->as_array().at(0).find("message");
  };
  EXPECT_EQ(message("").string("reasoning"), "Think.");
  EXPECT_EQ(message("").find("reasoning_content"), nullptr);
  EXPECT_EQ(message(R"("include_reasoning":false)").find("reasoning"), nullptr);
}

// A client that wants no reasoning gets it where there is nothing else: an answer that cost tokens
// and shows none would look like a fault.
TEST(Server, HiddenReasoningIsBetterThanNothing) {
  constexpr std::string_view kThoughts = R"({"rules": [
    {"when": "", "then": ["<|channel|>analysis<|message|>", {"text": "hm ", "times": 50}]},
    {"when": "answer", "then": "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>"}]})";
  ServerFixture fixture(kThoughts, {});
  for (const char* more : {R"("include_reasoning":false,"max_tokens":9)",
                           R"("include_reasoning":false,"max_tokens":9,"stream":true)"}) {
    const bool streams = std::string_view(more).find("stream") != std::string_view::npos;
    const auto ask = [&](std::string_view words) {
      const std::string body = fixture.post("/v1/chat/completions", chat(words, more)).body;
      return streams ? streamed_text(body) : whole_text(body);
    };
    const ChatText cut_off = ask("go");
    EXPECT_EQ(cut_off.content, "");
    EXPECT_TRUE(cut_off.reasoning.starts_with("hm hm")) << cut_off.reasoning;
    EXPECT_EQ(cut_off.finish_reason, "length");
  }
  const std::string whole =
      fixture.post("/v1/chat/completions", chat("answer", R"("include_reasoning":false)")).body;
  EXPECT_EQ(whole_text(whole).content, "So.");
  EXPECT_EQ(whole_text(whole).reasoning, "");
}

TEST(Server, ToolRoundTrip) {
  ServerFixture fixture(kScript, {});
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",)"
      R"("properties":{"city":{"type":"string"}}}}},{"type":"web_search"}])";
  const ChatText call = ask(fixture, "weather?", tools);
  EXPECT_EQ(call.finish_reason, "tool_calls");
  ASSERT_EQ(call.calls.size(), 1u);
  EXPECT_EQ(call.calls[0].first, "get_weather");
  EXPECT_EQ(call.calls[0].second, R"({"city":"Bern"})");
  EXPECT_EQ(call.content, "");

  const net::HttpResponse answer = fixture.post("/v1/chat/completions", R"({"messages":[
    {"role":"user","content":"weather?"},
    {"role":"assistant","content":null,"reasoning_content":"Call.","tool_calls":[{"id":"call_1",
      "type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Bern\"}"}}]},
    {"role":"tool","tool_call_id":"call_1","content":"sunny"}],)" + tools + "}");
  EXPECT_EQ(whole_text(answer.body).content, "It is sunny \xF0\x9F\x92\x96.");
  EXPECT_TRUE(answer.headers.has("x-pelton-warning"));
}

TEST(Server, ToolChoiceMakesTheModelCall) {
  ServerFixture fixture(kScript, {});
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"first"}},)"
                            R"({"type":"function","function":{"name":"second"}}],"tool_choice":)";
  const ChatText named =
      ask(fixture, "hi", tools + R"({"type":"function","function":{"name":"first"}})");
  ASSERT_EQ(named.calls.size(), 1u);
  EXPECT_EQ(named.calls[0], std::pair(std::string("first"), std::string(R"({"a":1})")));
  EXPECT_EQ(named.finish_reason, "tool_calls");

  const ChatText any = ask(fixture, "hi", tools + R"("required")");
  ASSERT_EQ(any.calls.size(), 1u);
  EXPECT_EQ(any.calls[0], std::pair(std::string("second"), std::string("{}")));
}

TEST(Server, StopStringsCutTheContentOnly) {
  ServerFixture fixture(kScript, {});
  const ChatText cut = ask(fixture, "hi", R"("stop":["END","Think"])");
  EXPECT_EQ(cut.content, "Hello world, ");
  EXPECT_EQ(cut.reasoning, "Think.");
  EXPECT_EQ(cut.finish_reason, "stop");
  EXPECT_EQ(ask(fixture, "hi", R"("stop":"END","include_stop_str_in_output":true)").content,
            "Hello world, END");
  // What only looked like a stop comes out at the end.
  EXPECT_EQ(ask(fixture, "hi", R"("stop":"it.!")").content, "Hello world, END of it.");
}

TEST(Server, LengthEndsIt) {
  ServerFixture fixture(kScript, {});
  const ChatText text = ask(fixture, "hi", R"("max_tokens":5)");
  EXPECT_EQ(text.finish_reason, "length");
  EXPECT_EQ(text.content, "");
  EXPECT_EQ(text.completion_tokens, 5);
}

TEST(Server, LogprobsCoverTheContent) {
  ServerFixture fixture(kScript, {});
  const ChatText text = ask(fixture, "sunny", R"("logprobs":true,"top_logprobs":2)");
  std::string spelled;
  std::string list = "[";
  list += text.logprobs;
  list += ']';
  const Json entries = parsed(list);
  for (const Json& entry : entries.as_array()) {
    for (const Json& byte : entry.find("bytes")->as_array()) {
      spelled += static_cast<char>(byte.as_integer());
    }
  }
  EXPECT_EQ(spelled, text.content);
  EXPECT_EQ(ask(fixture, "hi", R"("logprobs":false)").logprobs, "");
  // No entries for what the stop string cut off.
  const ChatText cut = ask(fixture, "hi", R"("logprobs":true,"stop":"wor")");
  EXPECT_EQ(cut.content, "Hello ");
  EXPECT_EQ(cut.logprobs.find("END"), std::string::npos);
}

TEST(Server, NothingTheModelWritesIsAnError) {
  ServerFixture fixture(kScript, {});
  const ChatText text = ask(fixture, "control", "");
  EXPECT_GT(text.completion_tokens, 0);
  ask(fixture, "hi", R"("ignore_eos":true,"max_tokens":100)");
}

// A request's own word stands above the model's, and that above OpenAI's.
TEST(Server, SamplesAsTheModelSaysWhereTheRequestDoesNot) {
  std::vector<request::SamplingParams> seen;
  ServerFixture::Options options;
  options.model = [](ServedModel& model) {
    model.sampling = {
        .temperature = 0.6, .top_p = 0.9, .top_k = 20, .min_p = 0.05, .repetition_penalty = 1.1};
  };
  options.executor = [&](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [&](const engine::StepPlan& plan) -> std::optional<Error> {
      for (const engine::Arrival& arrival : plan.arrivals) seen.push_back(arrival.sampling);
      return std::nullopt;
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  fixture.post("/v1/chat/completions", chat("hi", ""));
  fixture.post(
      "/v1/chat/completions",
      chat("hi", R"("temperature":0,"top_p":1,"top_k":0,"min_p":0,"repetition_penalty":1)"));
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_FLOAT_EQ(seen[0].temperature, 0.6f);
  EXPECT_FLOAT_EQ(seen[0].top_p, 0.9f);
  EXPECT_EQ(seen[0].top_k, 20);
  EXPECT_FLOAT_EQ(seen[0].min_p, 0.05f);
  EXPECT_FLOAT_EQ(seen[0].repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(seen[1].temperature, 0.0f);
  EXPECT_FLOAT_EQ(seen[1].top_p, 1.0f);
  EXPECT_EQ(seen[1].top_k, 0);
  EXPECT_FLOAT_EQ(seen[1].min_p, 0.0f);
  EXPECT_FLOAT_EQ(seen[1].repetition_penalty, 1.0f);
}

TEST(Server, SeveralAnswersToOnePrompt) {
  ServerFixture fixture(kScript, {});
  const ChatText one = ask(fixture, "hi", "");
  const net::HttpResponse whole = fixture.post("/v1/chat/completions", chat("hi", R"("n":3)"));
  const net::HttpResponse streamed =
      fixture.post("/v1/chat/completions",
                   chat("hi", R"("n":3,"stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(parsed(whole.body).find("choices")->as_array().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    ChatText text = whole_text(whole.body, i);
    EXPECT_EQ(streamed_text(streamed.body, i), text);
    EXPECT_EQ(text.completion_tokens, 3 * one.completion_tokens);
    EXPECT_EQ(text.content, one.content);
    EXPECT_EQ(text.finish_reason, "stop");
  }
  const auto prompt_tokens = [](const net::HttpResponse& response) {
    return parsed(response.body).find("usage")->integer("prompt_tokens");
  };
  EXPECT_EQ(prompt_tokens(whole),
            prompt_tokens(fixture.post("/v1/chat/completions", chat("hi", ""))));

  const net::HttpResponse plain =
      fixture.post("/v1/completions", R"({"prompt":["raw prompt","hi"],"n":2,"max_tokens":100})");
  const Json::Array choices = parsed(plain.body).find("choices")->as_array();
  ASSERT_EQ(choices.size(), 4u);
  EXPECT_EQ(choices[0].string("text"), "text END more");
  EXPECT_EQ(choices[1].string("text"), choices[0].string("text"));
  EXPECT_EQ(choices[3].string("text"), choices[2].string("text"));
  EXPECT_NE(choices[2].string("text"), choices[0].string("text"));
  EXPECT_EQ(prompt_tokens(plain), 12);  // each prompt once
  EXPECT_EQ(
      fixture.post("/v1/completions", R"({"prompt":["a","b","c","d","e","f","g","h","i"],"n":128})")
          .status,
      400);
}

TEST(Server, PlainCompletions) {
  ServerFixture fixture(kScript, {});
  const auto choices = [&](const std::string& body) {
    const net::HttpResponse response = fixture.post("/v1/completions", body);
    EXPECT_EQ(response.status, 200) << response.body;
    return *parsed(response.body).find("choices");
  };
  const Json one = choices(R"({"prompt":"raw prompt","max_tokens":100})");
  EXPECT_EQ(one.as_array().at(0).string("text"), "text END more");
  EXPECT_EQ(one.as_array().at(0).string("finish_reason"), "stop");
  const Json two = choices(R"({"prompt":["raw prompt","raw prompt"],"stop":"END","logprobs":1})");
  ASSERT_EQ(two.as_array().size(), 2u);
  EXPECT_EQ(two.as_array().at(1).string("text"), "text ");
  EXPECT_EQ(two.as_array().at(1).find("logprobs")->find("tokens")->as_array().size(), 5u);
  const Json cut = choices(R"({"prompt":"raw prompt","max_tokens":4})");
  EXPECT_EQ(cut.as_array().at(0).string("text"), "text");
  EXPECT_EQ(cut.as_array().at(0).string("finish_reason"), "length");

  const net::HttpResponse streamed = fixture.post(
      "/v1/completions",
      R"({"prompt":"raw prompt","max_tokens":100,"stream":true,"stream_options":{"include_usage":true}})");
  std::string text;
  const std::vector<std::string> events = events_of(streamed.body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    text += parsed(events[i]).find("choices")->as_array().at(0).string("text").value_or("");
  }
  EXPECT_EQ(text, "text END more");
  EXPECT_GT(parsed(events[events.size() - 2]).find("usage")->integer("completion_tokens"), 0);
}

// Load tests and meters count tokens while they come: reasoning, headers and stop tokens too.
TEST(Server, TellsTokensInEachChunk) {
  ServerFixture fixture(kScript, {});
  const std::string options =
      R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})";
  const std::vector<std::pair<std::string, std::string>> asked = {
      {"/v1/chat/completions", chat("hi", options.substr(0, options.size() - 1))},
      {"/v1/completions", R"({"prompt":"raw prompt","max_tokens":100,)" + options}};
  for (const auto& [path, body] : asked) {
    const std::vector<std::string> events = events_of(fixture.post(path, body).body);
    ASSERT_GE(events.size(), 4u) << path;
    const Json last = parsed(events[events.size() - 2]);
    int64_t before = 0;
    for (size_t i = 0; i + 2 < events.size(); ++i) {
      const Json chunk = parsed(events[i]);
      const Json* usage = chunk.find("usage");
      ASSERT_TRUE(usage != nullptr && usage->is_object()) << events[i];
      EXPECT_EQ(usage->integer("prompt_tokens"), last.find("usage")->integer("prompt_tokens"));
      const int64_t tokens = usage->integer("completion_tokens").value_or(0);
      EXPECT_GE(tokens, std::max<int64_t>(before, 1)) << events[i];
      before = tokens;
    }
    EXPECT_EQ(before, last.find("usage")->integer("completion_tokens")) << path;
  }
}

TEST(Server, ControlTokensInPromptsNeedLeave) {
  ServerFixture fixture(kScript, {});
  const std::string body = R"({"prompt":[72,200006]})";
  const net::HttpResponse refused = fixture.post("/v1/completions", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("--allow-control-tokens"), std::string::npos);

  ServerFixture::Options options;
  options.model = [](ServedModel& model) { model.control_tokens_in_prompts = true; };
  ServerFixture open(kScript, std::move(options));
  EXPECT_EQ(open.post("/v1/completions", body).status, 200);
}

TEST(Server, TokenizesAndBack) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse there =
      fixture.post("/tokenize", R"({"prompt":"Hi <|start|>!","return_token_strs":true})");
  ASSERT_EQ(there.status, 200) << there.body;
  const Json json = parsed(there.body);
  EXPECT_EQ(json.integer("max_model_len"), 4096);
  const Json::Array& tokens = json.find("tokens")->as_array();
  EXPECT_EQ(json.integer("count"), static_cast<int64_t>(tokens.size()));
  EXPECT_EQ(json.find("token_strs")->as_array().size(), tokens.size());
  for (const Json& token : tokens) EXPECT_LT(token.as_integer(), 200000) << "a control token";
  const net::HttpResponse back =
      fixture.post("/detokenize", "{\"tokens\":" + json.find("tokens")->dump() + "}");
  EXPECT_EQ(parsed(back.body).string("prompt"), "Hi <|start|>!");

  // Messages: as many tokens as the request would have.
  const net::HttpResponse chat_tokens = fixture.post("/tokenize", chat("hi", ""));
  const net::HttpResponse answer = fixture.post("/v1/chat/completions", chat("hi", ""));
  EXPECT_EQ(parsed(chat_tokens.body).integer("count"),
            parsed(answer.body).find("usage")->integer("prompt_tokens"));

  const auto refused = [&](const std::string& path, const std::string& body) {
    const net::HttpResponse response = fixture.post(path, body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 80);
    return parsed(response.body).find("error")->string("param").value_or("");
  };
  EXPECT_EQ(refused("/tokenize", "{}"), "prompt");
  EXPECT_EQ(refused("/tokenize", R"({"prompt":7})"), "prompt");
  EXPECT_EQ(refused("/tokenize", R"({"prompt":"a","messages":[]})"), "messages");
  EXPECT_EQ(refused("/tokenize", R"({"messages":[{"role":"x"}]})"), "messages[0].role");
  EXPECT_EQ(refused("/tokenize", "{\"prompt\":\"" + std::string((4 << 20) + 1, 'x') + "\"}"),
            "prompt");
  EXPECT_EQ(refused("/tokenize", "[]"), "");
  EXPECT_EQ(refused("/detokenize", "{}"), "tokens");
  EXPECT_EQ(refused("/detokenize", R"({"tokens":[1,-1]})"), "tokens[1]");
  EXPECT_EQ(refused("/detokenize", R"({"tokens":[1,9999999]})"), "tokens[1]");
  EXPECT_EQ(refused("/detokenize", R"({"tokens":"1"})"), "tokens");
  EXPECT_EQ(fixture.post("/detokenize", R"({"tokens":[],"model":"other"})").status, 404);
}

TEST(Server, ModelsAndSmallRoutes) {
  ServerFixture::Options options;
  options.server.version = "1.2.3";
  ServerFixture fixture(kScript, std::move(options));
  const Json list = parsed(fixture.get("/v1/models").body);
  ASSERT_EQ(list.find("data")->as_array().size(), 2u);
  EXPECT_EQ(list.find("data")->as_array().at(0).string("id"), "tiny");
  EXPECT_EQ(parsed(fixture.get("/v1/models/tiny").body).string("id"), "tiny");
  EXPECT_EQ(parsed(fixture.get("/v1/models/org/alias").body).string("root"), "tiny");
  EXPECT_EQ(fixture.get("/v1/models/other").status, 404);
  EXPECT_EQ(fixture.get("/health").status, 200);
  EXPECT_EQ(fixture.get("/health/live").status, 200);
  EXPECT_EQ(fixture.get("/health/ready").status, 200);
  EXPECT_EQ(fixture.get("/ready").status, 200);
  EXPECT_EQ(fixture.post("/ping", "").status, 200);
  EXPECT_EQ(fixture.fetch(fixture.call("PUT", "/ping", "")).headers.get("Allow"),
            "GET, HEAD, POST");
  EXPECT_EQ(parsed(fixture.get("/version").body).string("version"), "1.2.3");
  const std::string index = fixture.get("/").body;
  for (const char* listed : {"curl", "POST /v1/chat/completions\n", "POST /v1/messages\n",
                             "POST /v1/responses\n", "GET  /metrics\n", "POST /v2/rerank\n"}) {
    EXPECT_NE(index.find(listed), std::string::npos) << listed;  // C10
  }
  EXPECT_EQ(fixture.fetch(fixture.call("OPTIONS", "/v1/models", "")).status, 204);

  const net::HttpResponse unknown = fixture.get("/v1/decisions");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(error_code(unknown), "unknown_url");
  const net::HttpResponse wrong = fixture.get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.get("Allow"), "POST");
}

TEST(Server, RequestIdsComeBackOrAreMade) {
  ServerFixture fixture(kScript, {});
  net::HttpCall call = fixture.call("GET", "/health", "");
  call.headers.add("X-Request-Id", "mine-1");
  EXPECT_EQ(fixture.fetch(call).headers.get("x-request-id"), "mine-1");
  EXPECT_TRUE(fixture.get("/health").headers.get("x-request-id").starts_with("req_"));
  EXPECT_NE(fixture.get("/health").headers.get("x-request-id"),
            fixture.get("/health").headers.get("x-request-id"));
}

TEST(Server, RefusesBadRequestsAsOpenAiDoes) {
  ServerFixture fixture(kScript, {});
  const auto chat_status = [&](const std::string& body) {
    const net::HttpResponse response = fixture.post("/v1/chat/completions", body);
    if (response.status != 200) error_code(response);
    return response.status;
  };
  EXPECT_EQ(chat_status("{"), 400);
  EXPECT_EQ(chat_status(""), 400);
  EXPECT_EQ(chat_status(std::string(100'000, '[')), 400);
  std::string deep = "\"x\":";
  deep.append(50'000, '[').append(50'000, ']');
  EXPECT_EQ(chat_status(chat("hi", deep)), 400);
  EXPECT_EQ(chat_status(chat("hi", R"("temperature":3)")), 400);
  EXPECT_EQ(chat_status(chat("hi", R"("model":"other")")), 404);
  EXPECT_EQ(chat_status(chat("hi", R"("model":"org/alias")")), 200);

  const net::HttpResponse too_long =
      fixture.post("/v1/chat/completions", chat(std::string(10'000, 'x'), R"("max_tokens":5)"));
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(error_code(too_long), "context_length_exceeded");
  const net::HttpResponse too_many =
      fixture.post("/v1/completions", R"({"prompt":"abc","max_tokens":4094})");
  EXPECT_EQ(error_code(too_many), "context_length_exceeded");
  EXPECT_NE(too_many.body.find("4096"), std::string::npos);
  EXPECT_NE(too_many.body.find("4097"), std::string::npos);
}

TEST(Server, AsksForItsKey) {
  ServerFixture::Options options;
  options.server.keys.add("secret");
  ServerFixture fixture(kScript, std::move(options));
  const auto status = [&](const std::string& path, const std::string& authorization) {
    net::HttpCall call = fixture.call("GET", path, "");
    if (!authorization.empty()) call.headers.add("Authorization", authorization);
    return fixture.fetch(call).status;
  };
  EXPECT_EQ(status("/v1/models", ""), 401);
  EXPECT_EQ(status("/v1/models", "Bearer wrong!"), 401);
  EXPECT_EQ(status("/v1/models", "Bearer secre"), 401);
  EXPECT_EQ(status("/v1/models", "Bearer secrets"), 401);
  EXPECT_EQ(status("/v1/models", "Bearer "), 401);
  EXPECT_EQ(status("/v1/models", "Bearer secret"), 200);
  EXPECT_EQ(status("/unknown", ""), 401);
  EXPECT_EQ(status("/health", ""), 200);
  EXPECT_EQ(error_code(fixture.post("/v1/chat/completions", chat("hi", ""))), "invalid_api_key");
}

TEST(Server, SaysWhenItIsNotReady) {
  ServerFixture::Options options;
  options.loaded = false;
  ServerFixture fixture(kScript, std::move(options));
  EXPECT_EQ(fixture.get("/health").status, 503);
  EXPECT_EQ(fixture.get("/health/live").status, 200);
  const net::HttpResponse early = fixture.post("/v1/chat/completions", chat("hi", ""));
  EXPECT_EQ(early.status, 503);
  EXPECT_TRUE(early.headers.has("Retry-After"));
  fixture.load();
  EXPECT_EQ(fixture.get("/health").status, 200);
  fixture.server().drain();
  EXPECT_EQ(fixture.get("/health/ready").status, 503);
  EXPECT_EQ(fixture.get("/ready").status, 503);
  EXPECT_EQ(fixture.get("/ping").status, 503);
  EXPECT_EQ(fixture.get("/health").status, 200);  // it is well, and goes
  EXPECT_EQ(fixture.get("/health/live").status, 200);
  EXPECT_EQ(fixture.post("/v1/chat/completions", chat("hi", "")).status, 503);
}

template <typename Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// Steps that take a moment, so that something can happen meanwhile.
ServerFixture::Options slow_steps(engine::Engine::Options engine) {
  ServerFixture::Options options;
  options.engine = engine;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.capacity.sequences_max = 1;
    executor.fail_step = [](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return std::nullopt;
    };
  };
  return options;
}

TEST(Server, AClientThatLeavesFreesItsBlocks) {
  ServerFixture fixture(kScript, slow_steps({}));
  for (const bool stream : {true, false}) {
    std::atomic<bool> done{false};
    std::atomic<size_t> bytes{0};
    net::HttpCallEvents events;
    events.on_body = [&](std::string_view piece) { bytes += piece.size(); };
    events.on_done = [&](Result<void>) { done = true; };
    const auto id =
        fixture.client().start(fixture.call("POST", "/v1/chat/completions",
                                            chat("endless", stream ? R"("stream":true)" : "")),
                               std::move(events));
    ASSERT_TRUE(
        eventually([&] { return stream ? bytes > 0 : fixture.engine().stats().running == 1; }));
    EXPECT_GT(fixture.engine().stats().blocks_used[0], 0);
    fixture.client().cancel(id);
    ASSERT_TRUE(eventually([&] { return done.load(); }));
    ASSERT_TRUE(eventually([&] { return fixture.engine().stats().running == 0; }));
    EXPECT_TRUE(eventually([&] { return fixture.engine().stats().blocks_used[0] == 0; }));
  }
  EXPECT_EQ(fixture.post("/v1/chat/completions", chat("hi", "")).status, 200);
}

TEST(Server, TooManyAtOnceIs429) {
  ServerFixture fixture(kScript, slow_steps({.inbox_max = 1}));
  net::HttpClient others{{}};
  std::atomic<int> done{0};
  const auto start = [&] {
    net::HttpCallEvents events;
    events.on_done = [&](Result<void>) { ++done; };
    return others.start(fixture.call("POST", "/v1/chat/completions", chat("endless", "")),
                        std::move(events));
  };
  const auto running = start();
  ASSERT_TRUE(eventually([&] { return fixture.engine().stats().running == 1; }));
  const auto waiting = start();
  ASSERT_TRUE(eventually([&] { return fixture.engine().stats().waiting == 1; }));

  const net::HttpResponse refused = fixture.post("/v1/chat/completions", chat("hi", ""));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(error_code(refused), "overloaded");
  EXPECT_TRUE(refused.headers.has("Retry-After"));
  others.cancel(running);
  others.cancel(waiting);
  ASSERT_TRUE(eventually([&] { return done == 2; }));
}

// What a client no longer waits for is not computed: in the queue, amid an answer, amid a stream.
TEST(Server, DeadlinesEndRequests) {
  ServerFixture fixture(kScript, slow_steps({}));
  const auto post = [&](const std::string& path, const std::string& body, const char* timeout) {
    net::HttpCall call = fixture.call("POST", path, body);
    call.headers.add("X-Request-Timeout-Ms", timeout);
    return fixture.fetch(std::move(call));
  };
  const std::string path = "/v1/chat/completions";
  for (const char* wrong : {"0", "-5", "1.5", "soon", "", "86400001", "99999999999999999999"}) {
    const net::HttpResponse refused = post(path, chat("hi", ""), wrong);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_EQ(parsed(refused.body).find("error")->string("param"), "x-request-timeout-ms");
  }
  EXPECT_EQ(post(path, chat("hi", ""), "60000").status, 200);
  // Its other name; of two the sooner.
  const auto by_both = [&](const char* deadline) {
    net::HttpCall call = fixture.call("POST", path, chat("endless", ""));
    call.headers.add("x-request-deadline-ms", deadline);
    call.headers.add("x-request-timeout-ms", "60000");
    return fixture.fetch(std::move(call));
  };
  EXPECT_EQ(by_both("60").status, 408);
  EXPECT_EQ(parsed(by_both("soon").body).find("error")->string("param"), "x-request-deadline-ms");
  EXPECT_EQ(post(path, chat("endless", ""), "60").status, 408);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"endless","max_tokens":4000})", "60").status, 408);

  const net::HttpResponse cut = post(path, chat("endless", R"("stream":true)"), "200");
  ASSERT_EQ(cut.status, 200);
  const std::vector<std::string> events = events_of(cut.body);
  EXPECT_NE(parsed(events.back()).find("error"), nullptr);

  // One slot: while another has it, a deadline passes in the queue.
  std::atomic<bool> done{false};
  net::HttpCallEvents ends;
  ends.on_done = [&](Result<void>) { done = true; };
  const auto running =
      fixture.client().start(fixture.call("POST", path, chat("endless", "")), std::move(ends));
  ASSERT_TRUE(eventually([&] { return fixture.engine().stats().running == 1; }));
  const int64_t prompt_tokens = fixture.engine().stats().scheduler.prompt_tokens;
  net::HttpCall queued = fixture.call("POST", path, chat("hi", ""));
  queued.headers.add("x-request-timeout-ms", "60");
  const auto late = net::http_fetch(std::move(queued));
  EXPECT_EQ(late->status, 408);
  EXPECT_EQ(fixture.engine().stats().scheduler.prompt_tokens, prompt_tokens)
      << "no prefill was spent";
  fixture.client().cancel(running);
  EXPECT_TRUE(eventually([&] { return done && fixture.engine().ledger().clean(); }));
}

TEST(Server, AnEngineThatFailsIsAnswered) {
  std::atomic<bool> failing{true};
  ServerFixture::Options options;
  options.executor = [&](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [&](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!failing) return std::nullopt;
      return Error{ErrorCode::kInternal, "/secret/path broke", ""};
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  const net::HttpResponse whole = fixture.post("/v1/chat/completions", chat("hi", ""));
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.body.find("secret"), std::string::npos);
  EXPECT_EQ(fixture.post("/v1/chat/completions", chat("hi", R"("stream":true)")).status, 500);

  // Amid a stream: as soon as something of it has come.
  failing = false;
  std::string body;
  std::atomic<bool> done{false};
  net::HttpCallEvents seen;
  seen.on_body = [&](std::string_view piece) {
    body += piece;
    failing = true;
  };
  seen.on_done = [&](Result<void> result) {
    EXPECT_TRUE(result.ok());
    done = true;
  };
  fixture.client().start(
      fixture.call("POST", "/v1/chat/completions", chat("endless", R"("stream":true)")),
      std::move(seen));
  ASSERT_TRUE(eventually([&] { return done.load(); }));
  const std::vector<std::string> events = events_of(body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_NE(parsed(events.back()).find("error"), nullptr);

  failing = false;
  EXPECT_EQ(fixture.post("/v1/chat/completions", chat("hi", "")).status, 200);
}

TEST(Server, AnswersManyAtOnceEachItsOwn) {
  ServerFixture fixture(kScript, {});
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const auto response = net::http_fetch(fixture.call(
          "POST", "/v1/chat/completions", chat(i % 2 == 0 ? "hi" : "sunny", R"("stream":true)")));
      if (!response.ok()) return;
      const std::string content = streamed_text(response->body).content;
      if (content == (i % 2 == 0 ? "Hello world, END of it." : "It is sunny \xF0\x9F\x92\x96.")) {
        ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
}

}  // namespace
}  // namespace pelton::server
