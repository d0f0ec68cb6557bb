// The catalogue of bad inputs at /v1/responses: each row over HTTP and over a WebSocket, where one
// connection takes them all. AP-02, AP-09, AP-32 and AP-33 are of other endpoints; AP-10 and AP-18
// are no refusals and stand at the end.
#include <memory>

#include "net/test_websocket.h"
#include "server/catalogue_rows.h"
#include "server/response_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello there, friend.<|return|>"}]})";
constexpr char kPath[] = "/v1/responses";

std::vector<CatalogueRow> rows() {
  const auto item = [](const std::string& one) { return R"({"input":[)" + one + "]}"; };
  const auto part = [&](const std::string& one) {
    return item(R"({"role":"user","content":[)" + one + "]}");
  };
  const auto with = [](const std::string& members) { return R"({"input":"x",)" + members + "}"; };
  const auto tool = [](const std::string& name) {
    return R"({"type":"function","name":")" + name + "\"}";
  };
  const std::string format = R"("text":{"format":{"type":"json_object"}})";
  return joined(
      common_rows(R"({"input":"x",)", "}"),
      {{"AP01_no_input", R"({"model":"tiny"})", "input"},
       {"AP01_empty_input", R"({"input":[]})", "input"},
       {"AP01_null_input", R"({"input":null})", "input"},
       {"AP01_role_root", item(R"({"role":"root","content":"x"})"), "input[0].role"},
       {"AP01_null_content", item(R"({"role":"user","content":null})"), "input[0].content"},
       {"AP01_unknown_part", part(R"({"type":"smell"})"), "input[0].content[0].type"},
       {"AP01_unknown_item", item(R"({"type":"smell"})"), "input[0].type"},
       {"AP03_unknown_model", with(R"("model":"gpt-9")"), "model", 404, "model_not_found"},
       {"AP04_texts_for_items", item(repeated(100'000, R"("x")")), "input"},
       {"AP05_token_ids", R"({"input":[1,-1]})", "input[0]"},
       {"AP06_long_input", R"({"input":")" + std::string(5000, 'x') + "\"}", "input", 400,
        "context_length_exceeded"},
       {"AP06_long_output", with(R"("max_output_tokens":4096)"), "input", 400,
        "context_length_exceeded"},
       {"AP07_zero", with(R"("max_output_tokens":0)"), "max_output_tokens"},
       {"AP07_negative", with(R"("max_output_tokens":-1)"), "max_output_tokens"},
       {"AP07_beyond_int", with(R"("max_output_tokens":2147483648)"), "max_output_tokens"},
       {"AP07_beyond_long", with(R"("max_output_tokens":9223372036854775808)"),
        "max_output_tokens"},
       {"AP07_text", with(R"("max_output_tokens":"5")"), "max_output_tokens"},
       {"AP08_two", with(R"("n":2)"), "n"},
       {"AP16_top_logprobs", with(R"("top_logprobs":21)"), "top_logprobs"},
       {"AP19_above_max", with(R"("min_tokens":6,"max_output_tokens":5)"), "min_tokens"},
       {"AP19_far_above", with(R"("min_tokens":1000000000)"), "input", 400,
        "context_length_exceeded"},
       {"AP23_two_formats", with(format + R"(,"structured_outputs":{"regex":"a"})"), "text.format"},
       {"AP24_blank_in_name", with("\"tools\":[" + tool("a b") + "]"), "tools[0].name"},
       {"AP24_long_name", with("\"tools\":[" + tool(std::string(65, 'a')) + "]"), "tools[0].name"},
       {"AP24_twice", with("\"tools\":[" + tool("f") + "," + tool("f") + "]"), "tools[1].name"},
       {"AP24_parameters", with(R"("tools":[{"type":"function","name":"f","parameters":[]}])"),
        "tools[0].parameters"},
       {"AP24_many", with("\"tools\":[" + repeated(129, tool("f#")) + "]"), "tools"},
       {"AP25_unknown_function",
        with("\"tools\":[" + tool("f") + R"(],"tool_choice":{"type":"function","name":"g"})"),
        "tool_choice.name"},
       {"AP25_required_without", with(R"("tool_choice":"required")"), "tool_choice"},
       {"AP25_unknown_word", with(R"("tool_choice":"some")"), "tool_choice"},
       {"AP26_no_such_call", item(R"({"type":"function_call_output","call_id":"x","output":"y"})"),
        "input[0].call_id"},
       {"AP26_no_call_id", item(R"({"type":"function_call_output","output":"y"})"),
        "input[0].call_id"},
       {"AP31_http", part(R"({"type":"input_image","image_url":"http://127.0.0.1:1/x.png"})"),
        "input[0].content[0].type"},
       {"AP31_metadata_address",
        part(R"({"type":"input_image","image_url":"http://169.254.169.254/"})"),
        "input[0].content[0].type"},
       {"AP31_file", part(R"({"type":"input_image","image_url":"file:///etc/passwd"})"),
        "input[0].content[0].type"},
       {"AP31_data", part(R"({"type":"input_file","file_data":"data:x;base64,AAAA"})"),
        "input[0].content[0].type"},
       {"AP36_effort", with(R"("reasoning":{"effort":"ultra"})"), "reasoning.effort"},
       {"HM05_role", item(R"({"role":"user<|end|>","content":"x"})"), "input[0].role"},
       {"HM05_model", with(R"("model":"tiny<|end|>")"), "model", 404, "model_not_found"},
       {"HM07_ids", R"({"input":[200006]})", "input[0]"}});
}

class CatalogueResponses : public testing::TestWithParam<CatalogueRow> {
 protected:
  // One server for all: what one bad request leaves would show in the next.
  static void SetUpTestSuite() {
    fixture_ = std::make_unique<ServerFixture>(kScript, ServerFixture::Options{});
    socket_ = std::make_unique<net::TestWebSocket>(fixture_->http().port(), kPath);
  }
  static void TearDownTestSuite() {
    socket_.reset();
    fixture_.reset();
  }

  static void expect_error(const Json& answer, const CatalogueRow& row) {
    const Json* error = answer.find("error");
    ASSERT_NE(error, nullptr) << answer.dump().substr(0, 300);
    EXPECT_FALSE(error->string("message").value_or("").empty());
    EXPECT_LT(error->string("message").value_or("").size(), 1000u);
    EXPECT_EQ(error->string("type"), "invalid_request_error");
    ASSERT_NE(error->find("param"), nullptr);
    EXPECT_EQ(error->string("param").value_or(""), row.param) << error->dump();
    EXPECT_EQ(error->string("code"), row.code);
  }

  static std::unique_ptr<ServerFixture> fixture_;
  static std::unique_ptr<net::TestWebSocket> socket_;
};

std::unique_ptr<ServerFixture> CatalogueResponses::fixture_;
std::unique_ptr<net::TestWebSocket> CatalogueResponses::socket_;

TEST_P(CatalogueResponses, over_http) {
  const net::HttpResponse response = fixture_->post(kPath, GetParam().body);
  EXPECT_EQ(response.status, GetParam().status) << response.body.substr(0, 300);
  expect_error(parsed(response.body), GetParam());
  EXPECT_EQ(fixture_->post(kPath, R"({"input":"hi"})").status, 200) << "the server still answers";
  EXPECT_TRUE(becomes_clean(fixture_->engine()));
}

TEST_P(CatalogueResponses, over_websocket) {
  // The message says what it is, and then is the same body.
  socket_->text(R"({"type":"response.create",)" + GetParam().body.substr(1));
  const net::TestWebSocket::Frame frame = socket_->read();
  ASSERT_EQ(frame.opcode, net::WebSocketOpcode::kText);
  const Json event = parsed(frame.payload);
  // Every response is a stream here.
  if (GetParam().name == "AP27_stream_options") {
    EXPECT_EQ(event.string("type"), "response.created");
  } else {
    EXPECT_EQ(event.string("type"), "error");
    // What is no JSON at all names nothing, here as there.
    EXPECT_EQ(event.integer("status"), GetParam().status) << frame.payload;
    expect_error(event, GetParam());
    socket_->text(R"({"type":"response.create","input":"hi"})");
  }
  ResponseStreamReader reader;
  if (GetParam().name == "AP27_stream_options") reader.event(event);
  while (!reader.over() && !HasFailure()) {
    const net::TestWebSocket::Frame next = socket_->read();
    ASSERT_EQ(next.opcode, net::WebSocketOpcode::kText);
    reader.event(parsed(next.payload));
  }
  EXPECT_EQ(reader.text.status, "completed") << "the connection still answers";
}

INSTANTIATE_TEST_SUITE_P(Rows, CatalogueResponses, testing::ValuesIn(rows()), name_of_row);

TEST(CatalogueResponsesToo, AP10_a_long_answer_in_a_small_pool) {
  ServerFixture::Options small;
  small.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.capacity.groups[0].block_counts[kv::kDevice] = 300;
    executor.capacity.groups[1].block_counts[kv::kDevice] = 120;
  };
  ServerFixture fixture(kScript, std::move(small));
  EXPECT_EQ(fixture.post(kPath, R"({"input":"x","max_output_tokens":3700})").status, 200);
}

TEST(CatalogueResponsesToo, AP18_everything_banned_ends) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse response =
      fixture.post(kPath, R"({"input":"x","max_output_tokens":50,"logit_bias":{)" +
                              repeated(4096, R"("#":-100)") + "}}");
  EXPECT_EQ(response.status, 200);
  EXPECT_LE(parsed(response.body).find("usage")->integer("output_tokens"), 50);
}

TEST(CatalogueResponsesToo, AP34_deadlines) {
  ServerFixture fixture(kScript, {});
  for (const char* ms : {"0", "-5", "86400001", "1e3", "soon"}) {
    net::HttpCall call = fixture.call("POST", kPath, R"({"input":"x"})");
    call.headers.add("x-request-timeout-ms", ms);
    const net::HttpResponse response = fixture.fetch(std::move(call));
    EXPECT_EQ(response.status, 400) << ms;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), "x-request-timeout-ms");
    // A handshake's header holds for all that the connection asks.
    net::TestWebSocket socket(fixture.http().port(), kPath,
                              std::string("x-request-timeout-ms: ") + ms + "\r\n");
    socket.text(R"({"type":"response.create","input":"x"})");
    const Json event = parsed(socket.read().payload);
    EXPECT_EQ(event.integer("status"), 400) << ms;
    EXPECT_EQ(event.find("error")->string("param"), "x-request-timeout-ms");
  }
  EXPECT_EQ(fixture.engine().stats().steps.count, 0) << "nothing is computed for them";
}

// The end of one response over a connection that stays.
ResponseText said_over(net::TestWebSocket& socket, const std::string& members) {
  socket.text(R"({"type":"response.create",)" + members + "}");
  ResponseStreamReader reader;
  while (!reader.over() && !testing::Test::HasFailure()) {
    const net::TestWebSocket::Frame next = socket.read(20'000);
    EXPECT_EQ(next.opcode, net::WebSocketOpcode::kText);
    if (next.opcode == net::WebSocketOpcode::kText) reader.event(parsed(next.payload));
  }
  return reader.text;
}

TEST(CatalogueResponsesToo, AP10_AP18_over_websocket) {
  ServerFixture::Options small;
  small.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.capacity.groups[0].block_counts[kv::kDevice] = 300;
    executor.capacity.groups[1].block_counts[kv::kDevice] = 120;
  };
  ServerFixture fixture(kScript, std::move(small));
  net::TestWebSocket socket(fixture.http().port(), kPath);
  EXPECT_EQ(said_over(socket, R"("input":"x","max_output_tokens":3700)").status, "completed");
  const ResponseText banned =
      said_over(socket, R"("input":"x","max_output_tokens":50,"logit_bias":{)" +
                            repeated(4096, R"("#":-100)") + "}");
  EXPECT_NE(banned.status, "");
  EXPECT_EQ(said_over(socket, R"("input":"x")").status, "completed") << "and it still answers";
}

TEST(CatalogueResponsesToo, HM14_many_turns_over_websocket) {
  ServerFixture::Options options;
  options.model = [](ServedModel& model) { model.context_max = 100'000; };
  ServerFixture fixture(R"({"context": 100000, "rules": [
      {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"}]})",
                        std::move(options));
  std::string items = R"({"role":"user","content":"x"})";
  for (int i = 0; i < 1000; ++i) {
    const std::string id = std::to_string(i);
    items += R"(,{"type":"function_call","call_id":")" + id +
             R"(","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":")" + id +
             R"(","output":"y"})";
  }
  net::TestWebSocket socket(fixture.http().port(), kPath);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(said_over(socket, "\"input\":[" + items + "]").status, "completed");
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
}

}  // namespace
}  // namespace pelton::server
