// Sequences of more adapters than may run at once: who has a place, who is kept waiting, and how
// long.
#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "engine/modelled_executor.h"
#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

class AdapterPlaces : public testing::Test {
 protected:
  static ExecutorCapacity capacity() {
    ExecutorCapacity capacity{.block_tokens = 16,
                              .groups = {{{.name = "full"}, {4096}}},
                              .sequences_max = 8,
                              .batch_tokens_max = 512,
                              .context_tokens_max = 1024};
    capacity.adapters_max = 1;
    return capacity;
  }

  SequenceId submit(int64_t adapter, int output) {
    request::GenerationRequest request;
    request.prompt = {1, 2, 3};
    request.adapter.identity = adapter;
    request.stop.max_new_tokens = output;
    const Result<SequenceId> id = scheduler_.submit(std::move(request));
    CHECK(id.ok());
    adapter_of_[*id] = adapter;
    return *id;
  }

  // What began and what ended in it.
  void step() {
    StepPlan plan = scheduler_.plan(0);
    if (!plan.empty()) {
      executor_.submit(std::move(plan));
      scheduler_.commit(executor_.collect());
    }
    std::vector<Scheduler::Event> events;
    scheduler_.take_events(events);
    for (const Scheduler::Event& event : events) {
      if (event.slot_allocation == Scheduler::Event::SlotAllocation::kScheduled) {
        begun_.push_back(event.id);
        running_.push_back(event.id);
      }
      if (event.end) std::erase(running_, event.id);
    }
    scheduler_.check_integrity();
  }
  bool has_begun(SequenceId id) const { return std::ranges::find(begun_, id) != begun_.end(); }

  Scheduler scheduler_{capacity(), {.prefix_cache = false, .hash_seed = 5}};
  ModelledExecutor executor_{{.capacity = capacity(), .next_token = checksum_tokens(1 << 20)}};
  std::map<SequenceId, int64_t> adapter_of_;
  std::vector<SequenceId> begun_;
  std::vector<SequenceId> running_;
};

// An adapter whose numbers are none is a client's error: nobody blames the model's weights, or
// takes the server out of service.
TEST_F(AdapterPlaces, numbers_that_are_none_are_the_adapters) {
  for (const int64_t adapter : {int64_t{7}, int64_t{0}}) {
    submit(adapter, 4);
    StepPlan plan = scheduler_.plan(0);
    ASSERT_EQ(plan.sequences.size(), 1u);
    executor_.submit(std::move(plan));
    StepResult result = executor_.collect();
    result.sequences[0].tokens = {};
    result.sequences[0].error =
        std::make_unique<Error>(Error{ErrorCode::kBadCheckpoint, "NaN or infinity"});
    scheduler_.commit(std::move(result));
    std::vector<Scheduler::Event> events;
    scheduler_.take_events(events);
    ASSERT_FALSE(events.empty());
    ASSERT_NE(events.back().end, nullptr);
    ASSERT_TRUE(events.back().end->error.has_value());
    EXPECT_EQ(events.back().end->error->code,
              adapter == 0 ? ErrorCode::kBadCheckpoint : ErrorCode::kUnsupported);
    EXPECT_EQ(scheduler_.counters().numerical_errors, adapter == 0 ? 1 : 0);
  }
}

// However many wait for a place, the model's own requests and those of the adapter that runs go on.
TEST_F(AdapterPlaces, those_who_wait_for_one_hold_up_nobody_else) {
  submit(1, 500);
  step();
  std::vector<SequenceId> waiting;
  for (int i = 0; i < 300; ++i) waiting.push_back(submit(2 + i % 50, 4));
  const SequenceId base = submit(0, 4);
  const SequenceId same = submit(1, 4);
  step();
  EXPECT_TRUE(has_begun(base));
  EXPECT_TRUE(has_begun(same));
  for (const SequenceId id : waiting) EXPECT_FALSE(has_begun(id));
}

// Requests of the adapter that runs come all the while; another's has its turn all the same.
TEST_F(AdapterPlaces, who_waits_for_one_is_next_after_a_while) {
  submit(1, 4);
  step();
  const SequenceId other = submit(2, 4);
  int steps = 0;
  for (; steps < 500 && !has_begun(other); ++steps) {
    submit(1, 4);
    step();
  }
  EXPECT_GE(steps, 32);
  EXPECT_LE(steps, 64 + 16);
}

// One that waited for long and was cancelled keeps nobody back.
TEST_F(AdapterPlaces, who_gives_up_is_forgotten) {
  submit(1, 500);
  step();
  const SequenceId other = submit(2, 4);
  for (int i = 0; i < 100; ++i) step();
  const SequenceId kept_back = submit(1, 4);
  step();
  EXPECT_FALSE(has_begun(kept_back));
  scheduler_.cancel(other);
  step();
  EXPECT_TRUE(has_begun(kept_back));
}

TEST_F(AdapterPlaces, never_more_run_than_may_and_all_end) {
  for (int i = 0; i < 200; ++i) submit(i % 7, 1 + i % 5);
  for (int i = 0; i < 2000 && !scheduler_.idle(); ++i) {
    step();
    int64_t active = 0;
    for (const SequenceId id : running_) {
      const int64_t adapter = adapter_of_.at(id);
      if (adapter == 0) continue;
      EXPECT_TRUE(active == 0 || active == adapter);
      active = adapter;
    }
  }
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_EQ(begun_.size(), 200u);
}

}  // namespace
}  // namespace pelton::engine
