// The core driven by hand: no thread, no clock, a modelled executor.
#include "engine/engine_core.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

#include "engine/modelled_executor.h"

namespace pelton::engine {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

const ExecutorCapacity kSmall{
    .block_tokens = 4,
    .groups = {{{.name = "full"}, {40, 20}}, {{.name = "window", .sliding_window = 8}, {30, 20}}},

    .sequences_max = 6,
    .batch_tokens_max = 16,
    .context_tokens_max = 128};

request::GenerationRequest asked(int prompt_tokens, int output_tokens) {
  request::GenerationRequest request;
  request.id = "r";
  request.prompt.assign(static_cast<size_t>(prompt_tokens), 5);
  request.stop.max_new_tokens = output_tokens;
  return request;
}

// The core, its queue and its executor; steps last as long as asked.
class Driver {
 public:
  explicit Driver(const EngineCore::Options& options)
      : executor_({.capacity = kSmall,
                   .next_token = [](const ModelledExecutor::Seen&) { return TokenId{7}; },
                   .timing = std::nullopt}),
        queue_({.slots = {kSmall.sequences_max, 0}}),
        core_(kSmall, {}, options,
              [this](base::FunctionRef<void(AdmissionQueue&)> use) { use(queue_); }) {}

  void arrive(request::GenerationRequest request, int answers) {
    ASSERT_TRUE(queue_.enter(request, answers, now_ns_).ok());
    const std::vector<void*> readers(static_cast<size_t>(answers), this);
    const auto ids = core_.receive(std::move(request), now_ns_, readers);
    ASSERT_TRUE(ids.ok());
    for (const SequenceId id : *ids) tokens_[id] = 0;
  }

  // One round of the loop, as the header writes it.
  void round() {
    if (std::optional<StepPlan> plan = core_.plan(now_ns_)) executor_.submit(*std::move(plan));
    in_flight_most_ = std::max(in_flight_most_, core_.in_flight());
    take();
    if (core_.awaits_result()) {
      now_ns_ += step_ns_;
      core_.commit(executor_.collect(), now_ns_);
    }
    core_.scheduler().check_integrity();
    take();
  }

  void take() {
    for (Scheduler::Event& event : core_.take_events(now_ns_)) {
      EXPECT_EQ(core_.answer(event.id).reader, this);
      if (event.token) ++tokens_[event.id];
      if (event.end == nullptr) continue;
      const RequestTimes& times = event.end->times;
      if (times.last_token_ns != 0) {
        EXPECT_LE(times.scheduled_ns, times.first_token_ns);
      }
      EXPECT_LE(times.first_token_ns, times.last_token_ns);
      ends_[event.id] = event.end->reason;
      core_.forget(event.id);
    }
  }

  void run_to_end() {
    for (int i = 0; i < 10'000 && !core_.idle(); ++i) round();
    ASSERT_TRUE(core_.idle());
    core_.note_idle(now_ns_);
  }

  int64_t step_ns_ = kMillisecond;
  int64_t now_ns_ = 1;
  int in_flight_most_ = 0;
  std::map<SequenceId, int> tokens_;
  std::map<SequenceId, FinishReason> ends_;
  ModelledExecutor executor_;
  AdmissionQueue queue_;
  EngineCore core_;
};

TEST(EngineCore, PlansAheadWhileStepsAreShort) {
  Driver driver({.steps_in_flight_max = 2, .overlapped_step_ns_max = 20 * kMillisecond});
  driver.arrive(asked(4, 50), 1);
  driver.run_to_end();
  EXPECT_EQ(driver.in_flight_most_, 2);
}

TEST(EngineCore, PlansOneStepWhereStepsAreLong) {
  Driver driver({.overlapped_step_ns_max = 20 * kMillisecond, .step_ns = 100 * kMillisecond});
  driver.step_ns_ = 100 * kMillisecond;
  driver.arrive(asked(4, 50), 1);
  driver.run_to_end();
  EXPECT_EQ(driver.in_flight_most_, 1);
  EXPECT_EQ(driver.core_.counts().count, 50);
}

TEST(EngineCore, ACancelledAnswerEndsWithoutWaitingForItsStep) {
  Driver driver({});
  driver.arrive(asked(4, 100), 1);
  for (int i = 0; i < 5; ++i) driver.round();
  const SequenceId id = driver.tokens_.begin()->first;
  driver.core_.cancel(id);
  driver.take();
  EXPECT_EQ(driver.ends_.at(id), FinishReason::kCancelled);
  driver.run_to_end();
}

// Whatever comes and goes: every answer ends once, what is counted is what was emitted, and the
// admission queue is left as it was.
TEST(EngineCore, EveryAnswerEndsAndTheQueueIsLeftEmpty) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int limit) {
      return static_cast<int>(random() % static_cast<uint32_t>(limit));
    };
    Driver driver({.steps_in_flight_max = 1 + below(2)});
    for (int i = 0; i < 200; ++i) {
      driver.step_ns_ = (1 + below(40)) * kMillisecond;
      if (below(5) == 0) driver.arrive(asked(1 + below(40), 1 + below(30)), 1 + below(3));
      if (below(10) == 0 && !driver.core_.answers().empty()) {
        driver.core_.cancel(driver.core_.answers().begin()->first);
      }
      driver.round();
    }
    driver.run_to_end();
    int64_t emitted = 0;
    for (const auto& [id, count] : driver.tokens_) emitted += count;
    EXPECT_EQ(driver.ends_.size(), driver.tokens_.size());
    EXPECT_EQ(driver.core_.counts().output_tokens, emitted);
    EXPECT_TRUE(driver.core_.answers().empty());
    EXPECT_EQ(driver.queue_.requests(), 0);
    EXPECT_EQ(driver.queue_.tokens(), 0);
  }
}

}  // namespace
}  // namespace pelton::engine
