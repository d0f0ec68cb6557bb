// pelton bench serve: a load test against any server that speaks OpenAI's API.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "apps/bench_lock.h"
#include "apps/input.h"
#include "apps/load_result.h"
#include "apps/verbs.h"

namespace pelton::apps {
namespace {

Result<void> run_bench_serve(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  const cli::Interrupt interrupt;
  TRY_ASSIGN(const std::vector<report::Condition> conditions, read_conditions(arguments));
  allow_many_connections();
  TRY_ASSIGN(LoadPlan plan, read_load_plan(arguments));
  if (arguments.has("--workload")) TRY(use_workload(arguments.text("--workload"), plan));
  plan.result_file = arguments.text("--result-filename");
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&interrupt));
  TRY(prepare(plan, interrupt, clock));
  TRY_ASSIGN(const LoadTest test, run_load_test(plan, interrupt, clock));
  TRY(write_text(report::result_text(test.info, test.summary, plan.shown) + test.speculation));
  TRY_ASSIGN(const Json json, keep_result(arguments, plan, test));
  TRY(write_report(arguments, "Load test of " + plan.info.model,
                   {report::named_result(json, "this run")}));
  return check_conditions(conditions, json);
}

std::vector<cli::Flag> serve_flags() {
  std::vector<cli::Flag> flags = load_flags();
  // A workload says what is asked, and when.
  std::vector<cli::Flag> said = dataset_flags();
  for (cli::Flag& flag : dataset_time_flags()) said.push_back(std::move(flag));
  const auto is_said = [&](const cli::Flag& flag) {
    constexpr std::string_view kArrivals[] = {
        "--request-rate",    "--burstiness", "--ramp-up-strategy", "--ramp-up-start-rps",
        "--ramp-up-end-rps", "--day-swing",  "--day-period"};
    return std::ranges::find(said, flag.name, &cli::Flag::name) != said.end() ||
           std::ranges::find(kArrivals, flag.name) != std::end(kArrivals);
  };
  for (cli::Flag& flag : flags) {
    if (is_said(flag)) flag.not_with.push_back({"--workload"});
  }
  flags.push_back(text_flag("--workload", "FILE",
                            "what is asked, and when, as plan and simulate read it; or a name, as "
                            "conversation"));
  flags.push_back(text_flag("--result-filename", "FILE", "instead of the name made up"));
  return flags;
}

}  // namespace

cli::Verb bench_serve_verb() {
  return {
      .name = "bench serve",
      .summary = "Measures a running server under load: latencies, throughput, goodput.",
      .about =
          "Flags, printed block and result file are those of vLLM's `bench serve`. Needs no flags\n"
          "but where the server is. $OPENAI_API_KEY is sent as the key. An open loop\n"
          "(--request-rate) asks on schedule however slow the server is; with --max-concurrency\n"
          "alone it is a closed loop: each finished request starts the next. docs/benchmarking.md\n"
          "explains the metrics.",
      .positionals = {},
      .flags = serve_flags(),
      .examples = {"pelton bench serve --base-url http://127.0.0.1:8000 --num-prompts 20 "
                   "--random-output-len 32",
                   "pelton bench serve --backend openai-chat --request-rate 4 --goodput ttft:500 "
                   "tpot:50",
                   "pelton bench serve --max-concurrency 16 --html report.html --fail-if "
                   "'p99_ttft_ms>1000'"},
      .run = run_bench_serve,
  };
}

}  // namespace pelton::apps
