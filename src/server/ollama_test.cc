// Ollama's routes over HTTP: lines of a stream, what a whole answer says, errors in its shape.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>One two three.<|return|>"},
  {"when": "two calls", "then": "<|channel|>commentary to=functions.a <|constrain|>json<|message|>{\"x\":1}<|call|>"},
  {"when": "odd call", "then": "<|channel|>commentary to=functions.a <|constrain|>json<|message|>{\"x\":<|call|>"},
  {"when": "Once", "then": " upon a time. THE END<|return|>"}]})";

std::vector<Json> lines_of(const std::string& body) {
  std::vector<Json> lines;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find('\n', at);
    EXPECT_NE(end, std::string::npos) << "the last line does not end";
    lines.push_back(parsed(body.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"a","parameters":{"type":"object"}}}])";

TEST(Ollama, StreamsUnlessItIsToldNotTo) {
  ServerFixture fixture(kScript, {});
  const std::string messages = R"("messages":[{"role":"user","content":"Hi"}])";
  const net::HttpResponse streamed =
      fixture.post("/api/chat", R"({"model":"tiny",)" + messages + "}");
  EXPECT_EQ(streamed.status, 200);
  EXPECT_EQ(streamed.headers.get("Content-Type"), "application/x-ndjson");
  std::string content, thinking;
  const std::vector<Json> lines = lines_of(streamed.body);
  ASSERT_GT(lines.size(), 2u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].boolean("done"), i + 1 == lines.size());
    content += lines[i].find("message")->string("content").value_or("");
    thinking += lines[i].find("message")->string("thinking").value_or("");
  }
  EXPECT_EQ(content, "One two three.");
  EXPECT_EQ(thinking, "Think.");
  EXPECT_EQ(lines.back().string("done_reason"), "stop");
  EXPECT_GT(lines.back().integer("eval_count"), 0);
  const Json whole = parsed(fixture.post("/api/chat", R"({"stream":false,)" + messages + "}").body);
  EXPECT_EQ(whole.find("message")->string("content"), content);
  EXPECT_EQ(whole.integer("eval_count"), lines.back().integer("eval_count"));
}

TEST(Ollama, CallsHaveTheirArgumentsAsAnObject) {
  ServerFixture fixture(kScript, {});
  const auto calls = [&](std::string_view content) {
    const Json answer =
        parsed(fixture
                   .post("/api/chat",
                         std::string(R"({"stream":false,"messages":[{"role":"user","content":")")
                             .append(content)
                             .append(R"("}],)")
                             .append(kTools)
                             .append("}"))
                   .body);
    return answer.find("message")->find("tool_calls")->dump();
  };
  EXPECT_EQ(calls("two calls"), R"([{"function":{"name":"a","arguments":{"x":1}}}])");
  EXPECT_THAT(calls("odd call"), HasSubstr(R"("arguments":{"arguments":"{\"x\":)"));
}

TEST(Ollama, GenerateRawAndByTheTemplate) {
  ServerFixture fixture(kScript, {});
  const auto answer = [&](const std::string& body) {
    return parsed(fixture.post("/api/generate", body).body);
  };
  const Json by_template = answer(R"({"stream":false,"prompt":"Hi"})");
  EXPECT_EQ(by_template.string("response"), "One two three.");
  EXPECT_EQ(by_template.string("thinking"), "Think.");
  EXPECT_EQ(answer(R"({"stream":false,"prompt":"Hi","think":false})").find("thinking"), nullptr);
  const Json raw = answer(R"({"stream":false,"prompt":"Once","raw":true})");
  EXPECT_EQ(raw.string("response"), " upon a time. THE END");
  EXPECT_EQ(raw.string("done_reason"), "stop");
  const Json cut =
      answer(R"({"stream":false,"prompt":"Once","raw":true,"options":{"num_predict":2}})");
  EXPECT_EQ(cut.string("done_reason"), "length");
  EXPECT_EQ(cut.integer("eval_count"), 2);
  const Json stopped =
      answer(R"({"stream":false,"prompt":"Once","raw":true,"options":{"stop":["THE"]}})");
  EXPECT_EQ(stopped.string("response"), " upon a time. ");
  EXPECT_EQ(answer(R"({"model":"tiny"})").string("done_reason"), "load");
  EXPECT_EQ(answer(R"({"model":"tiny","keep_alive":0})").string("done_reason"), "load")
      << "models do not sleep here";
}

Json joined(const std::vector<Json>& lines) {
  Json::Array all;
  for (const Json& line : lines) {
    const Json* const logprobs = line.find("logprobs");
    if (logprobs == nullptr) continue;
    for (const Json& one : logprobs->as_array()) all.push_back(one);
  }
  return Json(std::move(all));
}
std::string text_of(const Json& logprobs) {
  std::string text;
  for (const Json& one : logprobs.as_array()) text += *one.string("token");
  return text;
}

TEST(Ollama, LogProbabilitiesAreThoseOfTheChatCompletion) {
  ServerFixture fixture(kScript, {});
  const std::string rest =
      R"("logprobs":true,"top_logprobs":2,"messages":[{"role":"user","content":"Hi"}]})";
  const Json chat = parsed(fixture.post("/v1/chat/completions", "{" + rest).body);
  const Json& expected = *chat.find("choices")->as_array()[0].find("logprobs")->find("content");
  ASSERT_THAT(text_of(expected), HasSubstr("One two three."));
  ASSERT_EQ(expected.as_array()[0].find("top_logprobs")->as_array().size(), 2u);
  const Json whole = parsed(fixture.post("/api/chat", R"({"stream":false,)" + rest).body);
  EXPECT_EQ(whole.find("logprobs")->dump(), expected.dump());
  const std::vector<Json> lines = lines_of(fixture.post("/api/chat", "{" + rest).body);
  EXPECT_EQ(joined(lines).dump(), expected.dump());
  const Json generated =
      parsed(fixture
                 .post("/api/generate",
                       R"({"stream":false,"prompt":"Hi","logprobs":true,"top_logprobs":2})")
                 .body);
  EXPECT_EQ(generated.find("logprobs")->dump(), expected.dump());
  // Who does not ask gets none.
  for (const char* const none :
       {R"("logprobs":false)", R"("top_logprobs":0)", R"("logprobs":null)"}) {
    const Json plain = parsed(
        fixture.post("/api/generate", std::string(R"({"stream":false,"prompt":"Hi",)") + none + "}")
            .body);
    EXPECT_EQ(plain.string("response"), "One two three.") << none;
    EXPECT_EQ(plain.find("logprobs"), nullptr) << none;
  }
}

TEST(Ollama, LogProbabilitiesOfARawPromptAreOfWhatItShows) {
  ServerFixture fixture(kScript, {});
  for (const auto& [options, text] :
       std::vector<std::pair<std::string, std::string>>{{"{}", " upon a time. THE END"},
                                                        {R"({"stop":["THE"]})", " upon a time. "},
                                                        {R"({"num_predict":3})", ""}}) {
    const std::string rest =
        R"("prompt":"Once","raw":true,"logprobs":true,"top_logprobs":1,"options":)" + options + "}";
    const Json whole = parsed(fixture.post("/api/generate", R"({"stream":false,)" + rest).body);
    if (!text.empty()) {
      EXPECT_EQ(whole.string("response"), text);
    }
    const Json& shown = *whole.find("logprobs");
    EXPECT_EQ(text_of(shown), whole.string("response")) << options;
    EXPECT_EQ(shown.as_array()[0].find("top_logprobs")->as_array().size(), 1u);
    EXPECT_TRUE(shown.as_array()[0].find("logprob")->is_number());
    const std::vector<Json> lines = lines_of(fixture.post("/api/generate", "{" + rest).body);
    EXPECT_EQ(joined(lines).dump(), shown.dump()) << options;
  }
}

TEST(Ollama, ErrorsAreAStringByTheNameThatWasGiven) {
  ServerFixture fixture(kScript, {});
  const auto error = [&](const std::string& path, const std::string& body, int status) {
    const net::HttpResponse response = fixture.post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    return parsed(response.body).string("error").value_or("none");
  };
  EXPECT_THAT(error("/api/chat", R"({"messages":[],"mood":1})", 400), HasSubstr("mood"));
  EXPECT_THAT(error("/api/generate", R"({"prompt":"a","top_logprobs":3})", 400),
              HasSubstr("only allowed with 'logprobs'"));
  EXPECT_THAT(
      error("/api/generate", R"({"prompt":"a","raw":true,"logprobs":true,"top_logprobs":99})", 400),
      HasSubstr("'top_logprobs'"));
  EXPECT_THAT(error("/api/chat", R"({"messages":[{"role":"user","images":["x"]}]})", 400),
              HasSubstr("'messages[0].images': images is not supported by this server"));
  EXPECT_THAT(error("/api/generate", R"({"prompt":"a","options":{"temperature":9}})", 400),
              HasSubstr("options.temperature"));
  EXPECT_THAT(
      error("/api/chat", R"({"model":"x","messages":[{"role":"user","content":"a"}]})", 404),
      HasSubstr("'x'"));
  EXPECT_THAT(error("/api/show", R"({"model":"x"})", 404), HasSubstr("'x'"));
  EXPECT_THAT(error("/api/pull", R"({"model":"x"})", 404), HasSubstr("/api/pull"));
}

TEST(Ollama, SaysWhatIsServed) {
  ServerFixture fixture(kScript, {});
  const Json tags = parsed(fixture.get("/api/tags").body);
  EXPECT_EQ(tags.find("models")->as_array().size(), 2u);  // its alias too
  EXPECT_EQ(tags.find("models")->as_array()[0].string("name"), "tiny");
  const Json shown = parsed(fixture.post("/api/show", R"({"model":"tiny:latest"})").body);
  EXPECT_EQ(shown.find("model_info")->integer("pelton.context_length"), 4096);
  EXPECT_THAT(shown.find("capabilities")->dump(), HasSubstr("tools"));
  const Json running = parsed(fixture.get("/api/ps").body);
  EXPECT_EQ(running.find("models")->as_array()[0].string("model"), "tiny");
  EXPECT_TRUE(parsed(fixture.get("/api/version").body).string("version").has_value());
}

}  // namespace
}  // namespace pelton::server
