// The catalogue of bad inputs at /v1/messages, in the words of its clients: their errors have a
// type and a message, which names the field. AP-02, AP-09, AP-16, AP-27, AP-32 and AP-33 are of
// other endpoints.
#include <memory>

#include <gmock/gmock.h>

#include "server/catalogue_rows.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello there, friend.<|return|>"}]})";
constexpr char kPath[] = "/v1/messages";
const std::string kHi = R"("messages":[{"role":"user","content":"Hi"}])";

std::vector<CatalogueRow> rows() {
  const auto messages = [](const std::string& list) {
    return R"({"max_tokens":9,"messages":[)" + list + "]}";
  };
  const auto part = [&](const std::string& one) {
    return messages(R"({"role":"user","content":[)" + one + "]}");
  };
  const auto with = [](const std::string& members) {
    return R"({"max_tokens":9,)" + kHi + "," + members + "}";
  };
  const auto tokens = [](const std::string& count) {
    return R"({"max_tokens":)" + count + "," + kHi + "}";
  };
  const auto tool = [](const std::string& name) {
    return R"({"name":")" + name + R"(","input_schema":{"type":"object"}})";
  };
  const auto image = [&](const std::string& url) {
    return part(R"({"type":"image","source":{"type":"url","url":)" + json_text(url) + "}}");
  };
  return joined(
      common_rows(R"({"max_tokens":9,)" + kHi + ",", "}"),
      {{"AP01_no_messages", R"({"max_tokens":9})", "messages"},
       {"AP01_empty", messages(""), "messages"},
       {"AP01_role_root", messages(R"({"role":"root","content":"x"})"), "messages[0].role"},
       {"AP01_null_content", messages(R"({"role":"user","content":null})"), "messages[0].content"},
       {"AP01_unknown_part", part(R"({"type":"smell"})"), "messages[0].content[0].type"},
       {"AP03_unknown_model", with(R"("model":"gpt-9")"), "gpt-9", 404},
       {"AP04_texts_for_messages", messages(repeated(100'000, R"("x")")), "messages"},
       {"AP05_token_ids", messages("1,-1"), "messages[0]"},
       {"AP06_long_prompt",
        messages(R"({"role":"user","content":")" + std::string(5000, 'x') + "\"}"),
        "prompt is too long"},
       {"AP06_long_answer", tokens("4096"), "context"},
       {"AP07_none", "{" + kHi + "}", "max_tokens"},
       {"AP07_zero", tokens("0"), "max_tokens"},
       {"AP07_negative", tokens("-1"), "max_tokens"},
       {"AP07_beyond_int", tokens("2147483648"), "max_tokens"},
       {"AP07_text", tokens("\"5\""), "max_tokens"},
       {"AP08_two", with(R"("n":2)"), "'n'"},
       {"AP19_above_max", with(R"("min_tokens":10)"), "min_tokens"},
       {"AP21_many_sequences", with("\"stop_sequences\":[" + repeated(17, R"("x")") + "]"),
        "stop_sequences"},
       {"AP21_empty_sequence", with(R"("stop_sequences":[""])"), "stop_sequences[0]"},
       {"AP23_two_formats",
        with(R"("output_format":{"type":"json_schema","schema":{}},"guided_regex":"a")"),
        "output_format"},
       {"AP24_blank_in_name", with("\"tools\":[" + tool("a b") + "]"), "tools[0].name"},
       {"AP24_long_name", with("\"tools\":[" + tool(std::string(129, 'a')) + "]"), "tools[0].name"},
       {"AP24_twice", with("\"tools\":[" + tool("f") + "," + tool("f") + "]"), "tools[1].name"},
       {"AP24_schema", with(R"("tools":[{"name":"f","input_schema":[]}])"),
        "tools[0].input_schema"},
       {"AP24_many", with("\"tools\":[" + repeated(129, tool("f#")) + "]"), "tools"},
       {"AP25_unknown_function",
        with("\"tools\":[" + tool("f") + R"(],"tool_choice":{"type":"tool","name":"g"})"),
        "tool_choice.name"},
       {"AP25_any_without", with(R"("tool_choice":{"type":"any"})"), "tool_choice"},
       {"AP26_no_such_call", part(R"({"type":"tool_result","tool_use_id":"x","content":"y"})"),
        "messages[0].content[0].tool_use_id"},
       {"AP28_user_id", with(R"("metadata":{"user_id":")" + std::string(600, 'u') + "\"}"),
        "metadata"},
       {"AP31_http", image("http://127.0.0.1:1/x.png"), "messages[0].content[0]"},
       {"AP31_metadata_address", image("http://169.254.169.254/"), "messages[0].content[0]"},
       {"AP31_file", image("file:///etc/passwd"), "messages[0].content[0]"},
       {"AP31_backslashes", image("http:\\\\@host"), "messages[0].content[0]"},
       {"AP36_effort", with(R"("output_config":{"effort":"ultra"})"), "output_config.effort"},
       {"HM05_role", messages(R"({"role":"user<|end|>","content":"x"})"), "messages[0].role"},
       {"HM05_model", with(R"("model":"tiny<|end|>")"), "tiny", 404},
       {"HM07_ids", messages("200006"), "messages[0]"}});
}

class CatalogueMessages : public testing::TestWithParam<CatalogueRow> {
 protected:
  static void SetUpTestSuite() {
    fixture_ = std::make_unique<ServerFixture>(kScript, ServerFixture::Options{});
  }
  static void TearDownTestSuite() { fixture_.reset(); }

  static std::unique_ptr<ServerFixture> fixture_;
};

std::unique_ptr<ServerFixture> CatalogueMessages::fixture_;

TEST_P(CatalogueMessages, over_http) {
  const CatalogueRow& row = GetParam();
  const net::HttpResponse response = fixture_->post(kPath, row.body);
  EXPECT_EQ(response.status, row.status) << response.body.substr(0, 300);
  const Json answer = parsed(response.body);
  EXPECT_EQ(answer.string("type"), "error");
  const Json* error = answer.find("error");
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->string("type"), row.status == 404 ? "not_found_error" : "invalid_request_error");
  const std::string message = error->string("message").value_or("");
  EXPECT_FALSE(message.empty());
  EXPECT_LT(message.size(), 1000u);
  EXPECT_THAT(message, testing::HasSubstr(row.param));
  EXPECT_EQ(fixture_->post(kPath, R"({"max_tokens":9,)" + kHi + "}").status, 200);
  EXPECT_TRUE(becomes_clean(fixture_->engine()));
}

INSTANTIATE_TEST_SUITE_P(Rows, CatalogueMessages, testing::ValuesIn(rows()), name_of_row);

TEST(CatalogueMessagesToo, AP10_a_long_answer_in_a_small_pool) {
  ServerFixture::Options small;
  small.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.capacity.groups[0].block_counts[kv::kDevice] = 300;
    executor.capacity.groups[1].block_counts[kv::kDevice] = 120;
  };
  ServerFixture fixture(kScript, std::move(small));
  EXPECT_EQ(fixture.post(kPath, R"({"max_tokens":3700,)" + kHi + "}").status, 200);
}

TEST(CatalogueMessagesToo, AP18_everything_banned_ends) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse response =
      fixture.post(kPath, R"({"max_tokens":50,"logit_bias":{)" + repeated(4096, R"("#":-100)") +
                              "}," + kHi + "}");
  EXPECT_EQ(response.status, 200);
  EXPECT_LE(parsed(response.body).find("usage")->integer("output_tokens"), 50);
}

TEST(CatalogueMessagesToo, AP34_deadlines) {
  ServerFixture fixture(kScript, {});
  for (const char* ms : {"0", "-5", "86400001", "1e3", "soon"}) {
    net::HttpCall call = fixture.call("POST", kPath, R"({"max_tokens":9,)" + kHi + "}");
    call.headers.add("x-request-timeout-ms", ms);
    const net::HttpResponse response = fixture.fetch(std::move(call));
    EXPECT_EQ(response.status, 400) << ms;
    EXPECT_THAT(response.body, testing::HasSubstr("x-request-timeout-ms"));
  }
  EXPECT_EQ(fixture.engine().stats().steps.count, 0) << "nothing is computed for them";
}

}  // namespace
}  // namespace pelton::server
