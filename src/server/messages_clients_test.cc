// What Anthropic's clients send beyond plain turns, and what they read in a refusal: system
// messages amid the conversation, deferred tools, images in tools' results, documents, the words by
// which they retry.
#include <algorithm>
#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/messages_request.h"
#include "api/messages_response.h"
#include "chat/harmony_conversation.h"
#include "chat/harmony_renderer.h"
#include "prompt/chat_conversation.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>"},
  {"when": "Be terse.", "then": "<|channel|>final<|message|>Ok.<|return|>"},
  {"when": "type weather", "then": "<|channel|>final<|message|>I know the weather tool.<|return|>"},
  {"when": "functions.weather", "then": "<|channel|>final<|message|>Sun.<|return|>"},
  {"when": "what weather", "then": "<|channel|>analysis<|message|>I look it up.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{}<|call|>"},
  {"when": "endless", "then": ["<|channel|>analysis<|message|>", {"text": "on and on ", "times": 2000}]}
]})";

api::MessagesRequest request_of(const std::string& members) {
  auto request = api::parse_messages_request(R"({"max_tokens":9,)" + members + "}",
                                             {.vocab_size = 1000}, api::MessagesUse::kGenerate);
  EXPECT_TRUE(request.ok()) << (request.ok() ? "" : request.error().message);
  return request.ok() ? std::move(request).value() : api::MessagesRequest();
}

// The whole prompt, as text.
std::string prompt_of(const std::string& members) {
  return chat::render_text(
      chat::harmony_conversation(prompt::conversation_of(request_of(members).chat, "2025-06-28")),
      {});
}

// Behind the system message.
std::string conversation(const std::string& members) {
  const std::string text = prompt_of(members);
  return text.substr(text.find("<|end|>") + 7);
}

std::string error_message(const net::HttpResponse& response) {
  const Json body = parsed(response.body);
  const Json* error = body.find("error");
  return error == nullptr ? response.body : error->string("message").value_or("");
}

std::string posted(std::string_view messages, std::string_view more = "") {
  return R"({"max_tokens":200,"messages":)" + std::string(messages) + std::string(more) + "}";
}

TEST(MessagesClients, B1_ASystemMessageStandsWhereItWasSaid) {
  EXPECT_EQ(conversation(R"("system":"First.","messages":[
                {"role":"user","content":"a"},
                {"role":"system","content":[{"type":"text","text":"Second.",
                 "cache_control":{"type":"ephemeral"}},{"type":"text","text":"Third."}]},
                {"role":"assistant","content":"b"},
                {"role":"user","content":"c"},
                {"role":"system","content":"Last."}])"),
            "<|start|>developer<|message|># Instructions\n\nFirst.<|end|>"
            "<|start|>user<|message|>a<|end|>"
            "<|start|>developer<|message|># Instructions\n\nSecond.\n\nThird.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>b<|end|>"
            "<|start|>user<|message|>c<|end|>"
            "<|start|>developer<|message|># Instructions\n\nLast.<|end|><|start|>assistant");
  // Before anyone has spoken it is one of the instructions at the beginning.
  EXPECT_EQ(conversation(R"("system":"First.","messages":[
                {"role":"system","content":"Second."},{"role":"user","content":"a"}])"),
            "<|start|>developer<|message|># Instructions\n\nFirst.\n\nSecond.<|end|>"
            "<|start|>user<|message|>a<|end|><|start|>assistant");
}

TEST(MessagesClients, B1_ASystemMessageThatIsClearedAndOneThatOnlySaysTheEffort) {
  const std::string cleared =
      R"({"role":"system","content":"Now.","clear_at":"next_user_message"})";
  EXPECT_THAT(conversation(R"("messages":[{"role":"user","content":"a"},)" + cleared + "]"),
              HasSubstr("Now."));
  EXPECT_THAT(conversation(R"("messages":[{"role":"user","content":"a"},)" + cleared +
                           R"(,{"role":"assistant","content":"b"},{"role":"user","content":"c"}])"),
              Not(HasSubstr("Now.")));
  const std::string effort = prompt_of(R"("output_config":{"effort":"low"},"messages":[
      {"role":"user","content":"a"},{"role":"system","content":[],
       "output_config":{"effort":"high"}}])");
  EXPECT_THAT(effort, HasSubstr("Reasoning: high"));
  EXPECT_THAT(effort, Not(HasSubstr("# Instructions")));
}

TEST(MessagesClients, B1_ASystemMessageIsAnsweredAndTheNextTurnFindsWhatWasComputed) {
  ServerFixture fixture(kScript, {});
  const std::string first =
      R"([{"role":"user","content":"hi"},{"role":"system","content":"Be terse."})";
  const net::HttpResponse one = fixture.post("/v1/messages", posted(first + "]"));
  ASSERT_EQ(one.status, 200) << one.body;
  EXPECT_THAT(one.body, HasSubstr("Ok."));
  const net::HttpResponse two = fixture.post(
      "/v1/messages", posted(first + R"(,{"role":"assistant","content":"Ok."},)"
                                     R"({"role":"user","content":"go on"},)"
                                     R"({"role":"system","content":"Another reminder."}])"));
  ASSERT_EQ(two.status, 200) << two.body;
  const Json usage = *parsed(two.body).find("usage");
  EXPECT_GT(*usage.integer("cache_read_input_tokens"), 0) << "the beginning is the same";
  EXPECT_EQ(fixture.server().services().turn_cache.counts().found, 1);
}

// As @anthropic-ai's agent and LangChain find the numbers.
TEST(MessagesClients, B2_OverflowIsToldInAnthropicsWords) {
  ServerFixture fixture(kScript, {});
  const std::string hi = R"([{"role":"user","content":"hi"}])";
  const net::HttpResponse whole =
      fixture.post("/v1/messages", R"({"max_tokens":4090,"messages":)" + hi + "}");
  EXPECT_EQ(whole.status, 400);
  std::smatch found;
  const std::string message = error_message(whole);
  ASSERT_TRUE(std::regex_match(
      message, found,
      std::regex(R"(input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+), )"
                 R"(decrease input length or `max_tokens` and try again)")))
      << message;
  EXPECT_EQ(found[2], "4090");
  EXPECT_EQ(found[3], "4096");
  // What fits by these numbers is answered.
  const int fits = 4096 - std::stoi(found[1]);
  EXPECT_EQ(fixture
                .post("/v1/messages",
                      R"({"max_tokens":)" + std::to_string(fits) + R"(,"messages":)" + hi + "}")
                .status,
            200);
  EXPECT_EQ(fixture
                .post("/v1/messages", R"({"max_tokens":)" + std::to_string(fits + 1) +
                                          R"(,"stream":true,"messages":)" + hi + "}")
                .status,
            400);
  const net::HttpResponse too_long = fixture.post(
      "/v1/messages", posted(R"([{"role":"user","content":")" + std::string(5000, 'x') + "\"}]"));
  const std::string prompt = error_message(too_long);
  ASSERT_TRUE(std::regex_match(prompt, found,
                               std::regex(R"(prompt is too long: (\d+) tokens > (\d+) maximum)")))
      << prompt;
  EXPECT_GT(std::stoi(found[1]), std::stoi(found[2]));
  EXPECT_EQ(found[2], "4095");
}

TEST(MessagesClients, B2_APromptAsLongAsTheContextIsTooLong) {
  const api::ApiError error = api::context_length_exceeded(
      {.prompt_tokens = 4096, .output_tokens = 10, .context_max = 4096}, "messages");
  EXPECT_THAT(api::message_error_body(error, "req_1"),
              HasSubstr("prompt is too long: 4096 tokens > 4095 maximum"));
}

TEST(MessagesClients, B2_OverflowIsToldInOpenAisWordsElsewhere) {
  ServerFixture fixture(kScript, {});
  const std::string long_text(5000, 'x');
  const auto message = [&](const char* path, const std::string& body) {
    const net::HttpResponse response = fixture.post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_EQ(parsed(response.body).find("error")->string("code"), "context_length_exceeded");
    return error_message(response);
  };
  const std::regex both(
      R"(This model's maximum context length is 4096 tokens\. However, you requested (\d+) tokens )"
      R"(\((\d+) in the messages, 4090 in the completion\)\. Please reduce the length of the )"
      R"(messages or completion\.)");
  const std::string hi = R"("messages":[{"role":"user","content":"hi"}])";
  const std::string chat = message("/v1/chat/completions", R"({"max_tokens":4090,)" + hi + "}");
  EXPECT_TRUE(std::regex_match(chat, both)) << chat;
  const std::string response =
      message("/v1/responses", R"({"max_output_tokens":4090,"input":"hi"})");
  EXPECT_TRUE(std::regex_match(response, both)) << response;
  EXPECT_THAT(message("/v1/chat/completions",
                      R"({"messages":[{"role":"user","content":")" + long_text + "\"}]}"),
              testing::MatchesRegex(
                  "This model's maximum context length is 4096 tokens. However, your messages "
                  "resulted in [0-9]+ tokens. Please reduce the length of the messages."));
  EXPECT_THAT(message("/v1/responses", R"({"input":")" + long_text + "\"}"),
              testing::StartsWith("Your input exceeds the context window of this model. Please "
                                  "adjust your input and try again."));
  EXPECT_THAT(message("/v1/completions", R"({"max_tokens":4096,"prompt":"hi"})"),
              testing::MatchesRegex(
                  "This model's maximum context length is 4096 tokens, however you requested "
                  "[0-9]+ tokens .[0-9]+ in your prompt; 4096 for the completion.. Please reduce "
                  "your prompt; or completion length."));
}

constexpr std::string_view kImage =
    R"({"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}})";
constexpr std::string_view kPdf =
    R"({"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"aGk="}})";

std::string with_result(std::string_view content) {
  return R"([{"role":"user","content":"look"},{"role":"assistant","content":[)"
         R"({"type":"tool_use","id":"t1","name":"read","input":{}}]},{"role":"user","content":[)"
         R"({"type":"tool_result","tool_use_id":"t1","content":)" +
         std::string(content) + "}]}]";
}

TEST(MessagesClients, B3_AnImageInAToolsResultIsReplaced) {
  ServerFixture fixture(kScript, {});
  const std::string content =
      R"([{"type":"text","text":"Page 1"},)" + std::string(kImage) + "," + std::string(kPdf) + "]";
  const net::HttpResponse response = fixture.post("/v1/messages", posted(with_result(content)));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.get("x-pelton-warning"),
            "messages[2].content[0].content[1] and 1 more replaced by a placeholder: this model "
            "reads text only");
  EXPECT_THAT(conversation("\"messages\":" + with_result(content)),
              HasSubstr("<|message|>Page 1\n\n[image omitted: this model reads text only]\n\n[PDF "
                        "omitted: this model reads text only]<|end|>"));
  EXPECT_EQ(fixture.post("/v1/messages/count_tokens", posted(with_result(content))).status, 200);
}

TEST(MessagesClients, B3_AnImageInAToolsResultIsReplacedInChatAndResponsesToo) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse chat = fixture.post("/v1/chat/completions", R"({"messages":[
      {"role":"user","content":"look"},
      {"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"read"}}]},
      {"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"Page 1"},
       {"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}]})");
  ASSERT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(chat.headers.get("x-pelton-warning"),
            "messages[2].content[1] replaced by a placeholder: this model reads text only");
  const net::HttpResponse response = fixture.post("/v1/responses", R"({"input":[
      {"role":"user","content":"look"},
      {"type":"function_call","call_id":"1","name":"read","arguments":"{}"},
      {"type":"function_call_output","call_id":"1","output":[
       {"type":"input_image","image_url":"data:image/png;base64,aGk="},
       {"type":"input_file","file_data":"aGk="}]}]})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.get("x-pelton-warning"),
            "input[2].output[0] and 1 more replaced by a placeholder: this model reads text only");
}

// A screenshot that a client puts beside the result or in a message of its own behind it: what
// stands between a tool's result and the assistant's next message is the tool's.
TEST(MessagesClients, B3_AnImageBesideAToolsResultIsReplaced) {
  ServerFixture fixture(kScript, {});
  const std::string call = R"([{"role":"user","content":"look"},{"role":"assistant","content":[)"
                           R"({"type":"tool_use","id":"t1","name":"read","input":{}}]},)";
  const std::string result = R"({"type":"tool_result","tool_use_id":"t1","content":"ok"})";
  const std::string image(kImage);
  const std::string text = R"({"type":"text","text":"Here."})";
  const auto user = [](const std::string& blocks) {
    return R"({"role":"user","content":[)" + blocks + "]}";
  };
  const std::string answer = R"({"role":"assistant","content":"I see."})";
  struct Case {
    std::string messages;
    std::string replaced;  // empty: a 400
  };
  for (const Case& one : std::vector<Case>{
           {user(result + "," + text + "," + image), "messages[2].content[2]"},
           {user(image + "," + result), "messages[2].content[0]"},
           {user(result + "," + std::string(kPdf)), "messages[2].content[1]"},
           {user(result) + "," + user(image), "messages[3].content[0]"},
           {user(result) + R"(,{"role":"system","content":"Be quick."},)" + user(text) + "," +
                user(image),
            "messages[5].content[0]"},
           {user(result + "," + image) + "," + answer + "," + user(text), "messages[2].content[1]"},
           {user(result) + "," + answer + "," + user(image), ""}}) {
    const std::string messages = call + one.messages + "]";
    const net::HttpResponse response = fixture.post("/v1/messages", posted(messages));
    EXPECT_EQ(response.status, one.replaced.empty() ? 400 : 200) << messages << response.body;
    if (one.replaced.empty()) continue;
    EXPECT_EQ(response.headers.get("x-pelton-warning"),
              one.replaced + " replaced by a placeholder: this model reads text only");
    EXPECT_THAT(conversation("\"messages\":" + messages),
                HasSubstr("omitted: this model reads text only]"));
  }
}

TEST(MessagesClients, B3_AnImageBehindAToolsResultIsReplacedInChatAndResponsesToo) {
  ServerFixture fixture(kScript, {});
  const std::string call =
      R"({"messages":[{"role":"user","content":"look"},{"role":"assistant","tool_calls":[)"
      R"({"id":"1","type":"function","function":{"name":"read"}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"see below"},)";
  const std::string image = R"({"role":"user","content":[{"type":"text","text":"Screen:"},)"
                            R"({"type":"image_url","image_url":{"url":"data:,"}}]})";
  const net::HttpResponse chat = fixture.post("/v1/chat/completions", call + image + "]}");
  ASSERT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(chat.headers.get("x-pelton-warning"),
            "messages[3].content[1] replaced by a placeholder: this model reads text only");
  const std::string answered = R"({"role":"assistant","content":"I see."},)";
  EXPECT_EQ(fixture.post("/v1/chat/completions", call + answered + image + "]}").status, 400);
  // What was replaced once is replaced in each later request.
  EXPECT_EQ(fixture
                .post("/v1/chat/completions",
                      call + image + "," + answered + R"({"role":"user","content":"go on"}]})")
                .status,
            200);

  const std::string item_call =
      R"({"input":[{"role":"user","content":"look"},)"
      R"({"type":"function_call","call_id":"1","name":"read","arguments":"{}"},)"
      R"({"type":"function_call_output","call_id":"1","output":"see below"},)";
  const std::string item =
      R"({"role":"user","content":[{"type":"input_image","image_url":"data:,"}]})";
  const net::HttpResponse response = fixture.post("/v1/responses", item_call + item + "]}");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.get("x-pelton-warning"),
            "input[3].content[0] replaced by a placeholder: this model reads text only");
  // A conversation that the server keeps goes on.
  const std::string id = parsed(response.body).string("id").value_or("");
  EXPECT_EQ(
      fixture.post("/v1/responses", R"({"input":"go on","previous_response_id":")" + id + "\"}")
          .status,
      200);
  EXPECT_EQ(fixture.post("/v1/responses", item_call + answered + item + "]}").status, 400);
}

TEST(MessagesClients, B3_ElsewhereTheRefusalSaysThatTheImageCouldNotBeProcessed) {
  ServerFixture fixture(kScript, {});
  const auto refused = [&](const char* path, const std::string& body) {
    const net::HttpResponse response = fixture.post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    return error_message(response);
  };
  const auto user = [](std::string_view block) {
    return posted(R"([{"role":"user","content":[)" + std::string(block) + "]}]");
  };
  EXPECT_THAT(refused("/v1/messages", user(kImage)),
              testing::StartsWith("Could not process image"));
  EXPECT_THAT(refused("/v1/messages", user(kPdf)), testing::StartsWith("Could not process PDF"));
  EXPECT_THAT(
      refused("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})"),
      testing::StartsWith("Could not process image: 'messages[0].content[0].type'"));
  EXPECT_THAT(
      refused("/v1/responses", R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})"),
      testing::StartsWith("Could not process image: 'input[0].content[0].type'"));
}

constexpr std::string_view kDeferred =
    R"("tools":[{"name":"search","input_schema":{"type":"object"}},)"
    R"({"name":"weather","description":"Tells it","defer_loading":true,)"
    R"("input_schema":{"type":"object","properties":{"city":{"type":"string"}}}},)"
    R"({"name":"tides","defer_loading":true,"input_schema":{"type":"object"}}])";

std::string loading(std::string_view names) {
  std::string references;
  for (const char name : names) {
    references += R"({"type":"tool_reference","tool_name":")";
    references += name == 'w' ? "weather" : "tides";
    references += "\"},";
  }
  references.pop_back();
  return R"([{"role":"user","content":"How is it?"},{"role":"assistant","content":[)"
         R"({"type":"tool_use","id":"t1","name":"search","input":{}}]},{"role":"user","content":[)"
         R"({"type":"tool_result","tool_use_id":"t1","content":[)" +
         references + "]}]}]";
}

TEST(MessagesClients, B4_ADeferredToolIsToldWhereItIsReferredTo) {
  const std::string before =
      prompt_of(R"("messages":[{"role":"user","content":"How is it?"}],)" + std::string(kDeferred));
  EXPECT_THAT(before, HasSubstr("type search"));
  EXPECT_THAT(before, Not(HasSubstr("weather")));
  const std::string after =
      prompt_of("\"messages\":" + loading("ww") + "," + std::string(kDeferred));
  EXPECT_THAT(after, HasSubstr("<|message|>Tool loaded: weather\n\nTool loaded: weather<|end|>"
                               "<|start|>developer<|message|># Tools\n\n## functions\n\n"
                               "namespace functions {\n\n// Tells it\ntype weather = (_: {\n"
                               "city?: string,\n}) => any;\n\n} // namespace functions<|end|>"));
  EXPECT_THAT(after, Not(HasSubstr("type tides")));
  // What stood there before stays as it was: it need not be computed again.
  const std::string shared = before.substr(0, before.rfind("<|start|>assistant"));
  EXPECT_EQ(after.substr(0, shared.size()), shared);
}

// As Claude Code loads tools: by a system message.
TEST(MessagesClients, B4_ASystemMessageAddsAndRemovesTools) {
  const auto change = [](const std::string& type, const std::string& name) {
    return R"({"type":")" + type + R"(","tool":{"type":"tool_reference","name":")" + name + "\"}}";
  };
  const std::string text = conversation(
      R"("messages":[{"role":"user","content":"a"},{"role":"system","clear_at":"next_user_message",)"
      R"("content":[{"type":"text","text":"Now."},)" +
      change("tool_addition", "weather") + "," + change("tool_removal", "search") +
      R"(]},{"role":"user","content":"b"},{"role":"system","content":[)" +
      change("tool_addition", "weather") + "]}]," + std::string(kDeferred));
  EXPECT_THAT(text,
              HasSubstr("a<|end|><|start|>developer<|message|># Instructions\n\nTool removed: "
                        "search\n\n# Tools\n\n## functions\n\nnamespace functions {\n\n"
                        "// Tells it\ntype weather = "));
  EXPECT_THAT(text, testing::EndsWith("<|start|>user<|message|>b<|end|><|start|>assistant"));
  // Before anyone has spoken: at the beginning, as if it were not deferred.
  EXPECT_THAT(conversation(R"("messages":[{"role":"system","content":[)" +
                           change("tool_addition", "tides") +
                           R"(]},{"role":"user","content":"a"}],)" + std::string(kDeferred)),
              HasSubstr("type search = (_: {\n}) => any;\n\ntype tides = "));
}

TEST(MessagesClients, B4_TheModelCallsWhatWasLoaded) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse response =
      fixture.post("/v1/messages", posted(loading("w"), "," + std::string(kDeferred)));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_THAT(response.body, HasSubstr("I know the weather tool."));
  EXPECT_FALSE(response.headers.has("x-pelton-warning"));
}

TEST(MessagesClients, B4_ForcedChoicesKnowOnlyWhatIsLoaded) {
  const auto tools = [](std::string_view messages, std::string_view choice) {
    std::vector<std::string> names;
    for (const api::FunctionTool& tool :
         request_of("\"messages\":" + std::string(messages) + "," + std::string(kDeferred) +
                    ",\"tool_choice\":" + std::string(choice))
             .chat.tools) {
      names.push_back(tool.name);
    }
    return names;
  };
  const std::string hi = R"([{"role":"user","content":"hi"}])";
  EXPECT_THAT(tools(hi, R"({"type":"any"})"), testing::ElementsAre("search"));
  EXPECT_THAT(tools(loading("t"), R"({"type":"any"})"), testing::ElementsAre("search", "tides"));
  EXPECT_THAT(tools(hi, R"({"type":"tool","name":"tides"})"),
              testing::ElementsAre("search", "tides"));
  EXPECT_THAT(tools(loading("w"), R"({"type":"none"})"), testing::IsEmpty());
}

TEST(MessagesClients, B4_AReferenceToNoToolIsRefusedByName) {
  const auto request = api::parse_messages_request(posted(loading("w")), {.vocab_size = 1000},
                                                   api::MessagesUse::kGenerate);
  ASSERT_FALSE(request.ok());
  EXPECT_THAT(request.error().message,
              HasSubstr("Tool reference 'weather' has no corresponding tool definition"));
  EXPECT_EQ(request.error().field, "messages[2].content[0].content[0].tool_name");
}

TEST(MessagesClients, B4_WhatTheirServerWouldSearchIsToldFromTheBeginning) {
  const api::MessagesRequest request =
      request_of(R"("messages":[{"role":"user","content":"hi"}],"tools":[)"
                 R"({"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"},)"
                 R"({"name":"weather","defer_loading":true,"input_schema":{"type":"object"}}])");
  ASSERT_EQ(request.chat.tools.size(), 1u);
  EXPECT_FALSE(request.chat.tools[0].deferred);
  EXPECT_THAT(request.chat.warnings,
              testing::Contains(testing::StartsWith("defer_loading ignored")));
}

TEST(MessagesClients, B4_ACatalogueOfThousandsOfDeferredTools) {
  std::string tools = R"("tools":[{"name":"search","input_schema":{}})";
  for (int i = 0; i < 9999; ++i) {
    tools += R"(,{"name":"f)" + std::to_string(i) + R"(","input_schema":{},"defer_loading":true})";
  }
  tools += "]";
  EXPECT_EQ(request_of(R"("messages":[{"role":"user","content":"hi"}],)" + tools).chat.tools.size(),
            1u);
}

// Whole and streamed: the block and its signature are there, the text is not.
TEST(MessagesClients, B10_ThinkingThatIsOmittedComesAsAnEmptyBlock) {
  ServerFixture fixture(kScript, {});
  const std::string hi = R"([{"role":"user","content":"hi"}])";
  for (const std::string thinking :
       {R"("display":"omitted","type":"adaptive")", R"("display":"updates","type":"adaptive")",
        R"("display":"omitted","type":"enabled","budget_tokens":1024)"}) {
    const std::string request =
        R"({"max_tokens":1500,"messages":)" + hi + R"(,"thinking":{)" + thinking + "}";
    const net::HttpResponse whole = fixture.post("/v1/messages", request + "}");
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json::Array blocks = parsed(whole.body).find("content")->as_array();
    ASSERT_EQ(blocks.size(), 2u) << whole.body;
    EXPECT_EQ(blocks[0].string("type"), "thinking");
    EXPECT_EQ(blocks[0].string("thinking"), "");
    EXPECT_NE(blocks[0].string("signature").value_or(""), "");
    EXPECT_EQ(blocks[1].string("text"), "Hello.");
    const net::HttpResponse streamed = fixture.post("/v1/messages", request + R"(,"stream":true})");
    EXPECT_THAT(streamed.body, Not(HasSubstr("Think.")));
    EXPECT_THAT(streamed.body, Not(HasSubstr("thinking_delta")));
    EXPECT_THAT(streamed.body, HasSubstr("signature_delta"));
    EXPECT_THAT(streamed.body, HasSubstr("\"type\":\"thinking\",\"thinking\":\"\""));
  }
  const net::HttpResponse cut = fixture.post(
      "/v1/messages", posted(R"([{"role":"user","content":"endless"}])",
                             R"(,"thinking":{"type":"adaptive","display":"omitted"})"));
  EXPECT_THAT(cut.body, Not(HasSubstr("on and on")));
  EXPECT_EQ(parsed(cut.body).string("stop_reason"), "max_tokens");
}

// A loop of tools whose client keeps the blocks: the model goes on from what it thought, at another
// server too.
class OmittedThinking : public testing::Test {
 protected:
  static ServerFixture::Options keyed(char key) {
    ServerFixture::Options options;
    options.server.reasoning_key = std::string(32, key);
    options.server.sampled_turn_tokens_max = 0;  // nothing is known of the turn but what is sent
    return options;
  }
  // The first answer's blocks.
  static Json blocks(ServerFixture& fixture, const std::string& thinking) {
    const net::HttpResponse response = fixture.post(
        "/v1/messages", posted(R"([{"role":"user","content":"what weather"}])", kTools + thinking));
    EXPECT_EQ(response.status, 200) << response.body;
    return *parsed(response.body).find("content");
  }
  static std::string second(const Json& first, const std::string& signature) {
    const Json& call = first.as_array().back();
    return R"([{"role":"user","content":"what weather"},{"role":"assistant","content":[)"
           R"({"type":"thinking","thinking":"","signature":")" +
           signature + "\"}," + call.dump() +
           R"(]},{"role":"user","content":[{"type":"tool_result","content":"sunny","tool_use_id":)" +
           call.find("id")->dump() + "}]}]";
  }
  static net::HttpResponse count(ServerFixture& fixture, const std::string& messages) {
    return fixture.post("/v1/messages/count_tokens", posted(messages, kTools));
  }

  static inline const std::string kTools = R"(,"tools":[{"name":"weather","input_schema":{}}])";
  static inline const std::string kOmitted =
      R"(,"thinking":{"type":"adaptive","display":"omitted"})";
};

TEST_F(OmittedThinking, ComesBackByItsSignature) {
  ServerFixture fixture(kScript, keyed('k'));
  ServerFixture other(kScript, keyed('k'));
  ServerFixture stranger(kScript, keyed('s'));
  const Json shown = blocks(fixture, R"(,"thinking":{"type":"adaptive"})");
  const Json first = blocks(fixture, kOmitted);
  const Json& thinking = first.as_array()[0];
  ASSERT_EQ(thinking.string("thinking"), "");
  const std::string signature = *thinking.string("signature");
  EXPECT_EQ(signature.find("look"), std::string::npos);

  std::string messages = second(first, signature);
  const auto tokens = [&](ServerFixture& at) {
    return parsed(count(at, messages).body).integer("input_tokens");
  };
  const auto whole = tokens(fixture);
  EXPECT_EQ(tokens(other), whole);
  const net::HttpResponse unread = count(stranger, messages);
  EXPECT_EQ(unread.headers.get("x-pelton-warning"),
            "messages[1].content[0].signature ignored: encrypted with another key");
  EXPECT_LT(parsed(unread.body).integer("input_tokens"), whole);
  const net::HttpResponse answer = other.post("/v1/messages", posted(messages, kTools + kOmitted));
  EXPECT_EQ(parsed(answer.body).find("content")->as_array().back().string("text"), "Sun.");
  // As if the client had been shown the text, and sent that.
  messages.replace(messages.find(R"("thinking":"")"), 13, R"("thinking":"I look it up.")");
  EXPECT_EQ(shown.as_array()[0].string("thinking"), "I look it up.");
  EXPECT_EQ(tokens(stranger), whole);
}

TEST_F(OmittedThinking, AForgedSignatureIsRefusedInAnthropicsWords) {
  ServerFixture fixture(kScript, keyed('k'));
  const Json first = blocks(fixture, kOmitted);
  std::string signature = *first.as_array()[0].string("signature");
  signature[signature.size() / 2] = signature[signature.size() / 2] == 'A' ? 'B' : 'A';
  for (const std::string& forged : {signature, signature.substr(0, signature.size() - 4)}) {
    const std::string messages = second(first, forged);
    for (const net::HttpResponse& refused :
         {count(fixture, messages), fixture.post("/v1/messages", posted(messages, kTools))}) {
      EXPECT_EQ(refused.status, 400);
      EXPECT_EQ(error_message(refused),
                "messages[1].content[0].signature: Invalid `signature` in `thinking` block");
    }
  }
}

TEST(MessagesClients, B10_DocumentsOfTextAndSearchResultsAreRead) {
  const std::string user = R"("messages":[{"role":"user","content":[
      {"type":"document","title":"Kettles","context":"A manual.",
       "source":{"type":"text","media_type":"text/plain","data":"The kettle is blue."}},
      {"type":"document","source":{"type":"content","content":[{"type":"text","text":"Hot."}]}},
      {"type":"search_result","title":"Tea","source":"https://example.org","content":[
       {"type":"text","text":"Green."}]},
      {"type":"text","text":"What colour?"}]}])";
  EXPECT_EQ(conversation(user),
            "<|start|>user<|message|>Kettles\n\nA manual.\n\nThe kettle is blue.\n\nHot.\n\n"
            "Tea\nhttps://example.org\n\nGreen.\n\nWhat colour?<|end|><|start|>assistant");
  const std::string result =
      with_result(R"([{"type":"document","citations":{"enabled":true},)"
                  R"("source":{"type":"content","content":[)" +
                  std::string(kImage) + R"(,{"type":"text","text":"Below."}]}}])");
  EXPECT_THAT(conversation("\"messages\":" + result),
              HasSubstr("[image omitted: this model reads text only]\n\nBelow."));
  EXPECT_THAT(request_of("\"messages\":" + result).chat.warnings,
              testing::ElementsAre("citations ignored: this model writes none",
                                   testing::StartsWith("messages[2].content[0].content[0]")));
  const auto refused = [](const std::string& block) {
    const auto request =
        api::parse_messages_request(posted(R"([{"role":"user","content":[)" + block + "]}]"),
                                    {.vocab_size = 1000}, api::MessagesUse::kGenerate);
    return request.ok() ? std::string("accepted") : request.error().field;
  };
  EXPECT_EQ(refused(R"({"type":"document"})"), "messages[0].content[0].source");
  EXPECT_EQ(refused(R"({"type":"document","source":{"type":"text"}})"),
            "messages[0].content[0].source.data");
  EXPECT_EQ(refused(R"({"type":"search_result","title":"x","source":"y"})"),
            "messages[0].content[0].content");
}

}  // namespace
}  // namespace pelton::server
