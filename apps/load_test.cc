#include "apps/load_test.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "apps/load_view.h"
#include "base/terminal_text.h"
#include "cli/human_size.h"
#include "cli/terminal.h"

namespace pelton::apps {
namespace {

// A pending interrupt as a flag that other rooms understand.
class SignalledStop {
 public:
  explicit SignalledStop(const cli::Interrupt& interrupt)
      : listener_([this, &interrupt] {
          while (!done_) {
            if (interrupt.pending()) stop_ = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }) {}
  ~SignalledStop() {
    done_ = true;
    listener_.join();
  }
  SignalledStop(const SignalledStop&) = delete;
  SignalledStop& operator=(const SignalledStop&) = delete;

  const std::atomic<bool>& flag() const { return stop_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::thread listener_;  // last: it touches both
};

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

// What the load would take without any batching, from one short answer: said where that is long.
std::string duration_estimate(const LoadPlan& plan, const bench::Probed& probed) {
  constexpr double kWorthSaying = 20;
  double seconds = 0;
  double requests = 0;
  for (const workload::Conversation& one : plan.conversations) {
    for (const workload::Turn& turn : one.turns) {
      ++requests;
      seconds += probed.first_token_s + std::max(turn.output_tokens, 1) * probed.token_s;
    }
  }
  const double scheduled =
      std::isfinite(plan.arrivals.rate) && !plan.arrivals.ramp ? requests / plan.arrivals.rate : 0;
  if (std::max(seconds, scheduled) < kWorthSaying) return {};
  return fmt::format(
      "{:.0f} requests: a first one took {} to its first token and {:.2g} ms a token, so all of "
      "them one after the other would take {}; less as far as the server batches{}. Ctrl-C ends it "
      "early and reports what there is; --num-prompts asks for fewer.",
      requests, cli::format_duration(probed.first_token_s), probed.token_s * 1e3,
      cli::format_duration(seconds),
      scheduled > 0 ? fmt::format(", and at least {} at this rate", cli::format_duration(scheduled))
                    : "");
}

}  // namespace

Result<void> prepare(LoadPlan& plan, const cli::Interrupt& interrupt, const base::Clock& clock) {
  const SignalledStop stop(interrupt);
  const bench::Patience patience{.time_max = plan.load.quiet_time_max, .stop = stop.flag()};
  if (plan.target.model.empty()) {
    TRY_ASSIGN(plan.target.model, bench::first_model(plan.target, patience));
  }
  if (plan.info.model.empty()) plan.info.model = plan.target.model;
  if (plan.info.tokenizer.empty()) plan.info.tokenizer = plan.info.model;
  TRY_ASSIGN(const bench::Probed probed,
             bench::probe(plan.target, plan.question, plan.conversations.front(),
                          {.ready_s = plan.ready_s}, clock, patience));
  plan.question.counts = probed.counts;
  if (const std::string estimate = duration_estimate(plan, probed); !estimate.empty()) {
    fmt::print(stderr, "{}", base::wrapped_text(estimate, cli::Terminal(stderr).text_width(0), 0));
  }
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
