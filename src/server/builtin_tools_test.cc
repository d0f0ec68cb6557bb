// Tools that the server runs for the model, between two rounds of one response.
#include <string>

#include <gtest/gtest.h>

#include "cluster/envelope.h"
#include "cluster/frame.h"
#include "cluster/token_list.h"
#include "mcp/test_tool_server.h"
#include "server/fleet_server.h"
#include "server/response_stream_text.h"
#include "server/server_fixture.h"
#include "server/tool_servers.h"

namespace pelton::server {
namespace {

using mcp::TestToolServer;

// Each next rule's words come with the result of the call before.
constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Plain.<|return|>"},
  {"when": "compute", "then": "<|channel|>analysis<|message|>I shall run it.<|end|><|start|>assistant<|channel|>analysis to=python code<|message|>print(6*7)<|call|>"},
  {"when": "python printed", "then": "<|channel|>final<|message|>It is 42.<|return|>"},
  {"when": "look up", "then": "<|channel|>analysis to=browser.search code<|message|>{\"query\":\"pelton wheel\"}<|call|>"},
  {"when": "result page", "then": "<|channel|>commentary to=browser.open code<|message|>{\"id\":2}<|call|>"},
  {"when": "opened page", "then": "<|channel|>final<|message|>A turbine.<|return|>"},
  {"when": "for ever", "then": "<|channel|>analysis to=python code<|message|>1<|call|>"},
  {"when": "no such", "then": "<|channel|>analysis to=browser.rm code<|message|>{}<|call|>"},
  {"when": "broken arguments", "then": "<|channel|>analysis to=browser.open code<|message|>{{<|call|>"},
  {"when": "The call is none", "then": "<|channel|>final<|message|>I cannot.<|return|>"},
  {"when": "go past it", "then": "<|channel|>analysis to=python code<|message|>print(6*7)<|end|><|start|>assistant<|channel|>final<|message|>It must be 41.<|return|>"},
  {"when": "as JSON", "then": "<|channel|>analysis to=python code<|message|>2<|call|>"},
  {"when": "number two", "then": "<|channel|>final<|message|>{\"n\":42}<|return|>"},
  {"when": "The tool failed", "then": "<|channel|>final<|message|>It failed.<|return|>"},
  {"when": "There is no such tool", "then": "<|channel|>final<|message|>No tool.<|return|>"}
]})";

constexpr std::string_view kTools =
    R"([{"type":"web_search"},{"type":"code_interpreter","container":{"type":"auto"}}])";

class BuiltinToolsTest : public testing::Test {
 protected:
  BuiltinToolsTest() {
    if (is_qwen3_shape()) return;
    mcp_.print([](const std::string& name, const Json& arguments) -> std::string {
      if (name == "python" && arguments.string("code") == "1") return "still for ever";
      if (name == "python" && arguments.string("code") == "2") return "number two";
      if (name == "python") return "python printed 42";
      if (name == "search") return "result page about " + arguments.string("query").value_or("");
      return "opened page " + std::to_string(arguments.integer("id").value_or(-1));
    });
  }
  ToolServers::Options all() {
    return {.browser = {.url = mcp_.url()},
            .python = {.url = mcp_.url()},
            .version = "1",
            .time_max = std::chrono::milliseconds(500),
            .calls_max = 3};
  }
  void serve(ToolServers::Options options) {
    tools_.emplace(std::move(options));
    ServerFixture::Options made;
    made.server.tools = &*tools_;
    fixture_.emplace(kScript, std::move(made));
  }
  static std::string body(std::string_view words, std::string_view more = "") {
    return fmt::format(R"({{"input":"{}","tools":{}{}}})", words, kTools, more);
  }
  Json ask(std::string_view words, std::string_view more = "") {
    const net::HttpResponse response = fixture_->post("/v1/responses", body(words, more));
    EXPECT_EQ(response.status, 200) << response.body;
    return parsed(response.body);
  }
  static std::vector<std::string> types(const Json& response) {
    std::vector<std::string> all;
    for (const Json& item : response.find("output")->as_array()) {
      all.push_back(item.string("type").value_or(""));
    }
    return all;
  }
  static const Json& item(const Json& response, size_t index) {
    return response.find("output")->as_array().at(index);
  }
  static std::string text(const Json& response) {
    const Json& last = response.find("output")->as_array().back();
    const Json* const content = last.find("content");
    return content == nullptr ? "" : content->as_array().front().string("text").value_or("");
  }

  TestToolServer mcp_;
  std::optional<ToolServers> tools_;
  std::optional<ServerFixture> fixture_;
};

using Types = std::vector<std::string>;

TEST_F(BuiltinToolsTest, PythonIsRunAndTheModelGoesOn) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  const Json said = ask("compute", R"(,"include":["code_interpreter_call.outputs"])");
  EXPECT_EQ(said.string("status"), "completed");
  ASSERT_EQ(types(said), (Types{"reasoning", "code_interpreter_call", "message"}));
  EXPECT_EQ(item(said, 1).string("code"), "print(6*7)");
  EXPECT_EQ(item(said, 1).string("status"), "completed");
  EXPECT_EQ(item(said, 1).find("outputs")->as_array().front().string("logs"), "python printed 42");
  EXPECT_EQ(text(said), "It is 42.");
  // What both rounds read and sampled.
  EXPECT_GT(*said.find("usage")->integer("input_tokens"), 100);
  EXPECT_GT(*said.find("usage")->find("input_tokens_details")->integer("cached_tokens"), 0);
  EXPECT_EQ(tools_->calls(ToolServers::Tool::kPython, ToolServers::End::kDone), 1);
  EXPECT_TRUE(TestToolServer::soon([&] { return mcp_.ended() == 1; })) << "its session is its own";
  EXPECT_TRUE(TestToolServer::soon([&] { return tools_->open_sessions() == 0; }));
}

TEST_F(BuiltinToolsTest, TheBrowserIsOneSessionOfSeveralCalls) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  const Json said = ask("look up");
  ASSERT_EQ(types(said), (Types{"web_search_call", "web_search_call", "message"}));
  EXPECT_EQ(item(said, 0).find("action")->dump(), R"({"type":"search","query":"pelton wheel"})");
  EXPECT_EQ(item(said, 1).find("action")->dump(), R"({"type":"open_page","url":null})");
  EXPECT_EQ(text(said), "A turbine.");
  EXPECT_EQ(mcp_.count("initialize"), 1);
}

TEST_F(BuiltinToolsTest, AStreamIsTheWholeResponse) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  for (const std::string_view words : {"compute", "look up", "no such"}) {
    const Json whole = ask(words);
    const net::HttpResponse streamed =
        fixture_->post("/v1/responses", body(words, R"(,"stream":true)"));
    ASSERT_EQ(streamed.status, 200);
    std::vector<std::string> seen;
    int64_t number = 0;
    Json last;
    for (const std::string& data : events_of(streamed.body)) {
      last = parsed(data);
      EXPECT_EQ(last.integer("sequence_number"), number++);
      seen.push_back(last.string("type").value_or(""));
    }
    const auto has = [&](std::string_view type) {
      return std::ranges::find(seen, type) != seen.end();
    };
    EXPECT_EQ(types(*last.find("response")), types(whole)) << words;
    EXPECT_EQ(text(*last.find("response")), text(whole)) << words;
    if (words == "compute") {
      EXPECT_TRUE(has("response.code_interpreter_call.in_progress"));
      EXPECT_TRUE(has("response.code_interpreter_call_code.delta"));
      EXPECT_TRUE(has("response.code_interpreter_call_code.done"));
      EXPECT_TRUE(has("response.code_interpreter_call.interpreting"));
      EXPECT_TRUE(has("response.code_interpreter_call.completed"));
    }
    if (words == "look up") {
      EXPECT_TRUE(has("response.web_search_call.searching"));
      EXPECT_TRUE(has("response.web_search_call.completed"));
    }
  }
}

// Neither a tool's failure nor a call that is none is one of the request's.
TEST_F(BuiltinToolsTest, WhatFailsIsSaidToTheModel) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  EXPECT_EQ(text(ask("no such")), "I cannot.");
  EXPECT_EQ(text(ask("broken arguments")), "I cannot.");
  for (const auto as : {TestToolServer::As::kStatus, TestToolServer::As::kSilence,
                        TestToolServer::As::kNoJson, TestToolServer::As::kTooLarge}) {
    mcp_.answer_as(as);
    const Json said = ask("compute");
    EXPECT_EQ(item(said, 1).string("status"),
              as == TestToolServer::As::kTooLarge ? "completed" : "failed");
    EXPECT_EQ(text(said) == "It failed.", as != TestToolServer::As::kTooLarge);
  }
}

TEST_F(BuiltinToolsTest, CallsAreBounded) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  for (const auto& [more, calls] : std::initializer_list<std::pair<std::string_view, size_t>>{
           {"", 3}, {R"(,"max_tool_calls":1)", 1}, {R"(,"max_tool_calls":9)", 3}}) {
    const Json said = ask("for ever", more);
    EXPECT_EQ(said.string("status"), "incomplete");
    EXPECT_EQ(said.find("incomplete_details")->string("reason"), "max_tool_calls");
    // The model hears of it once, and what it calls then is not run.
    ASSERT_EQ(types(said).size(), calls + 2);
    EXPECT_EQ(item(said, calls - 1).string("status"), "completed");
    EXPECT_EQ(item(said, calls).string("status"), "failed");
    EXPECT_EQ(item(said, calls + 1).string("status"), "incomplete");
  }
}

TEST_F(BuiltinToolsTest, TokensAreBoundedOverAllRounds) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  const int64_t all_tokens = *ask("compute").find("usage")->integer("output_tokens");
  for (int64_t most = all_tokens - 1; most > 0; --most) {
    const Json said = ask("compute", fmt::format(R"(,"max_output_tokens":{})", most));
    EXPECT_EQ(said.string("status"), "incomplete") << most;
    EXPECT_LE(*said.find("usage")->integer("output_tokens"), most);
  }
}

// Without such a server, or where the caller does not ask for it, nothing is run.
TEST_F(BuiltinToolsTest, OnlyWhatIsOfferedIsRun) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve({.python = {.url = mcp_.url()}, .version = "1"});
  const net::HttpResponse response = fixture_->post("/v1/responses", body("look up"));
  EXPECT_NE(response.headers.get("x-pelton-warning"), "") << "web_search is not there";
  EXPECT_EQ(text(parsed(response.body)), "No tool.");
  const net::HttpResponse none = fixture_->post("/v1/responses", R"({"input":"compute"})");
  EXPECT_EQ(none.status, 200);
  EXPECT_EQ(mcp_.count("tools/call"), 0);
}

// What a page says, say, may make a model call what nobody has offered to it.
TEST_F(BuiltinToolsTest, OnlyWhatTheRequestAsksForIsRun) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  for (const std::string_view body :
       {R"({"input":"compute","tools":[{"type":"web_search"}]})",
        R"({"input":"compute","tools":[{"type":"web_search"},{"type":"code_interpreter"}],
               "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}})"}) {
    const net::HttpResponse response = fixture_->post("/v1/responses", std::string(body));
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(text(parsed(response.body)), "No tool.");
  }
  EXPECT_EQ(mcp_.count("tools/call"), 0);
  const net::HttpResponse none = fixture_->post(
      "/v1/responses",
      R"({"input":"compute","tool_choice":"none","tools":[{"type":"code_interpreter"}]})");
  EXPECT_EQ(none.status, 200);
  EXPECT_EQ(mcp_.count("tools/call"), 0);
  const net::HttpResponse twice = fixture_->post(
      "/v1/responses",
      R"({"input":"x","tools":[{"type":"code_interpreter"},{"type":"function","name":"python"}]})");
  EXPECT_EQ(twice.status, 400);
}

// It cannot know the result yet.
TEST_F(BuiltinToolsTest, WhatStandsBehindACallIsNotSaid) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  const Json said = ask("go past it");
  ASSERT_EQ(types(said), (Types{"code_interpreter_call", "message"}));
  EXPECT_EQ(text(said), "It is 42.");
  EXPECT_EQ(said.string("status"), "completed");
}

TEST_F(BuiltinToolsTest, AFormatLetsToolsBeCalled) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  const Json said = ask("as JSON", R"(,"text":{"format":{"type":"json_schema","name":"a","schema":
      {"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}})");
  ASSERT_EQ(types(said), (Types{"code_interpreter_call", "message"}));
  EXPECT_EQ(text(said), R"({"n":42})");
}

TEST_F(BuiltinToolsTest, OneInTheBackgroundIsCancelledWhileItsToolRuns) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  ToolServers::Options slow = all();
  slow.time_max = std::chrono::seconds(30);
  serve(std::move(slow));
  const Json first = ask("compute", R"(,"background":true)");
  const std::string path = "/v1/responses/" + *first.string("id");
  EXPECT_TRUE(TestToolServer::soon(
      [&] { return parsed(fixture_->get(path).body).string("status") == "completed"; }));
  EXPECT_EQ(text(parsed(fixture_->get(path).body)), "It is 42.");
  mcp_.answer_as(TestToolServer::As::kSilence);
  const Json second = ask("compute", R"(,"background":true)");
  EXPECT_TRUE(TestToolServer::soon([&] { return mcp_.count("tools/call") == 2; }));
  const std::string other = "/v1/responses/" + *second.string("id");
  const Json cancelled = parsed(fixture_->post(other + "/cancel", "").body);
  EXPECT_EQ(cancelled.string("status"), "cancelled");
  EXPECT_EQ(item(cancelled, 1).string("status"), "incomplete");
  EXPECT_TRUE(TestToolServer::soon([&] { return tools_->open_sessions() == 0; }));
}

// An option that nobody obeys is refused where leaving it out would break it, else warned of.
TEST_F(BuiltinToolsTest, OptionsAreRefusedOrWarnedOf) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  const auto post = [&](std::string_view tool, std::string_view more = "") {
    return fixture_->post("/v1/responses",
                          fmt::format(R"({{"input":"x","tools":[{}]{}}})", tool, more));
  };
  using Row = std::pair<std::string_view, std::string_view>;
  for (
      const auto& [tool, field] : {
          Row{R"({"type":"web_search","filters":{"allowed_domains":["a.org"]}})",
              "tools[0].filters.allowed_domains"},
          Row{R"({"type":"web_search","filters":{"blocked_domains":["a.org"]}})",
              "tools[0].filters.blocked_domains"},
          Row{R"({"type":"web_search","external_web_access":false})",
              "tools[0].external_web_access"},
          Row{R"({"type":"code_interpreter","container":{"type":"auto","file_ids":["file-1"]}})",
              "tools[0].container.file_ids"},
          Row{R"({"type":"code_interpreter","container":{"type":"auto","network_policy":{"type":"disabled"}}})",
              "tools[0].container.network_policy"},
          Row{R"({"type":"code_interpreter","container":"cntr_1"})", "tools[0].container"},
      }) {
    const net::HttpResponse response = post(tool);
    EXPECT_EQ(response.status, 400) << tool;
    const Json body = parsed(response.body);
    EXPECT_EQ(body.find("error")->string("param"), field) << response.body;
  }
  for (const auto& [tool, field] : {
           Row{R"({"type":"web_search","user_location":{"type":"approximate","country":"CH"}})",
               "tools[0].user_location ignored"},
           Row{R"({"type":"web_search","search_context_size":"low"})",
               "tools[0].search_context_size ignored"},
           Row{R"({"type":"web_search","filters":{"xyzzy":1}})", "tools[0].filters.xyzzy ignored"},
           Row{R"({"type":"code_interpreter","container":{"type":"auto","memory_limit":"4g"}})",
               "tools[0].container.memory_limit ignored"},
           Row{R"({"type":"code_interpreter","xyzzy":1})", "tools[0].xyzzy ignored"},
       }) {
    const net::HttpResponse response = post(tool);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_NE(response.headers.get("x-pelton-warning").find(field), std::string_view::npos) << tool;
  }
  for (const auto& [more, field] : {
           Row{R"(,"include":["web_search_call.action.sources"])", "include[0] ignored"},
           Row{R"(,"max_tool_calls":4)", "max_tool_calls ignored"},
       }) {
    const net::HttpResponse response = post(R"({"type":"web_search"})", more);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_NE(response.headers.get("x-pelton-warning").find(field), std::string_view::npos) << more;
  }
  const net::HttpResponse obeyed =
      post(R"({"type":"web_search","filters":{"allowed_domains":[]},"external_web_access":true})",
           R"(,"max_tool_calls":3)");
  EXPECT_EQ(obeyed.status, 200) << obeyed.body;
  EXPECT_FALSE(obeyed.headers.has("x-pelton-warning"));
}

TEST_F(BuiltinToolsTest, ADeadlineEndsWhatWaits) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  ToolServers::Options slow = all();
  slow.time_max = std::chrono::seconds(30);
  serve(std::move(slow));
  mcp_.answer_as(TestToolServer::As::kSilence);
  net::HttpCall call = fixture_->call("POST", "/v1/responses", body("compute"));
  call.headers.add("x-request-timeout-ms", "300");
  const net::HttpResponse response = fixture_->fetch(std::move(call));
  EXPECT_EQ(response.status, 408) << response.body;
}

// What went before is gone on from; and an input may have the items back.
TEST_F(BuiltinToolsTest, ItemsAreTakenBack) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  const Json said = ask("compute");
  const Json next = ask("hello", R"(,"previous_response_id":")" + *said.string("id") + "\"");
  EXPECT_EQ(next.string("status"), "completed");
  Json asked;
  Json::Array input = said.find("output")->as_array();
  input.insert(input.begin(), parsed(R"({"role":"user","content":"compute"})"));
  input.push_back(parsed(R"({"role":"user","content":"hello"})"));
  asked.set("input", Json(std::move(input)));
  EXPECT_EQ(fixture_->post("/v1/responses", asked.dump()).status, 200);
}

// A gateway's request: only where it promises that no other worker goes on with it. Then its tokens
// are those of all rounds, in one row that ends once.
TEST_F(BuiltinToolsTest, ForAGatewayWhereNobodyElseGoesOn) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  serve(all());
  FleetServer fleet(fixture_->server(), fixture_->log());
  ASSERT_TRUE(fleet.open({.name = "one"}).ok());
  for (const bool stays : {false, true}) {
    cluster::RunEnvelope envelope{.incarnation = fleet.incarnation(),
                                  .request_id = "req_1",
                                  .gateway = "g",
                                  .method = "POST",
                                  .path = "/v1/responses"};
    if (stays) envelope.headers.emplace_back("x-pelton-stays", "1");
    std::string frames;
    cluster::append_frame(frames, {.type = cluster::FrameType::kRun, .payload = encode(envelope)});
    const std::string asked = body("compute");
    cluster::append_frame(frames, {.type = cluster::FrameType::kBody, .payload = asked});
    cluster::FrameReader reader;
    const net::HttpResponse answer = fixture_->fetch(
        {.method = "POST", .port = fleet.port(), .target = "/fleet/v1/run", .body = frames});
    reader.push(answer.body);
    size_t said = 0;
    int ends = 0;
    std::string response;
    for (auto frame = reader.next(); frame.ok() && *frame; frame = reader.next()) {
      if ((*frame)->type == cluster::FrameType::kFinished) ++ends;
      if ((*frame)->type == cluster::FrameType::kBytes) response += (*frame)->payload;
      if ((*frame)->type != cluster::FrameType::kTokens) continue;
      const auto list = cluster::decode_token_list((*frame)->payload);
      ASSERT_TRUE(list.ok());
      EXPECT_EQ(list->first, said);
      EXPECT_EQ(ends, 0);
      said += list->tokens.size();
    }
    EXPECT_EQ(ends, 1);
    EXPECT_EQ(mcp_.count("tools/call"), stays ? 1 : 0);
    const Json shown = parsed(response);
    EXPECT_EQ(text(shown) == "It is 42.", stays) << response;
    const Json& usage = *shown.find("usage");
    EXPECT_TRUE(!stays || usage.integer("output_tokens") == static_cast<int64_t>(said));
  }
}

TEST_F(BuiltinToolsTest, AClientThatLeavesEndsItsCall) {
  if (is_qwen3_shape()) GTEST_SKIP() << "has no tools of its own";
  ToolServers::Options slow = all();
  slow.time_max = std::chrono::seconds(30);
  serve(std::move(slow));
  mcp_.answer_as(TestToolServer::As::kSilence);
  net::HttpCall call =
      fixture_->call("POST", "/v1/responses", body("compute", R"(,"stream":true)"));
  std::atomic<bool> over = false;
  net::HttpCallEvents events;
  events.on_body = [](std::string_view) {};
  events.on_done = [&](const Result<void>&) { over = true; };
  const auto id = fixture_->client().start(std::move(call), std::move(events));
  EXPECT_TRUE(TestToolServer::soon([&] { return mcp_.count("tools/call") == 1; }));
  fixture_->client().cancel(id);
  EXPECT_TRUE(TestToolServer::soon([&] { return over.load(); }));
  EXPECT_TRUE(TestToolServer::soon([&] { return tools_->open_sessions() == 0; }));
  mcp_.answer_as(TestToolServer::As::kJson);
  EXPECT_EQ(text(ask("compute")), "It is 42.");
}

}  // namespace
}  // namespace pelton::server
