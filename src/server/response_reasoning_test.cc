// Reasoning of /v1/responses as clients want it: as a summary, and encrypted, to be sent back by
// who keeps no state here (row B6).
#include <functional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/response_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Plain.<|return|>"},
  {"when": "weather", "then": "<|channel|>analysis<|message|>I must look it up, at some length.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Bern\"}<|call|>"},
  {"when": "sunny", "then": "<|channel|>final<|message|>Sun.<|return|>"}
]})";
constexpr std::string_view kThought = "I must look it up, at some length.";
constexpr std::string_view kTools = R"("tools":[{"type":"function","name":"get_weather"}])";

Json respond(ServerFixture& fixture, const std::string& members, const char* key = "") {
  net::HttpCall call = fixture.call("POST", "/v1/responses", "{" + members + "}");
  if (*key != '\0') call.headers.add("Authorization", std::string("Bearer ") + key);
  const net::HttpResponse response = fixture.fetch(std::move(call));
  EXPECT_EQ(response.status, 200) << response.body;
  return parsed(response.body);
}

std::string asking(std::string_view more) {
  return fmt::format(R"("input":"weather",{}{})", kTools, more);
}

TEST(ResponseReasoning, B6_a_summary_is_what_the_model_thought) {
  ServerFixture fixture(kScript, {});
  for (const char* member : {R"("summary":"auto")", R"("summary":"concise")",
                             R"("summary":"detailed")", R"("generate_summary":"auto")"}) {
    const Json body = respond(fixture, asking(fmt::format(R"(,"reasoning":{{{}}})", member)));
    const Json& item = body.find("output")->as_array().at(0);
    ASSERT_EQ(item.find("summary")->as_array().size(), 1u) << member;
    EXPECT_EQ(item.find("summary")->as_array()[0].string("type"), "summary_text");
    EXPECT_EQ(item.find("summary")->as_array()[0].string("text"), kThought);
    EXPECT_EQ(item.find("content")->as_array()[0].string("text"), kThought);
    EXPECT_TRUE(item.find("encrypted_content")->is_null());
  }
  const Json without = respond(fixture, asking(""));
  EXPECT_TRUE(without.find("output")->as_array()[0].find("summary")->as_array().empty());
  const net::HttpResponse bad =
      fixture.post("/v1/responses", R"({"input":"hi","reasoning":{"summary":"long"}})");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(parsed(bad.body).find("error")->string("param"), "reasoning.summary");
}

TEST(ResponseReasoning, B6_a_streamed_summary_has_its_events) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse response = fixture.post(
      "/v1/responses", "{" + asking(R"(,"reasoning":{"summary":"auto"},"stream":true)") + "}");
  const ResponseText text = text_of_stream(response.body);  // which checks their order
  ASSERT_EQ(text.items.size(), 2u);
  EXPECT_EQ(text.items[0].text, kThought);
  std::string told;
  for (const std::string& event : events_of(response.body)) {
    const Json json = parsed(event);
    if (json.string("type") == "response.reasoning_summary_text.delta") {
      told += json.string("delta").value_or("");
    }
  }
  EXPECT_EQ(told, kThought);
}

std::string encrypted_of(const Json& body) {
  return body.find("output")->as_array().at(0).string("encrypted_content").value_or("");
}

// The second request of a loop whose first answer `body` was: its reasoning item as `reasoning`.
std::string second_request(const Json& body, const std::string& reasoning) {
  const Json& call = body.find("output")->as_array().at(1);
  return fmt::format(R"("store":false,{},"input":[{{"role":"user","content":"weather"}},{},{},)"
                     R"({{"type":"function_call_output","call_id":"{}","output":"sunny"}}])",
                     kTools, reasoning, call.dump(), *call.string("call_id"));
}

constexpr const char* kStateless = R"(,"store":false,"include":["reasoning.encrypted_content"])";

TEST(ResponseReasoning, B6_encrypted_reasoning_comes_back_in_a_stateless_loop) {
  ServerFixture::Options keyed;
  keyed.server.reasoning_key = std::string(32, 'k');
  ServerFixture fixture(kScript, keyed);
  // One that does not know the turn by itself.
  keyed.server.sampled_turn_tokens_max = 0;
  ServerFixture forgetful(kScript, keyed);
  const Json first = respond(fixture, asking(kStateless));
  const std::string token = encrypted_of(first);
  ASSERT_FALSE(token.empty());
  EXPECT_EQ(token.find("look"), std::string::npos);
  const auto prompt_of = [&](const std::string& reasoning) {
    const net::HttpResponse response =
        forgetful.post("/v1/responses/input_tokens", "{" + second_request(first, reasoning) + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return *parsed(response.body).integer("input_tokens");
  };
  const auto item = [](std::string_view more) {
    return fmt::format(R"({{"type":"reasoning","id":"rs_1","summary":[]{}}})", more);
  };
  const int64_t plain = prompt_of(
      item(fmt::format(R"(,"content":[{{"type":"reasoning_text","text":"{}"}}])", kThought)));
  const int64_t none = prompt_of(item(""));
  const int64_t encrypted = prompt_of(item(fmt::format(R"(,"encrypted_content":"{}")", token)));
  EXPECT_GT(encrypted, none);
  EXPECT_EQ(encrypted, plain);
  // A summary alone, as some clients send it back.
  EXPECT_EQ(prompt_of(fmt::format(R"({{"type":"reasoning","id":"rs_1","summary":)"
                                  R"([{{"type":"summary_text","text":"{}"}}]}})",
                                  kThought)),
            plain);
  const Json second = respond(
      fixture, second_request(first, item(fmt::format(R"(,"encrypted_content":"{}")", token))));
  EXPECT_EQ(second.find("output")->as_array().back().find("content")->as_array()[0].string("text"),
            "Sun.");
  // What was computed for the model's own turn is found again.
  EXPECT_GE(*second.find("usage")->find("input_tokens_details")->integer("cached_tokens"),
            *first.find("usage")->integer("input_tokens"));
}

TEST(ResponseReasoning, B6_streamed_items_are_encrypted_too) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse response = fixture.post(
      "/v1/responses", "{" + asking(std::string(kStateless) + R"(,"stream":true)") + "}");
  bool done = false;
  for (const std::string& event : events_of(response.body)) {
    const Json json = parsed(event);
    if (json.string("type") != "response.output_item.done") continue;
    const Json& item = *json.find("item");
    if (item.string("type") != "reasoning") continue;
    done = true;
    EXPECT_TRUE(item.string("encrypted_content").value_or("").starts_with("pelton1."));
  }
  EXPECT_TRUE(done);
}

TEST(ResponseReasoning, B6_a_forged_token_is_refused_and_a_foreign_one_told_of) {
  ServerFixture::Options options;
  ASSERT_TRUE(options.server.keys.add_file("one one\ntwo two\n", "keys").ok());
  options.server.reasoning_key = std::string(32, 'k');
  ServerFixture fixture(kScript, std::move(options));
  const Json first = respond(fixture, asking(kStateless), "one");
  const std::string token = encrypted_of(first);
  const auto send = [&](ServerFixture& to, const std::string& with, const char* key) {
    net::HttpCall call =
        to.call("POST", "/v1/responses",
                "{" +
                    second_request(first, fmt::format(R"({{"type":"reasoning","summary":[],)"
                                                      R"("encrypted_content":"{}"}})",
                                                      with)) +
                    "}");
    call.headers.add("Authorization", std::string("Bearer ") + key);
    return to.fetch(std::move(call));
  };
  EXPECT_EQ(send(fixture, token, "one").status, 200);
  std::string changed = token;
  changed[changed.size() / 2] = changed[changed.size() / 2] == 'A' ? 'B' : 'A';
  for (const auto& [forged, key] : {std::pair(changed, "one"), std::pair(token, "two"),
                                    std::pair(token.substr(0, token.size() - 4), "one")}) {
    const net::HttpResponse response = send(fixture, forged, key);
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), "input[1].encrypted_content");
    EXPECT_EQ(parsed(response.body).find("error")->string("code"), "invalid_encrypted_content");
  }
  // The same key in another server, and another key.
  ServerFixture::Options same;
  same.server.reasoning_key = std::string(32, 'k');
  ASSERT_TRUE(same.server.keys.add_file("one one\n", "keys").ok());
  ServerFixture second(kScript, std::move(same));
  const net::HttpResponse read = send(second, token, "one");
  EXPECT_EQ(read.status, 200);
  EXPECT_FALSE(read.headers.has("x-pelton-warning"));
  ServerFixture stranger(kScript, {});
  for (const std::string& foreign : {token, std::string("gAAAAABo"), std::string("x\\u0000")}) {
    const net::HttpResponse response = send(stranger, foreign, "one");
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.headers.get("x-pelton-warning"),
              "input[1].encrypted_content ignored: encrypted with another key");
  }
}

TEST(ResponseReasoning, B6_the_echo_of_text_always_has_a_format) {
  ServerFixture fixture(kScript, {});
  const auto text = [&](const char* asked) {
    return respond(fixture, fmt::format(R"("input":"hi"{})", asked)).find("text")->dump();
  };
  EXPECT_EQ(text(""), R"({"format":{"type":"text"}})");
  EXPECT_EQ(text(R"(,"text":{})"), R"({"format":{"type":"text"}})");
  EXPECT_EQ(text(R"(,"text":{"verbosity":"low"})"),
            R"({"format":{"type":"text"},"verbosity":"low"})");
  EXPECT_EQ(text(R"(,"text":{"format":null,"verbosity":"high"})"),
            R"({"format":{"type":"text"},"verbosity":"high"})");
}

}  // namespace
}  // namespace pelton::server
