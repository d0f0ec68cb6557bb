#include <string>

#include <gtest/gtest.h>

#include "api/chat_response.h"
#include "api/completion_response.h"
#include "api/error.h"
#include "api/model_list.h"

namespace pelton::api {
namespace {

Json parsed(const std::string& text) {
  Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? std::move(json).value() : Json();
}

TokenLogprobs scored(std::string bytes, float logprob) {
  TokenLogprobs token;
  token.token.bytes = std::move(bytes);
  token.token.logprob = logprob;
  return token;
}

TEST(Error, HasAllFourKeysAlways) {
  const Json json = parsed(error_body(bad_api_key()));
  const Json* error = json.find("error");
  ASSERT_NE(error, nullptr);
  ASSERT_EQ(error->as_object().size(), 4u);
  EXPECT_TRUE(error->find("param")->is_null());
  EXPECT_EQ(error->string("code"), "invalid_api_key");
  EXPECT_EQ(error->string("type"), "authentication_error");
}

TEST(Error, StatusFollowsTheCode) {
  const auto status = [](ErrorCode code) { return api_error({code, "words", "field"}).status; };
  EXPECT_EQ(status(ErrorCode::kInvalidArgument), 400);
  EXPECT_EQ(status(ErrorCode::kDoesNotFit), 400);
  EXPECT_EQ(status(ErrorCode::kNotFound), 404);
  EXPECT_EQ(status(ErrorCode::kDeadline), 408);
  EXPECT_EQ(status(ErrorCode::kOverloaded), 429);
  EXPECT_EQ(status(ErrorCode::kUnavailable), 503);
  EXPECT_EQ(status(ErrorCode::kInternal), 500);
  EXPECT_GT(api_error({ErrorCode::kOverloaded, "full", ""}).retry_after_s, 0);
  EXPECT_GT(api_error({ErrorCode::kUnavailable, "stopping", ""}).retry_after_s, 0);
}

TEST(Error, InternalWordsStayInTheLog) {
  const ApiError error = api_error({ErrorCode::kIo, "/home/someone/model.bin: no", ""});
  EXPECT_EQ(error_body(error).find("someone"), std::string::npos);
}

TEST(Error, ContextLengthNamesBothNumbers) {
  const ApiError error = context_length_exceeded(
      {.prompt_tokens = 100, .output_tokens = 50, .context_max = 128}, "messages");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_NE(error.message.find("128"), std::string::npos);
  EXPECT_NE(error.message.find("150"), std::string::npos);
}

ChatAnswerHead head() {
  return {.id = "chatcmpl-1", .created = 7, .model = "m\"x", .reasoning_field = "reasoning"};
}

TEST(ChatResponse, WholeAnswer) {
  ChatChoice answer;
  answer.reasoning = "think";
  answer.tool_calls.push_back({"call_1", "f", "{\"a\":1}"});
  answer.logprobs.emplace().push_back(scored("\xF0\x9F", -0.5f));
  answer.logprobs->back().top.push_back({"a", -1.0f});
  answer.finish_reason = "tool_calls";
  const Usage cost{
      .prompt_tokens = 3, .cached_tokens = 2, .completion_tokens = 5, .reasoning_tokens = 4};
  const Json json = parsed(chat_answer_body(head(), std::vector{answer, ChatChoice{}}, cost, {}));
  EXPECT_EQ(json.string("object"), "chat.completion");
  EXPECT_EQ(json.string("model"), "m\"x");
  ASSERT_EQ(json.find("choices")->as_array().size(), 2u);
  EXPECT_EQ(json.find("choices")->as_array().at(1).integer("index"), 1);
  const Json& choice = json.find("choices")->as_array().at(0);
  EXPECT_EQ(choice.string("finish_reason"), "tool_calls");
  const Json& message = *choice.find("message");
  EXPECT_TRUE(message.find("content")->is_null());
  EXPECT_EQ(message.string("reasoning"), "think");
  EXPECT_EQ(message.find("reasoning_content"), nullptr);
  const Json& call = message.find("tool_calls")->as_array().at(0);
  EXPECT_EQ(call.string("type"), "function");
  EXPECT_EQ(call.find("function")->string("arguments"), "{\"a\":1}");
  const Json& entry = choice.find("logprobs")->find("content")->as_array().at(0);
  EXPECT_EQ(entry.find("bytes")->dump(), "[240,159]");
  EXPECT_EQ(entry.string("token"), "\xEF\xBF\xBD");
  EXPECT_EQ(entry.find("top_logprobs")->as_array().size(), 1u);
  const Json& usage = *json.find("usage");
  EXPECT_EQ(usage.integer("total_tokens"), 8);
  EXPECT_EQ(usage.find("prompt_tokens_details")->integer("cached_tokens"), 2);
  EXPECT_EQ(usage.find("completion_tokens_details")->integer("reasoning_tokens"), 4);
}

// Most servers have one tier, and then there is nothing to add.
TEST(ChatResponse, UsageSaysTheTiersWhereThereAreFurtherOnes) {
  const auto details = [](const Usage& usage) {
    std::string text;
    base::JsonWriter writer(text);
    write_usage(writer, usage);
    return parsed(text).find("prompt_tokens_details")->dump();
  };
  EXPECT_EQ(details({.prompt_tokens = 9, .cached_tokens = 6}), R"({"cached_tokens":6})");
  EXPECT_EQ(details({.prompt_tokens = 9,
                     .cached_tokens = 6,
                     .cached_on_host_tokens = 2,
                     .cached_on_disk_tokens = 3}),
            R"({"cached_tokens":6,"cached_tokens_details":{"device":1,"host":2,"disk":3}})");
  EXPECT_EQ(
      details({.prompt_tokens = 9, .cached_tokens = 6, .cached_from_peer_tokens = 4}),
      R"({"cached_tokens":6,"cached_tokens_details":{"device":2,"host":0,"disk":0,"peer":4}})");
}

TEST(ChatResponse, Chunks) {
  const ChatChunks chunks(head(), true);
  const auto choice = [](const Json& json) { return json.find("choices")->as_array().at(0); };
  std::string out;
  chunks.delta({.role = true}, out);
  const Json first = parsed(out);
  EXPECT_EQ(first.string("object"), "chat.completion.chunk");
  EXPECT_TRUE(first.find("usage")->is_null());
  EXPECT_EQ(choice(first).find("delta")->dump(), R"({"role":"assistant","content":""})");
  EXPECT_TRUE(choice(first).find("finish_reason")->is_null());

  out.clear();
  const ChatToolCallDelta calls[] = {{.index = 0, .id = "call_1", .name = "f", .arguments = {}},
                                     {.index = 0, .id = {}, .name = {}, .arguments = "{\"\n"}};
  chunks.delta({.reasoning = "r", .content = "c", .tool_calls = calls}, out);
  EXPECT_EQ(choice(parsed(out)).find("delta")->dump(),
            R"({"reasoning":"r","content":"c","tool_calls":[{"index":0,"id":"call_1",)"
            R"("type":"function","function":{"name":"f","arguments":""}},)"
            R"({"index":0,"function":{"arguments":"{\"\n"}}]})");

  out.clear();
  chunks.finish(3, "stop", StopReason("x"), out);
  EXPECT_EQ(choice(parsed(out)).string("finish_reason"), "stop");
  EXPECT_EQ(choice(parsed(out)).integer("index"), 3);
  EXPECT_EQ(choice(parsed(out)).string("stop_reason"), "x");
  out.clear();
  const Usage usage{.prompt_tokens = 1};
  chunks.last(&usage, nullptr, out);
  EXPECT_TRUE(parsed(out).find("choices")->as_array().empty());
  EXPECT_EQ(parsed(out).find("usage")->integer("prompt_tokens"), 1);
}

TEST(CompletionResponse, WholeAndChunks) {
  CompletionChoice choice{.index = 1, .text = "ab", .logprobs = {}, .finish_reason = "length"};
  choice.logprobs.emplace().push_back(scored("a", -0.25f));
  choice.logprobs->back().top = {{"a", -0.25f}, {"a", -1.0f}};
  choice.logprobs->push_back(scored("b", -1e30f));
  choice.logprobs->back().text_offset = 1;
  const CompletionAnswerHead head{.id = "cmpl-1", .created = 1, .model = "m"};
  const Json json = parsed(completion_answer_body(head, {choice}, {}, nullptr));
  const Json& logprobs = *json.find("choices")->as_array().at(0).find("logprobs");
  EXPECT_EQ(logprobs.find("tokens")->dump(), R"(["a","b"])");
  EXPECT_EQ(logprobs.find("token_logprobs")->dump(), "[-0.25,-9999.0]");
  EXPECT_EQ(logprobs.find("top_logprobs")->dump(), R"([{"a":-0.25},{"b":-9999.0}])");
  EXPECT_EQ(logprobs.find("text_offset")->dump(), "[0,1]");

  std::string out;
  CompletionChunks(head, false).choice({.index = 0, .text = "x", .logprobs = {}}, out);
  EXPECT_EQ(parsed(out).find("usage"), nullptr);
  EXPECT_TRUE(parsed(out).find("choices")->as_array().at(0).find("finish_reason")->is_null());
}

TEST(ModelList, NamesTheRootOfAnAlias) {
  const ModelCard cards[] = {{.id = "alias", .root = "gpt", .created = 5, .context_max = 64}};
  const Json json = parsed(model_list_body(cards));
  EXPECT_EQ(json.string("object"), "list");
  const Json& model = json.find("data")->as_array().at(0);
  EXPECT_EQ(model.string("id"), "alias");
  EXPECT_EQ(model.string("root"), "gpt");
  EXPECT_EQ(model.integer("max_model_len"), 64);
  EXPECT_EQ(parsed(model_body(cards[0])).string("object"), "model");
}

}  // namespace
}  // namespace pelton::api
