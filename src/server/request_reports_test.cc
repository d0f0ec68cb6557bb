// What is reported of requests that are none of HTTP's own: gRPC calls, turns over a WebSocket,
// responses in the background. The same as of any other.
#include <chrono>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "access/access_log.h"
#include "net/test_websocket.h"
#include "server/grpc_fixture.h"
#include "server/reports_fixture.h"
#include "telemetry/trace_exporter.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kScript = R"({"step_ms": 1, "rules": [
  {"when": "", "then": "<|channel|>final<|message|>secret answer<|return|>"},
  {"when": "endless", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 2000}]}
]})";

// The lines of the log of a fixture in which `use` is done, each parsed.
template <typename Use>
std::vector<Json> lines_after(Use&& use) {
  const TemporaryFile file;
  {
    access::AccessLog log({.format = access::AccessLog::Format::kJson, .file = file.get()});
    ServerFixture::Options options;
    EXPECT_TRUE(options.server.keys.add_file("key acme\n", "keys").ok());
    options.server.reports.access_log = &log;
    GrpcFixtureOf fixture(kScript, std::move(options));
    use(fixture);
    for (int i = 0; i < 1000 && fixture.fixture.server().services().statistics.counts().open() > 0;
         ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  EXPECT_THAT(file.text(), Not(HasSubstr("secret")));
  std::vector<Json> lines;
  for (const std::string& line : lines_of(file.text())) lines.push_back(parsed(line));
  return lines;
}

void expect_generated(const Json& line) {
  EXPECT_EQ(line.integer("status"), 200);
  EXPECT_EQ(line.string("tenant"), "acme");
  EXPECT_EQ(line.string("model"), "tiny");
  EXPECT_GT(line.integer("request_bytes"), 0);
  EXPECT_GT(line.integer("prompt_tokens"), 0);
  EXPECT_GT(line.integer("output_tokens"), 0);
  EXPECT_GE(line.number("queue_ms"), 0);
  EXPECT_GE(line.number("first_token_ms"), line.number("queue_ms"));
}

TEST(AccessLog, TellsOfCallsOverGrpc) {
  const std::vector<Json> lines = lines_after([](GrpcFixtureOf& fixture) {
    const std::map<std::string, std::string> key = {{"x-api-key", "key"}};
    EXPECT_TRUE(fixture
                    .generate(grpc_chat("secret question"),
                              {{"x-api-key", "key"}, {"x-request-id", "mine-1"}})
                    .status.ok());
    EXPECT_FALSE(fixture.generate({}, key).status.ok());  // no prompt
    EXPECT_FALSE(fixture.generate(grpc_chat("secret question")).status.ok());
    grpc::ClientContext left;
    left.AddMetadata("x-api-key", "key");
    const auto reader = fixture.stub->Generate(&left, grpc_chat("endless"));
    v1::GenerateChunk chunk;
    EXPECT_TRUE(reader->Read(&chunk));
    left.TryCancel();
    while (reader->Read(&chunk)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    for (int i = 0; i < 1000 && fixture.fixture.server().services().statistics.counts().open() > 0;
         ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    grpc::ClientContext tokenize;
    tokenize.AddMetadata("x-api-key", "key");
    v1::TokenizeRequest words;
    words.set_text("secret");
    v1::TokenizeReply tokens;
    EXPECT_TRUE(fixture.stub->Tokenize(&tokenize, words, &tokens).ok());
    grpc::ClientContext embed;
    embed.AddMetadata("x-api-key", "key");
    v1::EmbedRequest asked;
    asked.add_inputs()->set_text("secret");
    v1::EmbedReply vectors;
    EXPECT_TRUE(fixture.stub->Embed(&embed, asked, &vectors).ok());
  });
  ASSERT_EQ(lines.size(), 6u);
  for (const Json& line : lines) {
    EXPECT_EQ(line.string("method"), "POST");
    EXPECT_THAT(line.string("remote").value_or(""), testing::MatchesRegex("127.0.0.1:[0-9]+"));
  }
  EXPECT_EQ(lines[0].string("path"), "/pelton.v1.Inference/Generate");
  EXPECT_EQ(lines[0].string("request_id"), "mine-1");
  expect_generated(lines[0]);
  EXPECT_EQ(lines[1].integer("status"), 400);
  EXPECT_THAT(lines[1].string("request_id").value_or(""), testing::StartsWith("req_"));
  EXPECT_EQ(lines[2].integer("status"), 401);
  EXPECT_EQ(lines[2].string("tenant"), std::nullopt);
  EXPECT_EQ(lines[3].integer("status"), 499);
  EXPECT_EQ(lines[4].string("path"), "/pelton.v1.Inference/Tokenize");
  EXPECT_EQ(lines[4].integer("status"), 200);
  EXPECT_EQ(lines[5].string("path"), "/pelton.v1.Inference/Embed");
  EXPECT_EQ(lines[5].integer("status"), 200);
}

// Until the event that ends a response, or an error.
std::string read_turn(net::TestWebSocket& socket) {
  while (true) {
    const std::string type = parsed(socket.read().payload).string("type").value_or("none");
    if (type == "response.completed" || type == "response.incomplete" || type == "error") {
      return type;
    }
    if (type == "none") return type;
  }
}

constexpr char kSocketHeaders[] = "Authorization: Bearer key\r\nx-request-id: mine\r\n";

TEST(AccessLog, TellsOfEachTurnOverAWebSocket) {
  std::vector<Json> lines = lines_after([](GrpcFixtureOf& fixture) {
    net::TestWebSocket socket(fixture.fixture.http().port(), "/v1/responses", kSocketHeaders);
    ASSERT_TRUE(socket.open()) << socket.head();
    const std::string create = R"({"type":"response.create","input":")";
    socket.text(create + R"(secret question"})");
    EXPECT_EQ(read_turn(socket), "response.completed");
    socket.text(create + R"(x","temperature":3})");
    EXPECT_EQ(read_turn(socket), "error");
    socket.text(R"({"type":"response.sing"})");
    EXPECT_EQ(read_turn(socket), "error");
    socket.text(create + R"(endless"})");
    socket.read();
    socket.text(R"({"type":"response.cancel"})");
    EXPECT_NE(read_turn(socket), "none");
    socket.text(create + R"(endless"})");
    socket.read();
    socket.text(create + R"(hi"})");  // waits until its client leaves
  });
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0].string("method"), "GET");
  EXPECT_EQ(lines[0].integer("status"), 101);
  EXPECT_EQ(lines[0].string("request_id"), "mine");
  // Of the two that the client has left, the one that waited is reported first.
  std::swap(lines[5], lines[6]);
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].string("method"), "WEBSOCKET");
    EXPECT_EQ(lines[i].string("path"), "/v1/responses");
    EXPECT_EQ(lines[i].string("remote"), lines[0].string("remote"));
    EXPECT_EQ(lines[i].string("request_id"), "mine-" + std::to_string(i));
  }
  expect_generated(lines[1]);
  EXPECT_EQ(lines[2].integer("status"), 400);
  EXPECT_EQ(lines[3].integer("status"), 400);
  expect_generated(lines[4]);  // what was made until it was cancelled
  EXPECT_EQ(lines[5].integer("status"), 499);
  EXPECT_EQ(lines[6].integer("status"), 499);
}

TEST(AccessLog, TellsOfResponsesInTheBackground) {
  const std::vector<Json> lines = lines_after([](GrpcFixtureOf& fixture) {
    net::HttpCall call = fixture.fixture.call("POST", "/v1/responses",
                                              R"({"input":"secret question","background":true})");
    call.headers.add("x-api-key", "key");
    call.headers.add("x-request-id", "mine");
    EXPECT_EQ(fixture.fixture.fetch(std::move(call)).status, 200);
  });
  ASSERT_EQ(lines.size(), 2u);
  const Json& asked = lines[lines[0].string("method") == "POST" ? 0 : 1];
  const Json& made = lines[lines[0].string("method") == "POST" ? 1 : 0];
  EXPECT_EQ(made.string("method"), "BACKGROUND");
  EXPECT_EQ(made.string("request_id"), "mine");
  EXPECT_EQ(made.string("remote"), asked.string("remote"));
  // D11: its times count from where the request came: it is in the engine's queue before it has a
  // record of its own, and then its first token came sooner than it had waited.
  EXPECT_EQ(made.string("time"), asked.string("time"));
  expect_generated(made);
}

// The spans of the caller's trace that reach a collector from a fixture in which `use` is done.
template <typename Use>
std::vector<Json> spans_after(Use&& use) {
  Collector collector(200);
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  {
    auto exporter = telemetry::TraceExporter::create({.url = collector.url()}, log);
    EXPECT_TRUE(exporter.ok());
    ServerFixture::Options options;
    options.server.reports.traces = exporter->get();
    options.server.reports.trace_share = 0;
    GrpcFixtureOf fixture(kScript, std::move(options));
    use(fixture);
  }
  EXPECT_THAT(collector.all(), Not(HasSubstr("secret")));
  std::vector<Json> spans;
  for (Json& span : collector.spans()) {
    EXPECT_EQ(span.string("traceId"), kTraceId);
    spans.push_back(std::move(span));
  }
  return spans;
}

std::vector<std::string> names_below(const std::vector<Json>& spans, const Json& parent) {
  std::vector<std::string> names;
  for (const Json& span : spans) {
    if (span.string("parentSpanId") == parent.string("spanId")) {
      names.push_back(*span.string("name"));
    }
  }
  return names;
}

const auto kRooms = testing::UnorderedElementsAre("tokenize", "admission", "engine.prefill",
                                                  "engine.decode", "net");

TEST(Traces, FollowAGrpcCall) {
  const std::vector<Json> spans = spans_after([](GrpcFixtureOf& fixture) {
    EXPECT_TRUE(
        fixture.generate(grpc_chat("secret question"), {{"traceparent", kParent}}).status.ok());
    EXPECT_TRUE(fixture.generate(grpc_chat("secret question")).status.ok());  // nobody records it
  });
  ASSERT_EQ(spans.size(), 7u);
  EXPECT_EQ(spans[0].string("name"), "pelton.v1.Inference/Generate");
  EXPECT_EQ(spans[0].string("parentSpanId"), "b7ad6b7169203331");
  EXPECT_THAT(names_below(spans, spans[0]), testing::ElementsAre("generate_content tiny"));
  EXPECT_THAT(names_below(spans, spans[1]), kRooms);
}

TEST(Traces, FollowEachTurnOverAWebSocket) {
  const std::vector<Json> spans = spans_after([](GrpcFixtureOf& fixture) {
    net::TestWebSocket socket(fixture.fixture.http().port(), "/v1/responses",
                              "traceparent: " + std::string(kParent) + "\r\n");
    ASSERT_TRUE(socket.open()) << socket.head();
    for (int i = 0; i < 2; ++i) {
      socket.text(R"({"type":"response.create","input":"secret question"})");
      EXPECT_EQ(read_turn(socket), "response.completed");
    }
  });
  ASSERT_EQ(spans.size(), 15u);
  const Json& handshake = spans[0];
  EXPECT_EQ(handshake.string("parentSpanId"), "b7ad6b7169203331");
  EXPECT_THAT(names_below(spans, handshake),
              testing::ElementsAre("WEBSOCKET /v1/responses", "WEBSOCKET /v1/responses"));
  int inferences = 0;
  for (const Json& span : spans) {
    if (span.string("name") != "chat tiny") continue;
    ++inferences;
    EXPECT_THAT(names_below(spans, span), kRooms);
  }
  EXPECT_EQ(inferences, 2);
}

}  // namespace
}  // namespace pelton::server
