// Is what the load generator says true? The real server behind real HTTP, with a modelled executor
// that keeps a log of when each step ended and whose tokens it made: what the generator reports is
// compared with what the log comes to.
#include <cmath>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "bench/load_generator.h"
#include "bench/probe.h"
#include "report/percentile.h"
#include "report/summary.h"
#include "server/server_fixture.h"
#include "workload/arrivals.h"

namespace pelton {
namespace {

using report::Metric;

constexpr int64_t kStepNs = 8'000'000;
constexpr int kAnswerTokens = 6;    // of a plain completion
constexpr double kRate = 5;         // busy for less than 30 % of the time
constexpr double kShareMax = 0.01;  // of a value, how far off it may be
constexpr double kMsMax = 1;        // or this
constexpr int kAttempts = 5;        // this machine may be busy with other things meanwhile

// A chat answer has headers, which are tokens that no piece shows.
constexpr std::string_view kScript = R"({"context": 4096, "rules": [{"when": "", "then": [
  "<|channel|>analysis<|message|>Hm.", "<|end|><|start|>assistant<|channel|>final<|message|>",
  {"text": " so", "times": 4}]}]})";

// When each request's tokens were made; requests are distinguished by the length of their prompts.
class ExecutorLog {
 public:
  int64_t planned(const engine::StepPlan& plan) {
    std::lock_guard lock(mutex_);
    Step step;
    for (const engine::ScheduledRow& row : plan.sequences) {
      if (const engine::Arrival* arrival = plan.arrival_of(row)) {
        prompt_in_seat_[row.slot] = arrival->prompt_count;
      }
      if (row.sample) step.prompts.push_back(prompt_in_seat_[row.slot]);
    }
    busy_until_ns_ = std::max(busy_until_ns_, clock_.now_ns()) + kStepNs;
    step.ready_ns = busy_until_ns_;
    steps_.push_back(std::move(step));
    return kStepNs;
  }
  void pass(int64_t ns) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    const int64_t now = clock_.now_ns();
    std::lock_guard lock(mutex_);
    // A step whose end had come before anybody waited ended when it was due.
    while (!steps_.empty() && steps_.front().ready_ns <= now) {
      const bool last = steps_.size() == 1 || steps_[1].ready_ns > now;
      for (const int prompt : steps_.front().prompts) {
        made_ns_[prompt].push_back(last ? now : steps_.front().ready_ns);
      }
      steps_.pop_front();
    }
  }
  std::map<int, std::vector<int64_t>> made_ns() const {
    std::lock_guard lock(mutex_);
    return made_ns_;
  }

 private:
  struct Step {
    int64_t ready_ns = 0;
    std::vector<int> prompts;
  };
  const base::SystemClock clock_{};
  mutable std::mutex mutex_;
  int64_t busy_until_ns_ = 0;
  std::map<int, int> prompt_in_seat_;
  std::deque<Step> steps_;
  std::map<int, std::vector<int64_t>> made_ns_;
};

// What the generator should have said: each request from the moment it was due, by the log.
report::Summary truth_of(const bench::LoadOutcome& outcome, const ExecutorLog& log) {
  std::vector<report::RequestRecord> records;
  const std::map<int, std::vector<int64_t>> made = log.made_ns();
  int64_t end_ns = 0;
  for (const report::RequestRecord& seen : outcome.records) {
    report::RequestRecord record;
    record.due_ns = record.start_ns = seen.due_ns;
    record.ok = true;
    record.input_tokens = seen.input_tokens;
    record.tokens_told = true;
    const auto found = made.find(static_cast<int>(seen.input_tokens));
    EXPECT_NE(found, made.end()) << "no prompt of " << seen.input_tokens << " tokens was computed";
    if (found == made.end()) continue;
    for (const int64_t at : found->second) record.pieces.push_back({at - outcome.origin_ns, 1});
    // Planned while the step before sampled the stop token: made, and nobody's.
    const auto wanted = static_cast<size_t>(seen.output_tokens);
    EXPECT_LE(record.pieces.size() - wanted, 1u);
    record.pieces.resize(std::min(record.pieces.size(), wanted));
    record.output_tokens = static_cast<int64_t>(record.pieces.size());
    record.end_ns = record.pieces.back().at_ns;
    end_ns = std::max(end_ns, record.end_ns);
    records.push_back(std::move(record));
  }
  return report::summarize(records, static_cast<double>(end_ns) * 1e-9, {});
}

// What differs by more than it may, in words.
std::string differences(const report::Summary& said, const report::Summary& truth,
                        const std::vector<double>& percents) {
  std::string words;
  const auto compare = [&](const std::string& what, double a, double b, double slack) {
    if (std::abs(a - b) <= std::max(kShareMax * std::abs(b), slack)) return;
    words += what + ": said " + std::to_string(a) + ", is " + std::to_string(b) + "\n";
  };
  compare("duration", said.duration_s, truth.duration_s, kMsMax * 1e-3);
  compare("requests/s", said.requests_per_s, truth.requests_per_s, 0);
  compare("output tokens/s", said.output_tokens_per_s, truth.output_tokens_per_s, 0);
  compare("all tokens/s", said.total_tokens_per_s, truth.total_tokens_per_s, 0);
  for (const Metric metric : {Metric::kTtft, Metric::kTpot, Metric::kItl, Metric::kE2el,
                              Metric::kE2elQueued, Metric::kTtftQueued}) {
    const std::string name(report::info(metric).key);
    const std::vector<double>& a = said.values_ms.at(metric);
    const std::vector<double>& b = truth.values_ms.at(metric);
    EXPECT_EQ(a.size(), b.size()) << name;
    compare("mean " + name, report::mean(a), report::mean(b), kMsMax);
    for (const double percent : percents) {
      compare("p" + report::percent_word(percent) + " " + name, report::percentile(a, percent),
              report::percentile(b, percent), kMsMax);
    }
  }
  return words;
}

struct Run {
  report::Summary said;
  report::Summary truth;
};

Run run_once(const std::string& backend, int requests, uint64_t seed) {
  ExecutorLog log;
  const base::SystemClock clock;
  server::ServerFixture::Options options;
  options.executor = [&](engine::ModelledExecutor::Options& executor) {
    executor.timing = {.clock = &clock,
                       .step_ns = [&](const engine::StepPlan& plan) { return log.planned(plan); },
                       .pass = [&](int64_t ns) { log.pass(ns); }};
  };
  // A prompt that begins like another would be found in part, and not be computed whole.
  options.engine.prefix_cache = false;
  server::ServerFixture fixture(kScript, std::move(options));
  const auto target =
      bench::make_target({.backend = backend,
                          .base_url = "http://127.0.0.1:" + std::to_string(fixture.http().port()),
                          .endpoint = {},
                          .model = "tiny",
                          .headers = {}});
  std::vector<workload::Conversation> asked(static_cast<size_t>(requests));
  std::string prompt = "go";
  for (workload::Conversation& one : asked) {
    prompt += " on";
    one.turns.push_back({.prompt = prompt,
                         .ids = {},
                         .output_tokens = backend == "openai" ? kAnswerTokens : 100,
                         .messages_json = {}});
  }
  bench::QuestionOptions question;
  question.ignore_eos = backend == "openai";
  const std::atomic<bool> stop{false};
  const auto counts = bench::probe(*target, question,
                                   {.turns = {{.prompt = "probe it, with a "
                                                         "prompt of its own "
                                                         "length, and more"}},
                                    .at_s = {},
                                    .system = {}},
                                   clock, {.stop = stop});
  EXPECT_TRUE(counts.ok() && counts->counts == bench::Counts::kEachPiece);
  bench::LoadGenerator generator(*target, question, {}, clock);
  const auto at_s =
      workload::arrival_times({.rate = kRate, .burstiness = 4, .seed = seed}, requests);
  const bench::LoadOutcome outcome = generator.run(asked, *at_s, stop);
  EXPECT_EQ(outcome.records.size(), asked.size());
  for (const report::RequestRecord& record : outcome.records) {
    EXPECT_TRUE(record.ok) << record.error;
    EXPECT_TRUE(record.tokens_told);
  }
  return {.said = report::summarize(outcome.records, outcome.duration_s, {}),
          .truth = truth_of(outcome, log)};
}

void check(const std::string& backend) {
  const bool full = std::getenv("PELTON_FULL") != nullptr;
  const int requests = full ? 100 : 15;
  // A single late wake-up of this machine is the 99th percentile of a short run.
  const std::vector<double> percents =
      full ? std::vector<double>{50, 90, 99} : std::vector<double>{50};
  std::string words;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Run run = run_once(backend, requests, static_cast<uint64_t>(attempt));
    ASSERT_EQ(run.said.output_tokens, run.truth.output_tokens);
    words = differences(run.said, run.truth, percents);
    if (words.empty()) return;
    std::fprintf(stderr, "attempt %d:\n%s", attempt, words.c_str());
  }
  FAIL() << words;
}

TEST(BenchAccuracy, Completions) {
  check("openai");
}
TEST(BenchAccuracy, ChatWithReasoningAndHeaders) {
  check("openai-chat");
}

}  // namespace
}  // namespace pelton
