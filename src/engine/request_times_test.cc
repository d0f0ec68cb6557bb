// When a request came how far, and since when the engine is at its present work.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/modelled_executor.h"

namespace pelton::engine {
namespace {

constexpr int64_t kMs = 1'000'000;

ModelledExecutor::Options small(base::VirtualClock& clock) {
  ModelledExecutor::Options options;
  options.capacity = {
      .block_tokens = 4,
      .groups = {{{.name = "full"}, {64}}, {{.name = "window", .sliding_window = 8}, {64}}},

      .sequences_max = 1,
      .batch_tokens_max = 8,
      .context_tokens_max = 128};
  options.next_token = checksum_tokens(50);
  options.timing = {.clock = &clock,
                    .step_ns = [](const StepPlan&) { return 10 * kMs; },
                    .pass = [&clock](int64_t ns) { clock.advance_ns(ns); }};
  return options;
}

request::GenerationRequest request_of(int prompt, int output) {
  request::GenerationRequest request;
  for (int i = 0; i < prompt; ++i) request.prompt.push_back(i + prompt);
  request.stop.max_new_tokens = output;
  return request;
}

StreamEnd end_of(TokenStream& stream) {
  for (;;) {
    TokenStream::Batch batch = stream.wait();
    if (batch.end) return *std::move(batch.end);
  }
}

TEST(RequestTimes, AreWhenItHappened) {
  base::VirtualClock clock;
  clock.advance_ns(3 * kMs);
  base::Log log(clock, {.level = base::LogLevel::kNone});
  ModelledExecutor executor(small(clock));
  Engine engine({.steps_in_flight_max = 1}, executor, clock, log);
  // 20 tokens of a prompt are three steps of 8; the second request waits for the only slot.
  Result<TokenStream> first = engine.submit(request_of(20, 5));
  ASSERT_TRUE(first.ok());
  const StreamEnd one = end_of(*first);
  EXPECT_EQ(one.times.queued_ns, 3 * kMs);
  EXPECT_EQ(one.times.scheduled_ns, 3 * kMs);
  EXPECT_EQ(one.times.first_token_ns, 33 * kMs);
  EXPECT_EQ(one.times.last_token_ns, 73 * kMs);
  EXPECT_EQ(clock.now_ns(), 73 * kMs);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.steps.tokens, 20 + 4);
  EXPECT_EQ(stats.steps.by_tokens[0], 4);  // of one token
  EXPECT_EQ(stats.steps.by_tokens[1], 3);  // of two to eight
}

TEST(RequestTimes, WaitingForASeatIsQueueing) {
  base::VirtualClock clock;
  clock.advance_ns(kMs);
  base::Log log(clock, {.level = base::LogLevel::kNone});
  ModelledExecutor executor(small(clock));
  Engine engine({.steps_in_flight_max = 1}, executor, clock, log);
  Result<TokenStream> first = engine.submit(request_of(8, 100));
  Result<TokenStream> second = engine.submit(request_of(7, 2));
  ASSERT_TRUE(first.ok() && second.ok());
  const StreamEnd one = end_of(*first);
  const StreamEnd two = end_of(*second);
  EXPECT_EQ(one.times.queued_ns, kMs);
  EXPECT_LT(two.times.queued_ns, one.times.last_token_ns);
  EXPECT_EQ(two.times.scheduled_ns, one.times.last_token_ns);
  EXPECT_EQ(two.times.first_token_ns, two.times.scheduled_ns + 10 * kMs);
  EXPECT_EQ(two.times.last_token_ns, two.times.first_token_ns + 10 * kMs);
}

TEST(RequestTimes, BusySinceTheStepThatIsStuck) {
  base::VirtualClock clock;
  clock.advance_ns(7 * kMs);
  base::Log log(clock, {.level = base::LogLevel::kNone});
  std::atomic<bool> stuck{true};
  ModelledExecutor::Options options = small(clock);
  options.timing->pass = [&](int64_t) {
    while (stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  ModelledExecutor executor(std::move(options));
  Engine engine({.steps_in_flight_max = 1}, executor, clock, log);
  Result<TokenStream> stream = engine.submit(request_of(4, 1));
  ASSERT_TRUE(stream.ok());
  while (engine.busy_since_ns() == 0) std::this_thread::yield();
  clock.advance_ns(1000 * kMs);
  EXPECT_EQ(engine.busy_since_ns(), 7 * kMs);
  stuck = false;
  end_of(*stream);
  for (int i = 0; i < 2000 && engine.busy_since_ns() != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(engine.busy_since_ns(), 0);
}

// Without its checks the modelled executor answers the same.
TEST(ModelledExecutor, AnswersAlikeWithoutChecks) {
  std::vector<std::vector<TokenId>> answers;
  for (const bool checks : {true, false}) {
    base::VirtualClock clock;
    base::Log log(clock, {.level = base::LogLevel::kNone});
    ModelledExecutor::Options options = small(clock);
    options.capacity.sequences_max = 3;
    options.capacity.groups[0].block_counts[kv::kDevice] =
        30;  // too few for all: some are preempted
    options.checks = checks;
    ModelledExecutor executor(std::move(options));
    Engine engine({.hash_seed = 1}, executor, clock, log);
    std::vector<TokenStream> streams;
    for (int i = 0; i < 12; ++i) {
      Result<TokenStream> stream = engine.submit(request_of(5 + 3 * (i % 5), 20 + i));
      ASSERT_TRUE(stream.ok());
      streams.push_back(std::move(*stream));
    }
    std::vector<TokenId> all;
    for (TokenStream& stream : streams) {
      for (bool ended = false; !ended;) {
        const TokenStream::Batch batch = stream.wait();
        for (const SampledToken& token : batch.tokens) all.push_back(token.token);
        ended = batch.end.has_value();
      }
    }
    answers.push_back(std::move(all));
  }
  EXPECT_EQ(answers[0].size(), 12u * 20 + 66);
  EXPECT_EQ(answers[0], answers[1]);
}

}  // namespace
}  // namespace pelton::engine
