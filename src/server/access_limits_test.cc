// Who is let in, over the listener: limits of keys, deadlines, and how soon a full server says so.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "access/access_control.h"
#include "net/test_socket.h"
#include "server/metrics_page.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"},
  {"when": "endless", "then": ["<|channel|>analysis<|message|>", {"text": "on and on ", "times": 2000}]}
]})";
constexpr std::string_view kChat = "/v1/chat/completions";

std::string chat(std::string_view words, std::string_view extra = "") {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}]{}{}}})", words,
                     extra.empty() ? "" : ",", extra);
}

bool eventually(const std::function<bool()>& holds) {
  const auto limit = steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

access::ApiKeys ring(std::string_view file) {
  access::ApiKeys keys;
  EXPECT_TRUE(keys.add_file(file, "keys").ok());
  return keys;
}

ServerFixture::Options with_keys(std::string_view file) {
  ServerFixture::Options options;
  options.server.keys = ring(file);
  return options;
}

// Each step takes `ms`; so many sequences at once.
ServerFixture::Options slow(ServerFixture::Options options, int slots, int ms) {
  options.executor = [=](engine::ModelledExecutor::Options& executor) {
    executor.capacity.sequences_max = slots;
    executor.fail_step = [ms](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(ms));
      return std::nullopt;
    };
  };
  return options;
}

net::HttpCall asked(ServerFixture& fixture, std::string_view key, std::string_view path,
                    std::string body) {
  net::HttpCall call = fixture.call("POST", std::string(path), std::move(body));
  if (!key.empty()) call.headers.add("Authorization", "Bearer " + std::string(key));
  return call;
}

net::HttpResponse ask(ServerFixture& fixture, std::string_view key, std::string_view path,
                      std::string body) {
  return fixture.fetch(asked(fixture, key, path, std::move(body)));
}

void expect_rate_limited(const net::HttpResponse& response, std::string_view what) {
  EXPECT_EQ(response.status, 429) << response.body;
  const Json json = parsed(response.body);
  const Json* error = json.find("error");
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->string("type"), "rate_limit_error");
  EXPECT_EQ(error->string("code"), "rate_limit_exceeded");
  EXPECT_THAT(*error->string("message"), HasSubstr(std::string(what)));
  EXPECT_GE(std::stoi("0" + std::string(response.headers.get("Retry-After"))), 1);
}

TEST(RateLimits, RequestsPerMinuteAreAKeysOwn) {
  ServerFixture fixture(kScript, with_keys("a wheel rpm=2\nb wheel\n"));
  const net::HttpResponse first = ask(fixture, "a", kChat, chat("hi"));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.get("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.headers.get("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(first.headers.get("x-ratelimit-reset-requests"), "30s");
  EXPECT_FALSE(first.headers.has("x-ratelimit-limit-tokens"));
  // What asks nothing of the model is free; a request that is wrong is a request.
  net::HttpCall models = fixture.call("GET", "/v1/models", "");
  models.headers.add("Authorization", "Bearer a");
  EXPECT_EQ(fixture.fetch(std::move(models)).status, 200);
  EXPECT_EQ(ask(fixture, "a", "/tokenize", R"({"prompt":"x"})").status, 200);
  EXPECT_EQ(ask(fixture, "a", "/v1/completions", "{").status, 400);
  for (const std::string_view path :
       {kChat, std::string_view("/v1/completions"), std::string_view("/v1/responses"),
        std::string_view("/v1/messages"), std::string_view("/v1/embeddings"),
        std::string_view("/inference/v1/generate")}) {
    const net::HttpResponse refused = ask(fixture, "a", path, chat("hi"));
    EXPECT_EQ(refused.status, 429) << path;
    EXPECT_THAT(refused.body, HasSubstr("rate_limit_error")) << path;
  }
  const net::HttpResponse last = ask(fixture, "a", kChat, chat("hi"));
  expect_rate_limited(last, "2 requests per minute");
  EXPECT_EQ(last.headers.get("x-ratelimit-remaining-requests"), "0");
  const net::HttpResponse others = ask(fixture, "b", kChat, chat("hi"));
  EXPECT_EQ(others.status, 200);
  EXPECT_FALSE(others.headers.has("x-ratelimit-limit-requests"));
  EXPECT_THAT(metrics_page(fixture.server().services()),
              HasSubstr("pelton_requests_refused_total{model_name=\"tiny\",engine=\"0\","
                        "by=\"requests\"} 7\n"));
}

// Two that differ, or one twice: a proxy before the server may have looked at the other one.
TEST(Keys, D8_OneCredentialAndNoOther) {
  ServerFixture fixture(kScript, with_keys("a wheel\nb wheel\n"));
  using Fields = std::vector<std::pair<std::string, std::string>>;
  const auto status = [&](const Fields& fields) {
    net::HttpCall call = fixture.call("GET", "/v1/models", "");
    for (const auto& [name, value] : fields) call.headers.add(name, value);
    return fixture.fetch(std::move(call)).status;
  };
  EXPECT_EQ(status({{"Authorization", "Bearer a"}}), 200);
  EXPECT_EQ(status({{"x-api-key", "a"}}), 200);
  EXPECT_EQ(status({{"Authorization", "Bearer a"}, {"x-api-key", "a"}}), 200) << "the same";
  const Fields bad[] = {{{"Authorization", "Bearer a"}, {"Authorization", "Bearer a"}},
                        {{"Authorization", "Bearer a"}, {"authorization", "Bearer wrong"}},
                        {{"Authorization", ""}, {"authorization", "Bearer a"}},
                        {{"Authorization", "Basic YQ=="}, {"Authorization", "Bearer a"}},
                        {{"x-api-key", "a"}, {"X-Api-Key", "a"}},
                        {{"Authorization", "Bearer a"}, {"x-api-key", "b"}},
                        {{"Authorization", "Bearer a"}, {"x-api-key", "wrong"}},
                        {{"Authorization", "Bearer wrong"}, {"x-api-key", "a"}},
                        {{"Authorization", "Basic YQ=="}, {"x-api-key", "a"}}};
  for (const Fields& fields : bad) EXPECT_EQ(status(fields), 401) << fields[1].second;
}

TEST(RateLimits, TokensAreReservedAndThenSettled) {
  ServerFixture fixture(kScript, with_keys("a wheel tpm=2000\n"));
  const net::HttpResponse first = ask(fixture, "a", kChat, chat("hi", R"("max_tokens":500)"));
  ASSERT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.get("x-ratelimit-limit-tokens"), "2000");
  const Json body = parsed(first.body);
  const int64_t used = *body.find("usage")->integer("total_tokens");
  const auto left = [&](const net::HttpResponse& response) {
    return std::stoll(std::string(response.headers.get("x-ratelimit-remaining-tokens")));
  };
  // At first the answer was thought to be longer than it was.
  EXPECT_LT(left(first), 2000 - used);
  EXPECT_TRUE(eventually([&] { return fixture.engine().ledger().clean(); }));
  // A prompt beyond what is left of the minute.
  std::string words;
  for (int i = 0; i < 1900; ++i) words += "a ";
  expect_rate_limited(ask(fixture, "a", kChat, chat(words)), "2000 tokens per minute");
  // What was refused cost nothing: of the first only what it used is gone.
  const net::HttpResponse next =
      ask(fixture, "a", "/v1/completions", R"({"prompt":"x","max_tokens":1})");
  ASSERT_EQ(next.status, 200);
  EXPECT_NEAR(static_cast<double>(left(next)), static_cast<double>(2000 - used - 2), 40);
}

TEST(RateLimits, EmbeddingsCostTheirTokens) {
  ServerFixture fixture(kScript, with_keys("a wheel tpm=100\n"));
  std::string words;
  for (int i = 0; i < 80; ++i) words += "a ";
  const net::HttpResponse first =
      ask(fixture, "a", "/v1/embeddings", R"({"input":")" + words + "\"}");
  ASSERT_EQ(first.status, 200) << first.body;
  expect_rate_limited(ask(fixture, "a", "/v1/embeddings", R"({"input":")" + words + "\"}"),
                      "100 tokens per minute");
}

TEST(RateLimits, SoManyAtOnce) {
  ServerFixture fixture(kScript, slow(with_keys("a wheel concurrent=1\n"), 4, 2));
  std::atomic<bool> done{false};
  net::HttpCallEvents events;
  events.on_done = [&](Result<void>) { done = true; };
  const auto running =
      fixture.client().start(asked(fixture, "a", kChat, chat("endless")), std::move(events));
  ASSERT_TRUE(eventually([&] { return fixture.engine().stats().running == 1; }));
  EXPECT_EQ(net::http_fetch(asked(fixture, "a", kChat, chat("hi")))->status, 429);
  fixture.client().cancel(running);
  ASSERT_TRUE(eventually([&] { return done && fixture.engine().ledger().clean(); }));
  EXPECT_TRUE(eventually(
      [&] { return net::http_fetch(asked(fixture, "a", kChat, chat("hi")))->status == 200; }));
}

// As it is when the key file is read anew.
TEST(RateLimits, AKeyRingIsReplacedAsAWhole) {
  ServerFixture fixture(kScript, with_keys("a wheel rpm=1\nold wheel\n"));
  EXPECT_EQ(ask(fixture, "old", kChat, chat("hi")).status, 200);
  EXPECT_EQ(ask(fixture, "a", kChat, chat("hi")).status, 200);
  EXPECT_EQ(ask(fixture, "a", kChat, chat("hi")).status, 429);
  fixture.server().services().access_control.replace_keys(ring("a wheel rpm=3\nnew jet\n"));
  EXPECT_EQ(ask(fixture, "old", kChat, chat("hi")).status, 401);
  EXPECT_EQ(ask(fixture, "new", kChat, chat("hi")).status, 200);
  // What it has used counts.
  EXPECT_EQ(ask(fixture, "a", kChat, chat("hi")).status, 200);
  EXPECT_EQ(ask(fixture, "a", kChat, chat("hi")).status, 200);
  EXPECT_EQ(ask(fixture, "a", kChat, chat("hi")).status, 429);
}

// Bodies of whoever has no key keep nobody's out: they are not waited for.
TEST(AccessKeys, ABodyIsReadOfThoseWithAKeyOnly) {
  ServerFixture fixture(kScript, with_keys("a wheel\n"));
  const auto asks = [&](std::string_view key, size_t bytes) {
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Authorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{{",
        kChat, key, bytes);
  };
  net::TestSocket stranger(fixture.http().port());
  stranger.send(asks("no", size_t{32} << 20));
  const std::string refused = stranger.read_all();
  EXPECT_THAT(refused, testing::StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(refused, testing::HasSubstr("invalid_api_key"));
  const std::string body = chat("hi");
  net::TestSocket known(fixture.http().port());
  known.send(asks("a", body.size()));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  known.send(body.substr(1));
  EXPECT_THAT(known.read_until("\r\n\r\n"), testing::StartsWith("HTTP/1.1 200 "));
}

// In the body, in seconds; and as OpenAI's and Anthropic's clients say how long they wait.
TEST(Deadlines, BodyAndClientsSayThem) {
  ServerFixture fixture(kScript, slow({}, 4, 2));
  EXPECT_EQ(fixture.post(std::string(kChat), chat("endless", R"("timeout":0.06)")).status, 408);
  EXPECT_EQ(
      fixture.post("/v1/completions", R"({"prompt":"endless","max_tokens":4000,"timeout":0.06})")
          .status,
      408);
  EXPECT_EQ(fixture
                .post("/v1/messages", R"({"model":"tiny","max_tokens":3000,"timeout":0.06,)"
                                      R"("messages":[{"role":"user","content":"endless"}]})")
                .status,
            408);
  EXPECT_EQ(fixture.post("/v1/responses", R"({"input":"endless","timeout":0.06})").status, 408);
  EXPECT_EQ(fixture.post(std::string(kChat), chat("hi", R"("timeout":60)")).status, 200);
  const auto with_header = [&](const char* name, const char* value, std::string body) {
    net::HttpCall call = fixture.call("POST", std::string(kChat), std::move(body));
    call.headers.add(name, value);
    return fixture.fetch(std::move(call));
  };
  EXPECT_EQ(with_header("X-Stainless-Timeout", "0.06", chat("endless")).status, 408);
  EXPECT_EQ(with_header("x-stainless-read-timeout", "0.06", chat("endless")).status, 408);
  // They may say anything, and of a stream they mean the time between two pieces.
  EXPECT_EQ(with_header("x-stainless-read-timeout", "NOT_GIVEN", chat("hi")).status, 200);
  const net::HttpResponse streamed = with_header(
      "x-stainless-read-timeout", "0.06", chat("endless", R"("stream":true,"max_tokens":60)"));
  EXPECT_EQ(streamed.status, 200);
  EXPECT_THAT(streamed.body, testing::Not(HasSubstr("deadline")));
  EXPECT_TRUE(eventually([&] { return fixture.engine().ledger().clean(); }));
}

// Whoever left while he waited is not begun.
TEST(Deadlines, WhoLeftWhileWaitingIsNeverBegun) {
  ServerFixture fixture(kScript, slow({}, 1, 2));
  std::atomic<int> done{0};
  net::HttpClient others{{}};
  const auto start = [&](std::string_view words) {
    net::HttpCallEvents events;
    events.on_done = [&](Result<void>) { ++done; };
    return others.start(asked(fixture, "", kChat, chat(words)), std::move(events));
  };
  const auto first = start("endless");
  ASSERT_TRUE(eventually([&] { return fixture.engine().stats().running == 1; }));
  const int64_t prompt_tokens = fixture.engine().stats().scheduler.prompt_tokens;
  const auto second = start("endless too");
  ASSERT_TRUE(eventually([&] { return fixture.engine().stats().queued == 1; }));
  others.cancel(second);
  ASSERT_TRUE(eventually([&] { return fixture.engine().stats().queued == 0; }));
  others.cancel(first);
  ASSERT_TRUE(eventually([&] { return done == 2 && fixture.engine().ledger().clean(); }));
  EXPECT_EQ(fixture.engine().stats().scheduler.prompt_tokens, prompt_tokens)
      << "nothing was computed for it";
}

// Once it is known how fast places come free, who could not be ready in time is refused at once.
TEST(Deadlines, WhatCannotBeReadyInTimeIsRefusedAtOnce) {
  ServerFixture::Options options = slow({}, 1, 2);
  options.engine.queue_wait_max_ns = 60'000'000'000;
  ServerFixture fixture(kScript, std::move(options));
  // Each takes some 50 steps of 2 ms.
  net::HttpClient others{{}};
  std::atomic<int> done{0};
  const auto start = [&] {
    net::HttpCallEvents events;
    events.on_done = [&](Result<void>) { ++done; };
    others.start(asked(fixture, "", kChat, chat("endless", R"("max_tokens":50)")),
                 std::move(events));
  };
  for (int i = 0; i < 40; ++i) start();
  ASSERT_TRUE(eventually([&] { return done >= 6; }));
  const int64_t wait_ns = fixture.engine().stats().queue_wait_ns;
  EXPECT_GT(wait_ns, 500'000'000);
  const auto began = steady_clock::now();
  const net::HttpResponse refused =
      fixture.post(std::string(kChat), chat("hi", R"("timeout":0.5)"));
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_LT(steady_clock::now() - began, std::chrono::milliseconds(400));
  EXPECT_THAT(refused.body, HasSubstr("its deadline is in"));
  // About half of those that wait are gone by then.
  const int retry_s = std::stoi(std::string(refused.headers.get("Retry-After")));
  EXPECT_GE(retry_s, 1);
  EXPECT_LE(retry_s, 2 + static_cast<int>(wait_ns / 1'000'000'000));
  ASSERT_TRUE(eventually([&] { return done == 40; }));
  EXPECT_EQ(fixture.post(std::string(kChat), chat("hi", R"("timeout":5)")).status, 200);
}

// Three times the load and more: refusals come fast. The bound is for machines that are busy with
// other tests; docs/log/performance-2026.md has what was measured.
TEST(Overload, RefusalsAreFast) {
  ServerFixture::Options options = slow({}, 2, 2);
  options.engine.inbox_max = 4;
  ServerFixture fixture(kScript, std::move(options));
  std::vector<double> refusal_ms;
  std::mutex mutex;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {
    threads.emplace_back([&] {
      net::HttpClient client{{}};
      while (!stop) {
        const auto began = steady_clock::now();
        const auto response = net::http_fetch(
            client, asked(fixture, "", kChat, chat("endless", R"("max_tokens":20)")));
        if (!response.ok() || response->status != 429) continue;
        EXPECT_FALSE(response->headers.get("Retry-After").empty());
        const std::lock_guard lock(mutex);
        refusal_ms.push_back(
            std::chrono::duration<double, std::milli>(steady_clock::now() - began).count());
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  ASSERT_GT(refusal_ms.size(), 100u);
  std::sort(refusal_ms.begin(), refusal_ms.end());
  const double p99 = refusal_ms[refusal_ms.size() * 99 / 100];
  fmt::print("{} refusals, p50 {:.2f} ms, p99 {:.2f} ms\n", refusal_ms.size(),
             refusal_ms[refusal_ms.size() / 2], p99);
  EXPECT_LE(refusal_ms[refusal_ms.size() / 2], 50);
  EXPECT_LE(p99, 250);
}

}  // namespace
}  // namespace pelton::server
