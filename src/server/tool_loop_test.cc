// A client that keeps no state but its messages: each request repeats the conversation, and what
// was computed for it before is found again, the model's own turns included.
#include <string>

#include <gtest/gtest.h>

#include "base/json_writer.h"
#include "server/chat_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

// Spacing that no renderer would write, and the recipient behind the channel as gpt-oss samples it.
constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Plain.<|return|>"},
  {"when": "weather", "then": "<|channel|>analysis<|message|>I must look, and think about it at some length before I do.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{  \"city\" :\t\"Bern\" ,\"days\":  [1,  2]}<|call|>"},
  {"when": "sunny", "then": "<|channel|>analysis<|message|>One more, for tomorrow.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather json<|message|>{ \"city\" : \"Thun\"}<|call|>"},
  {"when": "foggy", "then": "<|channel|>final<|message|>Sun, then fog.<|return|>"},
  {"when": "hello", "then": "<|channel|>final<|message|>A greeting without any thought behind it.<|return|>"}
]})";

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather"}}])";

struct Reply {
  ChatText text;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
};

Reply reply_of(const Json& usage, ChatText text) {
  return {
      .text = std::move(text),
      .prompt_tokens = usage.integer("prompt_tokens").value_or(-1),
      .cached_tokens = usage.find("prompt_tokens_details")->integer("cached_tokens").value_or(-1)};
}

struct Asking {
  bool streamed = false;
  std::string extra;  // ", ..."
  std::string key;
};

Reply ask(ServerFixture& fixture, const std::string& messages, const Asking& how) {
  std::string body = "{\"messages\":[" + messages + "]," + std::string(kTools) + how.extra;
  if (how.streamed) body += R"(,"stream":true,"stream_options":{"include_usage":true})";
  net::HttpCall call = fixture.call("POST", "/v1/chat/completions", body + "}");
  if (!how.key.empty()) call.headers.add("Authorization", "Bearer " + how.key);
  const net::HttpResponse response = fixture.fetch(std::move(call));
  EXPECT_EQ(response.status, 200) << response.body;
  if (!how.streamed) {
    return reply_of(*parsed(response.body).find("usage"), whole_text(response.body));
  }
  const std::vector<std::string> events = events_of(response.body);
  const Json last = parsed(events.at(events.size() - 2));
  return reply_of(*last.find("usage"), streamed_text(response.body));
}

const std::string kQuestion = R"({"role":"user","content":"weather?"})";

std::string called(const std::string& id, const std::string& arguments, const std::string& extra) {
  std::string quoted;
  base::append_json_string(quoted, arguments);
  return R"(,{"role":"assistant","content":null,)" + extra + R"("tool_calls":[{"id":")" + id +
         R"(","type":"function","function":{"name":"get_weather","arguments":)" + quoted + "}}]}";
}

std::string result(const std::string& id, const std::string& text) {
  return R"(,{"role":"tool","tool_call_id":")" + id + R"(","content":")" + text + "\"}";
}

// At most so many tokens of what was there before are computed again: the last sampled one never
// was, and a hit ends with a block.
constexpr int64_t kAgainMax = 17;

int64_t reused(const Reply& before, const Reply& after) {
  return after.cached_tokens - before.prompt_tokens;  // of the turn
}

TEST(ToolLoop, FindsWholeTurnsAgain) {
  for (const bool streamed : {false, true}) {
    ServerFixture fixture(kScript, {});
    const Asking how{.streamed = streamed, .extra = "", .key = ""};
    const Reply first = ask(fixture, kQuestion, how);
    EXPECT_EQ(first.cached_tokens, 0);
    ASSERT_EQ(first.text.calls.size(), 1u);

    // The arguments as they came, then as a client writes them anew; the reasoning left out.
    const std::string again =
        kQuestion + called("a", first.text.calls[0].second, "") + result("a", "sunny");
    const Reply second = ask(fixture, again, how);
    EXPECT_GE(reused(first, second), first.text.completion_tokens - kAgainMax);
    EXPECT_EQ(second.text.reasoning, "One more, for tomorrow.");

    const std::string third_messages =
        kQuestion + called("a", R"({"city":"Bern","days":[1,2]})", "") + result("a", "sunny") +
        called("b", R"({"city":"Thun"})", R"("reasoning_content":"One more, for tomorrow.",)") +
        result("b", "foggy");
    const Reply third = ask(fixture, third_messages, how);
    EXPECT_GE(reused(second, third), second.text.completion_tokens - kAgainMax);
    EXPECT_EQ(third.text.content, "Sun, then fog.");

    // Harmony drops the reasoning once there is an answer: from the first turn on it is another
    // prompt.
    const Reply next = ask(
        fixture,
        third_messages +
            R"(,{"role":"assistant","content":"Sun, then fog."},{"role":"user","content":"hello"})",
        how);
    EXPECT_LE(next.cached_tokens, first.prompt_tokens);
    EXPECT_LT(next.prompt_tokens, third.prompt_tokens + 200);
  }
}

TEST(ToolLoop, AnswersWithoutReasoningToo) {
  ServerFixture fixture(kScript, {});
  const std::string hello = R"({"role":"user","content":"hello"})";
  const Reply first = ask(fixture, hello, {});
  const Reply second = ask(fixture,
                           hello + R"(,{"role":"assistant","content":")" + first.text.content +
                               R"("},{"role":"user","content":"and?"})",
                           {});
  EXPECT_GE(reused(first, second), first.text.completion_tokens - kAgainMax);
}

TEST(ToolLoop, WhatTheClientChangedIsReadAnew) {
  ServerFixture fixture(kScript, {});
  const Reply first = ask(fixture, kQuestion, {});
  const std::string arguments = first.text.calls.at(0).second;
  const auto cached_with = [&](const std::string& turn) {
    return ask(fixture, kQuestion + turn + result("a", "sunny"), {}).cached_tokens;
  };
  EXPECT_LE(cached_with(called("a", R"({"city":"Biel"})", "")), first.prompt_tokens);
  EXPECT_LE(cached_with(called("a", arguments, R"("reasoning_content":"I know it.",)")),
            first.prompt_tokens);
  std::string said = called("a", arguments, "");
  said.replace(said.find("null"), 4, "\"Let me see.\"");
  EXPECT_LE(cached_with(said), first.prompt_tokens);
  EXPECT_GT(cached_with(called("a", arguments, "")), first.prompt_tokens);
}

TEST(ToolLoop, SaltsAndTenantsShareNothing) {
  ServerFixture::Options options;
  ASSERT_TRUE(options.server.keys.add_file("key-a ann\nkey-b bob\nkey-c ann", "keys").ok());
  ServerFixture fixture(kScript, std::move(options));
  const std::string salt = R"(,"cache_salt":"mine")";
  const Asking ann{.streamed = false, .extra = salt, .key = "key-a"};
  const Reply first = ask(fixture, kQuestion, ann);
  const std::string again =
      kQuestion + called("a", first.text.calls.at(0).second, "") + result("a", "sunny");
  const auto cached = [&](const Asking& how) { return ask(fixture, again, how).cached_tokens; };
  EXPECT_EQ(cached({.streamed = false, .extra = salt, .key = "key-b"}), 0);
  EXPECT_EQ(cached({.streamed = false, .extra = "", .key = "key-a"}), 0);
  EXPECT_EQ(cached({.streamed = true, .extra = R"(,"cache_salt":"mine2")", .key = "key-a"}), 0);
  EXPECT_GT(cached({.streamed = true, .extra = salt, .key = "key-c"}), first.prompt_tokens);
}

TEST(ToolLoop, NothingIsKeptWhereNothingMayBe) {
  ServerFixture::Options options;
  options.server.sampled_turn_tokens_max = 0;
  ServerFixture fixture(kScript, std::move(options));
  const Reply first = ask(fixture, kQuestion, {});
  const Reply second =
      ask(fixture,
          kQuestion + called("a", first.text.calls.at(0).second, "") + result("a", "sunny"), {});
  EXPECT_LE(second.cached_tokens, first.prompt_tokens);
}

}  // namespace
}  // namespace pelton::server
