// pelton bench sweep: one load test after another, at rising concurrency or rate.
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "apps/bench_lock.h"
#include "apps/input.h"
#include "apps/load_result.h"
#include "apps/verbs.h"
#include "report/percentile.h"

namespace pelton::apps {
namespace {

using cli::Flag;

struct Point {
  std::optional<int> concurrency;
  std::optional<double> rate;

  std::string name() const {
    return concurrency ? fmt::format("{} at once", *concurrency) : fmt::format("{:g}/s", *rate);
  }
};

Result<std::vector<double>> parse_numbers(const std::string& text, const std::string& field) {
  std::vector<double> numbers;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    double number = 0;
    const auto [end, failure] = std::from_chars(text.data() + at, text.data() + comma, number);
    if (failure != std::errc{} || end != text.data() + comma || !(number > 0) || number > 1e6) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--{} wants numbers above 0, as 1,2,4; not '{}'", field, text),
                   field};
    }
    numbers.push_back(number);
    at = comma + 1;
  }
  return numbers;
}

Result<std::vector<Point>> read_points(const cli::Arguments& arguments) {
  std::vector<Point> points;
  if (arguments.has("--rates")) {
    TRY_ASSIGN(const std::vector<double> rates, parse_numbers(arguments.text("--rates"), "rates"));
    for (const double rate : rates) points.push_back({.concurrency = {}, .rate = rate});
    return points;
  }
  TRY_ASSIGN(const std::vector<double> counts,
             parse_numbers(arguments.text("--concurrencies"), "concurrencies"));
  for (const double count : counts) {
    points.push_back({.concurrency = static_cast<int>(std::ceil(count)), .rate = {}});
  }
  return points;
}

// A small load needs fewer requests to be known than a large one, and takes longer for each.
size_t requests_at(const Point& point, const cli::Arguments& arguments, size_t most) {
  const double load = point.concurrency ? *point.concurrency : *point.rate;
  const double wanted = load * static_cast<double>(arguments.integer("--requests-per-unit"));
  return std::clamp<size_t>(static_cast<size_t>(wanted), 1, most);
}

std::string header() {
  return fmt::format("{:<10} {:>6} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}\n", "load", "failed",
                     "req/s", "tok/s", "per user", "TTFT P50", "TTFT P99", "TPOT P50", "goodput");
}

std::string row(const Point& point, const LoadTest& test) {
  const report::Summary& summary = test.summary;
  const auto ms = [&](report::Metric metric, double percent) {
    const auto found = summary.values_ms.find(metric);
    if (found == summary.values_ms.end()) return std::string("-");
    return fmt::format("{:.2f}", report::percentile(found->second, percent));
  };
  return fmt::format(
      "{:<10} {:>6} {:>7.2f} {:>8.1f} {:>8.1f} {:>8} {:>8} {:>8} {:>7}\n", point.name(),
      summary.failed, summary.requests_per_s, summary.output_tokens_per_s,
      report::tokens_per_s_per_user(summary), ms(report::Metric::kTtft, 50),
      ms(report::Metric::kTtft, 99), ms(report::Metric::kTpot, 50),
      summary.good_requests_per_s ? fmt::format("{:.2f}", *summary.good_requests_per_s) : "-");
}

// The first points' prompts are not the next ones': a prefix cache would answer those.
void take_prompts(const std::vector<workload::Conversation>& all, size_t count, size_t& next,
                  LoadPlan& plan) {
  plan.conversations.clear();
  for (size_t i = 0; i < count; ++i) {
    plan.conversations.push_back(all[next]);
    next = (next + 1) % all.size();
  }
  plan.info.num_prompts = static_cast<int64_t>(count);
}

Result<void> run_bench_sweep(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  const cli::Interrupt interrupt;
  TRY_ASSIGN(const std::vector<report::Condition> conditions, read_conditions(arguments));
  TRY_ASSIGN(const std::vector<Point> points, read_points(arguments));
  allow_many_connections();
  TRY_ASSIGN(LoadPlan plan, read_load_plan(arguments));
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&interrupt));
  TRY(prepare(plan, interrupt, clock));
  const std::vector<workload::Conversation> prompts = std::move(plan.conversations);
  std::vector<report::NamedResult> results;
  TRY(write_text(header()));
  size_t next = 0;
  for (const Point& point : points) {
    if (interrupt.pending()) return Error{ErrorCode::kCancelled, "interrupted", {}};
    take_prompts(prompts, requests_at(point, arguments, prompts.size()), next, plan);
    if (point.concurrency)
      plan.load.max_concurrency = plan.info.max_concurrency = point.concurrency;
    if (point.rate) plan.arrivals.rate = plan.info.request_rate = *point.rate;
    TRY_ASSIGN(const LoadTest test, run_load_test(plan, interrupt, clock));
    TRY(write_text(row(point, test)));
    if (!test.info.generator.limit.empty()) {
      fmt::print(stderr, "{}: {}\n", point.name(), test.info.generator.limit);
    }
    TRY_ASSIGN(Json json, keep_result(arguments, plan, test));
    results.push_back(report::named_result(std::move(json), point.name()));
  }
  TRY(write_report(arguments, "Load sweep of " + plan.info.model, results));
  for (const report::NamedResult& result : results) {
    TRY(check_conditions(conditions, result.json));
  }
  return {};
}

std::vector<Flag> sweep_flags() {
  std::vector<Flag> flags = {
      text_flag("--concurrencies", "LIST", "requests at once, one test each", "1,2,4,8,16,32"),
      text_flag("--rates", "LIST", "requests per second instead, one test each"),
      count_flag("--requests-per-unit", "N", "requests of a test, times its load", "10", 1, 1e5)};
  flags[0].not_with = {{"--rates"}};
  for (Flag& flag : load_flags()) {
    if (flag.name == "--max-concurrency") flag.only_with = {{"--rates"}};
    flags.push_back(std::move(flag));
  }
  return flags;
}

}  // namespace

cli::Verb bench_sweep_verb() {
  return {
      .name = "bench sweep",
      .summary = "Load tests at rising concurrency or rate, in one table and one report.",
      .about =
          "Each test takes --requests-per-unit times its load from the --num-prompts prompts, "
          "which\n"
          "are sent once before any comes again. The report draws throughput against concurrency "
          "and\n"
          "the Pareto front of tokens/s a user and tokens/s in all.",
      .positionals = {},
      .flags = sweep_flags(),
      .examples = {"pelton bench sweep --base-url http://127.0.0.1:8000 --concurrencies 1,4,16 "
                   "--html sweep.html",
                   "pelton bench sweep --rates 1,2,4,8 --goodput ttft:500 --save-result"},
      .run = run_bench_sweep,
  };
}

}  // namespace pelton::apps
