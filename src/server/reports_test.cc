// What is told of requests: the access log and traces, whole paths over HTTP.
#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/access_log.h"
#include "server/reports_house.h"
#include "server/request_trace.h"
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
  for (const AccessLog::Format format : {AccessLog::Format::kText, AccessLog::Format::kJson}) {
    const TemporaryFile file;
    {
      AccessLog log({.format = format, .file = file.get()});
      ServerHouse::Options options;
      options.server.reports.access_log = &log;
      ServerHouse house(kScript, std::move(options));
      for (const bool stream : {false, true}) {
        EXPECT_EQ(house.post("/v1/chat/completions", chat(stream)).status, 200);
      }
      EXPECT_EQ(house.post("/v1/chat/completions", "{\"messages\":[\"secret shape\"]}").status,
                400);
      EXPECT_EQ(house.get("/no/such%20path?key=secret").status, 404);
      EXPECT_EQ(log.dropped(), 0);
    }
    const std::string text = file.text();
    EXPECT_THAT(text, Not(HasSubstr("secret")));
    EXPECT_THAT(text, Not(HasSubstr("hidden")));
    const std::vector<std::string> lines = lines_of(text);
    ASSERT_EQ(lines.size(), 4u) << text;
    if (format == AccessLog::Format::kText) {
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

// A reader of the log that has stopped holds up nobody.
TEST(AccessLog, DropsWhatIsNotWrittenInTime) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::FILE* full = ::fdopen(ends[1], "w");
  ASSERT_NE(full, nullptr);
  std::setvbuf(full, nullptr, _IONBF, 0);
  {
    AccessLog log({.format = AccessLog::Format::kJson, .file = full, .lines_max = 16});
    const RequestRecord record{.method = "GET", .handler = "/", .path = std::string(200, 'x')};
    for (int i = 0; i < 2000; ++i) log.write(record);  // the pipe holds 64 KiB
    EXPECT_GT(log.dropped(), 0);
    std::thread reader([&] {
      char bytes[4096];
      while (::read(ends[0], bytes, sizeof bytes) > 0) {
      }
    });
    reader.detach();
  }
  std::fclose(full);
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
    ServerHouse::Options options;
    options.server.reports.traces = exporter->get();
    ServerHouse house(kScript, std::move(options));
    net::HttpCall call = house.call("POST", "/v1/chat/completions", chat(true));
    call.headers.add("traceparent", kParent);
    const net::HttpResponse response = house.fetch(std::move(call));
    EXPECT_EQ(response.status, 200);
    EXPECT_THAT(std::string(response.headers.get("traceparent")), HasSubstr(kTraceId));
    EXPECT_EQ(house.get("/v1/models").status, 200);  // without a parent: a trace of its own
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
  EXPECT_THAT(names, testing::ElementsAre("POST /v1/chat/completions", "admission", "chat",
                                          "chat tiny", "engine.decode", "engine.prefill", "net"));
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
  EXPECT_EQ(named.at("chat").string("startTimeUnixNano"), root.string("startTimeUnixNano"));
  EXPECT_THAT(collector.all(), HasSubstr("gen_ai.usage.output_tokens"));
  EXPECT_THAT(collector.all(), Not(HasSubstr("secret")));
  for (const std::string& path : collector.paths()) EXPECT_EQ(path, "/v1/traces");
}

TEST(Traces, FollowTheCallersWish) {
  Collector collector(200);
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  auto exporter = telemetry::TraceExporter::create(
      {.url = collector.url() + "/my/collector", .gather = std::chrono::milliseconds(1)}, log);
  ASSERT_TRUE(exporter.ok());
  ServerHouse::Options options;
  options.server.reports.traces = exporter->get();
  options.server.reports.trace_share = 0;
  ServerHouse house(kScript, std::move(options));
  const auto ask = [&](const char* parent) {
    net::HttpCall call = house.call("GET", "/v1/models", "");
    call.headers.add("traceparent", parent);
    return house.fetch(std::move(call)).headers.has("traceparent");
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
