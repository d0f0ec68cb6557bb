#include "apps/load_test.h"

#include <thread>

#include <fmt/format.h>

#include "apps/load_view.h"

namespace pelton::apps {
namespace {

bench::LoadOutcome run_generator(const LoadPlan& plan,
                                 const std::vector<workload::Conversation>& conversations,
                                 const std::vector<double>& at_s, const cli::Interrupt& interrupt,
                                 const base::Clock& clock) {
  std::atomic<bool> stop{false};
  bench::LoadGenerator generator(plan.target, plan.question, plan.load, clock);
  const LoadView view(generator, interrupt, stop, clock, plan.progress);
  return generator.run(conversations, at_s, stop);
}

// The first questions once before they count, as fast as concurrency allows.
Result<void> warm_up(const LoadPlan& plan, const cli::Interrupt& interrupt,
                     const base::Clock& clock) {
  if (plan.warmups == 0) return {};
  std::vector<workload::Conversation> asked;
  for (int i = 0; i < plan.warmups; ++i) {
    asked.push_back(plan.conversations[static_cast<size_t>(i) % plan.conversations.size()]);
  }
  const bench::LoadOutcome outcome =
      run_generator(plan, asked, std::vector<double>(asked.size(), 0.0), interrupt, clock);
  for (const report::RequestRecord& record : outcome.records) {
    if (record.ok) continue;
    return Error{ErrorCode::kUnavailable, "a warm-up request failed: " + record.error, {}};
  }
  return {};
}

// A trace says itself when its requests came.
Result<std::vector<double>> times_of(const LoadPlan& plan) {
  if (!plan.conversations.front().at_s) {
    return workload::arrival_times(plan.arrivals, static_cast<int64_t>(plan.conversations.size()));
  }
  std::vector<double> times;
  for (const workload::Conversation& one : plan.conversations) {
    times.push_back(one.at_s.value_or(0));
  }
  return times;
}

}  // namespace

Result<void> prepare(LoadPlan& plan, const cli::Interrupt& interrupt, const base::Clock& clock) {
  std::atomic<bool> stop{false};
  std::atomic<bool> done{false};
  std::thread listener([&] {
    while (!done) {
      if (interrupt.pending()) stop = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  const Result<bench::Counts> counts =
      bench::probe(plan.target, plan.question, plan.conversations.front(),
                   {.ready_s = plan.ready_s}, clock, stop);
  done = true;
  listener.join();
  if (!counts) return counts.error();
  plan.question.counts = *counts;
  return {};
}

Result<LoadTest> run_load_test(const LoadPlan& plan, const cli::Interrupt& interrupt,
                               const base::Clock& clock) {
  TRY_ASSIGN(const std::vector<double> at_s, times_of(plan));
  TRY(warm_up(plan, interrupt, clock));
  LoadTest test{.info = plan.info, .summary = {}, .outcome = {}};
  test.outcome = run_generator(plan, plan.conversations, at_s, interrupt, clock);
  if (test.outcome.records.empty()) return Error{ErrorCode::kCancelled, "interrupted", {}};
  if (test.outcome.interrupted > 0) {
    fmt::print(stderr, "interrupted: {} requests were not waited for\n", test.outcome.interrupted);
  }
  test.info.generator = test.outcome.watch;
  test.info.begun_ns = test.outcome.origin_ns;
  test.summary = report::summarize(test.outcome.records, test.outcome.duration_s, plan.objectives);
  return test;
}

}  // namespace pelton::apps
