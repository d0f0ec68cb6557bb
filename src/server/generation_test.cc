#include "server/generation.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "server/chat_answer.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"context": 20000, "rules": [
  {"when": "", "then": ["<|channel|>final<|message|>", {"text": "0123456789", "times": 100}]}]})";

// An exchange whose net thread is the test's, and whose client reads when the test says so.
class ScriptedExchange final : public net::Exchange {
 public:
  void send(net::HttpResponse response) override {
    sent = std::move(response);
    end();
  }
  void start_stream(int status, net::HttpHeaders) override { stream_status = status; }
  void write(std::string_view bytes) override {
    body += bytes;
    ++writes;
  }
  void finish() override {
    finished = true;
    end();
  }
  size_t queued_bytes() const override { return backlog; }
  void on_drained(std::function<void()> drained) override { drained_ = std::move(drained); }
  void on_closed(std::function<void()> closed) override { closed_ = std::move(closed); }
  bool closed() const override { return false; }
  void post(std::function<void()> work) override {
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(work));
    }
    came_.notify_one();
  }
  void post_after(std::chrono::milliseconds, std::function<void()> work) override {
    ticks.push_back(std::move(work));
  }

  // Runs what was posted, at most one piece; waits for it.
  bool run_one() {
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, std::chrono::seconds(5), [&] { return !posted_.empty(); });
    if (posted_.empty()) return false;
    const std::function<void()> work = std::move(posted_.front());
    posted_.pop_front();
    lock.unlock();
    work();
    return true;
  }
  void drain() {
    backlog = 0;
    const std::function<void()> drained = drained_;
    if (drained) drained();
  }
  void leave() {
    const std::function<void()> closed = std::move(closed_);
    end();
    if (closed) closed();
  }

  size_t backlog = 0;
  std::string body;
  int writes = 0;
  int stream_status = 0;
  bool finished = false;
  std::optional<net::HttpResponse> sent;
  std::vector<std::function<void()>> ticks;

 private:
  void end() {
    closed_ = nullptr;
    drained_ = nullptr;
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> posted_;
  std::function<void()> drained_;
  std::function<void()> closed_;
};

GenerationMeter& meter() {
  static const base::SystemClock clock;
  static GenerationMeter all(clock);
  return all;
}

std::weak_ptr<Generation> start(ServerFixture& fixture,
                                const std::shared_ptr<ScriptedExchange>& exchange,
                                Generation::Mode mode, std::unique_ptr<Answer> answer,
                                base::Log* log = nullptr) {
  request::GenerationRequest request;
  request.prompt = {72};
  request.stop = {.max_new_tokens = 5000, .stop_tokens = fixture.model().all_stop_tokens()};
  Result<engine::TokenStream> stream = fixture.engine().submit(std::move(request));
  EXPECT_TRUE(stream.ok());
  Generation::Parts parts{.id = "chatcmpl-1",
                          .call = {.request = {}, .exchange = exchange, .headers = {}},
                          .streams = {},
                          .answer = std::move(answer),
                          .mode = mode};
  parts.streams.push_back(std::move(stream).value());
  return Generation::run(std::move(parts),
                         {.log = log != nullptr ? *log : fixture.log(), .meter = meter()});
}

void start(ServerFixture& fixture, const std::shared_ptr<ScriptedExchange>& exchange,
           Generation::Mode mode) {
  ChatAnswer::Options options;
  options.choice.stream = mode == Generation::Mode::kStream;
  options.head.id = "chatcmpl-1";
  start(fixture, exchange, mode, std::make_unique<ChatAnswer>(fixture.model(), options));
}

// Keeps what it is given.
struct Recorded {
  size_t tokens = 0;
  std::optional<engine::FinishReason> end;
};
class RecordingAnswer final : public Answer {
 public:
  explicit RecordingAnswer(Recorded& recorded) : recorded_(recorded) {}
  Wants push(size_t, const engine::SampledToken&) override {
    ++recorded_.tokens;
    return Wants::kMore;
  }
  void end(size_t, const engine::StreamEnd& end) override { recorded_.end = end.reason; }
  void take_events(std::string&) override {}
  void take_last_events(std::string&) override {}
  std::string whole_body() override { return "{}"; }

 private:
  Recorded& recorded_;
};

std::string content_of(const std::string& body) {
  std::string content;
  for (const std::string& event : events_of(body)) {
    if (event == "[DONE]") continue;
    const Json json = parsed(event);
    const Json& delta = *json.find("choices")->as_array().at(0).find("delta");
    content += delta.string("content").value_or("");
  }
  return content;
}

std::string expected_content() {
  std::string content;
  for (int i = 0; i < 100; ++i) content += "0123456789";
  return content;
}

TEST(Generation, TakesNothingForAReaderThatIsBehind) {
  ServerFixture fixture(kScript, {});
  const auto exchange = std::make_shared<ScriptedExchange>();
  start(fixture, exchange, Generation::Mode::kStream);
  exchange->backlog = (size_t{256} << 10) + 1;
  ASSERT_TRUE(exchange->run_one());
  EXPECT_EQ(exchange->writes, 0);
  exchange->drain();
  EXPECT_GT(exchange->writes, 0);
  while (!exchange->finished) ASSERT_TRUE(exchange->run_one());
  EXPECT_EQ(content_of(exchange->body), expected_content());
  EXPECT_EQ(exchange.use_count(), 1) << "the generation holds its exchange after the end";
}

TEST(Generation, AClientThatLeavesEndsIt) {
  for (const auto mode : {Generation::Mode::kStream, Generation::Mode::kWhole}) {
    ServerFixture fixture(kScript, {});
    const auto exchange = std::make_shared<ScriptedExchange>();
    start(fixture, exchange, mode);
    ASSERT_TRUE(exchange->run_one());
    const int writes = exchange->writes;
    exchange->leave();
    while (exchange.use_count() > 1 && exchange->run_one()) {
    }
    EXPECT_EQ(exchange.use_count(), 1);
    EXPECT_EQ(exchange->writes, writes);
    for (const auto& tick : exchange->ticks) tick();
    EXPECT_EQ(exchange->writes, writes);
  }
}

TEST(Generation, SaysThatItIsAliveWhileNothingHappens) {
  ServerFixture fixture(kScript, {});
  const auto exchange = std::make_shared<ScriptedExchange>();
  start(fixture, exchange, Generation::Mode::kStream);
  ASSERT_EQ(exchange->ticks.size(), 1u);
  exchange->ticks[0]();
  EXPECT_EQ(exchange->stream_status, 200);
  EXPECT_TRUE(exchange->body.starts_with(":"));
  ASSERT_EQ(exchange->ticks.size(), 2u);
  while (!exchange->finished) ASSERT_TRUE(exchange->run_one());
  EXPECT_EQ(content_of(exchange->body), expected_content());
}

// Tokens that came together with the end of their stream are as good as those before.
TEST(Generation, WhatCameBeforeAnErrorIsToldBeforeIt) {
  ServerFixture::Options options;
  std::atomic<bool> failing{false};
  options.executor = [&](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [&](const engine::StepPlan& plan) -> std::optional<Error> {
      if (plan.step < 20) return {};
      failing = true;
      return Error{ErrorCode::kInternal, "the device is gone", ""};
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  const auto exchange = std::make_shared<ScriptedExchange>();
  start(fixture, exchange, Generation::Mode::kStream);
  exchange->ticks[0]();  // the stream has begun
  while (!failing) std::this_thread::yield();
  while (!exchange->finished) ASSERT_TRUE(exchange->run_one());
  const std::vector<std::string> events = events_of(exchange->body);
  ASSERT_FALSE(events.empty());
  EXPECT_NE(parsed(events.back()).find("error"), nullptr);
  std::string content;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json json = parsed(events[i]);
    content += json.find("choices")->as_array().at(0).find("delta")->string("content").value_or("");
  }
  EXPECT_EQ(content, expected_content().substr(0, content.size()));
  EXPECT_GE(content.size(), 10u) << "most of some 17 tokens, all but the header's, must be there";
}

// Its client hears that the log says why.
TEST(Generation, WhyItFailedIsInTheLog) {
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [](const engine::StepPlan&) {
      return std::optional(Error{ErrorCode::kInternal, "the device is gone", ""});
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kError, .file = file});
  const auto exchange = std::make_shared<ScriptedExchange>();
  Recorded recorded;
  start(fixture, exchange, Generation::Mode::kWhole, std::make_unique<RecordingAnswer>(recorded),
        &log);
  while (!exchange->sent) ASSERT_TRUE(exchange->run_one());
  EXPECT_EQ(exchange->sent->status, 500);
  std::string said(4096, '\0');
  std::rewind(file);
  said.resize(std::fread(said.data(), 1, said.size(), file));
  std::fclose(file);
  EXPECT_NE(said.find("chatcmpl-1 failed: the device is gone"), std::string::npos) << said;
}

// The engine may be through by then: the tokens that are not emitted any more were cancelled.
TEST(Generation, CancelledIsCancelled) {
  ServerFixture fixture(kScript, {});
  const auto exchange = std::make_shared<ScriptedExchange>();
  Recorded recorded;
  const std::weak_ptr<Generation> generation = start(fixture, exchange, Generation::Mode::kStream,
                                                     std::make_unique<RecordingAnswer>(recorded));
  while (!fixture.engine().ledger().clean()) std::this_thread::yield();
  generation.lock()->cancel();
  while (!exchange->finished) ASSERT_TRUE(exchange->run_one());
  EXPECT_EQ(recorded.tokens, 0u);
  EXPECT_EQ(recorded.end, engine::FinishReason::kCancelled);
}

TEST(Generation, AWholeAnswerIsSentOnce) {
  ServerFixture fixture(kScript, {});
  const auto exchange = std::make_shared<ScriptedExchange>();
  start(fixture, exchange, Generation::Mode::kWhole);
  EXPECT_TRUE(exchange->ticks.empty());
  while (!exchange->sent) ASSERT_TRUE(exchange->run_one());
  EXPECT_EQ(exchange->writes, 0);
  EXPECT_EQ(exchange.use_count(), 1);
}

}  // namespace
}  // namespace pelton::server
