// The worked examples of this room's comments, each as its comment has it: whoever changes an
// algorithm changes its example.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/chat_request.h"
#include "api/chat_response.h"
#include "api/embedding_response.h"
#include "api/field_table.h"
#include "api/json_object.h"
#include "api/messages_request.h"
#include "api/messages_response.h"
#include "api/response_events.h"
#include "api/response_item.h"
#include "api/unread_part.h"

namespace pelton::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr RequestLimits kLimits{.vocab_size = 1000};

Result<ChatRequest> chat(std::string_view members) {
  return parse_chat_request(
      fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],{}}})", members), kLimits);
}

Result<MessagesRequest> message(std::string_view members) {
  return parse_messages_request(fmt::format(R"({{"max_tokens":5,{}}})", members), kLimits,
                                MessagesUse::kGenerate);
}

// The messages of a user's turn behind a call of f, "c1".
std::vector<ChatMessage> turn(std::string_view blocks) {
  const Result<MessagesRequest> read = message(fmt::format(
      R"("messages":[{{"role":"user","content":"go"}},
          {{"role":"assistant","content":[{{"type":"tool_use","id":"c1","name":"f","input":{{}}}}]}},
          {{"role":"user","content":[{}]}}])",
      blocks));
  EXPECT_TRUE(read.ok()) << read.error().message;
  return {read->chat.messages.begin() + 2, read->chat.messages.end()};
}

TEST(JsonObject, TwiceExample) {
  const Result<Json> body = parse_object(R"({"messages":[{"role":"user","role":"system"}]})");
  ASSERT_FALSE(body.ok());
  EXPECT_EQ(body.error().field, "messages[0].role");
  std::string many = "{\"a0\":0";
  for (int i = 1; i < 100; ++i) many += fmt::format(",\"a{}\":0", i);
  EXPECT_TRUE(parse_object(many + "}").ok());
  EXPECT_EQ(parse_object(many + ",\"a7\":0}").error().field, "a7");
}

TEST(UnreadPart, WarningExample) {
  const std::vector<std::string> paths = {"messages[2].content[0]", "messages[4].content[1]"};
  EXPECT_EQ(replaced_warning(paths),
            "messages[2].content[0] and 1 more replaced by a placeholder: this model reads text "
            "only");
}

TEST(MessagesBlock, WordsExample) {
  const std::string result = R"({"type":"tool_result","tool_use_id":"c1","content":[)";
  const auto words = [&](std::string_view block) {
    return turn(result + std::string(block) + "]}")[0].content;
  };
  EXPECT_EQ(words(R"({"type":"document","title":"T","source":{"type":"text","data":"D"}})"),
            "T\n\nD");
  EXPECT_EQ(words(R"({"type":"document","title":"T","source":{"type":"base64","data":"D"}})"),
            "T\n\n[PDF omitted: this model reads text only]");
  EXPECT_EQ(words(R"({"type":"search_result","title":"T","source":"S",
                      "content":[{"type":"text","text":"B"}]})"),
            "T\nS\n\nB");
}

TEST(MessagesContent, TurnsExample) {
  const std::vector<ChatMessage> messages = turn(
      R"({"type":"text","text":"a"},{"type":"text","text":"b"},
         {"type":"tool_result","tool_use_id":"c1","content":"r"},{"type":"text","text":"c"})");
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0].content, "a\n\nb");
  EXPECT_EQ(messages[1].role, ChatRole::kTool);
  EXPECT_EQ(messages[1].content, "r");
  EXPECT_EQ(messages[2].content, "c");
}

TEST(MessagesTool, DeferredExample) {
  const Result<MessagesRequest> read = message(R"("messages":[{"role":"user","content":"go"},
      {"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[
          {"type":"tool_reference","tool_name":"h"}]}]}],
      "tools":[{"name":"f","input_schema":{}},
               {"name":"g","input_schema":{},"defer_loading":true},
               {"name":"h","input_schema":{},"defer_loading":true}])");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->chat.tools.size(), 2u);
  EXPECT_EQ(read->chat.tools[0].name, "f");
  EXPECT_EQ(read->chat.tools[1].name, "h");
}

TEST(Tool, AllowedExample) {
  const auto tool = [](const char* name) {
    return fmt::format(R"({{"type":"function","function":{{"name":"{}"}}}})", name);
  };
  const Result<ChatRequest> read = chat(fmt::format(
      R"("tools":[{},{},{}],"tool_choice":{{"type":"allowed_tools",
          "allowed_tools":{{"mode":"required","tools":[{}]}}}})",
      tool("f"), tool("g"), tool("h"), tool("f")));
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->tools.size(), 1u);
  EXPECT_EQ(read->tools[0].name, "f");
  ASSERT_TRUE(read->forced_call);
  EXPECT_EQ(read->forced_call->function_name, "f");
  EXPECT_THAT(read->declared_functions, ElementsAre("f", "g", "h"));
}

TEST(OutputFormat, FieldsExample) {
  const std::string schema =
      R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}})";
  const std::string regex = R"("structured_outputs":{"regex":"a+"})";
  const Result<ChatRequest> one = chat(schema);
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->generation.format->kind, OutputFormat::Kind::kJsonSchema);
  EXPECT_EQ(one->generation.format->field, "response_format.json_schema.schema");
  const Result<ChatRequest> other = chat(regex);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(other->generation.format->kind, OutputFormat::Kind::kRegex);
  EXPECT_EQ(other->generation.format->field, "structured_outputs.regex");
  const Result<ChatRequest> both = chat(schema + "," + regex);
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().field, "structured_outputs.regex");
  EXPECT_THAT(both.error().message, HasSubstr("'response_format.json_schema.schema'"));
}

TEST(DocumentedFields, UnreadExample) {
  const auto body = [](std::string_view more) {
    return parse_chat_request(
        fmt::format(R"({{"messages":[{{"role":"user","content":"x","colour":1}}],{}}})", more),
        kLimits);
  };
  const Result<ChatRequest> read = body("\"top_a\":0");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_THAT(read->warnings, ElementsAre("messages[0].colour ignored: an unknown field"));
  EXPECT_EQ(body("\"top_a\":0.5").error().field, "top_a");
}

TEST(Logprobs, RanksExample) {
  const auto written = [](TokenId id, int rank) {
    std::string text;
    base::JsonWriter writer(text);
    const PromptTokenLogprobs token{
        .token = {.id = id}, .rank = rank, .top = {{.id = 4}, {.id = 9}}};
    write_prompt_logprobs(writer, std::span(&token, 1));
    const Json json = Json::parse(text).value();
    std::string ranks;
    for (const Json::Member& member : json.as_array()[1].as_object()) {
      ranks += fmt::format("{}:{} ", member.key, member.value.integer("rank").value());
    }
    return ranks;
  };
  EXPECT_EQ(written(17, 3), "17:3 4:1 9:2 ");
  EXPECT_EQ(written(4, 1), "4:1 9:2 ");
}

TEST(MessagesResponse, InputExample) {
  const auto body = [](const char* input) {
    const MessageBlock block{
        .kind = MessageBlock::Kind::kToolUse, .text = input, .id = "t1", .name = "f"};
    return message_body({.id = "msg_1", .model = "m"}, std::span(&block, 1),
                        {.stop = {}, .usage = {}});
  };
  EXPECT_THAT(body("{\"a\":1}"), HasSubstr(R"("input":{"a":1})"));
  EXPECT_THAT(body(""), HasSubstr(R"("input":{})"));
  EXPECT_THAT(body("{\"a\":"), HasSubstr(R"("input":{"raw_input":"{\"a\":"})"));
}

TEST(ResponseEvents, OrderExample) {
  const auto types = [](OutputItem::Kind kind) {
    const OutputItem item{.kind = kind, .id = "i", .text = "Hi"};
    ResponseEvents events(ResponseEvents::Framing::kLines);
    std::string out;
    const ResponseEvents::Place place{item, 0};
    events.item_begins(place, out);
    events.text_grows(place, "Hi", {}, out);
    events.item_ends(place, out);
    std::vector<std::string> found;
    for (size_t at = 0; at < out.size(); at = out.find('\n', at) + 1) {
      const Json event = Json::parse(out.substr(at, out.find('\n', at) - at)).value();
      EXPECT_EQ(event.integer("sequence_number"), static_cast<int64_t>(found.size()));
      found.push_back(event.string("type").value());
    }
    return found;
  };
  EXPECT_THAT(types(OutputItem::Kind::kMessage),
              ElementsAre("response.output_item.added", "response.content_part.added",
                          "response.output_text.delta", "response.output_text.done",
                          "response.content_part.done", "response.output_item.done"));
  EXPECT_THAT(types(OutputItem::Kind::kCall),
              ElementsAre("response.output_item.added", "response.function_call_arguments.delta",
                          "response.function_call_arguments.done", "response.output_item.done"));
}

TEST(ChatChunks, PlainExample) {
  const ChatChunks chunks({.id = "c", .model = "m"}, false);
  std::string out;
  chunks.delta({.content = "Hi"}, out);
  EXPECT_THAT(out, testing::StartsWith("{\"id\":\"c\","));
  EXPECT_THAT(out, testing::EndsWith("\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},"
                                     "\"logprobs\":null,\"finish_reason\":null}]}"));
}

TEST(EmbeddingResponse, Base64Example) {
  const std::vector<std::vector<float>> vectors = {{1.0f, -2.0f}};
  EXPECT_THAT(embedding_body({}, vectors, EmbeddingFormat::kBase64), HasSubstr("\"AACAPwAAAMA=\""));
}

TEST(ResponseItem, ListedExample) {
  const Json listed =
      listed_items(Json("hi"), [](std::string_view prefix) { return std::string(prefix) + "1"; });
  EXPECT_EQ(listed, Json::parse(R"([{"role":"user","content":[{"type":"input_text","text":"hi"}],
      "type":"message","id":"msg_1","status":"completed"}])")
                        .value());
}

}  // namespace
}  // namespace pelton::api
