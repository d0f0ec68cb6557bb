// What is reported of requests: the access log and traces, whole paths over HTTP.
#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "access/access_log.h"
#include "access/request_trace.h"
#include "server/reports_fixture.h"
#include "telemetry/trace_exporter.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>hidden thought<|end|><|start|>assistant<|channel|>final<|message|>secret answer<|return|>"}]})";

std::string chat(bool stream) {
  return std::string(R"({"messages":[{"role":"user","content":"secret question"}],"stream":)") +
         (stream ? "true}" : "false}");
}

TEST(AccessLog, TellsEachRequestAndNoWordOfIt) {
  for (const access::AccessLog::Format format :
       {access::AccessLog::Format::kText, access::AccessLog::Format::kJson}) {
    const TemporaryFile file;
    {
      access::AccessLog log({.format = format, .file = file.get()});
      ServerFixture::Options options;
      options.server.reports.access_log = &log;
      ServerFixture fixture(kScript, std::move(options));
      for (const bool stream : {false, true}) {
        EXPECT_EQ(fixture.post("/v1/chat/completions", chat(stream)).status, 200);
      }
      EXPECT_EQ(fixture.post("/v1/chat/completions", "{\"messages\":[\"secret shape\"]}").status,
                400);
      EXPECT_EQ(fixture.get("/no/such%20path?key=secret").status, 404);
      EXPECT_EQ(log.dropped(), 0);
    }
    const std::string text = file.text();
    EXPECT_THAT(text, Not(HasSubstr("secret")));
    EXPECT_THAT(text, Not(HasSubstr("hidden")));
    const std::vector<std::string> lines = lines_of(text);
    ASSERT_EQ(lines.size(), 4u) << text;
    if (format == access::AccessLog::Format::kText) {
      EXPECT_THAT(lines[0],
                  testing::ContainsRegex(
                      R"(127\.0\.0\.1:[0-9]+ POST /v1/chat/completions 200 .*ms id=req_)"));
      EXPECT_THAT(lines[1],
                  testing::ContainsRegex("prompt=[1-9][0-9]* cached=[0-9]+ output=[1-9]"));
      EXPECT_THAT(lines[2], HasSubstr(" 400 "));
      EXPECT_THAT(lines[3], HasSubstr(" none /no/such?path 404 "));
      continue;
    }
    const Json json = parsed(lines[0]);
    EXPECT_EQ(json.string("path"), "/v1/chat/completions");
    EXPECT_EQ(json.integer("status"), 200);
    EXPECT_GT(json.integer("prompt_tokens"), 0);
    EXPECT_GT(json.integer("output_tokens"), 0);
    EXPECT_GE(json.number("first_token_ms"), json.number("queue_ms"));
    EXPECT_EQ(parsed(lines[3]).integer("status"), 404);
  }
}

std::string attribute(const Json& span, std::string_view key) {
  for (const Json& one : span.find("attributes")->as_array()) {
    if (one.string("key") == key) return one.find("value")->dump();
  }
  return "none";
}

TEST(Traces, B10_SpansAreNamedByOpenTelemetrysConventions) {
  Collector collector(200);
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  {
    auto exporter = telemetry::TraceExporter::create(
        {.url = collector.url(), .service = {.name = "pelton", .version = "1"}}, log);
    ASSERT_TRUE(exporter.ok());
    ServerFixture::Options options;
    options.server.reports.traces = exporter->get();
    ServerFixture fixture(kScript, std::move(options));
    net::HttpCall call = fixture.call("POST", "/v1/chat/completions", chat(true));
    call.headers.add("traceparent", kParent);
    const net::HttpResponse response = fixture.fetch(std::move(call));
    EXPECT_EQ(response.status, 200);
    EXPECT_THAT(std::string(response.headers.get("traceparent")), HasSubstr(kTraceId));
    EXPECT_EQ(fixture.get("/v1/models").status, 200);  // without a parent: a trace of its own
  }
  std::map<std::string, Json> named;
  int others = 0;
  for (const Json& span : collector.spans()) {
    if (span.string("traceId") == kTraceId) {
      named.emplace(*span.string("name"), span);
    } else {
      ++others;
      EXPECT_EQ(span.find("parentSpanId"), nullptr);
    }
  }
  EXPECT_EQ(others, 1);
  std::vector<std::string> names;
  for (const auto& [name, span] : named) {
    names.push_back(name);
    EXPECT_LE(std::stoll(*span.string("startTimeUnixNano")),
              std::stoll(*span.string("endTimeUnixNano")));
  }
  EXPECT_THAT(names, testing::ElementsAre("POST /v1/chat/completions", "admission", "chat tiny",
                                          "engine.decode", "engine.prefill", "net", "tokenize"));
  const Json& root = named.at("POST /v1/chat/completions");
  EXPECT_EQ(root.string("parentSpanId"), "b7ad6b7169203331");
  EXPECT_EQ(root.integer("kind"), 2);
  EXPECT_EQ(attribute(root, "http.route"), R"({"stringValue":"/v1/chat/completions"})");
  EXPECT_EQ(attribute(root, "http.response.status_code"), R"({"intValue":"200"})");
  EXPECT_EQ(attribute(root, "error.type"), "none");
  const Json& inference = named.at("chat tiny");
  EXPECT_EQ(inference.string("parentSpanId"), root.string("spanId"));
  EXPECT_EQ(attribute(inference, "gen_ai.operation.name"), R"({"stringValue":"chat"})");
  EXPECT_EQ(attribute(inference, "gen_ai.provider.name"), R"({"stringValue":"pelton"})");
  EXPECT_EQ(attribute(inference, "gen_ai.request.model"), R"({"stringValue":"tiny"})");
  EXPECT_EQ(attribute(inference, "gen_ai.response.finish_reasons"),
            R"({"arrayValue":{"values":[{"stringValue":"stop"}]}})");
  EXPECT_EQ(named.at("net").string("parentSpanId"), inference.string("spanId"));
  EXPECT_EQ(named.at("tokenize").string("startTimeUnixNano"), root.string("startTimeUnixNano"));
  EXPECT_THAT(collector.all(), HasSubstr("gen_ai.usage.output_tokens"));
  EXPECT_THAT(collector.all(), Not(HasSubstr("secret")));
  for (const std::string& path : collector.paths()) EXPECT_EQ(path, "/v1/traces");
}

// The spans of one request to a server of its own, by their names.
std::map<std::string, Json> spans_of(const char* method, const char* path,
                                     const std::string& body) {
  Collector collector(200);
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  {
    auto exporter = telemetry::TraceExporter::create(
        {.url = collector.url(), .service = {.name = "pelton", .version = "1"}}, log);
    EXPECT_TRUE(exporter.ok());
    ServerFixture::Options options;
    options.server.reports.traces = exporter->get();
    ServerFixture fixture(kScript, std::move(options));
    fixture.fetch(fixture.call(method, path, body));
  }
  std::map<std::string, Json> named;
  for (const Json& span : collector.spans()) named.emplace(*span.string("name"), span);
  return named;
}

TEST(Traces, B10_ARequestWithoutARouteIsNamedByItsMethod) {
  const auto lost = spans_of("GET", "/nowhere/secret", "");
  ASSERT_EQ(lost.size(), 1u);
  ASSERT_EQ(lost.begin()->first, "GET");
  EXPECT_EQ(attribute(lost.at("GET"), "http.request.method"), R"({"stringValue":"GET"})");
  EXPECT_EQ(attribute(lost.at("GET"), "http.route"), "none");
  EXPECT_EQ(attribute(lost.at("GET"), "http.response.status_code"), R"({"intValue":"404"})");
  const auto wrong = spans_of("PUT", "/v1/chat/completions", "{}");
  ASSERT_EQ(wrong.size(), 1u);
  EXPECT_EQ(wrong.begin()->first, "PUT");
  const std::vector<telemetry::Span> odd = access::request_spans(
      {.method = "none", .handler = "none", .http_method = access::kOtherMethod, .status = 405}, 1);
  ASSERT_EQ(odd.size(), 1u);
  EXPECT_EQ(odd.front().name, "HTTP");
}

TEST(Traces, B10_VectorsHaveASpanOfInferenceToo) {
  const std::pair<const char*, const char*> kRequests[] = {
      {"/v1/embeddings", R"({"input":["hi","ho"],"dimensions":4})"},
      {"/v2/embed", R"({"texts":["hi","ho"],"output_dimension":4})"},
      {"/v1/rerank", R"({"query":"hi","documents":["ho"]})"},
      {"/v1/score", R"({"text_1":"hi","text_2":"ho"})"}};
  for (const auto& [path, body] : kRequests) {
    const auto named = spans_of("POST", path, body);
    ASSERT_TRUE(named.contains("embeddings tiny")) << path;
    const Json& span = named.at("embeddings tiny");
    EXPECT_EQ(span.string("parentSpanId"), named.at(std::string("POST ") + path).string("spanId"));
    EXPECT_EQ(attribute(span, "gen_ai.operation.name"), R"({"stringValue":"embeddings"})");
    // Both prompts.
    EXPECT_EQ(attribute(span, "gen_ai.usage.input_tokens"), R"({"intValue":"4"})") << path;
    EXPECT_EQ(attribute(span, "gen_ai.usage.output_tokens"), "none");
    const bool asked = std::string_view(body).find("dimension") != std::string_view::npos;
    EXPECT_EQ(attribute(span, "gen_ai.embeddings.dimension.count"),
              asked ? R"({"intValue":"4"})" : "none");
  }
}

TEST(Traces, B10_WhatWasAskedOfTheSamplingIsSaid) {
  const std::string asked =
      R"("temperature":0.5,"top_p":0.25,"top_k":7,"frequency_penalty":0.5,"presence_penalty":-0.5,)"
      R"("seed":11,"n":2,"stop":["secret"])";
  const std::pair<const char*, std::string> kRequests[] = {
      {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3,)"},
      {"/v1/completions", R"({"prompt":"hi","max_tokens":3,)"}};
  for (const auto& [path, body] : kRequests) {
    const bool is_chat = std::string_view(path) == "/v1/chat/completions";
    const auto named = spans_of("POST", path, body + asked + "}");
    const std::string name = is_chat ? "chat tiny" : "text_completion tiny";
    ASSERT_TRUE(named.contains(name)) << path;
    EXPECT_FALSE(named.contains("chat")) << path;
    const Json& span = named.at(name);
    EXPECT_EQ(attribute(span, "gen_ai.request.max_tokens"), R"({"intValue":"3"})");
    EXPECT_EQ(attribute(span, "gen_ai.request.temperature"), R"({"doubleValue":0.5})");
    EXPECT_EQ(attribute(span, "gen_ai.request.top_p"), R"({"doubleValue":0.25})");
    EXPECT_EQ(attribute(span, "gen_ai.request.top_k"), R"({"doubleValue":7.0})");
    EXPECT_EQ(attribute(span, "gen_ai.request.frequency_penalty"), R"({"doubleValue":0.5})");
    EXPECT_EQ(attribute(span, "gen_ai.request.presence_penalty"), R"({"doubleValue":-0.5})");
    EXPECT_EQ(attribute(span, "gen_ai.request.seed"), R"({"intValue":"11"})");
    EXPECT_EQ(attribute(span, "gen_ai.request.choice.count"), R"({"intValue":"2"})");
    EXPECT_EQ(span.dump().find("secret"), std::string::npos);
    // What nobody asked for is not there.
    const auto plain = spans_of("POST", path, body.substr(0, body.rfind(",\"max")) + "}");
    ASSERT_TRUE(plain.contains(name)) << path;
    EXPECT_EQ(plain.at(name).dump().find("gen_ai.request.t"), std::string::npos);
    // OpenAI's own default, where completions have one.
    EXPECT_EQ(attribute(plain.at(name), "gen_ai.request.max_tokens"),
              is_chat ? "none" : R"({"intValue":"16"})");
  }
  const auto response = spans_of(
      "POST", "/v1/responses",
      R"({"input":"hi","max_output_tokens":9,"temperature":0,"text":{"format":{"type":"json_object"}}})");
  ASSERT_TRUE(response.contains("chat tiny"));
  EXPECT_EQ(attribute(response.at("chat tiny"), "gen_ai.request.max_tokens"),
            R"({"intValue":"9"})");
  EXPECT_EQ(attribute(response.at("chat tiny"), "gen_ai.output.type"), R"({"stringValue":"json"})");
}

TEST(Traces, FollowTheCallersWish) {
  Collector collector(200);
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  auto exporter = telemetry::TraceExporter::create(
      {.url = collector.url() + "/my/collector", .gather = std::chrono::milliseconds(1)}, log);
  ASSERT_TRUE(exporter.ok());
  ServerFixture::Options options;
  options.server.reports.traces = exporter->get();
  options.server.reports.trace_share = 0;
  ServerFixture fixture(kScript, std::move(options));
  const auto ask = [&](const char* parent) {
    net::HttpCall call = fixture.call("GET", "/v1/models", "");
    call.headers.add("traceparent", parent);
    return fixture.fetch(std::move(call)).headers.has("traceparent");
  };
  EXPECT_FALSE(ask("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"));
  EXPECT_FALSE(ask("nonsense"));
  EXPECT_TRUE(ask(kParent));
  for (int i = 0; i < 1000 && (*exporter)->exported() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ((*exporter)->exported(), 1);
  EXPECT_THAT(collector.paths(), testing::ElementsAre("/my/collector"));
}

TEST(Traces, ACollectorThatFailsCostsSpansAndNothingElse) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  Collector collector(503);
  for (const std::string& url : {collector.url(), std::string("http://127.0.0.1:1")}) {
    auto exporter = telemetry::TraceExporter::create(
        {.url = url, .requests_max = 4, .batch_max = 2, .gather = std::chrono::milliseconds(1)},
        log);
    ASSERT_TRUE(exporter.ok());
    for (int i = 0; i < 50; ++i) (*exporter)->offer({telemetry::Span{}, telemetry::Span{}});
    for (int i = 0; i < 1000 && (*exporter)->dropped() < 100; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ((*exporter)->dropped(), 100);
    EXPECT_EQ((*exporter)->exported(), 0);
  }
  for (const char* url : {"", "ftp://x", "127.0.0.1"}) {
    const auto exporter = telemetry::TraceExporter::create({.url = url}, log);
    ASSERT_FALSE(exporter.ok()) << url;
    EXPECT_EQ(exporter.error().code, ErrorCode::kBadConfig);
  }
}

}  // namespace
}  // namespace pelton::server
