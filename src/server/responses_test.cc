// /v1/responses over HTTP: whole and streamed, tools, and what is refused.
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "server/response_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello world, END of it.<|return|>"},
  {"when": "weather", "then": "<|channel|>analysis<|message|>Call.<|end|><|start|>assistant<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Bern\"}<|call|>"},
  {"when": "both places", "then": "<|channel|>analysis<|message|>Call both.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Bern\"}<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Chur\"}<|call|>"},
  {"when": "sunny", "then": "<|channel|>final<|message|>It is sunny \ud83d\udc96.<|return|>"},
  {"when": "control", "then": "<|start|><|message|><|channel|><|call|>"},
  {"when": "in another name", "then": "<|channel|>final<|message|><|end|><|start|>functions.f to=assistant<|channel|>commentary<|message|>42<|return|>"},
  {"when": "endless", "then": ["<|channel|>analysis<|message|>", {"text": "on and on ", "times": 2000}]},
  {"when": "no header", "then": "<|start|><|channel|><|channel|>nonsense to=functions.x y z<|message|>{\"a\":<|call|>"},
  {"when": "long call", "then": ["<|channel|>commentary to=functions.nope <|constrain|>toml<|message|>{\"deep\":", {"text": "[[[[", "times": 500}]},
  {"when": "assistant to=functions", "then": ".second<|channel|>commentary json<|message|>{}<|call|>"},
  {"when": "functions.first<|channel|>commentary <|constrain|>json<|message|>", "then": "{\"a\":1}<|call|>"}
]})";

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","name":"get_weather","strict":true,"parameters":{"type":"object",)"
    R"("properties":{"city":{"type":"string"}}}},{"type":"web_search"}])";

std::string body_of(std::string_view input, std::string_view extra) {
  return R"({"input":)" + std::string(input) + (extra.empty() ? "" : ",") + std::string(extra) +
         "}";
}

std::string quoted(std::string_view words) {
  return "\"" + std::string(words) + "\"";
}

// The same request, whole and streamed; both must say the same.
ResponseText ask(ServerFixture& fixture, const std::string& input, const std::string& extra) {
  const net::HttpResponse whole = fixture.post("/v1/responses", body_of(input, extra));
  EXPECT_EQ(whole.status, 200) << whole.body;
  const std::string comma = extra.empty() ? "" : ",";
  const net::HttpResponse streamed =
      fixture.post("/v1/responses", body_of(input, extra + comma + R"("stream":true)"));
  EXPECT_EQ(streamed.status, 200) << streamed.body;
  EXPECT_TRUE(streamed.headers.get("Content-Type").starts_with("text/event-stream"));
  ResponseText text = text_of_response(parsed(whole.body));
  EXPECT_EQ(text_of_stream(streamed.body), text) << streamed.body;
  EXPECT_EQ(whole.body.find("<|"), std::string::npos);
  return text;
}

Json refusal(ServerFixture& fixture, const std::string& body, int status) {
  const net::HttpResponse response = fixture.post("/v1/responses", body);
  EXPECT_EQ(response.status, status) << body << response.body;
  const Json json = parsed(response.body);
  const Json* error = json.find("error");
  EXPECT_NE(error, nullptr);
  return error == nullptr ? Json() : *error;
}

TEST(Responses, AFollowUpFindsATurnOfTwoCalls) {
  ServerFixture fixture(kScript, {});
  const std::string tools = R"("tools":[{"type":"function","name":"get_weather"}])";
  const Json first = parsed(
      fixture.post("/v1/responses", body_of(quoted("the weather of both places"), tools)).body);
  std::string results;
  for (const Json& item : first.find("output")->as_array()) {
    if (item.string("type") != "function_call") continue;
    results += (results.empty() ? R"({"type":"function_call_output","call_id":")"
                                : R"(,{"type":"function_call_output","call_id":")") +
               *item.string("call_id") + R"(","output":"sunny"})";
  }
  const Json second =
      parsed(fixture
                 .post("/v1/responses", R"({"previous_response_id":")" + *first.string("id") +
                                            R"(","input":[)" + results + "]," + tools + "}")
                 .body);
  EXPECT_EQ(second.string("status"), "completed") << second.dump();
  const int block = fixture.engine().capacity().block_tokens;
  const int64_t known = *first.find("usage")->integer("total_tokens");
  EXPECT_GE(second.find("usage")->find("input_tokens_details")->integer("cached_tokens"),
            (known - 1) / block * block);
}

TEST(Responses, AnEmptyMessageDoesNotHideWhatWasSaidInAnothersName) {
  ServerFixture fixture(kScript, {});
  std::string told;
  for (const ResponseText::Item& item : ask(fixture, quoted("in another name"), "").items) {
    told += item.text;
  }
  EXPECT_EQ(told, "42");
}

TEST(Responses, WholeAndStreamed) {
  ServerFixture fixture(kScript, {});
  const ResponseText text = ask(fixture, quoted("hi"), "");
  ASSERT_EQ(text.items.size(), 2u);
  EXPECT_EQ(text.items[0], (ResponseText::Item{"reasoning", "completed", "Think.", ""}));
  EXPECT_EQ(text.items[1],
            (ResponseText::Item{"message", "completed", "Hello world, END of it.", ""}));
  EXPECT_EQ(text.status, "completed");
  EXPECT_EQ(text.reasoning_tokens, 6);
  EXPECT_GT(text.output_tokens, text.reasoning_tokens);
}

TEST(Responses, TheObjectHasWhatTheSdkTypes) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse answer = fixture.post(
      "/v1/responses",
      body_of(quoted("hi"), R"("instructions":"Be kind.","metadata":{"a":"b"},"temperature":0.5,)"
                            R"("user":"u","max_output_tokens":100,"reasoning":{"effort":"low"},)" +
                                std::string(kTools)));
  const Json json = parsed(answer.body);
  EXPECT_TRUE(json.string("id")->starts_with("resp_"));
  EXPECT_EQ(json.string("object"), "response");
  EXPECT_EQ(json.string("model"), "tiny");
  EXPECT_GT(json.integer("created_at"), 0);
  EXPECT_GE(json.integer("completed_at"), json.integer("created_at"));
  EXPECT_EQ(json.string("instructions"), "Be kind.");
  EXPECT_EQ(json.find("metadata")->dump(), R"({"a":"b"})");
  EXPECT_EQ(json.number("temperature"), 0.5);
  EXPECT_EQ(json.number("top_p"), 1.0);
  EXPECT_EQ(json.integer("max_output_tokens"), 100);
  EXPECT_EQ(json.find("reasoning")->dump(), R"({"effort":"low","summary":null})");
  EXPECT_EQ(json.find("tools")->as_array().size(), 2u);
  EXPECT_EQ(json.string("tool_choice"), "auto");
  EXPECT_EQ(json.boolean("parallel_tool_calls"), true);
  EXPECT_EQ(json.string("truncation"), "disabled");
  for (const char* key : {"error", "incomplete_details", "previous_response_id"}) {
    ASSERT_NE(json.find(key), nullptr) << key;
    EXPECT_TRUE(json.find(key)->is_null()) << key;
  }
  const Json& usage = *json.find("usage");
  EXPECT_EQ(usage.integer("total_tokens"),
            *usage.integer("input_tokens") + *usage.integer("output_tokens"));
  EXPECT_GE(usage.find("input_tokens_details")->integer("cached_tokens"), 0);
  EXPECT_TRUE(answer.headers.has("x-pelton-warning"));
}

TEST(Responses, ToolRoundTrip) {
  ServerFixture fixture(kScript, {});
  const ResponseText call = ask(fixture, quoted("weather?"), std::string(kTools));
  ASSERT_EQ(call.items.size(), 3u);
  EXPECT_EQ(call.items[1], (ResponseText::Item{"message", "completed", "Let me look.", ""}));
  EXPECT_EQ(call.items[2], (ResponseText::Item{"function_call", "completed", R"({"city":"Bern"})",
                                               "get_weather"}));
  EXPECT_EQ(call.status, "completed");

  // As an SDK sends it back: our own output items, then the result.
  const Json first =
      parsed(fixture.post("/v1/responses", body_of(quoted("weather?"), std::string(kTools))).body);
  Json::Array input;
  input.push_back(Json(Json::Object{{"role", Json("user")}, {"content", Json("weather?")}}));
  for (const Json& item : first.find("output")->as_array()) input.push_back(item);
  input.push_back(Json(Json::Object{{"type", Json("function_call_output")},
                                    {"call_id", Json(*input.back().string("call_id"))},
                                    {"output", Json("sunny")}}));
  const ResponseText answer = ask(fixture, Json(input).dump(), std::string(kTools));
  ASSERT_EQ(answer.items.size(), 1u);
  EXPECT_EQ(answer.items[0].text, "It is sunny \xF0\x9F\x92\x96.");
}

// A dialect has no channel for it: only the call behind it says what the text was.
TEST(Responses, WhatStandsBeforeACallIsCommentaryWithoutChannelsToo) {
  ServerFixture fixture(R"({"rules": [
    {"when": "", "then": "Fine.<|im_end|>"},
    {"when": "storm", "then": "Look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call><|im_end|>"}
  ]})",
                        {.tokenizer = chat::tiny_chatml_tokenizer});
  const auto phase = [&](std::string_view input) {
    const Json whole =
        parsed(fixture.post("/v1/responses", body_of(quoted(input), std::string(kTools))).body);
    return whole.find("output")->as_array().at(0).string("phase").value_or("none");
  };
  EXPECT_EQ(phase("storm?"), "commentary");
  EXPECT_EQ(phase("hi"), "final_answer");
  EXPECT_EQ(ask(fixture, quoted("storm?"), std::string(kTools)).items.size(), 2u);
  const std::string stream =
      fixture
          .post("/v1/responses",
                body_of(quoted("storm?"), std::string(kTools) + R"(,"stream":true)"))
          .body;
  EXPECT_EQ(stream.find("final_answer"), std::string::npos) << stream;  // nothing is taken back
  EXPECT_NE(stream.find("commentary"), std::string::npos);
}

TEST(Responses, AStatelessToolLoopFindsAllThatWasComputed) {
  ServerFixture fixture(kScript, {});
  const Json first =
      parsed(fixture.post("/v1/responses", body_of(quoted("weather?"), std::string(kTools))).body);
  Json::Array input;
  input.push_back(Json(Json::Object{{"role", Json("user")}, {"content", Json("weather?")}}));
  for (const Json& item : first.find("output")->as_array()) input.push_back(item);
  input.push_back(Json(Json::Object{{"type", Json("function_call_output")},
                                    {"call_id", Json(*input.back().string("call_id"))},
                                    {"output", Json("sunny")}}));
  const Json second =
      parsed(fixture.post("/v1/responses", body_of(Json(input).dump(), std::string(kTools))).body);
  const int64_t known = *first.find("usage")->integer("total_tokens");
  const int block = fixture.engine().capacity().block_tokens;
  EXPECT_GE(second.find("usage")->find("input_tokens_details")->integer("cached_tokens"),
            (known - 1) / block * block);
}

TEST(Responses, ToolChoiceMakesTheModelCall) {
  ServerFixture fixture(kScript, {});
  const std::string tools =
      R"("tools":[{"type":"function","name":"first","parameters":{}},)"
      R"({"type":"function","name":"second","parameters":null}],"tool_choice":)";
  const ResponseText named =
      ask(fixture, quoted("hi"), tools + R"({"type":"function","name":"first"})");
  ASSERT_EQ(named.items.size(), 1u);
  EXPECT_EQ(named.items[0],
            (ResponseText::Item{"function_call", "completed", R"({"a":1})", "first"}));
  const ResponseText any = ask(fixture, quoted("hi"), tools + R"("required")");
  ASSERT_EQ(any.items.size(), 1u);
  EXPECT_EQ(any.items[0].name, "second");
  const ResponseText allowed =
      ask(fixture, quoted("hi"),
          tools + R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function",)"
                  R"("name":"first"}]})");
  ASSERT_EQ(allowed.items.size(), 1u);
  EXPECT_EQ(allowed.items[0].name, "first");
}

TEST(Responses, LengthMakesItIncomplete) {
  ServerFixture fixture(kScript, {});
  const ResponseText text = ask(fixture, quoted("endless"), R"("max_output_tokens":30)");
  EXPECT_EQ(text.status, "incomplete");
  EXPECT_EQ(text.incomplete_reason, "max_output_tokens");
  ASSERT_EQ(text.items.size(), 1u);
  EXPECT_EQ(text.items[0].type, "reasoning");
  EXPECT_EQ(text.items[0].status, "incomplete");
  EXPECT_EQ(text.output_tokens, 30);
}

TEST(Responses, StopStringsCutMessages) {
  ServerFixture fixture(kScript, {});
  const ResponseText text = ask(fixture, quoted("hi"), R"("stop":["END","Think"])");
  ASSERT_EQ(text.items.size(), 2u);
  EXPECT_EQ(text.items[0].text, "Think.");
  EXPECT_EQ(text.items[1], (ResponseText::Item{"message", "completed", "Hello world, ", ""}));
  EXPECT_EQ(text.status, "completed");
  EXPECT_EQ(ask(fixture, quoted("hi"), R"("stop":"it.!")").items.at(1).text,
            "Hello world, END of it.");
}

TEST(Responses, LogprobsCoverTheMessage) {
  ServerFixture fixture(kScript, {});
  const ResponseText text = ask(fixture, quoted("sunny"),
                                R"("include":["message.output_text.logprobs"],"top_logprobs":2)");
  std::string spelled;
  const Json entries = parsed("[" + text.logprobs + "]");
  for (const Json& entry : entries.as_array()) {
    for (const Json& byte : entry.find("bytes")->as_array()) {
      spelled += static_cast<char>(byte.as_integer());
    }
    ASSERT_NE(entry.find("top_logprobs"), nullptr);
  }
  EXPECT_EQ(spelled, text.items.at(0).text);
}

TEST(Responses, SomethingIsAlwaysSeen) {
  ServerFixture fixture(kScript, {});
  const ResponseText text = ask(fixture, quoted("control"), "");
  EXPECT_FALSE(text.items.empty());
}

TEST(Responses, HM_08_ABrokenHeaderIsText) {
  ServerFixture fixture(kScript, {});
  const ResponseText text = ask(fixture, quoted("no header"), "");
  ASSERT_FALSE(text.items.empty());
  EXPECT_EQ(text.status, "completed");
}

// HM-09, HM-11, HM-16: cut off amid arguments that never close, for a function nobody offered.
TEST(Responses, HM_09_ACallCutOffIsIncomplete) {
  ServerFixture fixture(kScript, {});
  const ResponseText text =
      ask(fixture, quoted("long call"),
          R"("max_output_tokens":200,"tools":[{"type":"function","name":"f"}])");
  EXPECT_EQ(text.status, "incomplete");
  ASSERT_EQ(text.items.size(), 1u);
  EXPECT_EQ(text.items[0].type, "function_call");
  EXPECT_EQ(text.items[0].status, "incomplete");
  EXPECT_EQ(text.items[0].name, "nope");
  EXPECT_TRUE(text.items[0].text.starts_with(R"({"deep":[[[[)"));
}

TEST(Responses, HM_13_AStopStringThatLooksLikeAControlTokenIsText) {
  ServerFixture fixture(kScript, {});
  const ResponseText text = ask(fixture, quoted("hi"), R"("stop":["<|end|>","<|return|>"])");
  EXPECT_EQ(text.items.at(1).text, "Hello world, END of it.");
}

TEST(Responses, AP_RowsAreRefusedByName) {
  ServerFixture fixture(kScript, {});
  struct Case {
    std::string_view row;  // of the hardening catalogue
    std::string body;
    std::string_view param;
  };
  const std::string many_pairs = [] {
    std::string pairs;
    for (int i = 0; i < 17; ++i) {
      pairs += (i > 0 ? "," : "") + ("\"k" + std::to_string(i)) + R"(":"v")";
    }
    return pairs;
  }();
  const Case cases[] = {
      {"AP-01", "{}", "input"},
      {"AP-01", R"({"input":[]})", "input"},
      {"JB-12", R"({"input":7})", "input"},
      {"JB-12", R"({"input":["x"]})", "input[0]"},
      {"AP-01", R"({"input":[{"role":"root","content":"x"}]})", "input[0].role"},
      {"AP-01", R"({"input":[{"role":"user","content":null}]})", "input[0].content"},
      {"AP-31",
       R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"http://x"}]}]})",
       "input[0].content[0].type"},
      {"AP-31", R"({"input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]})",
       "input[0].content[0].type"},
      {"AP-01", R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0]"},
      {"AP-01", R"({"input":[{"type":"item_reference"}]})", "input[0].id"},
      {"AP-26", R"({"input":[{"type":"function_call_output","call_id":"x","output":"y"}]})",
       "input[0].call_id"},
      {"AP-26", R"({"input":[{"type":"function_call","name":"f","arguments":"{}"}]})",
       "input[0].call_id"},
      {"AP-01", R"({"input":[{"type":"reasoning","content":[{"type":"x","text":"y"}]}]})",
       "input[0].content[0].type"},
      {"JB-12", R"({"input":"x","stream":"yes"})", "stream"},
      {"-", R"({"input":"x","background":true,"store":false})", "background"},
      {"-", R"({"input":"x","background":"yes"})", "background"},
      {"-", R"({"input":"x","moderation":{"model":"m"}})", "moderation"},
      {"-", R"({"input":"x","conversation":"conv_1"})", "conversation"},
      {"-", R"({"input":"x","prompt":{"id":"p"}})", "prompt"},
      {"-", R"({"input":"x","truncation":"some"})", "truncation"},
      {"JS", R"({"input":"x","text":{"format":{"type":"json"}}})", "text.format.type"},
      {"-", R"({"input":"x","text":{"verbosity":"much"}})", "text.verbosity"},
      {"AP-07", R"({"input":"x","max_output_tokens":0})", "max_output_tokens"},
      {"AP-07", R"({"input":"x","max_output_tokens":"5"})", "max_output_tokens"},
      {"AP-11", R"({"input":"x","temperature":2.1})", "temperature"},
      {"AP-13", R"({"input":"x","top_p":0})", "top_p"},
      {"AP-16", R"({"input":"x","top_logprobs":21})", "top_logprobs"},
      {"AP-36", R"({"input":"x","reasoning":{"effort":"ultra"}})", "reasoning.effort"},
      {"AP-24", R"({"input":"x","tools":[{"type":"function","name":"a b"}]})", "tools[0].name"},
      {"AP-24",
       R"({"input":"x","tools":[{"type":"function","name":"a"},{"type":"function","name":"a"}]})",
       "tools[1].name"},
      {"AP-24", R"({"input":"x","tools":[{"type":"function","name":"a","parameters":[]}]})",
       "tools[0].parameters"},
      {"AP-25", R"({"input":"x","tool_choice":"required"})", "tool_choice"},
      {"AP-25", R"({"input":"x","tool_choice":{"type":"function","name":"a"}})",
       "tool_choice.name"},
      {"AP-25", R"({"input":"x","tool_choice":{"type":"web_search"}})", "tool_choice.type"},
      {"AP-27", R"({"input":"x","stream_options":{}})", "stream_options"},
      {"AP-28", R"({"input":"x","metadata":{)" + many_pairs + "}}", "metadata"},
      {"AP-08", R"({"input":"x","n":2})", "n"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.row);
    const Json error = refusal(fixture, one.body, 400);
    EXPECT_EQ(error.string("param"), one.param) << one.body << error.dump();
    EXPECT_EQ(error.string("type"), "invalid_request_error");
  }
  EXPECT_EQ(refusal(fixture, R"({"input":"x","model":"other"})", 404).string("code"),
            "model_not_found");
  EXPECT_EQ(refusal(fixture, R"({"input":"x","max_output_tokens":100000})", 400).string("code"),
            "context_length_exceeded");
}

TEST(Responses, AFailureAmidAStreamIsToldOnceAndEndsIt) {
  std::atomic<bool> failing{false};
  ServerFixture::Options options;
  options.executor = [&](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [&](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!failing) return std::nullopt;
      return Error{ErrorCode::kInternal, "test", ""};
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  std::string body;
  std::promise<void> done;
  fixture.client().start(
      fixture.call("POST", "/v1/responses", body_of(quoted("endless"), R"("stream":true)")),
      {.on_body =
           [&](std::string_view bytes) {
             body += bytes;
             failing = body.find("response.output_item.added") != std::string::npos;
           },
       .on_done = [&](const Result<void>&) { done.set_value(); }});
  done.get_future().get();
  const std::vector<std::string> events = events_of(body);
  ASSERT_GT(events.size(), 2u);
  const Json last = parsed(events.back());
  EXPECT_EQ(last.string("type"), "response.failed");
  EXPECT_EQ(last.find("response")->string("status"), "failed");
  EXPECT_EQ(last.find("response")->find("error")->string("code"), "server_error");
  // The item that was being said ends, and what was counted is said.
  const Json before = parsed(events[events.size() - 2]);
  EXPECT_EQ(before.string("type"), "response.output_item.done");
  EXPECT_EQ(before.find("item")->string("status"), "incomplete");
  const Json::Array& output = last.find("response")->find("output")->as_array();
  ASSERT_FALSE(output.empty());
  for (const Json& item : output) EXPECT_EQ(item.string("status"), "incomplete") << item.dump();
  const Json* usage = last.find("response")->find("usage");
  ASSERT_TRUE(usage != nullptr && usage->is_object());
  EXPECT_GT(usage->integer("input_tokens"), 0);
  EXPECT_GT(usage->integer("output_tokens"), 0);
}

}  // namespace
}  // namespace pelton::server
