// The engine with its thread, on the modelled executor.
#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/random.h"
#include "engine/modelled_executor.h"

namespace pelton::engine {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

const ExecutorCapacity kSmall{
    .block_tokens = 4,
    .groups = {{{.name = "full"}, {40, 20}}, {{.name = "window", .sliding_window = 8}, {30, 20}}},

    .sequences_max = 6,
    .batch_tokens_max = 16,
    .context_tokens_max = 128};

const kv::PerGroup<int> kNone = {0, 0};  // no blocks of either group

request::GenerationRequest make_request(int prompt, int max_new, uint64_t seed) {
  request::GenerationRequest request;
  request.id = std::to_string(seed);
  for (int i = 0; i < prompt; ++i) {
    request.prompt.push_back(
        static_cast<TokenId>(base::random_bits(seed, static_cast<uint64_t>(i)) % 1000));
  }
  request.stop.max_new_tokens = max_new;
  request.sampling.seed = seed;
  return request;
}

struct Output {
  std::vector<TokenId> tokens;
  StreamEnd end;
};

Output read_all(TokenStream& stream) {
  Output output;
  for (;;) {
    TokenStream::Batch batch = stream.wait();
    for (const SampledToken& token : batch.tokens) output.tokens.push_back(token.token);
    if (batch.end) {
      output.end = *batch.end;
      return output;
    }
  }
}

// An engine with everything it needs. Steps take `step_ns` of real time.
class Bench {
 public:
  struct Options {
    int steps_in_flight_max = 1;
    int inbox_max = 1024;
    int64_t queued_tokens_max = 1 << 20;
    SchedulingPolicy policy = {};
    bool checks_every_step = true;
    int64_t step_ns = 0;
    ExecutorCapacity capacity = kSmall;
    ModelledExecutor::TokenFunction next_token = checksum_tokens(1000);
    std::function<std::optional<Error>(const StepPlan&)> fail_step;
  };

  explicit Bench(const Options& options)
      : log_(clock_, {.level = base::LogLevel::kNone}), executor_([&] {
          ModelledExecutor::Options made{.capacity = options.capacity,
                                         .next_token = options.next_token,
                                         .fail_step = options.fail_step};
          if (options.step_ns > 0) {
            made.timing = ModelledExecutor::Timing{
                .clock = &clock_,
                .step_ns = [ns = options.step_ns](const StepPlan&) { return ns; },
                .pass =
                    [](int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }};
          }
          return made;
        }()) {
    engine_ =
        std::make_unique<Engine>(Engine::Options{.inbox_max = options.inbox_max,
                                                 .queued_tokens_max = options.queued_tokens_max,
                                                 .policy = options.policy,
                                                 .steps_in_flight_max = options.steps_in_flight_max,
                                                 .checks_every_step = options.checks_every_step},
                                 executor_, clock_, log_);
  }

  Engine& engine() { return *engine_; }
  void stop() { engine_.reset(); }
  int64_t now_ns() const { return clock_.now_ns(); }

  TokenStream submit(request::GenerationRequest request) {
    Result<TokenStream> stream = engine_->submit(std::move(request));
    CHECK(stream.ok(), stream.error().message);
    return std::move(stream).value();
  }

  // Waits until no sequence runs or waits, and returns the last word on blocks.
  EngineStats settle() {
    for (;;) {
      const EngineStats stats = engine_->stats();
      if (stats.running == 0 && stats.waiting == 0) return stats;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // The last word of the books, once nothing is going on; or what they say after ten seconds.
  Ledger settled_ledger() const {
    for (int tries = 0; tries < 10'000 && !engine_->ledger().clean(); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return engine_->ledger();
  }

 private:
  base::SystemClock clock_;
  base::Log log_;
  ModelledExecutor executor_;
  std::unique_ptr<Engine> engine_;
};

std::vector<TokenId> alone(const request::GenerationRequest& request) {
  Bench bench({});
  TokenStream stream = bench.submit(request);
  return read_all(stream).tokens;
}

class EngineDepth : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(StepsInFlight, EngineDepth, testing::Values(1, 2));

TEST_P(EngineDepth, one_request_gives_its_tokens_and_an_end) {
  Bench bench({.steps_in_flight_max = GetParam(), .next_token = scripted_tokens({{1, {7, 8, 9}}})});
  TokenStream stream = bench.submit(make_request(10, 3, 1));
  const Output output = read_all(stream);
  EXPECT_THAT(output.tokens, ElementsAre(7, 8, 9));
  EXPECT_EQ(output.end.reason, FinishReason::kLength);
  EXPECT_EQ(output.end.prompt_tokens, 10);
  EXPECT_EQ(output.end.output_tokens, 3);
  EXPECT_TRUE(stream.wait().tokens.empty());  // after the end nothing is waited for
}

TEST_P(EngineDepth, stop_token_is_delivered_and_last) {
  Bench bench({.steps_in_flight_max = GetParam(), .next_token = scripted_tokens({{1, {7, 8, 9}}})});
  request::GenerationRequest request = make_request(3, 20, 1);
  request.stop.stop_tokens = {8};
  TokenStream stream = bench.submit(request);
  const Output output = read_all(stream);
  EXPECT_THAT(output.tokens, ElementsAre(7, 8));
  EXPECT_EQ(output.end.reason, FinishReason::kStop);
  EXPECT_EQ(bench.settle().blocks_used, kNone);
}

// Even if an executor samples a stop token it was forbidden, as a script does.
TEST_P(EngineDepth, a_stop_token_before_min_new_tokens_ends_nothing) {
  Bench bench({.steps_in_flight_max = GetParam(), .next_token = scripted_tokens({{1, {8, 8, 8}}})});
  request::GenerationRequest request = make_request(3, 20, 1);
  request.stop.stop_tokens = {8};
  request.stop.min_new_tokens = 2;
  TokenStream stream = bench.submit(request);
  const Output output = read_all(stream);
  EXPECT_THAT(output.tokens, ElementsAre(8, 8, 8));
  EXPECT_EQ(output.end.reason, FinishReason::kStop);
}

TEST_P(EngineDepth, many_submitters_each_get_what_they_would_alone) {
  Bench bench({.steps_in_flight_max = GetParam()});
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 12; ++i) {
        const uint64_t seed = t * 100 + i;
        const request::GenerationRequest request = make_request(
            1 + static_cast<int>(seed * 7 % 40), 1 + static_cast<int>(seed % 30), seed);
        TokenStream stream = bench.submit(request);
        if (i % 4 == 3) continue;  // leaves at once
        if (i % 4 == 2) std::this_thread::sleep_for(std::chrono::microseconds(300));  // reads late
        EXPECT_EQ(read_all(stream).tokens, alone(request)) << "seed " << seed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  bench.engine().drain(60'000);
  const EngineStats stats = bench.engine().stats();
  EXPECT_EQ(stats.blocks_used, kNone);
}

// The request's seed and those after it: each answer is what a request of that seed gives.
TEST_P(EngineDepth, several_answers_are_those_of_the_seeds_that_follow) {
  Bench bench({.steps_in_flight_max = GetParam()});
  request::GenerationRequest request = make_request(38, 20, 7);
  Result<std::vector<TokenStream>> streams = bench.engine().submit_answers(request, 5);
  ASSERT_TRUE(streams.ok());
  ASSERT_EQ(streams->size(), 5u);
  for (TokenStream& stream : *streams) {
    const Output output = read_all(stream);
    EXPECT_EQ(output.tokens, alone(request));
    EXPECT_EQ(output.end.prompt_tokens, 38);
    ++request.sampling.seed;
  }
  const EngineStats stats = bench.settle();
  EXPECT_EQ(stats.scheduler.prompt_tokens, 5 * 38);
  EXPECT_EQ(stats.scheduler.prompt_tokens_shared, 4 * 37);  // each computes the last one itself
  EXPECT_EQ(stats.steps.output_tokens, 5 * 20);
  EXPECT_TRUE(bench.settled_ledger().clean());
}

TEST_P(EngineDepth, an_answer_that_is_left_leaves_the_others) {
  Bench bench({.steps_in_flight_max = GetParam(), .step_ns = 200'000});
  request::GenerationRequest request = make_request(30, 40, 3);
  Result<std::vector<TokenStream>> streams = bench.engine().submit_answers(request, 4);
  ASSERT_TRUE(streams.ok());
  while ((*streams)[1].wait().tokens.empty()) {
  }
  (*streams)[1].cancel();
  (*streams)[0].cancel();
  request.sampling.seed += 2;
  EXPECT_EQ(read_all((*streams)[2]).tokens, alone(request));
  ++request.sampling.seed;
  EXPECT_EQ(read_all((*streams)[3]).tokens, alone(request));
  EXPECT_TRUE(bench.settled_ledger().clean());
}

TEST(Engine, answers_have_a_bound) {
  Bench bench({});
  for (const int count : {0, -1, Engine::kAnswersMax + 1}) {
    const auto streams = bench.engine().submit_answers(make_request(5, 5, 1), count);
    ASSERT_FALSE(streams.ok());
    EXPECT_EQ(streams.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(streams.error().field, "n");
  }
  auto streams = bench.engine().submit_answers(make_request(5, 5, 1), Engine::kAnswersMax);
  ASSERT_TRUE(streams.ok());
  for (TokenStream& stream : *streams) EXPECT_THAT(read_all(stream).tokens, SizeIs(5));
  EXPECT_TRUE(bench.settled_ledger().clean());
}

// Also while its blocks lie in the host's memory, a reader may leave.
TEST_P(EngineDepth, a_reader_that_leaves_frees_its_blocks_in_the_hosts_memory) {
  ExecutorCapacity tight = kSmall;
  tight.groups[0].block_counts[kv::kDevice] = 24;
  Bench bench({.steps_in_flight_max = GetParam(), .step_ns = 2'000'000, .capacity = tight});
  TokenStream first = bench.submit(make_request(30, 60, 1));
  TokenStream second = bench.submit(make_request(30, 60, 2));
  while (bench.engine().stats().swapped_out == 0 && !first.take().end) {
  }
  ASSERT_EQ(bench.engine().stats().swapped_out, 1);
  second.cancel();
  const int64_t steps = bench.engine().stats().steps.count;
  while (bench.engine().ledger().of(0, kv::kHost).held > 0) {
  }
  EXPECT_LE(bench.engine().stats().steps.count, steps + 3);
  first.cancel();
  EXPECT_TRUE(bench.settled_ledger().clean());
}

TEST_P(EngineDepth, a_reader_that_leaves_frees_its_blocks) {
  Bench bench({.steps_in_flight_max = GetParam(), .step_ns = 1'000'000});
  {
    TokenStream stream = bench.submit(make_request(20, 100, 1));
    while (stream.wait().tokens.empty()) {
    }
    EXPECT_GT(bench.engine().stats().blocks_used[0], 0);
  }
  const int64_t steps = bench.engine().stats().steps.count;
  const EngineStats stats = bench.settle();
  EXPECT_LE(stats.steps.count, steps + 3);
  EXPECT_EQ(stats.blocks_used, kNone);
}

TEST_P(EngineDepth, cancel_gives_the_reader_an_end) {
  Bench bench({.steps_in_flight_max = GetParam(), .step_ns = 1'000'000});
  TokenStream stream = bench.submit(make_request(20, 100, 1));
  stream.cancel();
  EXPECT_EQ(read_all(stream).end.reason, FinishReason::kCancelled);
}

TEST_P(EngineDepth, a_failed_step_ends_its_requests_and_no_others) {
  std::atomic<int> steps{0};
  Bench bench({.steps_in_flight_max = GetParam(), .fail_step = [&](const StepPlan&) {
                 return ++steps == 3 ? std::optional<Error>(
                                           Error{ErrorCode::kInternal, "the device fell off"})
                                     : std::nullopt;
               }});
  TokenStream failing = bench.submit(make_request(10, 50, 1));
  const Output failed = read_all(failing);
  EXPECT_EQ(failed.end.reason, FinishReason::kError);
  ASSERT_TRUE(failed.end.error.has_value());
  EXPECT_EQ(failed.end.error->message, "the device fell off");
  EXPECT_THAT(failed.tokens, SizeIs(2));  // steps 1 and 2

  const request::GenerationRequest next = make_request(10, 20, 2);
  TokenStream going_on = bench.submit(next);
  EXPECT_EQ(read_all(going_on).tokens, alone(next));
  EXPECT_EQ(bench.settle().blocks_used, kNone);
}

TEST_P(EngineDepth, stopping_ends_every_stream) {
  Bench bench({.steps_in_flight_max = GetParam(), .step_ns = 500'000});
  std::vector<TokenStream> streams;
  for (uint64_t i = 0; i < 20; ++i) streams.push_back(bench.submit(make_request(20, 100, i)));
  while (streams[0].wait().tokens.empty()) {
  }
  bench.stop();
  for (TokenStream& stream : streams) {
    const Output output = read_all(stream);
    EXPECT_EQ(output.end.reason, FinishReason::kError);
    EXPECT_EQ(output.end.error->code, ErrorCode::kUnavailable);
  }
}

TEST_P(EngineDepth, a_passed_deadline_ends_with_an_error) {
  Bench bench({.steps_in_flight_max = GetParam(), .step_ns = 1'000'000});
  request::GenerationRequest request = make_request(10, 100, 1);
  request.deadline_ns = bench.now_ns() + 20'000'000;
  TokenStream stream = bench.submit(request);
  const Output output = read_all(stream);
  EXPECT_EQ(output.end.reason, FinishReason::kError);
  EXPECT_EQ(output.end.error->code, ErrorCode::kDeadline);
  EXPECT_LT(output.tokens.size(), 100u);
}

ExecutorCapacity roomy() {
  ExecutorCapacity capacity = kSmall;
  capacity.groups[0].block_counts[kv::kDevice] = 200;
  capacity.groups[1].block_counts[kv::kDevice] = 200;
  return capacity;
}

TEST_P(EngineDepth, a_repeated_prompt_is_found_in_the_cache) {
  Bench bench({.steps_in_flight_max = GetParam(), .capacity = roomy()});
  const request::GenerationRequest request = make_request(50, 10, 1);
  TokenStream first = bench.submit(request);
  const Output cold = read_all(first);
  EXPECT_EQ(cold.end.cached_tokens, 0);
  TokenStream second = bench.submit(request);
  const Output warm = read_all(second);
  EXPECT_EQ(warm.end.cached_tokens, 48);
  EXPECT_EQ(warm.tokens, cold.tokens);
  bench.settle();
  EXPECT_EQ(bench.engine().stats().prefix_tokens_asked, 100);
  EXPECT_EQ(bench.engine().stats().prefix_tokens_found, 48);
  const kv::EventLog::Reading events = bench.engine().kv_events().read({.from = 0});
  EXPECT_FALSE(events.events.empty());
  EXPECT_EQ(events.missed, 0);
}

TEST_P(EngineDepth, another_salt_finds_nothing) {
  Bench bench({.steps_in_flight_max = GetParam(), .capacity = roomy()});
  request::GenerationRequest request = make_request(50, 3, 1);
  TokenStream first = bench.submit(request);
  read_all(first);
  request.cache_salt = "another tenant";
  TokenStream second = bench.submit(request);
  EXPECT_EQ(read_all(second).end.cached_tokens, 0);
}

// What a failed step was to compute is never found.
TEST_P(EngineDepth, a_failed_step_leaves_nothing_in_the_cache) {
  std::atomic<int> steps{0};
  Bench bench(
      {.steps_in_flight_max = GetParam(), .capacity = roomy(), .fail_step = [&](const StepPlan&) {
         return ++steps == 2 ? std::optional<Error>(Error{ErrorCode::kInternal, "lost"})
                             : std::nullopt;
       }});
  const request::GenerationRequest request = make_request(40, 5, 1);
  TokenStream failing = bench.submit(request);  // steps of 16 tokens: the second one fails
  EXPECT_EQ(read_all(failing).end.reason, FinishReason::kError);
  TokenStream again = bench.submit(request);
  const Output output = read_all(again);
  EXPECT_EQ(output.end.cached_tokens, 16);
  EXPECT_EQ(output.tokens, alone(request));
}

TEST_P(EngineDepth, a_pinned_prompt_outlives_whatever_comes) {
  Bench bench({.steps_in_flight_max = GetParam()});
  request::GenerationRequest pinned = make_request(40, 1, 1);
  pinned.pin_prefix = true;
  TokenStream first = bench.submit(pinned);
  read_all(first);
  for (uint64_t i = 2; i < 30; ++i) {
    TokenStream other = bench.submit(make_request(60, 20, i));
    EXPECT_EQ(read_all(other).end.reason, FinishReason::kLength);
  }
  TokenStream again = bench.submit(make_request(41, 1, 1));
  EXPECT_EQ(read_all(again).end.cached_tokens, 40);
}

TEST(Engine, refuses_what_it_cannot_do) {
  Bench bench({});
  const auto code = [&](int prompt, int max_new) {
    return bench.engine().submit(make_request(prompt, max_new, 1)).error().code;
  };
  EXPECT_EQ(code(0, 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(1, 0), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(100, 29), ErrorCode::kInvalidArgument);  // 129 of 128

  ExecutorCapacity tight = kSmall;
  tight.groups[0].block_counts[kv::kDevice] = 8;
  Bench small({.capacity = tight});
  EXPECT_EQ(small.engine().submit(make_request(30, 4, 1)).error().code, ErrorCode::kDoesNotFit);
  EXPECT_TRUE(small.engine().submit(make_request(30, 3, 1)).ok());
}

TEST(Engine, a_full_inbox_is_an_answer) {
  Bench bench({.inbox_max = 2, .step_ns = 2'000'000});
  std::vector<TokenStream> streams;
  ErrorCode refused = ErrorCode::kInternal;
  for (uint64_t i = 0; i < 20 && refused == ErrorCode::kInternal; ++i) {
    Result<TokenStream> stream = bench.engine().submit(make_request(8, 100, i));
    if (stream.ok()) {
      streams.push_back(std::move(stream).value());
    } else {
      refused = stream.error().code;
    }
  }
  EXPECT_EQ(refused, ErrorCode::kOverloaded);
  EXPECT_GE(streams.size(), 2u);
  EXPECT_LE(streams.size(), 8u);  // two waiting, at most six in slots
  streams.clear();
  bench.settle();  // what still was in the inbox then leaves a turn later
  for (int tries = 0; tries < 100; ++tries) {
    Result<TokenStream> again = bench.engine().submit(make_request(8, 2, 1));
    if (again.ok()) {
      EXPECT_EQ(read_all(again.value()).end.reason, FinishReason::kLength);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "the inbox stays full";
}

TEST(Engine, a_queue_full_of_tokens_is_an_answer) {
  ExecutorCapacity one_slot = kSmall;
  one_slot.sequences_max = 1;
  Bench bench({.queued_tokens_max = 50, .step_ns = 2'000'000, .capacity = one_slot});
  TokenStream running = bench.submit(make_request(8, 100, 1));
  while (running.wait().tokens.empty()) {
  }
  TokenStream first = bench.submit(make_request(60, 5, 2));  // alone it may wait, however long
  Result<TokenStream> refused = bench.engine().submit(make_request(1, 5, 3));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_NE(refused.error().message.find("60 prompt tokens"), std::string::npos);
  first.cancel();
  EXPECT_EQ(read_all(first).end.reason, FinishReason::kCancelled);
  EXPECT_TRUE(bench.engine().submit(make_request(40, 5, 4)).ok());
}

// Two tenants, one slot: the one who asks for little is not behind all that the other has queued.
TEST(Engine, tenants_take_turns) {
  ExecutorCapacity one_slot = kSmall;
  one_slot.sequences_max = 1;
  Bench bench({.step_ns = 200'000, .capacity = one_slot});
  std::vector<TokenStream> greedy;
  for (uint64_t i = 0; i < 40; ++i) {
    request::GenerationRequest request = make_request(20, 20, i);
    request.tenant = "greedy";
    greedy.push_back(bench.submit(std::move(request)));
  }
  request::GenerationRequest request = make_request(5, 2, 100);
  request.tenant = "modest";
  TokenStream modest = bench.submit(std::move(request));
  EXPECT_EQ(read_all(modest).end.reason, FinishReason::kLength);
  int ended = 0;
  for (TokenStream& stream : greedy) ended += stream.take().end.has_value() ? 1 : 0;
  EXPECT_LE(ended, 3);
}

int64_t scaled(int64_t count) {
  const char* scale = std::getenv("PELTON_PROPERTY_SCALE");
  return scale == nullptr ? count : std::max<int64_t>(1, count * std::atoll(scale));
}

// Readers leave at any moment, in any state; in the end nothing is held that was not before.
TEST_P(EngineDepth, random_cancels_bring_the_ledger_back_to_zero) {
  const uint64_t seed = 20260105;
  uint64_t draw = 0;
  const auto random = [&](int below) {
    return static_cast<int>(base::random_bits(seed, draw++) % static_cast<uint64_t>(below));
  };
  Bench bench({.steps_in_flight_max = GetParam(), .checks_every_step = false});
  std::vector<TokenStream> streams;
  for (int64_t i = 0; i < scaled(50'000); ++i) {
    Result<TokenStream> stream =
        bench.engine().submit(make_request(1 + random(40), 1 + random(60), 1 + draw % 500));
    if (stream.ok()) streams.push_back(std::move(stream).value());
    while (!stream.ok() || streams.size() > 24) {
      const size_t leaving = static_cast<size_t>(random(static_cast<int>(streams.size())));
      if (random(8) == 0) streams[leaving].wait();
      std::swap(streams[leaving], streams.back());
      streams.pop_back();
      if (!stream.ok()) break;
    }
  }
  streams.clear();
  bench.engine().drain(60'000);
  const Ledger ledger = bench.settled_ledger();
  EXPECT_TRUE(ledger.clean());
  for (int group = 0; group < kSmall.groups.size(); ++group) {
    const Ledger::Blocks& blocks = ledger.of(group, kv::kDevice);
    EXPECT_EQ(blocks.free + blocks.kept, kSmall.blocks(group, kv::kDevice));
  }
  EXPECT_EQ(ledger.slots_free, kSmall.sequences_max);
  EXPECT_GT(ledger.integrity_checks, 0);
}

TEST(Engine, the_ledger_tells_what_is_held) {
  Bench bench({.step_ns = 1'000'000});
  TokenStream stream = bench.submit(make_request(20, 100, 1));
  while (stream.wait().tokens.empty()) {
  }
  const Ledger busy = bench.engine().ledger();
  EXPECT_EQ(busy.running, 1);
  EXPECT_EQ(busy.streams, 1);
  EXPECT_GE(busy.of(0, kv::kDevice).held, 5);
  EXPECT_FALSE(busy.clean());
  EXPECT_GT(busy.integrity_checks, 0);
  EXPECT_GT(busy.kv_events, 0);
  stream.cancel();
  EXPECT_TRUE(bench.settled_ledger().clean());
}

TEST(Engine, drain_lets_the_running_ones_end) {
  Bench bench({.step_ns = 200'000});
  TokenStream stream = bench.submit(make_request(10, 30, 1));
  bench.engine().drain(10'000);
  EXPECT_EQ(bench.engine().submit(make_request(1, 1, 1)).error().code, ErrorCode::kUnavailable);
  const TokenStream::Batch all = stream.take();  // everything is there already
  EXPECT_THAT(all.tokens, SizeIs(30));
  EXPECT_TRUE(all.end.has_value());
}

TEST(Engine, drain_gives_up_at_its_limit) {
  Bench bench({.step_ns = 5'000'000});
  TokenStream stream = bench.submit(make_request(10, 110, 1));
  bench.engine().drain(20);
  const TokenStream::Batch all = stream.take();  // told before drain() returned
  ASSERT_TRUE(all.end.has_value());
  EXPECT_LT(all.tokens.size(), 110u);
  EXPECT_EQ(all.end->reason, FinishReason::kError);
  EXPECT_EQ(all.end->error->code, ErrorCode::kUnavailable);
  EXPECT_EQ(bench.engine().submit(make_request(1, 1, 1)).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(bench.settled_ledger().clean());
}

TEST(Engine, idle_costs_nothing) {
  Bench bench({});
  TokenStream stream = bench.submit(make_request(10, 5, 1));
  read_all(stream);
  bench.settle();
  const auto cpu_us = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const int64_t before = cpu_us();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(cpu_us() - before, 5'000);  // 1 %
}

TEST(TokenStream, ready_is_called_once_until_the_next_take) {
  Bench bench({.step_ns = 300'000});
  std::atomic<int> calls{0};
  TokenStream stream = bench.submit(make_request(10, 20, 1));
  stream.on_ready([&] { ++calls; });
  bench.engine().drain(10'000);
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(stream.take().tokens, SizeIs(20));
  EXPECT_TRUE(stream.take().tokens.empty());
}

TEST(TokenStream, ready_is_called_at_once_if_something_is_there) {
  Bench bench({});
  TokenStream stream = bench.submit(make_request(10, 5, 1));
  bench.engine().drain(10'000);
  size_t taken = 0;
  stream.on_ready([&] { taken = stream.take().tokens.size(); });
  EXPECT_EQ(taken, 5u);
}

TEST(TokenStream, a_reader_driven_by_ready_gets_every_token) {
  Bench bench({});
  const request::GenerationRequest request = make_request(20, 60, 5);
  TokenStream stream = bench.submit(request);
  std::mutex mutex;
  std::condition_variable posted;
  int posts = 0;
  stream.on_ready([&] {
    std::lock_guard lock(mutex);
    ++posts;
    posted.notify_one();
  });
  std::vector<TokenId> tokens;
  for (bool ended = false; !ended;) {
    {
      std::unique_lock lock(mutex);
      posted.wait(lock, [&] { return posts > 0; });
      posts = 0;
    }
    const TokenStream::Batch batch = stream.take();
    for (const SampledToken& token : batch.tokens) tokens.push_back(token.token);
    ended = batch.end.has_value();
  }
  EXPECT_EQ(tokens, alone(request));
}

TEST(TokenStream, assigning_another_stream_leaves_the_first) {
  Bench bench({.step_ns = 1'000'000});
  TokenStream stream = bench.submit(make_request(10, 100, 1));
  stream = bench.submit(make_request(10, 3, 2));
  EXPECT_THAT(read_all(stream).tokens, SizeIs(3));
  EXPECT_LT(bench.settle().steps.count, 50);
}

// Counts how often its memory is given back, and what it had in flight then.
class ReleasedExecutor final : public Executor {
 public:
  const ExecutorCapacity& capacity() const override { return inner_.capacity(); }
  void submit(StepPlan plan) override {
    ++in_flight_;
    inner_.submit(std::move(plan));
  }
  StepResult collect() override {
    --in_flight_;
    return inner_.collect();
  }
  int64_t release_kv_memory() override {
    CHECK(in_flight_ == 0);
    ++released;
    return 1;
  }

  std::atomic<int> released = 0;

 private:
  ModelledExecutor inner_{{.capacity = kSmall, .next_token = checksum_tokens(1000)}};
  int in_flight_ = 0;
};

class ReleaseTest : public testing::Test {
 protected:
  Output run(int prompt, int max_new, uint64_t seed) {
    Result<TokenStream> stream = engine_.submit(make_request(prompt, max_new, seed));
    CHECK(stream.ok(), stream.error().message);
    return read_all(*stream);
  }
  void wait_for_releases(int count) {
    for (int tries = 0; tries < 10'000 && engine_.stats().kv_releases < count; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(engine_.stats().kv_releases, count);
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  ReleasedExecutor executor_;
  Engine engine_{{.checks_every_step = true}, executor_, clock_, log_};
};

TEST_F(ReleaseTest, MemoryThatIsGivenBackHoldsNothingAndAnswersStayTheSame) {
  const Output first = run(24, 5, 3);
  EXPECT_GT(run(24, 5, 3).end.cached_tokens, 0);
  const int64_t stored = engine_.ledger().kv_events;
  for (int count = 1; count <= 3; ++count) {
    engine_.release_kv_memory();
    wait_for_releases(count);
    EXPECT_EQ(executor_.released, count);
    const Ledger ledger = engine_.ledger();
    for (const kv::PerGroup<Ledger::Blocks>& tier : ledger.blocks) {
      for (const Ledger::Blocks& blocks : tier) EXPECT_EQ(blocks.free, blocks.total);
    }
    EXPECT_TRUE(ledger.clean());
    EXPECT_GT(ledger.kv_events, stored) << "readers hear that the blocks are gone";
    const Output again = run(24, 5, 3);
    EXPECT_EQ(again.end.cached_tokens, 0);
    EXPECT_EQ(again.tokens, first.tokens);
  }
}

// What runs keeps its blocks, and whoever comes before it is idle keeps all of them.
TEST_F(ReleaseTest, NothingIsGivenBackUnderAnAnswer) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Result<TokenStream> stream = engine_.submit(make_request(20, 60, seed));
    ASSERT_TRUE(stream.ok());
    engine_.release_kv_memory();
    const Output output = read_all(*stream);
    EXPECT_EQ(output.tokens.size(), 60u);
    EXPECT_EQ(output.tokens, run(20, 60, seed).tokens);
  }
}

}  // namespace
}  // namespace pelton::engine
