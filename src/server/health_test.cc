// Health, readiness and what a platform asks: over HTTP, with a model whose step can be held up.
#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/test_websocket.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"}]})";
constexpr char kChat[] = R"({"messages":[{"role":"user","content":"Hi"}]})";

std::string code_of(const net::HttpResponse& response) {
  const Json body = parsed(response.body);
  const Json* error = body.find("error");
  return error == nullptr ? "" : error->string("code").value_or("null");
}

TEST(Health, TellsLoadingServingAndDraining) {
  ServerFixture::Options options;
  options.loaded = false;
  ServerFixture fixture(kScript, std::move(options));
  const auto status = [&](const char* path) { return fixture.get(path).status; };
  EXPECT_EQ(status("/health"), 503);
  EXPECT_EQ(status("/v1/health"), 503);
  EXPECT_EQ(status("/health/live"), 200);  // it need not be started anew
  for (const char* path : {"/ready", "/health/ready", "/ping"}) EXPECT_EQ(status(path), 503);
  EXPECT_EQ(fixture.get("/health").headers.get("Retry-After"), "2");
  fixture.load();
  for (const char* path : {"/health", "/health/live", "/ready", "/health/ready", "/ping"}) {
    EXPECT_EQ(status(path), 200) << path;
  }
  EXPECT_EQ(fixture.get("/ping").body, "");
  EXPECT_EQ(fixture.post("/ping", "").status, 200);
  fixture.server().drain();
  EXPECT_EQ(status("/health"), 200);
  for (const char* path : {"/ready", "/health/ready", "/ping"}) EXPECT_EQ(status(path), 503);
}

TEST(Health, TurnsRedWhileAStepIsStuckAndGreenAgain) {
  std::atomic<bool> stuck{true};
  ServerFixture::Options options;
  options.watchdog_ns = 100'000'000;
  options.executor = [&](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [&](const engine::StepPlan&) -> std::optional<Error> {
      while (stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::nullopt;
    };
  };
  std::atomic<int> told{0};
  options.on_stuck = [&] { ++told; };
  ServerFixture fixture(kScript, std::move(options));
  EXPECT_EQ(fixture.get("/health").status, 200);  // idle
  std::thread client([&] {
    const auto given_up = net::http_fetch(fixture.call("POST", "/v1/chat/completions", kChat));
    ASSERT_TRUE(given_up.ok());
    EXPECT_EQ(given_up->status, 503) << "who waits for it is told";
    EXPECT_NE(given_up->body.find("stuck"), std::string::npos);
    EXPECT_TRUE(given_up->headers.has("Retry-After"));
  });
  net::HttpResponse health = fixture.get("/health");
  for (int i = 0; i < 500 && health.status == 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    health = fixture.get("/health");
  }
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(code_of(health), "engine_stuck");
  for (const char* path : {"/health/live", "/ready", "/ping"}) {
    EXPECT_EQ(fixture.get(path).status, 503) << path;
  }
  client.join();
  const net::HttpResponse refused = fixture.post("/v1/chat/completions", kChat);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(code_of(refused), "engine_stuck");
  for (int i = 0; i < 500 && told == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(told, 1);
  stuck = false;
  for (int i = 0; i < 500 && fixture.get("/health").status != 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(fixture.get("/health").status, 200);
  // And whoever was given up holds nothing.
  EXPECT_EQ(fixture.post("/v1/chat/completions", kChat).status, 200);
  for (int i = 0; i < 500 && !fixture.engine().ledger().clean(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(fixture.engine().ledger().clean());
}

TEST(Health, FT_51_TimeInWhichNothingRanIsNotTheSteps) {
  constexpr int64_t kTick = 100;
  int64_t now = 10'000;
  StepPatience patience(1000, kTick, now);
  const auto look = [&](int64_t after) { return patience.stuck(now += after, 10'000); };
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(look(kTick));
  EXPECT_FALSE(look(60'000)) << "the process was stopped for a minute";
  EXPECT_FALSE(look(kTick / 2));
  EXPECT_TRUE(look(kTick)) << "its own time is over all the same";
  EXPECT_FALSE(patience.stuck(now + kTick, 0)) << "nothing runs";
  EXPECT_FALSE(patience.stuck(now + 2 * kTick, now + kTick)) << "the next step begins anew";
  now += 2 * kTick;
  EXPECT_FALSE(patience.stuck(now + 60'000, now + 10)) << "a step that began just before a stop";
  now += 60'000;
  EXPECT_FALSE(patience.stuck(now + kTick, now - 59'980)) << "and the one planned behind it";
  StepPatience fresh(1000, kTick, now);
  EXPECT_FALSE(fresh.stuck(now + 60'000, now + 10)) << "stopped before the first look";
}

// A slow server is not a stuck one: each step counts for itself.
TEST(Health, ManyStepsAreNoStuckStep) {
  ServerFixture::Options options;
  options.watchdog_ns = 200'000'000;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      return std::nullopt;
    };
  };
  ServerFixture fixture(
      R"({"rules":[{"when":"","then":["<|channel|>final<|message|>",{"text":"a","times":12}]}]})",
      std::move(options));
  std::atomic<bool> answered{false};
  std::thread client([&] {
    EXPECT_EQ(fixture.post("/v1/chat/completions", kChat).status, 200);
    answered = true;
  });
  while (!answered) {
    EXPECT_EQ(fixture.get("/health").status, 200);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  client.join();
}

TEST(Health, ServerInfoTellsWhatIsInEffect) {
  ServerFixture::Options options;
  options.server.version = "1.2.3";
  options.watchdog_ns = 5'000'000'000;
  options.model = [](ServedModel& model) {
    model.runtime = [turn = 0]() mutable -> std::vector<std::pair<std::string, std::string>> {
      return {{"kernels", "avx512"}, {"turn", std::to_string(++turn)}};
    };
    model.sampling.top_k = 7;
    model.limits = {{"connections_max", 5}};
  };
  ServerFixture fixture(kScript, std::move(options));
  const Json info = parsed(fixture.get("/server_info").body);
  EXPECT_EQ(info.string("version"), "1.2.3");
  EXPECT_EQ(info.string("state"), "serving");
  EXPECT_EQ(info.integer("watchdog_seconds"), 5);
  EXPECT_EQ(info.find("model")->string("id"), "tiny");
  EXPECT_EQ(info.find("runtime")->string("kernels"), "avx512");
  EXPECT_EQ(info.find("runtime")->string("turn"), "1");
  EXPECT_EQ(parsed(fixture.get("/server_info").body).find("runtime")->string("turn"), "2");
  EXPECT_EQ(info.find("sampling_defaults")->integer("top_k"), 7);
  EXPECT_EQ(info.find("limits")->integer("connections_max"), 5);
  EXPECT_EQ(info.find("limits")->integer("answers_max"), 128);
  EXPECT_EQ(info.find("engine")->integer("sequences_max"),
            fixture.engine().capacity().sequences_max);
}

// vLLM's: how many requests for the model are being answered.
TEST(Health, LoadIsWhatIsBeingAnswered) {
  ServerFixture fixture(R"({"step_ms": 1, "rules": [
    {"when": "", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 2000}]}]})",
                        {});
  const auto load = [&] { return parsed(fixture.get("/load").body).integer("server_load"); };
  EXPECT_EQ(load(), 0);
  {
    net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
    ASSERT_TRUE(socket.open());
    EXPECT_EQ(load(), 0);  // nothing is asked yet
    socket.text(R"({"type":"response.create","input":"x"})");
    socket.read();
    EXPECT_EQ(load(), 1);
  }
  for (int i = 0; i < 1000 && load() != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(load(), 0);
}

TEST(Health, InvocationsAnswerAsTheirOwnRoutesDo) {
  ServerFixture fixture(kScript, {});
  const Json chat = parsed(fixture.post("/invocations", kChat).body);
  EXPECT_EQ(chat.string("object"), "chat.completion");
  const Json completion = parsed(fixture.post("/invocations", R"({"prompt":"Hi"})").body);
  EXPECT_EQ(completion.string("object"), "text_completion");
  const net::HttpResponse streamed = fixture.post(
      "/invocations", R"({"messages":[{"role":"user","content":"Hi"}],"stream":true})");
  EXPECT_EQ(events_of(streamed.body).back(), "[DONE]");
  const std::pair<const char*, const char*> others[] = {
      {R"({"input":"Hi"})", R"("object":"response")"},
      {R"({"input":[{"role":"user","content":"Hi"}],"instructions":"Be brief."})",
       R"("object":"response")"},
      {R"({"previous_response_id":null,"input":"Hi","max_output_tokens":20,"prompt":null})",
       R"("object":"response")"},
      {R"({"input":["Hi","there"]})", R"("object":"embedding")"},
      {R"({"input":[1,2]})", R"("object":"embedding")"},
      {R"({"input":"Hi","encoding_format":"float"})", R"("object":"embedding")"},
      {R"({"query":"a","documents":["b","c"]})", R"("relevance_score")"},
      {R"({"text_1":"a","text_2":["b","c"]})", R"("object":"score")"},
      {R"({"queries":"a","documents":["b","c"]})", R"("object":"score")"},
  };
  for (const auto& [body, shown] : others) {
    const net::HttpResponse response = fixture.post("/invocations", body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_NE(response.body.find(shown), std::string::npos) << body << response.body;
  }
  for (const char* body : {"", "[]", "{}", R"({"inputs":"Hi"})", R"({"query":"Hi"})"}) {
    EXPECT_EQ(fixture.post("/invocations", body).status, 400) << body;
  }
  const net::HttpResponse unclear = fixture.post("/invocations", R"({"inputs":"Hi"})");
  for (const char* named : {"'messages'", "'prompt'", "'input'", "'documents'", "'text_1'"}) {
    EXPECT_NE(unclear.body.find(named), std::string::npos) << unclear.body;
  }
}

}  // namespace
}  // namespace pelton::server
