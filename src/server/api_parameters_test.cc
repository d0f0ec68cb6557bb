// Rows AP-01 to AP-36 of the catalogue of bad inputs, over HTTP: status and error object. What our
// answer differs in from the catalogue stands at the row.
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_writer.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello there, friend.<|return|>"},
  {"when": "long", "then": ["<|channel|>final<|message|>", {"text": "word ", "times": 2000}]}]})";

constexpr char kChatPath[] = "/v1/chat/completions";
constexpr char kTextPath[] = "/v1/completions";
constexpr char kHi[] = R"([{"role":"user","content":"Hi"}])";

std::string chat(const std::string& more) {
  return std::string(R"({"messages":)") + kHi + (more.empty() ? "" : "," + more) + "}";
}
std::string text(const std::string& more) {
  return R"({"prompt":"Hi")" + (more.empty() ? "" : "," + more) + "}";
}
std::string tool(const std::string& name) {
  return R"({"type":"function","function":{"name":")" + name + "\"}}";
}
std::string many(int count, const std::string& item) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + item;
  return list;
}

struct Refused {
  const char* path;
  std::string body;
  std::string param;  // what the error object names; empty: null
  int status = 400;
  std::string code = "invalid_value";
};

class ApiParameters : public testing::Test {
 protected:
  // One server for all: what one bad request leaves would show in the next.
  static void SetUpTestSuite() { fixture_ = std::make_unique<ServerFixture>(kScript, options()); }
  static void TearDownTestSuite() { fixture_.reset(); }
  static ServerFixture::Options options() { return {}; }

  void TearDown() override {
    const net::HttpResponse after = fixture_->post(kChatPath, chat(""));
    EXPECT_EQ(after.status, 200) << "the server still answers";
  }

  void refuses(const std::vector<Refused>& rows) {
    for (const Refused& row : rows) {
      SCOPED_TRACE(row.body.substr(0, 300));
      const net::HttpResponse response = fixture_->post(row.path, row.body);
      EXPECT_EQ(response.status, row.status) << response.body.substr(0, 300);
      const Json body = parsed(response.body);
      const Json* error = body.find("error");
      ASSERT_NE(error, nullptr);
      EXPECT_FALSE(error->string("message").value_or("").empty());
      EXPECT_LT(error->string("message").value_or("").size(), 1000u);
      EXPECT_EQ(error->string("type"), "invalid_request_error");
      ASSERT_NE(error->find("param"), nullptr);
      EXPECT_EQ(error->string("param").value_or(""), row.param);
      EXPECT_EQ(error->string("code"), row.code);
    }
  }
  Json accepts(const char* path, const std::string& body) {
    SCOPED_TRACE(body.substr(0, 300));
    const net::HttpResponse response = fixture_->post(path, body);
    EXPECT_EQ(response.status, 200) << response.body.substr(0, 300);
    return parsed(response.body);
  }

  static std::unique_ptr<ServerFixture> fixture_;
};

std::unique_ptr<ServerFixture> ApiParameters::fixture_;

TEST_F(ApiParameters, AP01_Messages) {
  refuses({{kChatPath, R"({"messages":[]})", "messages"},
           {kChatPath, "{}", "messages"},
           {kChatPath, R"({"messages":[{"role":"root","content":"x"}]})", "messages[0].role"},
           {kChatPath, R"({"messages":[{"role":"user","content":null}]})", "messages[0].content"},
           {kChatPath, R"({"messages":[{"role":"user","content":[{"type":"smell"}]}]})",
            "messages[0].content[0].type"}});
}

TEST_F(ApiParameters, AP02_EmptyPrompts) {
  refuses({{kTextPath, R"({"prompt":""})", "prompt"},
           {kTextPath, R"({"prompt":[]})", "prompt"},
           {kTextPath, R"({"prompt":[[]]})", "prompt[0]"},
           {kTextPath, R"({"prompt":null})", "prompt"},
           {kTextPath, "{}", "prompt"}});
}

TEST_F(ApiParameters, AP03_UnknownModel) {
  for (const char* path : {kChatPath, kTextPath}) {
    refuses({{path, path == kChatPath ? chat(R"("model":"gpt-9")") : text(R"("model":"gpt-9")"),
              "model", 404, "model_not_found"}});
  }
}

TEST_F(ApiParameters, AP04_ManyPrompts) {
  refuses({{kTextPath, "{\"prompt\":[" + many(100'000, R"("x")") + "]}", "prompt"}});
}

TEST_F(ApiParameters, AP05_TokenIds) {
  const std::string vocab = std::to_string(fixture_->model().vocab_size);
  for (const std::string& bad : {std::string("-1"), vocab, std::string("2147483648"),
                                 std::string("1.5"), std::string("\"7\"")}) {
    refuses({{kTextPath, R"({"prompt":[72,)" + bad + "]}", "prompt[1]"},
             {kTextPath, R"({"prompt":[[72],[72,)" + bad + "]]}", "prompt[1][1]"},
             {"/detokenize", R"({"tokens":[72,)" + bad + "]}", "tokens[1]"}});
  }
}

TEST_F(ApiParameters, AP06_BeyondTheContext) {
  const auto context = static_cast<size_t>(fixture_->model().context_limit());
  const std::string just_fits(context - 1, 'x');  // a token each; one is left for the answer
  EXPECT_EQ(accepts(kTextPath, "{\"max_tokens\":1,\"prompt\":\"" + just_fits + "\"}")
                .find("usage")
                ->integer("prompt_tokens"),
            static_cast<int64_t>(context) - 1);
  refuses({{kTextPath, "{\"max_tokens\":1,\"prompt\":\"" + just_fits + "x\"}", "prompt", 400,
            "context_length_exceeded"},
           {kTextPath, "{\"max_tokens\":2,\"prompt\":\"" + just_fits + "\"}", "prompt", 400,
            "context_length_exceeded"},
           {kChatPath, chat("\"max_tokens\":" + std::to_string(context)), "messages", 400,
            "context_length_exceeded"}});
}

// C: a prompt that does not fit for the schema in it is the schema's fault.
TEST_F(ApiParameters, C_ASchemaThatIsTooLongIsNamed) {
  const auto context = static_cast<size_t>(fixture_->model().context_limit());
  const auto asked = [&](size_t said, size_t described) {
    return R"({"messages":[{"role":"user","content":")" + std::string(said, 'x') +
           R"("}],"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)"
           R"({"type":"object","description":")" +
           std::string(described, 'x') + R"("}}}})";
  };
  refuses({{kChatPath, asked(1, context), "response_format.json_schema.schema", 400,
            "context_length_exceeded"},
           {kChatPath, asked(context, 1), "messages", 400, "context_length_exceeded"}});
  const net::HttpResponse response = fixture_->post(kChatPath, asked(1, context));
  EXPECT_NE(response.body.find("'response_format.json_schema.schema', which the model is shown"),
            std::string::npos)
      << response.body;
}

TEST_F(ApiParameters, AP07_MaxTokens) {
  const Json none = accepts(kTextPath, text(R"("max_tokens":0)"));
  EXPECT_EQ(none.find("choices")->as_array().at(0).string("text"), "");
  refuses({{kChatPath, chat(R"("max_tokens":0)"), "max_tokens"},
           {kChatPath, chat(R"("max_tokens":"5")"), "max_tokens"},
           {kChatPath, chat(R"("max_tokens":-2)"), "max_tokens"},
           {kChatPath, chat(R"("max_tokens":2147483648)"), "max_tokens"},
           {kTextPath, text(R"("max_tokens":9223372036854775808)"), "max_tokens"},
           {kTextPath, text(R"("max_tokens":-2)"), "max_tokens"}});
  // Where both are there the newer name counts.
  const Json both = accepts(kChatPath, chat(R"("max_tokens":9,"max_completion_tokens":4)"));
  EXPECT_EQ(both.find("usage")->integer("completion_tokens"), 4);
}

TEST_F(ApiParameters, AP08_ChoiceCounts) {
  for (const char* n : {"0", "-1", "129", "1000000000", "1.5"}) {
    refuses({{kChatPath, chat(std::string("\"n\":") + n), "n"},
             {kTextPath, text(std::string("\"n\":") + n), "n"}});
  }
}

TEST_F(ApiParameters, AP09_BestOf) {
  refuses({{kTextPath, text(R"("best_of":21)"), "best_of"},
           {kTextPath, text(R"("best_of":-1)"), "best_of"},
           {kTextPath, text(R"("best_of":2,"n":3)"), "best_of", 400, "invalid_value"},
           {kTextPath, text(R"("best_of":2,"stream":true)"), "best_of", 400, "invalid_value"}});
}

// In a pool that holds a fraction of it: as many as may wait are computed one after the other.
TEST_F(ApiParameters, AP10_ManyLongChoices) {
  ServerFixture::Options small;
  small.engine.inbox_max = 64;
  small.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.checks = false;
    executor.capacity.groups[0].block_counts[kv::kDevice] = 300;
    executor.capacity.groups[1].block_counts[kv::kDevice] = 120;
  };
  ServerFixture fixture(kScript, std::move(small));
  const net::HttpResponse some = fixture.post(kChatPath, chat(R"("n":24,"max_tokens":3800)"));
  EXPECT_EQ(some.status, 200) << some.body.substr(0, 300);
  const net::HttpResponse one = fixture.post(kChatPath, chat(R"("n":128,"max_tokens":3800)"));
  EXPECT_TRUE(one.status == 200 || one.status == 429) << one.status;
}

TEST_F(ApiParameters, AP11_Temperature) {
  refuses({{kChatPath, chat(R"("temperature":-0.1)"), "temperature"},
           {kChatPath, chat(R"("temperature":2.1)"), "temperature"},
           {kTextPath, text(R"("temperature":2.1)"), "temperature"}});
}

TEST_F(ApiParameters, AP12_NoNumbers) {
  for (const std::string field : {"temperature", "top_p", "min_p", "presence_penalty",
                                  "frequency_penalty", "repetition_penalty"}) {
    refuses({{kChatPath, chat("\"" + field + "\":\"0.5\""), field},
             // No JSON at all.
             {kChatPath, chat("\"" + field + "\":NaN"), ""},
             {kChatPath, chat("\"" + field + "\":1e400"), ""}});
  }
}

TEST_F(ApiParameters, AP13_Cuts) {
  refuses({{kChatPath, chat(R"("top_p":0)"), "top_p"},
           {kChatPath, chat(R"("top_p":1.0001)"), "top_p"},
           {kChatPath, chat(R"("top_k":-2)"), "top_k"},
           {kChatPath, chat(R"("top_k":2147483648)"), "top_k"},
           {kChatPath, chat(R"("min_p":2)"), "min_p"}});
  accepts(kChatPath, chat(R"("top_k":0)"));  // all
}

TEST_F(ApiParameters, AP14_Penalties) {
  refuses({{kChatPath, chat(R"("presence_penalty":2.1)"), "presence_penalty"},
           {kChatPath, chat(R"("frequency_penalty":-2.1)"), "frequency_penalty"}});
}

TEST_F(ApiParameters, AP15_Seeds) {
  refuses({{kChatPath, chat(R"("seed":18446744073709551616)"), "seed"},
           {kChatPath, chat(R"("seed":-9223372036854775809)"), "seed"},
           {kChatPath, chat(R"("seed":"x")"), "seed"}});
  accepts(kChatPath, chat(R"("seed":9223372036854775807)"));
  accepts(kChatPath, chat(R"("seed":-9223372036854775808)"));
}

TEST_F(ApiParameters, AP16_Logprobs) {
  refuses({{kTextPath, text(R"("logprobs":21)"), "logprobs"},
           {kChatPath, chat(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs"},
           {kChatPath, chat(R"("top_logprobs":2)"), "top_logprobs"}});
}

TEST_F(ApiParameters, AP17_LogitBias) {
  std::string keys;
  for (int i = 0; i < 200'000; ++i) keys += fmt::format("{}\"{}\":1", i == 0 ? "" : ",", i);
  const auto before = std::chrono::steady_clock::now();
  refuses({{kChatPath, chat("\"logit_bias\":{" + keys + "}"), "logit_bias"}});
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
  refuses({{kChatPath, chat(R"("logit_bias":{"-1":1})"), "logit_bias"},
           {kChatPath, chat(R"("logit_bias":{"abc":1})"), "logit_bias"},
           {kChatPath, chat(R"("logit_bias":{"5":101})"), "logit_bias.5"},
           {kChatPath, chat(R"("logit_bias":{"5":NaN})"), ""}});
}

// 4096 keys are allowed, which is a small vocabulary's all: it ends by its length at the latest.
TEST_F(ApiParameters, AP18_EverythingBanned) {
  std::string keys;
  for (int i = 0; i < 4096; ++i) keys += fmt::format("{}\"{}\":-100", i == 0 ? "" : ",", i);
  const Json answer = accepts(kChatPath, chat("\"max_tokens\":50,\"logit_bias\":{" + keys + "}"));
  EXPECT_LE(answer.find("usage")->integer("completion_tokens"), 50);
}

TEST_F(ApiParameters, AP19_MinTokens) {
  refuses({{kChatPath, chat(R"("min_tokens":6,"max_tokens":5)"), "min_tokens"},
           {kChatPath, chat(R"("min_tokens":-1)"), "min_tokens"},
           {kChatPath, chat(R"("min_tokens":1000000000)"), "messages", 400,
            "context_length_exceeded"}});
}

TEST_F(ApiParameters, AP20_StopTokens) {
  const std::string vocab = std::to_string(fixture_->model().vocab_size);
  refuses({{kChatPath, chat("\"min_tokens\":2,\"stop_token_ids\":[" + vocab + "]"),
            "stop_token_ids[0]"},
           {kChatPath, chat(R"("stop_token_ids":[-1])"), "stop_token_ids[0]"},
           {kChatPath, chat("\"stop_token_ids\":[" + many(65, "7") + "]"), "stop_token_ids"}});
}

// OpenAI takes 4; agents send more, so 16 are allowed here.
TEST_F(ApiParameters, AP21_StopStrings) {
  refuses({{kChatPath, chat("\"stop\":[" + many(17, R"("x")") + "]"), "stop"},
           {kChatPath, chat(R"("stop":"")"), "stop"},
           {kChatPath, chat(R"("stop":["a",""])"), "stop[1]"},
           {kChatPath, chat("\"stop\":\"" + std::string(1 << 20, 'x') + "\""), "stop"},
           {kChatPath, chat(R"("stop":[["a"]])"), "stop[0]"}});
  // Four that begin alike, over token borders: the first that is whole ends it, no part leaks.
  const Json cut = accepts(
      kChatPath, chat(R"("stop":["there, foe","there, fri","there, friends","there, friendly"])"));
  EXPECT_EQ(cut.find("choices")->as_array().at(0).find("message")->string("content"), "Hello ");
}

TEST_F(ApiParameters, AP22_AllowedAndBadWords) {
  refuses({{kChatPath, chat(R"("allowed_token_ids":[])"), "allowed_token_ids"},
           {kChatPath, chat(R"("allowed_token_ids":[-1])"), "allowed_token_ids[0]"},
           {kChatPath, chat(R"("allowed_token_ids":[1,"2"])"), "allowed_token_ids[1]"},
           {kChatPath, chat(R"("allowed_token_ids":[999999999])"), "allowed_token_ids[0]"},
           {kChatPath, chat(R"("bad_words":["x",""])"), "bad_words[1]"},
           {kChatPath, chat(R"("bad_words":"x")"), "bad_words"},
           {kChatPath, chat("\"bad_words\":[\"" + std::string(257, 'x') + "\"]"), "bad_words[0]"}});
  accepts(kChatPath, chat(R"("allowed_token_ids":[1,2])"));
  accepts(kChatPath, chat(R"("bad_words":["x"," y","a word of several"])"));
}

TEST_F(ApiParameters, AP13_CutsByTheDistribution) {
  refuses({{kChatPath, chat(R"("typical_p":0)"), "typical_p"},
           {kChatPath, chat(R"("typ_p":1.1)"), "typ_p"},
           {kChatPath, chat(R"("typ_p":0.5,"typical_p":0.6)"), "typ_p"},
           {kChatPath, chat(R"("top_n_sigma":-2)"), "top_n_sigma"},
           {kChatPath, chat(R"("top_n_sigma":"1")"), "top_n_sigma"},
           {kChatPath, chat(R"("xtc_probability":1.5)"), "xtc_probability"},
           {kChatPath, chat(R"("xtc_threshold":-0.1)"), "xtc_threshold"},
           {kChatPath, chat(R"("dynatemp_range":9)"), "dynatemp_range"},
           {kChatPath, chat(R"("dynatemp_exponent":0)"), "dynatemp_exponent"},
           {kChatPath, chat(R"("dry_multiplier":-1)"), "dry_multiplier"},
           {kChatPath, chat(R"("dry_base":0.5)"), "dry_base"},
           {kChatPath, chat(R"("dry_allowed_length":-1)"), "dry_allowed_length"},
           {kChatPath, chat(R"("dry_penalty_last_n":-2)"), "dry_penalty_last_n"},
           {kChatPath, chat(R"("dry_sequence_breakers":[""])"), "dry_sequence_breakers[0]"}});
  accepts(kChatPath, chat(R"("typical_p":0.5,"top_n_sigma":1,"xtc_probability":1,)"
                          R"("dynatemp_range":0.5,"dry_multiplier":0.8)"));
}

TEST_F(ApiParameters, AP24_Tools) {
  refuses(
      {{kChatPath, chat("\"tools\":[" + tool("a b") + "]"), "tools[0].function.name"},
       {kChatPath, chat("\"tools\":[" + tool(std::string(65, 'a')) + "]"),
        "tools[0].function.name"},
       {kChatPath, chat("\"tools\":[" + tool("f") + "," + tool("f") + "]"),
        "tools[1].function.name"},
       {kChatPath, chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"),
        "tools[0].function.parameters"}});
  std::string list;
  for (int i = 0; i < 129; ++i) list += (i == 0 ? "" : ",") + tool("f" + std::to_string(i));
  refuses({{kChatPath, chat("\"tools\":[" + list + "]"), "tools"}});
}

TEST_F(ApiParameters, AP25_ToolChoice) {
  const std::string tools = "\"tools\":[" + tool("f") + "],";
  refuses({{kChatPath, chat(tools + R"("tool_choice":{"type":"function","function":{"name":"g"}})"),
            "tool_choice.function.name"},
           {kChatPath, chat(R"("tool_choice":"required")"), "tool_choice"},
           {kChatPath, chat(tools + R"("tool_choice":"some")"), "tool_choice"}});
}

// Arguments that are no JSON are accepted: the model itself may have written them, and its slip
// must not end the conversation.
TEST_F(ApiParameters, AP26_ToolMessages) {
  refuses(
      {{kChatPath, R"({"messages":[{"role":"tool","content":"x","tool_call_id":"no"}]})",
        "messages[0].tool_call_id"},
       {kChatPath, R"({"messages":[{"role":"tool","content":"x"}]})", "messages[0].tool_call_id"}});
  accepts(kChatPath,
          R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":
             [{"id":"1","type":"function","function":{"name":"f","arguments":"{no json"}}]},
             {"role":"tool","tool_call_id":"1","content":"y"}]})");
}

TEST_F(ApiParameters, AP27_StreamOptions) {
  for (const auto& [path, body] :
       {std::pair(kChatPath, chat(R"("stream_options":{"include_usage":true})")),
        std::pair(kTextPath, text(R"("stream":false,"stream_options":{})"))}) {
    refuses({{path, body, "stream_options"}});
  }
}

TEST_F(ApiParameters, AP28_Metadata) {
  std::string pairs;
  for (int i = 0; i < 17; ++i) pairs += fmt::format("{}\"k{}\":\"v\"", i == 0 ? "" : ",", i);
  refuses({{kChatPath, chat("\"metadata\":{" + pairs + "}"), "metadata"},
           {kChatPath, chat("\"metadata\":{\"" + std::string(65, 'k') + "\":\"v\"}"), "metadata"},
           {kChatPath, chat("\"metadata\":{\"k\":\"" + std::string(513, 'v') + "\"}"), "metadata"},
           {kChatPath, chat("\"safety_identifier\":\"" + std::string(65, 's') + "\""),
            "safety_identifier"}});
}

TEST_F(ApiParameters, AP29_LongTags) {
  const std::string megabyte = "\"" + std::string(1 << 20, 'x') + "\"";
  for (const std::string field : {"user", "prompt_cache_key", "cache_salt", "request_id"}) {
    refuses({{kChatPath, chat("\"" + field + "\":" + megabyte), field}});
  }
}

TEST_F(ApiParameters, AP30_ForeignCounts) {
  for (const std::string field : {"n_keep", "n_discard", "n_probs", "n_cache_reuse"}) {
    refuses({{kChatPath, chat("\"" + field + "\":-3"), field},
             {kTextPath, text("\"" + field + "\":-3"), field}});
  }
}

// No part but text is read, so there is nothing to fetch.
TEST_F(ApiParameters, AP31_Images) {
  for (const char* url : {"http://127.0.0.1:1/x.png", "file:///etc/passwd", R"(http:\\@host)",
                          "http://169.254.169.254/latest/", "data:image/png;base64,AAAA"}) {
    std::string quoted;
    base::append_json_string(quoted, url);
    refuses({{kChatPath,
              R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":)" +
                  quoted + "}}]}]}",
              "messages[0].content[0].type"}});
  }
}

TEST_F(ApiParameters, AP32_EchoAndSuffix) {
  refuses({{kTextPath, text(R"("suffix":"x")"), "suffix", 400, "invalid_value"},
           {kTextPath, text(R"("suffix":"x","echo":true,"logprobs":2)"), "suffix", 400,
            "invalid_value"},
           {kTextPath, text(R"("echo":true,"logprobs":21)"), "logprobs"}});
  accepts(kTextPath, text(R"("echo":true,"logprobs":2)"));
  const Json echoed = accepts(kTextPath, text(R"("echo":true,"suffix":"","max_tokens":1)"));
  EXPECT_THAT(echoed.find("choices")->as_array().at(0).string("text").value_or(""),
              testing::StartsWith("Hi"));
}

TEST_F(ApiParameters, AP33_Tokenize) {
  refuses({{"/detokenize", "{\"tokens\":[" + many(600'000, "1") + "]}", "tokens"},
           {"/detokenize", R"({"tokens":[-1]})", "tokens[0]"},
           {"/tokenize", "{}", "prompt"}});
  // Ten million of anything is more than a body may hold.
  const int status =
      fixture_->post("/detokenize", "{\"tokens\":[" + many(10'000'000, "1") + "]}").status;
  EXPECT_TRUE(status == 400 || status == 413) << status;
  ServerFixture::Options options;
  options.server.keys.add("key");
  ServerFixture guarded(kScript, std::move(options));
  for (const char* path : {"/tokenize", "/detokenize"}) {
    const net::HttpResponse response = guarded.post(path, R"({"prompt":"x","tokens":[1]})");
    EXPECT_EQ(response.status, 401);
    EXPECT_EQ(parsed(response.body).find("error")->string("code"), "invalid_api_key");
  }
}

TEST_F(ApiParameters, AP34_Deadlines) {
  // A step may still be running for the test before, whose answers have ended.
  int64_t steps = -1;
  for (int i = 0; i < 200 && steps != fixture_->engine().stats().steps.count; ++i) {
    steps = fixture_->engine().stats().steps.count;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (const char* ms : {"0", "-5", "86400001", "1e3", "soon", ""}) {
    net::HttpCall call = fixture_->call("POST", kChatPath, chat(""));
    call.headers.add("x-request-timeout-ms", ms);
    const net::HttpResponse response = fixture_->fetch(std::move(call));
    EXPECT_EQ(response.status, 400) << ms;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), "x-request-timeout-ms");
  }
  EXPECT_EQ(fixture_->engine().stats().steps.count, steps) << "nothing is computed for them";
}

TEST_F(ApiParameters, AP35_Priority) {
  for (const char* priority : {"1000000000", "\"high\"", "1.5"}) {
    refuses({{kChatPath, chat(std::string("\"priority\":") + priority), "priority"}});
  }
}

TEST_F(ApiParameters, AP36_Effort) {
  refuses({{kChatPath, chat(R"("reasoning_effort":"ultra")"), "reasoning_effort"}});
}

}  // namespace
}  // namespace pelton::server
