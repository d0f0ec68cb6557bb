#include "apps/load_test.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "apps/load_view.h"
#include "base/terminal_text.h"
#include "bench/expected_duration.h"
#include "bench/probe.h"
#include "bench/speculation_counts.h"
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

// None where the server does not say, or does not speculate.
std::optional<bench::SpeculationCounts> speculation_of(const LoadPlan& plan,
                                                       const cli::Interrupt& interrupt) {
  const SignalledStop stop(interrupt);
  return bench::parse_speculation(bench::metrics_page(
      plan.target, {.quiet_time_max = plan.load.quiet_time_max, .stop = stop.flag()}));
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

// Said where the test is long.
void print_duration(const LoadPlan& plan, const std::vector<double>& at_s) {
  constexpr double kWorthSaying = 20;
  const bench::Probed& probed = plan.probed;
  const bench::ExpectedDuration expected =
      bench::expected_duration(plan.target, plan.question, plan.conversations, at_s, probed);
  if (std::max(expected.one_by_one_s, expected.least_s) < kWorthSaying) return;
  const std::string least = expected.least_s > 0
                                ? fmt::format(", and at least {} as they come and pause",
                                              cli::format_duration(expected.least_s))
                                : "";
  const std::string text = fmt::format(
      "{} requests: a first one took {} to its first token and {:.2g} ms a token, so all of "
      "them one after the other would take {}; less as far as the server batches{}. Ctrl-C ends it "
      "early and reports what there is; --num-prompts asks for fewer.",
      expected.requests, cli::format_duration(probed.first_token_s), probed.token_s * 1e3,
      cli::format_duration(expected.one_by_one_s), least);
  fmt::print(stderr, "{}", base::wrapped_text(text, cli::Terminal(stderr).text_width(0), 0));
}

}  // namespace

Result<void> prepare(LoadPlan& plan, const cli::Interrupt& interrupt, const base::Clock& clock) {
  const SignalledStop stop(interrupt);
  const bench::Patience patience{
      .quiet_time_max = plan.load.quiet_time_max,
      .ready_until_ns = clock.now_ns() + static_cast<int64_t>(plan.ready_s * 1e9),
      .stop = stop.flag()};
  if (plan.target.model.empty()) {
    TRY_ASSIGN(plan.target.model, bench::first_model(plan.target, clock, patience));
  }
  if (plan.info.model.empty()) plan.info.model = plan.target.model;
  if (plan.info.tokenizer.empty()) plan.info.tokenizer = plan.info.model;
  TRY_ASSIGN(plan.probed,
             bench::probe(plan.target, plan.question, plan.conversations.front(), clock, patience));
  plan.question.counts = plan.probed.counts;
  return {};
}

Result<LoadTest> run_load_test(const LoadPlan& plan, const cli::Interrupt& interrupt,
                               const base::Clock& clock) {
  TRY_ASSIGN(const std::vector<double> at_s, times_of(plan));
  print_duration(plan, at_s);
  TRY(warm_up(plan, interrupt, clock));
  LoadTest test{.info = plan.info, .summary = {}, .outcome = {}};
  const auto before = speculation_of(plan, interrupt);
  test.outcome = run_generator(plan, plan.conversations, at_s, interrupt, clock);
  if (test.outcome.records.empty()) return Error{ErrorCode::kCancelled, "interrupted", {}};
  const auto after = before ? speculation_of(plan, interrupt) : std::nullopt;
  if (after) test.speculation = bench::speculation_text(after->since(*before));
  if (test.outcome.interrupted > 0) {
    fmt::print(stderr, "interrupted: {} requests were not waited for\n", test.outcome.interrupted);
  }
  test.info.generator = test.outcome.watch;
  test.info.begun_ns = test.outcome.origin_ns;
  test.summary = report::summarize(test.outcome.records, test.outcome.duration_s, plan.objectives);
  return test;
}

}  // namespace pelton::apps
