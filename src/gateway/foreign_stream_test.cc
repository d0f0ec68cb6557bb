#include "gateway/foreign_stream.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

net::HttpRequest post(std::string path, std::string body) {
  return {.method = "POST",
          .path = std::move(path),
          .query = {},
          .headers = {},
          .body = std::move(body),
          .remote = {}};
}

std::optional<ForeignStream> chat(std::string more, WorkerKind kind = WorkerKind::kVllm) {
  return ForeignStream::of(
      post("/v1/chat/completions",
           R"({"stream":true,"messages":[{"role":"user","content":"Hi"}])" + more + "}"),
      kind, {.chat = true});
}

std::string content(const std::string& text, const std::string& id = "a") {
  return R"(data: {"id":")" + id +
         R"(","created":7,"model":"m","choices":[{"index":0,"delta":{"content":")" + text +
         "\"}}]}\n\n";
}

TEST(ForeignStream, AChatGoesOnBehindWhatWasSaid) {
  auto stream = chat(R"(,"max_tokens":10)");
  ASSERT_TRUE(stream);
  EXPECT_EQ(stream->pass(content("Once") + ": ping\n\n" + content(" upon")),
            content("Once") + ": ping\n\n" + content(" upon"))
      << "as it came";
  EXPECT_EQ(stream->need(), ForeignNeed::kChat);
  stream->go_on();
  const Json next = *Json::parse(stream->body());
  EXPECT_EQ(next.integer("max_tokens"), 8);
  EXPECT_EQ(next.boolean("continue_final_message"), true);
  EXPECT_EQ(next.find("messages")->as_array().back().string("content"), "Once upon");
  const std::string out = stream->pass(content(" a", "other"));
  EXPECT_EQ(out, content(" a")) << "under the first one's name";
  const std::string usage = stream->pass(
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,"
      "\"total_tokens\":15}}\n\n");
  EXPECT_NE(usage.find(R"("prompt_tokens":10,"completion_tokens":5,"total_tokens":15)"),
            std::string::npos)
      << usage;
}

TEST(ForeignStream, LlamaCppIsGivenTheMessageAlone) {
  auto stream = chat("", WorkerKind::kLlamaCpp);
  stream->pass(content("x"));
  EXPECT_EQ(stream->body().find("continue_final_message"), std::string::npos);
}

TEST(ForeignStream, TextGoesOnAsTextOrByItsTokens) {
  const net::HttpRequest request =
      post("/v1/completions", R"({"stream":true,"prompt":"One two","max_tokens":9})");
  auto text = ForeignStream::of(request, WorkerKind::kSglang, {.text = true});
  ASSERT_TRUE(text);
  EXPECT_EQ(text->body(), request.body);
  text->pass("data: {\"choices\":[{\"index\":0,\"text\":\" three\"}]}\n\n");
  EXPECT_EQ(text->need(), ForeignNeed::kText);
  EXPECT_EQ(Json::parse(text->body())->string("prompt"), "One two three");
  auto tokens = ForeignStream::of(request, WorkerKind::kVllm, {.text = true, .tokens = true});
  ASSERT_TRUE(tokens);
  EXPECT_EQ(Json::parse(tokens->body())->boolean("return_token_ids"), true);
  const std::string out = tokens->pass(
      "data: {\"choices\":[{\"index\":0,\"text\":\" three\",\"prompt_token_ids\":[1,2],"
      "\"token_ids\":[3,4]}]}\n\n");
  EXPECT_EQ(out, "data: {\"choices\":[{\"index\":0,\"text\":\" three\"}]}\n\n")
      << "its client did not ask for them";
  EXPECT_EQ(tokens->need(), ForeignNeed::kTokens);
  const Json next = *Json::parse(tokens->body());
  EXPECT_EQ(next.find("prompt")->as_array().size(), 4u);
  EXPECT_EQ(next.integer("max_tokens"), 7);
}

TEST(ForeignStream, WhatIsMoreThanTextDoesNotGoOn) {
  for (const char* const more :
       {R"(,"tools":[{}])", R"(,"n":2)", R"(,"response_format":{"type":"json_object"})",
        R"(,"logprobs":true)"}) {
    EXPECT_FALSE(chat(more)) << more;
  }
  EXPECT_TRUE(chat(R"(,"logprobs":false,"tools":null,"n":1)"));
  EXPECT_FALSE(ForeignStream::of(post("/v1/chat/completions", R"({"messages":[{}]})"),
                                 WorkerKind::kVllm, {.chat = true}))
      << "not streamed";
  EXPECT_FALSE(ForeignStream::of(post("/v1/completions", R"({"stream":true,"prompt":["a","b"]})"),
                                 WorkerKind::kVllm, {.text = true, .tokens = true}));
  for (const char* const event :
       {R"({"choices":[{"index":0,"delta":{"reasoning_content":"Hm"}}]})",
        R"({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]})",
        R"({"choices":[{"index":1,"delta":{"content":"x"}}]})", R"({"error":{}})", R"({"cho)"}) {
    auto stream = chat("");
    const std::string bytes = "data: " + std::string(event) + "\n\n";
    EXPECT_EQ(stream->pass(bytes), bytes);
    EXPECT_EQ(stream->need(), ForeignNeed::kNone) << event;
  }
}

TEST(ForeignStream, WhatHasEndedNeedsNobody) {
  auto stream = chat("");
  stream->pass("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n");
  EXPECT_TRUE(stream->is_complete());
  EXPECT_EQ(stream->need(), ForeignNeed::kNone);
  auto counted = chat(R"(,"stream_options":{"include_usage":true})");
  counted->pass("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n");
  EXPECT_FALSE(counted->is_complete()) << "its usage is still to come";
}

}  // namespace
}  // namespace pelton::gateway
