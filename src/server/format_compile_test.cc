// Output formats that take long to compile: nobody else waits for them, they end at their limit,
// and with their client. D2 over HTTP and WebSocket, E3 over gRPC.
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/test_websocket.h"
#include "server/any_turns.h"
#include "server/grpc_fixture.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;

constexpr std::string_view kScript = R"({"rules":[{"when":"","then":"x"}]})";

// Each pattern's automaton has thousands of states until it is seen that it allows everything, so
// little memory is taken and time alone ends it.
std::string costly_schema(int properties) {
  std::string schema = R"({"type":"object","properties":{)";
  for (int i = 0; i < properties; ++i) {
    schema += fmt::format(R"({}"p{}":{{"type":"string","pattern":"^([ab]*a[ab]{{11}}|[ab]*)$"}})",
                          i == 0 ? "" : ",", i);
  }
  return schema + "}}";
}
// Of minutes, at least.
std::string endless_schema() {
  return costly_schema(30'000);
}

ServerFixture::Options without_limit() {
  ServerFixture::Options options = any_options();
  options.server.compile_pool.long_lane.cpu_us_max = int64_t{3600} * 1'000'000;
  return options;
}
ServerFixture::Options limited_to_ms(int ms) {
  ServerFixture::Options options = any_options();
  options.server.compile_pool.long_lane.cpu_us_max = ms * 1000;
  return options;
}

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 20'000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

struct Asked {
  std::string target;
  std::string body;
};

// Every way over HTTP to ask for a schema.
std::vector<Asked> all_that_ask_for(const std::string& schema) {
  const std::string messages = R"("messages":[{"role":"user","content":"x"}])";
  const std::string format =
      R"({"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":)" + schema + "}}";
  return {
      {"/v1/chat/completions", "{" + messages + R"(,"response_format":)" + format + "}"},
      {"/v1/chat/completions",
       "{" + messages + R"(,"stream":true,"tools":[{"type":"function","function":{"name":"f",)" +
           R"("strict":true,"parameters":)" + schema + "}}]}"},
      {"/v1/chat/completions",
       "{" + messages + R"(,"tool_choice":"required","tools":[{"type":"function","function":)" +
           R"({"name":"f","parameters":)" + schema + "}}]}"},
      {"/v1/completions", R"({"prompt":"x","response_format":)" + format + "}"},
      {"/v1/responses",
       R"({"input":"x","text":{"format":{"type":"json_schema","name":"x","schema":)" + schema +
           "}}}"},
      {"/v1/responses", R"({"input":"x","background":true,"text":{"format":)"
                        R"({"type":"json_schema","name":"x","schema":)" +
                            schema + "}}}"},
      {"/v1/responses/input_tokens",
       R"({"input":"x","text":{"format":{"type":"json_schema","name":"x","schema":)" + schema +
           "}}}"},
      {"/v1/messages", R"({"max_tokens":9,)" + messages +
                           R"(,"tool_choice":{"type":"any"},"tools":[{"name":"f",)" +
                           R"("input_schema":)" + schema + "}]}"},
  };
}

int64_t ended(const ServerFixture& /*fixture*/, const WorkPool::Stats& stats, WorkPool::End end) {
  return stats.ended[static_cast<size_t>(end)];
}

class FormatCompile : public testing::Test {
 protected:
  static WorkPool::Stats stats(ServerFixture& fixture) {
    return fixture.server().services().formats.pool().stats();
  }
  // On a thread; between its two tries for a moment not.
  static bool is_compiling(ServerFixture& fixture) {
    const WorkPool::Stats now = stats(fixture);
    return now.running == 1 && now.waiting[0] == 0 && now.waiting[1] == 0;
  }
  // While a format is being compiled: the one net thread answers, streams, and even compiles.
  static void expect_served(ServerFixture& fixture, int round) {
    EXPECT_EQ(fixture.get("/health").status, 200);
    const net::HttpResponse stream = fixture.post(
        "/v1/chat/completions",
        R"({"stream":true,"max_tokens":20,"messages":[{"role":"user","content":"x"}]})");
    EXPECT_EQ(stream.status, 200);
    EXPECT_THAT(stream.body, HasSubstr("[DONE]"));
    const net::HttpResponse formatted = fixture.post(
        "/v1/completions",
        fmt::format(R"({{"prompt":"x","max_tokens":9,"structured_outputs":{{"choice":["{}"]}}}})",
                    round));
    EXPECT_EQ(formatted.status, 200) << formatted.body;
  }
};

TEST_F(FormatCompile, D2_NobodyElseWaitsForACompiler) {
  ServerFixture fixture(kScript, without_limit());
  int round = 0;
  for (const Asked& asked : all_that_ask_for(endless_schema())) {
    SCOPED_TRACE(asked.target + " " + asked.body.substr(0, 80));
    std::atomic<bool> done{false};
    net::HttpCallEvents events;
    events.on_done = [&](Result<void>) { done = true; };
    const auto id =
        fixture.client().start(fixture.call("POST", asked.target, asked.body), std::move(events));
    ASSERT_TRUE(eventually([&] { return is_compiling(fixture); }));
    expect_served(fixture, round);
    EXPECT_TRUE(eventually([&] { return is_compiling(fixture); }));
    EXPECT_FALSE(done);
    // With its client it ends, on its thread as well.
    fixture.client().cancel(id);
    ASSERT_TRUE(eventually([&] { return done.load(); }));
    ++round;
    EXPECT_TRUE(eventually([&] {
      const WorkPool::Stats now = stats(fixture);
      return now.running == 0 && ended(fixture, now, WorkPool::End::kCancelled) == round;
    }));
    EXPECT_TRUE(
        eventually([&] { return fixture.server().services().statistics.counts().open() == 0; }));
    EXPECT_EQ(fixture.server().services().access_control.inside(), 0);
  }
}

TEST_F(FormatCompile, D2_OverAWebSocketToo) {
  ServerFixture fixture(kScript, without_limit());
  {
    net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
    ASSERT_TRUE(socket.open()) << socket.head();
    socket.text(R"({"type":"response.create","input":"x","text":{"format":{"type":"json_schema",)"
                R"("name":"x","schema":)" +
                endless_schema() + "}}}");
    ASSERT_TRUE(eventually([&] { return is_compiling(fixture); }));
    expect_served(fixture, 0);
    EXPECT_TRUE(eventually([&] { return is_compiling(fixture); }));
  }
  EXPECT_TRUE(eventually([&] { return stats(fixture).running == 0; }));
}

TEST_F(FormatCompile, D2_CancelledOverAWebSocketWhileItIsCompiled) {
  ServerFixture fixture(kScript, without_limit());
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  ASSERT_TRUE(socket.open()) << socket.head();
  // The model is not shown it.
  socket.text(R"({"type":"response.create","input":"x","structured_outputs":{"json":)" +
              costly_schema(100) + "}}");
  ASSERT_TRUE(eventually([&] { return stats(fixture).running == 1; }));
  socket.text(R"({"type":"response.cancel"})");
  std::string type;
  Json last;
  while (type != "response.incomplete" && type != "response.completed" && type != "error") {
    last = parsed(socket.read().payload);
    type = last.string("type").value_or("error");
  }
  EXPECT_EQ(type, "response.incomplete") << last.dump();
  const Json* response = last.find("response");
  ASSERT_NE(response, nullptr);
  EXPECT_EQ(response->string("status"), "cancelled");
}

TEST_F(FormatCompile, D2_TheLimitNamesItselfAndTheField) {
  ServerFixture fixture(kScript, limited_to_ms(80));
  const std::string regexes = [] {
    std::string all;
    for (int i = 0; i < 500; ++i) {
      all += fmt::format(R"({}{{"type":"regex","pattern":"[ab]*a[ab]{{11}}"}})", i == 0 ? "" : ",");
    }
    return all;
  }();
  std::vector<std::pair<Asked, std::string>> cases;
  cases.push_back({{"/v1/chat/completions",
                    R"({"messages":[{"role":"user","content":"x"}],"structured_outputs":)"
                    R"({"structural_tag":{"type":"structural_tag","format":)"
                    R"({"type":"sequence","elements":[)" +
                        regexes + "]}}}}"},
                   "structured_outputs.structural_tag"});
  std::string lark = "start: a0\\n";
  for (int i = 0; i < 300; ++i) {
    lark += fmt::format("a{}: /([ab]*a[ab]{{11}}|[ab]*)c{}/ a{}\\n", i, i, i + 1);
  }
  lark += "a300: \\\"x\\\"";
  cases.push_back(
      {{"/v1/completions", R"({"prompt":"x","structured_outputs":{"grammar":")" + lark + R"("}})"},
       "structured_outputs.grammar"});
  for (const auto& [asked, field] : cases) {
    const net::HttpResponse refused = fixture.post(asked.target, asked.body);
    EXPECT_EQ(refused.status, 400) << refused.body;
    const Json body = parsed(refused.body);
    ASSERT_NE(body.find("error"), nullptr);
    EXPECT_EQ(body.find("error")->string("param"), field) << refused.body;
    EXPECT_THAT(body.find("error")->string("message").value_or(""), HasSubstr("80 ms"));
  }
  for (const Asked& asked : all_that_ask_for(costly_schema(3'000))) {
    const net::HttpResponse refused = fixture.post(asked.target, asked.body);
    EXPECT_EQ(refused.status, 400) << asked.target << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("80 ms"));
  }
}

// All formats of a request have the time of one.
TEST_F(FormatCompile, D2_ManyStrictFunctionsHaveOneLimit) {
  ServerFixture fixture(kScript, limited_to_ms(200));
  std::string tools;
  for (int i = 0; i < 100; ++i) {
    std::string schema = costly_schema(40);
    schema.replace(schema.find("p0"), 2, fmt::format("q{}", i));  // each another
    tools += fmt::format(R"({}{{"type":"function","function":{{"name":"f{}","strict":true,)"
                         R"("parameters":{}}}}})",
                         i == 0 ? "" : ",", i, schema);
  }
  const net::HttpResponse refused =
      fixture.post("/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"x"}],"tools":[)" + tools + "]}");
  EXPECT_EQ(refused.status, 400) << refused.body.substr(0, 500);
  EXPECT_THAT(refused.body, HasSubstr("200 ms"));
}

TEST_F(FormatCompile, D2_AFullQueueIs429) {
  ServerFixture::Options options = without_limit();
  options.server.compile_pool.long_lane.waiting_max = 1;
  ServerFixture fixture(kScript, std::move(options));
  net::HttpClient others{{}};
  std::vector<net::HttpClient::CallId> ids;
  std::atomic<int> done{0};
  for (int i = 0; i < 2; ++i) {
    net::HttpCallEvents events;
    events.on_done = [&](Result<void>) { ++done; };
    std::string schema = endless_schema();
    schema.replace(schema.find("p0"), 2, fmt::format("q{}", i));
    ids.push_back(
        others.start(fixture.call("POST", "/v1/completions",
                                  R"({"prompt":"x","structured_outputs":{"json":)" + schema + "}}"),
                     std::move(events)));
    ASSERT_TRUE(
        eventually([&] { return stats(fixture).running + stats(fixture).waiting[1] == i + 1; }));
  }
  ASSERT_TRUE(eventually([&] { return stats(fixture).waiting[1] == 1; }));
  const net::HttpResponse refused =
      fixture.post("/v1/completions",
                   R"({"prompt":"x","structured_outputs":{"json":)" + endless_schema() + "}}");
  EXPECT_EQ(refused.status, 429) << refused.body.substr(0, 500);
  EXPECT_TRUE(refused.headers.has("Retry-After"));
  const auto model = fixture.server().services().catalogue.find("tiny");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->state->refusals->of(access::RefusalCounts::By::kFormats), 1);
  expect_served(fixture, 0);
  for (const auto id : ids) others.cancel(id);
  EXPECT_TRUE(eventually([&] { return done == 2; }));
}

TEST_F(FormatCompile, D2_ADeadlineEndsIt) {
  ServerFixture fixture(kScript, without_limit());
  net::HttpCall call =
      fixture.call("POST", "/v1/completions",
                   R"({"prompt":"x","structured_outputs":{"json":)" + endless_schema() + "}}");
  call.headers.add("x-request-timeout-ms", "1500");
  const net::HttpResponse late = fixture.fetch(std::move(call));
  EXPECT_EQ(late.status, 408) << late.body;
  EXPECT_EQ(stats(fixture).running, 0);
}

TEST_F(FormatCompile, D2_TheServerEndsWhileOneIsCompiled) {
  net::HttpClient client{{}};
  std::atomic<bool> done{false};
  {
    ServerFixture fixture(kScript, without_limit());
    net::HttpCallEvents events;
    events.on_done = [&](Result<void>) { done = true; };
    client.start(
        fixture.call("POST", "/v1/completions",
                     R"({"prompt":"x","structured_outputs":{"json":)" + endless_schema() + "}}"),
        std::move(events));
    ASSERT_TRUE(eventually([&] { return is_compiling(fixture); }));
  }
  EXPECT_TRUE(eventually([&] { return done.load(); }));
}

// Debian's libgrpc is not built for ThreadSanitizer, which then does not see its locks.
#if !defined(__SANITIZE_THREAD__)

v1::GenerateRequest grpc_with_schema(const std::string& schema) {
  v1::GenerateRequest request = grpc_text("x");
  request.mutable_sampling()->set_max_tokens(9);
  request.mutable_structured_outputs()->set_json(schema);
  return request;
}

TEST_F(FormatCompile, E3_NoGrpcCallWaitsForACompiler) {
  GrpcFixtureOf grpc(kScript, without_limit());
  for (const bool chat : {false, true}) {
    v1::GenerateRequest request = grpc_with_schema(endless_schema());
    if (chat) *request.mutable_chat() = grpc_chat("x").chat();
    grpc::ClientContext context;
    grpc::Status status;
    std::thread client([&] {
      const auto reader = grpc.stub->Generate(&context, request);
      v1::GenerateChunk chunk;
      while (reader->Read(&chunk)) {
      }
      status = reader->Finish();
    });
    ASSERT_TRUE(eventually([&] { return is_compiling(grpc.fixture); }));
    v1::GenerateRequest plain = grpc_chat("x");
    plain.mutable_sampling()->set_max_tokens(20);
    const GrpcSaid said = grpc.generate(plain);
    EXPECT_TRUE(said.status.ok()) << said.status.error_message();
    expect_served(grpc.fixture, chat ? 1 : 0);
    EXPECT_TRUE(eventually([&] { return is_compiling(grpc.fixture); }));
    context.TryCancel();
    client.join();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(eventually([&] { return stats(grpc.fixture).running == 0; }));
  }
}

TEST_F(FormatCompile, E3_TheLimitOverGrpc) {
  GrpcFixtureOf grpc(kScript, limited_to_ms(80));
  const GrpcSaid refused = grpc.generate(grpc_with_schema(costly_schema(3'000)));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("80 ms"));
  const GrpcSaid fine = grpc.generate(grpc_with_schema(R"({"type":"object"})"));
  EXPECT_TRUE(fine.status.ok()) << fine.status.error_message();
}

TEST_F(FormatCompile, E3_TheListenerClosesWhileOneIsCompiled) {
  GrpcFixtureOf grpc(kScript, without_limit());
  std::thread client(
      [&] { EXPECT_FALSE(grpc.generate(grpc_with_schema(endless_schema())).status.ok()); });
  ASSERT_TRUE(eventually([&] { return is_compiling(grpc.fixture); }));
  grpc.listener().close(std::chrono::milliseconds(0));
  client.join();
  EXPECT_TRUE(eventually([&] { return stats(grpc.fixture).running == 0; }));
}

#endif

}  // namespace
}  // namespace pelton::server
